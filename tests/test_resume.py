"""Stopped anywhere, by Ctrl-C or by a kill, a run goes on to the very weights it would have had."""

from __future__ import annotations

import dataclasses
import json
import random as chance
import re
import shlex
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import (
    COMMAND,
    StopAt,
    assert_same_run,
    contents,
    points,
    small,
    start,
    wait_for,
)

from instant.algorithms import METHODS
from instant.choose import prepare
from instant.cli import main
from instant.data.store import Store
from instant.engine.build import source_for, split_for
from instant.engine.fit import Interrupted, fit
from instant.errors import InputError
from instant.labelling.decisions import decide
from instant.match import Match
from instant.report.baseline import train_baseline
from instant.rules import Fixed
from instant.run import Run
from instant.run_files import CHECKPOINT
from instant.types import MethodFunction, Problem


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


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_drop_path_and_every_optimizer_resume_exactly(optimizer: str, tmp_path: Path) -> None:
    vit = {"backbone": "vit_micro_4_16", "optim.name": optimizer, "optim.lr": "1e-3", "steps": "6"}
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
    (run.path / ".problems.csv.4567.tmp").write_bytes(b"another one")
    fit(recipe, split, run=run, resume=True)
    assert_same_run(run, straight)
    assert contents(run.path).keys() == contents(straight.path).keys()


def test_resuming_does_not_need_the_pretrained_weights(tmp_path: Path) -> None:
    """They are in the checkpoint, and what training made of them."""
    other, straight, run = (Run(tmp_path / name) for name in ("other", "straight", "run"))
    fit(*points(seed="1"), run=other)
    weights = other.path / "model.safetensors"
    recipe, split = points(pretrained=str(weights))
    fit(recipe, split, run=straight)
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(8)])
    weights.unlink()
    fit(recipe, split, run=run, resume=True)
    assert_same_run(run, straight)


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


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("backbone.width", "32", r"was begun with backbone\.width=16, not 32; go on with its own recipe"),
        ("optim.lr", "0.001", r"was begun with optim\.lr=0\.1, not 0\.001"),
        ("method.kappa", "unlabelled", r"was begun with method\.kappa=None, not unlabelled"),
        ("seed", "7", r"was begun with seed=0, not 7"),
    ],
)
def test_another_recipe_is_refused(setting: str, value: str, sentence: str, tmp_path: Path) -> None:
    recipe, split = points()
    run = Run(tmp_path / "run")
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(8)])
    before = contents(run.path)
    with pytest.raises(InputError, match=sentence):
        fit(recipe.override({setting: value}), split, run=run, resume=True)
    assert contents(run.path) == before


def test_views_of_ones_own_are_to_be_given_again(tmp_path: Path) -> None:
    recipe, split = points()

    def still(samples: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return samples

    usual, own = Run(tmp_path / "usual"), Run(tmp_path / "own")
    for run, policies in ((usual, None), (own, (still, still))):
        with pytest.raises(Interrupted):
            fit(recipe, split, run=run, policies=policies, callbacks=[StopAt(3)])
    with pytest.raises(InputError, match=r"begun with policies test_resume:.*still.*, not the usual ones; give fit"):
        fit(recipe, split, run=own, resume=True)
    with pytest.raises(InputError, match="begun with policies the usual ones, not test_resume:"):
        fit(recipe, split, run=usual, resume=True, policies=(still, still))
    fit(recipe, split, run=own, resume=True, policies=(still, still))
    with pytest.raises(InputError, match="which its baseline should have too"):
        train_baseline(own, split)


def test_a_run_keeps_the_defaults_it_was_begun_with(tmp_path: Path) -> None:
    """They are in somebody's file, which is edited."""
    recipe, split = points(steps="9")

    def method_with(bar: float) -> MethodFunction:
        def mine(problem: Problem, bar: float = bar) -> Match:
            return Match(Fixed(bar))

        return mine

    run = Run(tmp_path / "run")
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, method=method_with(0.4), callbacks=[StopAt(3)])
    trained = fit(recipe, split, run=run, method=method_with(0.9), resume=True)
    assert trained.learner.method.rule.value == 0.4
    assert decide(run, split, method=method_with(0.9)).tau.tolist() == pytest.approx([0.4] * len(split.pool))


def test_another_split_is_refused(tmp_path: Path) -> None:
    """It would train on twice the labels it says."""
    recipe, split = points()
    run = Run(tmp_path / "run")
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(8)])
    _, other = points(seed="7")
    with pytest.raises(InputError, match=r"the labels of .* have changed since it was begun"):
        fit(recipe, other, run=run, resume=True)
    moved = recipe.override({"data": "elsewhere"})
    assert fit(moved, split, run=run, resume=True).summary["steps"] == 24
    assert run.recipe().data == "elsewhere"


def test_other_values_under_the_same_labels_are_refused(tmp_path: Path) -> None:
    """A file that was written anew with two rows exchanged: a label would go to another."""
    recipe, split = points()
    run = Run(tmp_path / "run")
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(8)])
    samples = split.train.samples.copy()
    samples[[50, 51]] = samples[[51, 50]]
    shuffled = dataclasses.replace(split, train=Store(samples))
    assert shuffled.hash == split.hash
    with pytest.raises(InputError, match=r"the samples of .* have changed since it was begun"):
        fit(recipe, shuffled, run=run, resume=True)
    record = json.loads((run.path / "split.json").read_text(encoding="utf-8"))
    (run.path / "split.json").write_text(json.dumps(record | {"content": None}), encoding="utf-8")
    assert fit(recipe, split, run=run, resume=True).summary["steps"] == 24  # begun before it was written down


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    """Somebody edited the recipe in the folder."""
    recipe, split = points()
    run = Run(tmp_path / "run")
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(8)])
    file = run.path / "recipe.json"
    file.write_text(file.read_text().replace('"width": 16', '"width": 32'))
    with pytest.raises(InputError, match=r"does not fit its recipe .* train again with --force"):
        fit(run.recipe(), split, run=run, resume=True)


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


def test_a_run_goes_on_on_another_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its folder and its data have other places there; the weights are those of a run that never moved."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    table = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    np.savez(here / "points.npz", X=table, y=np.where(np.arange(60) < 20, np.arange(60) % 2, -1))
    settings = {"steps": "6", "batch": "4", "ratio": "2", "log_every": "2", "checkpoint_every": "2", "device": "cpu"}
    recipe = prepare(here / "points.npz", None, settings, []).recipe
    split = split_for(recipe, source_for(recipe))
    straight = Run(tmp_path / "straight")
    fit(recipe, split, run=straight)
    with pytest.raises(Interrupted):
        fit(recipe, split, run=Run(here / "run"), callbacks=[StopAt(3)])
    here.rename(there)
    moved = Run(there / "run")
    assert main(["train", "--resume", str(moved)]) == 2
    assert main(["train", "--resume", str(moved), "steps=9"]) == 2
    assert "--resume takes steps from the run folder; only data, device, memory may be given" in capsys.readouterr().err
    assert main(["train", "--resume", str(moved), f"data={there / 'points.npz'}", "oops"]) == 2
    assert "oops" in capsys.readouterr().err
    assert main(["train", "--resume", str(moved), f"data={there / 'points.npz'}", "device=cpu"]) == 0
    assert moved.recipe().data == str(there / "points.npz")
    assert (moved.path / "model.safetensors").read_bytes() == (straight.path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_a_checkpoint_and_says_how_to_resume(number: int, tmp_path: Path) -> None:
    """And so does what a batch system sends."""
    run = Run(tmp_path / "a run's folder")
    process = start("steps=120", "--out", str(run))
    wait_for(run.path / "metrics.jsonl", process)  # after step 5
    process.send_signal(number)
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
