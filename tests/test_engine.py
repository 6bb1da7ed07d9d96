"""The one trainer: equal runs, exact resume, and nothing lost to a kill, a full disk or a loss that is not finite."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import random as chance
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

from instant import random, recipes
from instant.algorithms import METHODS
from instant.backbones.base import DropPath
from instant.cli import main
from instant.config import Recipe
from instant.data.feed import METHOD, SECOND, WEAK
from instant.data.sources import arrays, load
from instant.data.split import Oracle, Split, make_split
from instant.engine.build import build_program, split_for
from instant.engine.evaluate import evaluate_run
from instant.engine.fit import Callback, Interrupted, Trained, fit
from instant.errors import InputError
from instant.progress import ProgressBar, describe
from instant.run import CHECKPOINT, FILES, Run

DIGITS = load("digits")
TINY = {"steps": "24", "batch": "8", "ratio": "2", "log_every": "5", "evaluate_every": "10", "checkpoint_every": "6"}


def small(method: str = "instant", **settings: str) -> tuple[Recipe, Split]:
    """A second of digits."""
    recipe = recipes.digits(labels=10, method=method).override(TINY | settings)
    return recipe, split_for(recipe, DIGITS)


def points(method: str = "instant", **settings: str) -> tuple[Recipe, Split]:
    """A tenth of a second of vectors."""
    y = np.arange(150) % 3
    x = np.random.default_rng(0).normal(size=(150, 5)) + 2 * y[:, None]
    recipe = recipes.vectors(labels=6, method=method).override(TINY | {"backbone.width": "16"} | settings)
    return recipe, split_for(recipe, arrays(x[:120], y[:120], x[120:], y[120:]))


class StopAt(Callback):
    """Ctrl-C while a step is running."""

    def __init__(self, *steps: int) -> None:
        self.steps = steps

    def step(self, step: int) -> None:
        if step in self.steps:
            signal.raise_signal(signal.SIGINT)


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def curves(run: Run) -> list[dict[str, Any]]:
    """The records of a run without what a clock says."""
    records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if "seconds" not in key} for record in records]


def assert_same_run(found: Run, expected: Run) -> None:
    """Weights, averages, method state, optimizer state, meter and clock; the shared model; the curves."""
    tensors, step, _ = found.load_checkpoint()  # type: ignore[misc]
    wanted, last, _ = expected.load_checkpoint()  # type: ignore[misc]
    assert step == last
    assert_equal(tensors, wanted)
    assert model_bytes(found) == model_bytes(expected)
    assert curves(found) == curves(expected)


def model_bytes(run: Run) -> bytes:
    return (run.path / "model.safetensors").read_bytes()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- one seed, one result -------------------------------------------------------------------------------------


def test_two_runs_with_one_seed_are_equal_and_another_seed_is_another_run() -> None:
    one, again, other = (fit(*small(seed=seed)) for seed in ("1", "1", "2"))
    assert_equal(one.learner.state_dict(), again.learner.state_dict())
    assert not torch.equal(one.learner.model.head.weight, other.learner.model.head.weight)  # type: ignore[union-attr]


def test_the_global_generator_is_neither_read_nor_moved() -> None:
    torch.manual_seed(1)
    one = fit(*points())
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after)
    assert_equal(fit(*points()).learner.state_dict(), one.learner.state_dict())


def test_drop_path_draws_from_other_streams_than_the_feed() -> None:
    program = build_program(*small(backbone="vit_micro_4_16"))
    step = random.fold(program.feed.key, 5)
    taken = [random.fold(step, stream).tolist() for stream in (WEAK, SECOND, METHOD)]
    drops = [module for module in program.learner.model.modules() if isinstance(module, DropPath)]
    assert len(drops) == 8
    assert not [drop for drop in drops if random.fold(random.fold(drop.key, 5), drop.stream).tolist() in taken]


# --- exact resume ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Uninterrupted runs of digits: of a method with its own network, and of one with a state for every sample."""
    found = {}
    for method in ("instant", "flexmatch"):
        found[method] = Run(tmp_path_factory.mktemp("whole") / method)
        fit(*small(method), run=found[method])
    return found


@pytest.mark.parametrize("stops", [(1,), (6,), (7,), (10,), (23,), (2, 3, 15)])
@pytest.mark.parametrize("method", ["instant", "flexmatch"])
def test_a_run_stopped_anywhere_and_resumed_is_the_uninterrupted_one(
    method: str, stops: tuple[int, ...], whole: dict[str, Run], tmp_path: Path
) -> None:
    recipe, split = small(method)
    run = Run(tmp_path / "run")
    for number, stop in enumerate(stops):
        with pytest.raises(Interrupted) as stopped:
            fit(recipe, split, run=run, resume=number > 0, callbacks=[StopAt(stop)])
        assert stopped.value.step == stop
        assert not run.finished
    fit(run.recipe(), split, run=run, resume=True)
    assert_same_run(run, whole[method])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_resumes_exactly(method: str, tmp_path: Path) -> None:
    recipe, split = points(method)
    straight, broken = Run(tmp_path / "straight"), Run(tmp_path / "broken")
    fit(recipe, split, run=straight)
    with pytest.raises(Interrupted):
        fit(recipe, split, run=broken, callbacks=[StopAt(8)])
    fit(recipe, split, run=broken, resume=True)
    assert_same_run(broken, straight)


def test_drop_path_and_adamw_resume_exactly(tmp_path: Path) -> None:
    vit = {"backbone": "vit_micro_4_16", "optim.name": "adamw", "optim.lr": "1e-3", "steps": "6"}
    recipe, split = small("fixmatch", **vit)
    straight, broken = Run(tmp_path / "straight"), Run(tmp_path / "broken")
    fit(recipe, split, run=straight)
    with pytest.raises(Interrupted):
        fit(recipe, split, run=broken, callbacks=[StopAt(4)])
    fit(recipe, split, run=broken, resume=True)
    assert_same_run(broken, straight)


def test_ctrl_c_on_the_last_step_finishes_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    fit(*points(), run=run, callbacks=[StopAt(24)])
    assert run.finished


def test_ctrl_c_without_a_folder_stops_too() -> None:
    with pytest.raises(Interrupted) as stopped:
        fit(*points(), callbacks=[StopAt(3)])
    assert stopped.value.run is None


def test_resume_without_a_checkpoint_starts_anew(tmp_path: Path) -> None:
    recipe, split = points()
    straight, run = Run(tmp_path / "straight"), Run(tmp_path / "run")
    fit(recipe, split, run=straight)
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(11)])
    (run.path / CHECKPOINT).unlink()  # as after a kill before the first one; the curves have two lines already
    assert len(run.history()) == 2
    (run.path / "checkpoint" / ".state.safetensors.0123.tmp").write_bytes(b"what a kill in the midst of writing leaves")
    fit(recipe, split, run=run, resume=True)
    assert_same_run(run, straight)
    assert contents(run.path).keys() == contents(straight.path).keys()


def test_a_cut_last_line_is_left_out_and_written_again(tmp_path: Path) -> None:
    recipe, split = points()
    straight, run = Run(tmp_path / "straight"), Run(tmp_path / "run")
    fit(recipe, split, run=straight)
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(8)])
    with open(run.path / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 10, "loss": 0.3, "na\xff')
    assert [record["step"] for record in run.history()] == [5]
    fit(recipe, split, run=run, resume=True)
    assert_same_run(run, straight)


def test_seconds_go_on_where_the_run_stopped(tmp_path: Path) -> None:
    recipe, split = points()
    run = Run(tmp_path / "run")
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(12)])
    tensors, step, _ = run.load_checkpoint()  # type: ignore[misc]
    run.save_checkpoint(tensors, step=step, seconds=2.0)
    summary = fit(recipe, split, run=run, resume=True).summary
    assert summary["seconds"] > 2
    judging = sum(record.get("seconds_evaluating", 0) for record in run.history())
    assert judging > 0
    assert summary["steps_per_second"] == pytest.approx(24 / (summary["seconds"] - judging))


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path: Path) -> None:
    recipe, split = points()
    run = Run(tmp_path / "run")
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(8)])
    wider = recipe.override({"backbone.width": "32"})
    with pytest.raises(InputError, match=r"does not fit its recipe .* Train again with --force"):
        fit(wider, split, run=run, resume=True)


# --- killed, interrupted, out of space: real processes --------------------------------------------------------

COMMAND = [sys.executable, "-m", "instant", "train", "digits", "labels=10", "batch=8", "ratio=2", "log_every=5"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *words], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


@pytest.mark.parametrize("method", ["instant", "flexmatch"])
def test_a_killed_process_resumes_to_the_same_bytes(method: str, tmp_path: Path) -> None:
    words = [f"method={method}", "steps=120", "evaluate_every=40", "checkpoint_every=5"]
    killed, straight = Run(tmp_path / "killed"), Run(tmp_path / "straight")
    process = start(*words, "--out", str(killed))
    wait_for(killed.path / CHECKPOINT, process)
    time.sleep(chance.uniform(0, 0.3))
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not killed.finished
    assert main([*COMMAND[3:], *words, "--out", str(straight)]) == 0
    assert main(["train", "--resume", str(killed)]) == 0
    assert_same_run(killed, straight)


def test_ctrl_c_saves_a_checkpoint_and_says_how_to_resume(tmp_path: Path) -> None:
    run = Run(tmp_path / "a run's folder")
    process = start("steps=120", "--out", str(run))
    wait_for(run.path / "metrics.jsonl", process)  # after step 5
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    said = re.fullmatch(r"instant: stopped after step (\d+)\. The checkpoint is saved; go on with: (.*)\n", complaint)
    assert said is not None, complaint
    assert run.load_checkpoint()[1] == int(said[1])  # type: ignore[index]
    program, *again = shlex.split(said[2])
    assert program == "instant"
    assert main(again) == 0
    assert run.finished
    assert run.history()[-1]["step"] == 120


def test_a_full_disk_leaves_the_previous_checkpoint_as_it_was(tmp_path: Path, whole: dict[str, Run]) -> None:
    recipe, split = small()
    run = Run(tmp_path / "run")
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(8)])
    before = contents(run.path)
    assert len(before[str(CHECKPOINT)]) > 2**20
    # No file may grow beyond a mebibyte, which is what a full disk does to a larger one
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20)); "
        "from instant.cli import main; sys.exit(main(['train', '--resume', sys.argv[1]]))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(run)], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        f"instant: {run.path / CHECKPOINT} could not be written (File too large); what was saved before is intact. "
        "Free some space or choose another --out folder, then resume.\n"
    )
    after = contents(run.path)
    assert after.keys() == before.keys()
    assert after[str(CHECKPOINT)] == before[str(CHECKPOINT)]
    fit(recipe, split, run=run, resume=True)
    assert_same_run(run, whole["instant"])


def test_curves_that_cannot_be_written_are_a_sentence(tmp_path: Path) -> None:
    class Spoil(Callback):
        def step(self, step: int) -> None:
            (tmp_path / "metrics.jsonl").mkdir(exist_ok=True)

    with pytest.raises(InputError, match=r"cannot be written \(Is a directory\)"):
        fit(*points(), run=Run(tmp_path), callbacks=[Spoil()])


# --- a loss that is not finite --------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    """Step 7 (from 0) breaks; it is noticed at 9, where the next checkpoint would be."""
    recipe, split = points("fixmatch", log_every="100", checkpoint_every="3", **{"optim.lr": "0.05"})
    run, saved, calls = Run(tmp_path), {}, [0]

    class Keep(Callback):
        def step(self, step: int) -> None:
            saved[step] = (run.path / CHECKPOINT).read_bytes() if step > 3 else b""

    def weak(samples: Tensor, key: Tensor) -> Tensor:
        calls[0] += 1
        return samples * (float("inf") if calls[0] == 8 else 1.0)

    with pytest.raises(InputError) as error:
        fit(recipe, split, run=run, callbacks=[Keep()], policies=(weak, lambda samples, key: samples))
    assert str(error.value) == (
        "the loss stopped being a finite number at step 7 (in loss_supervised); the likely cause is too high a "
        "learning rate (optim.lr=0.05). Lower it, or set clip=1. The last good checkpoint, of step 6, is intact."
    )
    assert (run.path / CHECKPOINT).read_bytes() == saved[7]
    tensors, step, _ = run.load_checkpoint()  # type: ignore[misc]
    assert step == 6
    assert all(bool(value.isfinite().all()) for value in tensors.values())
    fit(recipe, split, run=run, resume=True)  # without the spoilt sample the run goes on from there
    assert run.finished


def test_the_part_that_broke_first_is_named() -> None:
    """Only the weak views of unlabelled rows are spoilt; the update then spoils every part of the next step."""

    def weak(samples: Tensor, key: Tensor) -> Tensor:
        return torch.cat([samples[:8], samples[8:] * float("nan")])

    with pytest.raises(InputError, match=r"at step 0 \(in loss_unsupervised\);"):
        fit(*points("pi_model"), policies=(weak, weak))


def test_weights_that_overflow_are_not_saved_though_the_loss_was_finite(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(InputError, match=r"at step 0 \(the weights overflowed\).*No checkpoint was reached yet"):
        fit(*points(**{"optim.lr": "1e38", "steps": "1"}), run=run)
    assert run.load_checkpoint() is None
    assert not (run.path / "model.safetensors").exists()


def test_too_high_a_learning_rate_through_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*COMMAND[3:], "optim.lr=1e20", "steps=20", "checkpoint_every=4", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    complaint = capsys.readouterr().err
    assert re.fullmatch(
        r"instant: the loss stopped being a finite number at step \d \(.*\); the likely cause is too high a learning "
        r"rate \(optim.lr=1e\+20\)\. Lower it, or set clip=1\. No checkpoint was reached yet\.\n",
        complaint,
    )


# --- the run folder -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(whole: dict[str, Run]) -> Run:
    return whole["instant"]


def test_the_summary_has_every_field(finished: Run) -> None:
    summary = finished.summary()
    assert summary["accuracy_last"] == curves(finished)[-1]["accuracy"]
    tests = [record["accuracy"] for record in curves(finished) if "accuracy" in record]
    assert len(tests) == 3  # after 10, 20 and 24 steps
    assert summary["accuracy_median20"] == sorted(tests)[1]
    assert summary["accuracy_best"] == max(tests)
    assert summary["accuracy_of"] == "averaged weights (EMA)"
    assert 0 <= summary["utilisation"] <= 1
    assert summary["utilisation"] == curves(finished)[-1]["utilisation"]
    assert "pseudo_label_accuracy" in summary
    assert 0 < summary["threshold_mean"] <= 1
    assert list(summary["threshold_quantiles"]) == ["0.05", "0.25", "0.5", "0.75", "0.95"]
    assert list(summary["threshold_quantiles"].values()) == sorted(summary["threshold_quantiles"].values())
    assert summary["seconds"] > 0
    assert summary["steps_per_second"] > 0
    assert summary["label_budget"] == {"training": 10, "validation": 0, "total": 10}
    assert summary["split_hash"] == make_split(DIGITS, labels=10).hash == finished.split_record()["hash"]
    assert (summary["seed"], summary["steps"], summary["method"]) == (0, 24, "instant")
    assert summary["versions"].keys() == {"instant", "torch", "numpy", "python"}
    assert summary["versions"]["torch"] == torch.__version__


def test_the_metrics_have_the_curves_of_figure_3(finished: Run) -> None:
    records = curves(finished)
    assert [record["step"] for record in records] == [5, 10, 15, 20, 24]
    for record in records:
        assert {"loss", "utilisation", "threshold", "threshold_quantiles", "confidence"} <= record.keys()
        assert ("accuracy" in record) == (record["step"] in (10, 20, 24))
        # Known truth, so the share of right pseudo-labels is told wherever one was used
        assert ("pseudo_label_accuracy" in record) == (record["utilisation"] > 0)
    assert any("pseudo_label_accuracy" in record for record in records)


def test_evaluate_agrees_with_the_summary(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(finished), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    summary = finished.summary()
    assert result["accuracy"] == summary["accuracy_last"]
    assert result["samples"] == 360
    counts = np.bincount(DIGITS.test_targets)
    shares = [result["per_class"][str(digit)] for digit in range(10)]
    assert float(np.dot(shares, counts)) / 360 == pytest.approx(result["accuracy"])
    assert main(["evaluate", str(finished)]) == 0
    assert f"{100 * summary['accuracy_last']:.2f} %" in capsys.readouterr().out


def test_evaluate_counts_only_samples_of_known_class(tmp_path: Path) -> None:
    recipe, split = points()
    fit(recipe, split, run=Run(tmp_path))
    truth = split.test_targets.copy()
    truth[::2] = -1
    y = np.arange(150) % 3
    x = np.random.default_rng(0).normal(size=(150, 5)) + 2 * y[:, None]
    source = arrays(x[:120], y[:120], x[120:], truth)
    result = evaluate_run(Run(tmp_path), source)
    assert result["samples"] == 15
    with pytest.raises(InputError, match="no test samples with a known class"):
        evaluate_run(Run(tmp_path), arrays(x[:120], y[:120]))


def test_validation_is_measured_and_paid_for(tmp_path: Path) -> None:
    run = Run(tmp_path)
    recipe, split = points(validation="12")
    summary = fit(recipe, split, run=run).summary
    assert 0 <= summary["validation_accuracy"] <= 1
    assert summary["label_budget"] == {"training": 6, "validation": 12, "total": 18}
    assert "validation_accuracy" in run.history()[-1]


def test_data_without_a_test_part_trains(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 4))
    recipe = points()[0]
    summary = fit(recipe, make_split(arrays(x, np.arange(60) % 3), labels=6), run=Run(tmp_path)).summary
    assert summary["accuracy_last"] is None
    assert summary["utilisation"] is not None


def test_unknown_truth_gives_no_pseudo_label_accuracy() -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.full(60, -1)
    y[:6] = [0, 1, 2, 0, 1, 2]
    recipe = points("pi_model", labels="all")[0]  # uses every sample: an interval of 5 x 16 rows sees all 60
    split = make_split(arrays(x, y), labels=None)
    for truth, told in ((split.oracle, True), (Oracle(np.full(60, -1)), False)):
        for record in fit(recipe, dataclasses.replace(split, oracle=truth)).history[:4]:
            assert record["utilisation"] == 1
            assert ("pseudo_label_accuracy" in record) is told


def test_a_finished_run_is_replaced_only_by_force_and_only_by_a_good_recipe(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.path, folder)
    before = contents(folder)
    words = ["train", "digits", *(f"{key}={value}" for key, value in TINY.items()), "labels=10", "--out", str(folder)]
    assert main(words) == 2
    assert "already holds a finished run; choose another --out, or add --force." in capsys.readouterr().err
    for mistake in ("method=fixmach", "method.bse=1", "labels=11", "batch=1400", "backbone=mlp", "device=banana"):
        wrong = [word for word in words if word.split("=")[0] != mistake.split("=")[0]]
        assert main([*wrong, mistake, "--force"]) == 2
        assert contents(folder) == before, mistake
    assert main([*words, "seed=1", "--force"]) == 0
    assert Run(folder).recipe().seed == 1
    assert len(Run(folder).history()) == 5
    assert contents(folder).keys() == before.keys()
    assert model_bytes(Run(folder)) != before["model.safetensors"]


def test_files_that_are_not_ours_are_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"somebody's work")
    (tmp_path / "notes.txt").write_bytes(b"kept in any case")
    words = ["train", "digits", "steps=1", "batch=8", "ratio=2", "--out", str(tmp_path)]
    assert main(words) == 2
    assert "already holds files of the names a run uses (model.safetensors)" in capsys.readouterr().err
    assert contents(tmp_path)["model.safetensors"] == b"somebody's work"
    assert main([*words, "--force"]) == 0
    assert contents(tmp_path)["notes.txt"] == b"kept in any case"


@pytest.mark.parametrize("removed", range(len(FILES) + 1))
def test_a_crash_while_an_old_run_is_being_removed(
    removed: int, finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is left is the old run still to be finished, or no run: never two runs in one."""
    folder = tmp_path / "run"
    shutil.copytree(finished.path, folder)
    for name in FILES[:removed]:
        (folder / name).unlink()
    code = main(["train", "--resume", str(folder)])
    complaint = capsys.readouterr().err
    if removed == 0:
        assert (code, "is finished; there is nothing to resume" in complaint) == (2, True)
    elif removed == 1:
        assert code == 0
        assert_same_run(Run(folder), finished)
    else:
        assert (code, "recipe.json is not there: it is no run folder." in complaint) == (2, True)
        recipe, split = small()
        if removed < len(FILES):
            with pytest.raises(InputError, match="files of the names a run uses"):
                Run(folder).begin(recipe, split)
        Run(folder).begin(recipe, split, force=removed < len(FILES))
        assert contents(folder).keys() == {"recipe.json", "split.json"}


def test_one_process_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "digits", "steps=1", "batch=8", "ratio=2", "--out", str(tmp_path / "run")]
    with Run(tmp_path / "run").exclusive():
        assert main(words) == 2
    assert capsys.readouterr().err == (
        f"instant: another process is training into {tmp_path / 'run'}; wait for it to end, or choose another --out.\n"
    )
    assert main(words) == 0


@pytest.mark.parametrize("below", ["run", "deep/run", ""])
def test_a_folder_that_cannot_be_made(below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert main(["train", "digits", "steps=1", "batch=8", "ratio=2", "--out", str(tmp_path / "file" / below)]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"instant: --out {tmp_path / 'file'}")
    assert "cannot be written" in complaint
    assert complaint.count("\n") == 1
    assert (tmp_path / "file").read_text() == "not a folder"


# --- methods and ways -----------------------------------------------------------------------------------------


def test_fully_supervised_trains_on_every_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*COMMAND[3:], "method=fully_supervised", "steps=3", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert "1437 labelled (all: fully_supervised takes every label, not labels=10)" in capsys.readouterr().out
    run = Run(tmp_path / "run")
    assert run.summary()["label_budget"] == {"training": 1437, "validation": 0, "total": 1437}
    assert sorted(run.split_record()["labelled"]) == list(range(1437))
    recipe = recipes.digits(labels=10, method="fully_supervised").override({"validation": "20"})
    assert split_for(recipe, DIGITS).budget == {"training": 1417, "validation": 20, "total": 1437}
    assert split_for(recipes.digits(labels=10, method="supervised"), DIGITS).budget["total"] == 10
    assert split_for(recipes.digits(labels=10).override({"method.transition": "network"}), DIGITS).budget["total"] == 10


def test_a_teacher_needs_an_average() -> None:
    recipe, split = points("pi_model", ema="0")
    fit(recipe, split)
    with pytest.raises(InputError) as error:
        fit(dataclasses.replace(recipe, method="mean_teacher"), split)
    assert str(error.value) == (
        "method=mean_teacher learns from the averaged weights, and ema=0 means none; set ema=0.999 or so."
    )


def test_the_teacher_averages_parameters_and_copies_batch_statistics() -> None:
    recipe, split = small(steps="1", ema="0.75")
    before = build_program(recipe, split).learner.model.state_dict()
    learner = fit(recipe, split).learner
    after, teacher = learner.model.state_dict(), learner.judged.state_dict()
    moving = {name for name, _ in learner.model.named_parameters()}
    assert moving < after.keys()
    for name, value in after.items():
        expected = 0.75 * before[name] + 0.25 * value if name in moving else value
        torch.testing.assert_close(teacher[name], expected, msg=name)
    assert not torch.equal(before["head.weight"], after["head.weight"])


def test_without_an_average_the_last_weights_are_judged() -> None:
    trained = fit(*points(ema="0"))
    assert trained.learner.judged is trained.learner.model
    assert trained.summary["accuracy_of"] == "last weights"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method.base": "high"}, "method.base='high' must be a number, for example 0.9"),
        ({"method.base": "true"}, "method.base=True must be a number, for example 0.9"),
        ({"method.align": "7"}, "method.align=7 must be true or false"),
        ({"method.base": "nan"}, "method.base=nan must be a number, for example 0.9"),
        ({"method.warmup": "1e30"}, "method.warmup=1e+30 must be a number, for example 0"),
        ({"method.kappa": "5"}, "method.kappa=5 must be a word, for example labelled"),
        ({"method.kappa": "none"}, "method.kappa=None must be a word, for example labelled"),
        ({"method.transition_lr": "-1"}, "method=instant has a learning rate of its own of -1; it must be >= 0."),
        ({"method.bse": "1"}, "method.bse is not an option of instant; did you mean 'base'?"),
        ({"backbone.width": "wide"}, "mlp cannot be built with backbone.width=wide: "),
        ({"device": "meta"}, "device='meta' is not known; use auto, cpu, cuda or cuda:N."),
        ({"device": "cuda:99"}, "device=cuda:99: this machine has "),
        ({"step": "captured", "device": "cpu"}, "step=captured records a CUDA graph and needs a GPU"),
    ],
)
def test_what_a_program_cannot_be_built_from(settings: dict[str, str], sentence: str) -> None:
    recipe, split = points()
    with pytest.raises(InputError) as error:
        build_program(recipe.override(settings), split)
    assert str(error.value).startswith(sentence)


def test_compiled_equals_eager() -> None:
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        with pytest.raises(InputError, match="needs a C\\+\\+ compiler"):
            fit(*points(step="compiled"))
        return

    def trained(way: str) -> Trained:
        return fit(*points(step=way, steps="5"))

    eager, compiled = trained("eager").learner.state_dict(), trained("compiled").learner.state_dict()
    start = build_program(*points()).learner.state_dict()
    for name, value in eager.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-4, atol=1e-5, msg=name)
    assert max(float((eager[name] - value).abs().max()) for name, value in start.items()) > 0.01


# --- what a person sees ---------------------------------------------------------------------------------------


def test_without_a_terminal_there_is_a_plain_line_per_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "with [/b] and a very long name, so that a line of eighty columns would be broken in two"
    assert main([*COMMAND[3:], "steps=4", "evaluate_every=2", "--out", str(folder)]) == 0
    first, second, third, *table = capsys.readouterr().out.splitlines()
    assert first.startswith("digits: 1437 unlabelled images, 10 labelled; instant with small_cnn, 4 steps; run folder")
    assert first.endswith(str(folder))
    number = r"[\d.]+"
    line = rf"accuracy {number} % · used {number} % · threshold {number}"
    assert re.fullmatch(rf"instant: step 2: {line}", second)
    assert re.fullmatch(rf"instant: step 4: {line}", third)
    cells = [row.strip("│").split("│")[1].strip() for row in table if row.startswith("│")]
    assert "".join(cells).replace(" ", "").endswith(str(folder).replace(" ", ""))  # folded, not cut short


def test_on_a_terminal_there_is_a_bar() -> None:
    screen = io.StringIO()
    recipe, split = points()
    with ProgressBar("a title", Console(file=screen, force_terminal=True, width=120)) as bar:
        summary = fit(recipe, split, callbacks=[bar]).summary
    assert "a title" in screen.getvalue()
    assert "24/24" in screen.getvalue()
    assert f"accuracy {100 * summary['accuracy_last']:.1f} %" in screen.getvalue()


def test_what_is_shown_of_a_record() -> None:
    assert describe({"loss": 0.25}) == "loss 0.250"
    assert describe({"accuracy": 0.5, "loss": 0.25}) == "accuracy 50.0 % · loss 0.250"
    assert describe({"accuracy": 0.5, "loss": 1.0, "utilisation": 0.256, "threshold": 0.9}) == (
        "accuracy 50.0 % · used 26 % · threshold 0.900"
    )
