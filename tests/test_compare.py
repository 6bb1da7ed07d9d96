"""Comparing methods: the statistics in closed form, and real runs that are stopped, fail, and go on."""

from __future__ import annotations

import csv
import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import assert_same_run, contents
from scipy.stats import t as student

from instant.cli import main
from instant.compare import Comparison, Failure, Result, compare_methods
from instant.compare.plan import make_plan
from instant.compare.results import require_same_labels
from instant.compare.statistics import Mean, beyond_luck, mean_of, paired, verdict
from instant.errors import InputError
from instant.match import Match
from instant.rules import Fixed
from instant.run import Run

SETTINGS = {"labels": "10", "steps": "8", "batch": "8", "ratio": "2", "device": "cpu"}
SETTINGS |= {"log_every": "4", "evaluate_every": "4", "checkpoint_every": "1", "backbone.width": "8", "ema": "0.2"}
WORDS = ["digits", *(f"{key}={value}" for key, value in SETTINGS.items())]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


# --- statistics ---------------------------------------------------------------------------------------------------


def test_paired_differences_by_hand() -> None:
    """Differences 1, 2 and 3: mean 2, deviation 1, error 1 / sqrt 3; t with 2 degrees of freedom is 4.3027."""
    found = paired({0: 11.0, 1: 22.0, 2: 33.0, 7: 5.0}, {2: 30.0, 0: 10.0, 1: 20.0, 8: 5.0})
    assert found == Mean(2.0, pytest.approx(1 / math.sqrt(3)), 3)
    assert found.interval == pytest.approx((2 - 4.302653 / math.sqrt(3), 2 + 4.302653 / math.sqrt(3)), abs=1e-5)
    assert beyond_luck(found) is False
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_the_interval_is_the_one_of_the_paired_t_test() -> None:
    """A difference is beyond luck where the t test's p is below 5 %, whichever method is ahead."""
    rng = np.random.default_rng(0)
    decided = set()
    for shift in (-0.05, -0.02, 0.0, 0.02, 0.05):
        first, second = rng.normal(0.9, 0.01, 5), rng.normal(0.9 + shift, 0.01, 5)
        found = paired(dict(enumerate(second)), dict(enumerate(first)))
        assert found is not None
        assert found.error is not None
        p = 2 * student.sf(abs(found.value / found.error), 4)
        assert beyond_luck(found) is bool(p < 0.05)
        decided.add(beyond_luck(found))
    assert decided == {True, False}


def test_pairs_see_what_means_do_not() -> None:
    """Seeds are worth 20 points and the method one: the means overlap, the differences are 1.1, 0.9 and 1.0."""
    easy = {0: 0.70, 1: 0.80, 2: 0.90}
    better = {0: 0.711, 1: 0.809, 2: 0.910}
    assert mean_of(list(better.values())).error > 0.05  # type: ignore[operator]
    found = paired(better, easy)
    assert found is not None
    assert found.value == pytest.approx(0.01)
    assert found.error == pytest.approx(0.001 / math.sqrt(3))
    assert beyond_luck(found) is True


@pytest.mark.parametrize(
    ("difference", "sentence"),
    [
        (Mean(0.02, 0.001, 3), "a is ahead of b by 2.00 points on average over 3 seeds (95 % interval +1.57 to +2.43): "
         "more than the seeds explain."),
        (Mean(-0.02, 0.001, 3), "b is ahead of a by 2.00 points on average over 3 seeds (95 % interval +1.57 to +2.43)"
         ": more than the seeds explain."),
        (Mean(-0.02, 0.01, 2), "b is ahead of a by 2.00 points on average over 2 seeds (95 % interval -10.71 to +14.71)"
         ": no more than the seeds explain."),
        (Mean(0.02, None, 1), "a is ahead of b by 2.00 points; with one seed nothing can be said about luck."),
        (Mean(0.0, None, 1), "b and a are equal; with one seed nothing can be said about luck."),
        (Mean(0.0, 0.01, 2), "b and a are equal over 2 seeds (95 % interval -12.71 to +12.71): no more than the seeds "
         "explain."),
        (Mean(0.0, 0.0, 2), "b and a are equal, on each of 2 seeds: without any spread nothing can be said about "
         "luck."),
        (Mean(0.02, 1e-17, 2), "a is ahead of b by 2.00 points, the same on each of 2 seeds: without any spread "
         "nothing can be said about luck."),
        (None, "a and b have no finished seed in common: nothing can be said about them yet."),
    ],
)  # fmt: skip
def test_verdicts(difference: Mean | None, sentence: str) -> None:
    assert verdict("a", "b", difference) == sentence


def made(method: str, seed: int, accuracy: float | None, **changes: Any) -> Result:
    row: dict[str, Any] = {"accuracy_on": None if accuracy is None else "test samples", "utilisation": 0.5}
    row |= {"pseudo_label_accuracy": None, "threshold": None, "labels": 10, "seconds": 1.0, "hardware": "cpu"}
    row |= {"torch": "2", "split": f"split {seed}", "command": "instant train", **changes}
    return Result(method=method, seed=seed, accuracy=accuracy, **row)


def compared(*results: Result, methods: tuple[str, ...] = ("a", "b"), seeds: tuple[int, ...] = (0, 1)) -> Comparison:
    return Comparison(source="digits", methods=methods, seeds=seeds, results=results)


def test_sentences_say_what_limits_them() -> None:
    assert compared().sentences() == ["No run is finished yet."]
    assert "There is one method, a" in compared(made("a", 0, 0.5), methods=("a",)).sentences()[0]
    assert "accuracy is not known" in compared(made("a", 0, None), made("b", 0, None)).sentences()[0]
    more = compared(made("a", 0, 0.5), made("b", 0, 0.6, labels=1437, split="all"))
    assert more.sentences()[1].startswith("b was trained with 1,437 labels and a with 10:")
    three = [made(m, s, 0.5 + 0.01 * (s + 1) * len(m)) for m in ("a", "bb", "ccc") for s in (0, 1)]
    said = compared(*three, methods=("a", "bb", "ccc")).sentences()
    assert len(said) == 3
    assert said[2].startswith("Each interval is for one comparison")


def test_the_comparison_by_hand() -> None:
    """Differences .1 and .2: mean .15, error .05; t with one degree of freedom is 12.7062. One run is missing."""
    found = compared(
        *(
            made("a", 0, 0.5, utilisation=None),
            made("a", 1, 0.6, utilisation=None),
            made("a", 2, None, utilisation=None),
        ),
        *(made("b", 0, 0.6, utilisation=0.25), made("b", 1, 0.8, utilisation=0.75)),
        seeds=(0, 1, 2),
    )
    assert found.unfinished == 2 * 3 - 5
    assert found.mean("b", lambda result: result.utilisation) == Mean(0.5, pytest.approx(0.25), 2)
    assert found.mean("a", lambda result: result.utilisation) is None
    assert len(found.sentences()) == 1
    assert found.sentences()[0].startswith("b is ahead of a by 15.00 points on average over 2 seeds")
    first, second = found.to_json()["methods"]
    assert first["accuracies"] == {"0": 0.5, "1": 0.6}
    assert (first["mean"], first["standard_error"]) == pytest.approx((0.55, 0.05))
    assert (second["mean"], second["standard_error"]) == pytest.approx((0.7, 0.1))
    assert first["difference"] is None
    reach = 12.7062 * 0.05
    assert second["difference"] == {
        "mean": pytest.approx(0.15),
        "standard_error": pytest.approx(0.05),
        "seeds": 2,
        "interval": pytest.approx([0.15 - reach, 0.15 + reach], abs=1e-5),
        "beyond_luck": False,
    }


def test_a_method_without_a_known_accuracy_has_no_difference() -> None:
    row = compared(made("a", 0, 0.5), made("b", 0, None)).to_json()["methods"][1]
    assert row == {"method": "b", "accuracies": {}, "mean": None, "standard_error": None, "difference": None}
    one = compared(made("a", 0, 0.5), made("b", 0, 0.75)).to_json()["methods"][1]["difference"]
    assert one == {"mean": 0.25, "standard_error": None, "seeds": 1, "interval": None, "beyond_luck": None}


def test_other_samples_for_one_seed_are_not_compared() -> None:
    require_same_labels([made("a", 0, 0.5), made("b", 0, 0.5), made("c", 0, 0.5, labels=1437, split="all")])
    with pytest.raises(InputError, match=r"a and b were trained on other samples for seed 1 \(splits split 1 and x\)"):
        require_same_labels([made("a", 0, 0.5), made("a", 1, 0.5), made("b", 1, 0.5, split="x")])


# --- runs ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods, two seeds: look at it, do not change it."""
    out = tmp_path_factory.mktemp("compared") / "out"
    compare_methods("digits", SETTINGS, methods=["instant", "uda"], seeds=[0, 1], out=out)
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def compare(out: Path, *words: str, methods: str = "instant,uda", seeds: str = "0,1") -> list[str]:
    return ["compare", *WORDS, "--methods", methods, "--seeds", seeds, "--out", str(out), *words]


def test_a_run_is_that_of_train(finished: Path, tmp_path: Path) -> None:
    assert main(["train", *WORDS, "method=uda", "seed=1", "--out", str(tmp_path / "alone")]) == 0
    assert_same_run(Run(finished / "uda-1"), Run(tmp_path / "alone"))
    assert contents(finished / "uda-1").keys() == contents(tmp_path / "alone").keys()


def test_the_features_of_a_seed_are_learnt_once(tmp_path: Path, capsys: Capture) -> None:
    """The second method of a seed gets a copy, which is what it would have learnt."""
    out, words = tmp_path / "out", [*WORDS, "contrast=6"]
    assert main(["compare", *words, "--methods", "instant,uda", "--seeds", "0,1", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.count("learning features first") == 2
    for seed in (0, 1):
        assert f"features are those of {out / f'instant-{seed}'}, which has the same data and seed" in said
    assert main(["train", *words, "method=uda", "seed=1", "--out", str(tmp_path / "alone")]) == 0
    assert_same_run(Run(out / "uda-1"), Run(tmp_path / "alone"))
    copied, learnt = contents(out / "uda-1"), contents(tmp_path / "alone")
    assert learnt.keys() - copied.keys() == {"features/checkpoint/state.safetensors"}
    assert not copied.keys() - learnt.keys()
    assert Run(out / "uda-1").features.summary() == Run(out / "instant-1").features.summary()


def test_finished_runs_are_shown_again_and_not_trained(copy: Path, capsys: Capture, tmp_path: Path) -> None:
    before = contents(copy)
    assert main(compare(copy, "--csv", str(copy / "runs.csv"))) == 0
    out, err = capsys.readouterr()
    after = contents(copy)
    table = after.pop("runs.csv").decode().splitlines()
    assert after == before
    assert err == ""
    assert "step" not in out
    summaries = {(m, s): Run(copy / f"{m}-{s}").summary() for m in ("instant", "uda") for s in (0, 1)}
    accuracy = {key: found["accuracy_last"] for key, found in summaries.items()}
    for method in ("instant", "uda"):
        shown = next(line for line in out.splitlines() if line.startswith(f"│ {method}"))
        cells = [cell.strip() for cell in shown.split("│")[1:-1]]
        values = [100 * accuracy[method, seed] for seed in (0, 1)]
        assert cells[:3] == [method, *(f"{value:.2f}" for value in values)]
        assert cells[3] == f"{sum(values) / 2:.2f} ± {abs(values[0] - values[1]) / 2:.2f}"
    assert verdict("uda", "instant", paired(*[{s: accuracy[m, s] for s in (0, 1)} for m in ("uda", "instant")])) in out
    assert f"curves: {copy / 'compare.html'}" in out
    rows = list(csv.DictReader(table))
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("instant", "0"), ("uda", "0"), ("instant", "1"), ("uda", "1")
    ]  # fmt: skip
    for row in rows:
        found = summaries[row["method"], int(row["seed"])]
        assert float(row["accuracy"]) == found["accuracy_last"]
        assert (row["split"], row["torch"]) == (found["split_hash"], found["versions"]["torch"])
        assert row["command"] == f"instant train {' '.join(WORDS)} method={row['method']} seed={row['seed']}"
    assert rows[0]["split"] == rows[1]["split"] != rows[2]["split"] == rows[3]["split"]


def test_json(finished: Path, capsys: Capture) -> None:
    assert main(compare(finished, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in found["methods"]] == ["instant", "uda"]
    assert len(found["runs"]) == 4
    assert found["runs"][0].keys() == set(Result._fields)
    first, second = found["methods"]
    assert first["difference"] is None
    by_seed = [second["accuracies"][seed] - first["accuracies"][seed] for seed in ("0", "1")]
    assert second["difference"]["mean"] == pytest.approx(sum(by_seed) / 2)
    assert second["difference"]["seeds"] == 2
    assert (found["failed"], found["unfinished"]) == ([], 0)
    assert found["sentences"][0].endswith("the seeds explain.")


def test_the_page_has_a_line_a_run_and_a_colour_a_method(finished: Path) -> None:
    page = (finished / "compare.html").read_text(encoding="utf-8")
    assert "<script" not in page
    for title in ("instant, seed 0", "instant, seed 1", "uda, seed 0", "uda, seed 1"):
        assert page.count(f"<title>{title}</title>") >= 2  # accuracy, utilisation; pseudo-labels where any are accepted
    assert page.count(".line.s2 { stroke: hsl(342.5") == 1
    assert 'href="uda-1/report.html"' in page


def test_a_method_and_a_seed_are_added_and_other_settings_refused(copy: Path, capsys: Capture) -> None:
    assert main(compare(copy, methods="instant,supervised", seeds="1")) == 0
    out = capsys.readouterr().out
    assert "run 1 of 2: instant, seed 1, is finished already" in out
    assert "run 2 of 2: supervised, seed 1\n" in out
    assert "with one seed nothing can be said about luck." in out
    assert main(compare(copy, "optim.lr=0.05")) == 2
    err = capsys.readouterr().err
    assert f"{copy / 'instant-0'} was begun with optim.lr=0.1, not 0.05; give that again, or another --out." in err


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("digits method=uda --methods uda", "method=uda is for compare to set; write --methods instead."),
        ("digits seed=3 --methods uda", "seed=3 is for compare to set; write --seeds instead."),
        ("digits --methods uda,fixmach", "method='fixmach' is not known; did you mean 'fixmatch'?"),
        ("digits --methods uda,,vat", "--methods 'uda,,vat' has an empty name; write them as in instant,adamatch."),
        ("digits --methods uda,vat,uda", "--methods names the method uda twice; name it once."),
        ("digits --methods uda --seeds 0,1,0", "--seeds names the seed 0 twice; name it once."),
        ("digits --methods uda --seeds 0,one", "--seeds '0,one': 'one' is no seed; write whole numbers, as in 0,1,2."),
        ("digits --methods uda --seeds 1.5", "--seeds '1.5': '1.5' is no seed"),
        ("digits --methods uda --seeds 9223372036854775808", "seed=9223372036854775808 must be 0 or more and below"),
        ("digits lables=40 --methods uda", "'lables' is not a setting; did you mean 'labels'?"),
        ("digits labels=5 --methods uda", "labels=5 is fewer than one a class"),
        ("digits backbone=mlp --methods uda", "mlp takes vectors (D,), the samples have shape (1, 16, 16)"),
        (
            "digits method.base=0.9 --methods instant,uda",
            "method.base is not an option of uda, and settings go to every",
        ),
        ("digits method.bse=0.9 --methods instant,uda", "method.bse is not an option of instant; did you mean 'base'?"),
        (f"digits --methods uda --seeds {'9' * 5000}", "--seeds '999"),
        ("nowhere --methods uda", "there is no folder or file nowhere, and source 'nowhere' is not known"),
        ("digits --methods uda --labels y.npy", "--labels goes with files of your own; digits has its labels."),
        ("digits --methods uda --csv no/such.csv", "--csv no/such.csv: there is no folder no; make it first."),
    ],
)
def test_what_cannot_be_compared(words: str, sentence: str, tmp_path: Path, capsys: Capture) -> None:
    assert main(["compare", *words.split(), "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"instant: {sentence}")
    assert (out, err.count("\n")) == ("", 1)
    assert not (tmp_path / "out").exists()


def test_a_folder_or_a_table_of_something_else(finished: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "thesis").write_text("mine")
    (tmp_path / "Thumbs.db").write_text("")
    assert main(compare(tmp_path / "thesis")) == 2
    assert f"--out {tmp_path / 'thesis'} is a file; name a folder for the runs." in capsys.readouterr().err
    assert main(compare(tmp_path)) == 2
    assert f"--out {tmp_path} holds thesis, which is no run of a comparison;" in capsys.readouterr().err
    assert main(["compare", *WORDS, "--methods", "uda", "--out", str(finished / "uda-0")]) == 2
    assert "holds checkpoint, which is no run of a comparison" in capsys.readouterr().err
    table = tmp_path / "runs.csv"
    assert main(compare(finished, "--csv", str(table))) == 0
    before = table.read_bytes()
    capsys.readouterr()
    assert main(compare(finished, "--csv", str(table), methods="uda")) == 2
    assert "holds a run of another comparison (instant train digits" in capsys.readouterr().err
    assert table.read_bytes() == before


@pytest.mark.parametrize("name", ["table", "compare.html", "uda-0"])
def test_a_table_among_the_runs_ends_in_csv(name: str, tmp_path: Path, capsys: Capture) -> None:
    """Or the folder would be refused when the comparison goes on, or the table be where a run or the page goes."""
    assert main(compare(tmp_path / "out", "--csv", str(tmp_path / "out" / name))) == 2
    assert "is among the runs; end its name in .csv, or name another folder." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_damaged_run_says_how_to_go_on(copy: Path, capsys: Capture) -> None:
    (copy / "uda-1" / "summary.json").write_text("{")
    assert main(compare(copy)) == 2
    err = capsys.readouterr().err
    assert f"{copy / 'uda-1' / 'summary.json'} cannot be read" in err
    assert err.endswith("To have this run trained anew, remove its folder.\n")


# --- stopped, failed, and gone on ---------------------------------------------------------------------------------

OWN = """
import signal

import torch

from instant.match import Match
from instant.rules import Rule

stop_at = fail_at = None


class Whim(Rule):
    def threshold(self, seen):
        global stop_at
        if int(seen.step) == stop_at:
            stop_at = None
            signal.raise_signal(signal.SIGINT)
        if int(seen.step) == fail_at:
            raise RuntimeError("no such luck")
        return torch.tensor(0.5), {}


def whim(problem):
    return Match(Whim())
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module outside the package, whose method stops or fails at a step."""
    (tmp_path / "own_whim.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_whim

    yield own_whim
    del sys.modules["own_whim"]


def test_a_method_whose_defaults_were_edited_is_not_compared_under_one_name(
    own: Any, copy: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edited(bar: float) -> None:
        monkeypatch.setattr(own, "whim", lambda problem, *, bar=bar, more=0: Match(Fixed(bar)))

    edited(0.5)
    assert main(compare(copy, methods="own_whim:whim", seeds="0")) == 0
    edited(0.6)
    assert main(compare(copy, methods="own_whim:whim", seeds="0,1")) == 2
    sentence = f"{copy / 'own_whim-whim-0'} was begun when method.bar was 0.5 by default, and now it is 0.6; undo that"
    assert sentence in capsys.readouterr().err
    assert not (copy / "own_whim-whim-1").exists()
    monkeypatch.setattr(own, "whim", lambda problem, *, bar=0.5, less=0: Match(Fixed(bar)))
    assert main(compare(copy, methods="own_whim:whim", seeds="0,1")) == 0


def test_a_stopped_comparison_shows_what_is_done_and_goes_on(own: Any, copy: Path, capsys: Capture) -> None:
    own.stop_at = 1
    words = compare(copy, "--csv", str(copy / "runs.csv"), methods="instant,own_whim:whim")
    assert main(words) == 130
    out, err = capsys.readouterr()
    run = Run(copy / "own_whim-whim-0")
    assert err == (
        "instant: stopped after step 2 of own_whim-whim-0. What is done is kept: the same command goes on from there.\n"
    )
    assert "own_whim:whim and instant have no finished seed in common" in out
    assert len((copy / "runs.csv").read_text().splitlines()) == 3
    assert not run.finished
    assert not (copy / "own_whim-whim-1").exists()
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "from step 2 on; run folder" in out
    assert len((copy / "runs.csv").read_text().splitlines()) == 5
    compare_methods("digits", SETTINGS, methods=["own_whim:whim"], seeds=[0], out=copy.parent / "whole")
    assert_same_run(run, Run(copy.parent / "whole" / "own_whim-whim-0"))


def test_ctrl_c_on_the_last_step_begins_no_other_run(own: Any, tmp_path: Path, capsys: Capture) -> None:
    own.stop_at = int(SETTINGS["steps"]) - 1
    assert main(compare(tmp_path / "out", methods="own_whim:whim")) == 130
    assert "instant: stopped. What is done is kept" in capsys.readouterr().err
    assert Run(tmp_path / "out" / "own_whim-whim-0").finished
    assert not (tmp_path / "out" / "own_whim-whim-1").exists()


def test_a_run_that_fails_does_not_cost_the_others(own: Any, copy: Path, capsys: Capture) -> None:
    shutil.rmtree(copy / "instant-1")
    own.fail_at = 2
    words = compare(copy, "--json", methods="own_whim:whim,instant", seeds="1")
    assert main(words) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert [run["method"] for run in found["runs"]] == ["instant"]
    command = f"instant train --resume {copy / 'own_whim-whim-1'} method=own_whim:whim"
    assert found["failed"] == [Failure("own_whim:whim", 1, "RuntimeError: no such luck", command)._asdict()]
    assert err.splitlines()[-1] == (
        f"instant: own_whim:whim, seed 1 failed: RuntimeError: no such luck; alone: {command}"
    )
    own.fail_at = None
    assert main(words) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 2


def test_failures_are_told_where_the_page_cannot_be_written(own: Any, copy: Path, capsys: Capture) -> None:
    own.fail_at = 2
    (copy / "instant-1" / "metrics.jsonl").write_text("damaged\n{}\n")
    assert main(compare(copy, methods="instant,own_whim:whim", seeds="1")) == 2
    failed, damaged = capsys.readouterr().err.splitlines()
    assert failed.startswith("instant: own_whim:whim, seed 1 failed: RuntimeError: no such luck; alone:")
    assert "metrics.jsonl, line 1 is damaged" in damaged


def test_a_run_that_another_process_finished_has_not_failed(
    copy: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy / "uda-1").rename(tmp_path / "elsewhere")

    def train_run(run: Run, *_: object, **__: object) -> None:
        (tmp_path / "elsewhere").rename(run.path)
        raise InputError("another process is training into it.")

    monkeypatch.setattr("instant.compare.train.train_run", train_run)
    assert main(compare(copy, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["runs"]), found["failed"], found["unfinished"]) == (4, [], 0)


def test_a_run_that_is_removed_meanwhile_is_missed(
    copy: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(copy / "uda-1")
    monkeypatch.setattr("instant.compare.train.train_entry", lambda *_: shutil.rmtree(copy / "instant-0"))
    assert main(compare(copy)) == 1
    assert capsys.readouterr().err == f"instant: 2 of the runs are gone from {copy}; the same command trains anew.\n"


# --- files of one's own -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("home")
def test_files_of_ones_own(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(120) % 2
    np.save(tmp_path / "x.npy", (rng.normal(size=(120, 3)) + 3 * truth[:, None]).astype(np.float32))
    np.save(tmp_path / "y.npy", np.where(np.arange(120) < 40, truth, -1))
    words = [str(tmp_path / "x.npy"), "steps=5", "--labels", str(tmp_path / "y.npy")]
    out = tmp_path / "out"
    asked = ["compare", *words, "--methods", "supervised,instant", "--seeds", "0,1", "--out", str(out), "--json"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert {run["accuracy_on"] for run in found["runs"]} == {"validation samples"}
    assert len(found["sentences"]) == 1
    assert found["runs"][0]["command"].endswith(f"method=supervised seed=0 --labels {tmp_path / 'y.npy'}")
    assert main(["train", *words, "method=instant", "seed=1", "--out", str(tmp_path / "alone")]) == 0
    assert_same_run(Run(out / "instant-1"), Run(tmp_path / "alone"))
    np.save(tmp_path / "y.npy", np.where(np.arange(120) < 40, 1 - truth, -1))
    asked[asked.index("0,1")] = "0,1,2"
    assert main(asked) == 2
    assert "have changed since it was begun" in capsys.readouterr().err
    np.save(tmp_path / "y.npy", np.where(np.arange(120) < 10, truth, -1))  # too few to hold any out
    assert main(asked) == 2
    assert "was begun with validation=8, not 0 (chosen from the data: its labels or" in capsys.readouterr().err


@pytest.mark.usefixtures("home")
def test_that_accuracies_will_not_be_known_is_said_before_training(tmp_path: Path, capsys: Capture) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32))
    np.save(tmp_path / "y.npy", np.where(np.arange(40) < 4, np.arange(40) % 2, -1))
    words = [str(tmp_path / "x.npy"), "steps=2", "--labels", str(tmp_path / "y.npy"), "--out", str(tmp_path / "out")]
    assert main(["compare", *words, "--methods", "supervised,instant", "--seeds", "0"]) == 0
    before, _, after = capsys.readouterr().out.partition("run 1 of 2")
    assert "Warning: no labels are held out, so accuracies will not be known." in before
    assert "so accuracy is not known" in after


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"methods": "instant"}, r"methods='instant' must be a list of names"),
        ({"seeds": 3}, r"seeds=3 must be a list of whole numbers"),
        ({"seeds": [0.5]}, r"seeds=\[0.5\] must be a list of whole numbers"),
        ({"settings": "steps=2"}, r"settings='steps=2' must be a dict, as in {'steps': '200'}"),
    ],
)
def test_arguments_in_python_are_sentences(given: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    usual: dict[str, Any] = {"settings": {"steps": "2"}, "methods": ["instant"], "seeds": [0]}
    with pytest.raises(InputError, match=sentence):
        make_plan("digits", out=tmp_path, **usual | given)


def test_seeds_may_be_an_array_and_labels_a_name(tmp_path: Path) -> None:
    assert make_plan("digits", {"steps": "2"}, methods=["instant"], seeds=np.arange(2), out=tmp_path).seeds == (0, 1)
    with pytest.raises(InputError, match=r"labels\.csv"):
        make_plan(str(tmp_path), {}, methods=["instant"], seeds=[0], out=tmp_path, labels="labels.csv")
