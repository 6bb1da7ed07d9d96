"""docs/cifar10.md and docs/cifar10-trials.md: their tables of runs are what benchmarks/cifar10_40*.csv hold."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from instant.recipes import resolve

ROOT = Path(__file__).parents[1]
NAMES = {
    "InstanT": "instant",
    "InstanT, mixing from the start": "mixed",
    "InstanT, no mixing": "unmixed",
    "InstanT, SGD at 0.03": "sgd",
    "InstanT, SGD at 0.1, longer": "longer",
    "InstanT, SGD at 0.1, shorter": "shorter",
    "InstanT, the paper's kappa": "paper",
    "AdaMatch": "adamatch",
    "FreeMatch": "freematch",
    "FixMatch": "fixmatch",
    "InstanT as released": "released",
    "InstanT, T fixed to the identity": "identity",
    "InstanT, `kappa=self_adaptive`": "self_adaptive",
}


def test_the_table_is_the_last_evaluation_of_every_run() -> None:
    rows = _rows()
    last = _last(row for row in rows if row["start"] != "short")
    seen = set()
    for name, start, draw, seed, steps, accuracy, used, right in _table("| method | start | labels | seed | steps |"):
        row = last[NAMES[name], start, draw, seed]
        seen.add((NAMES[name], start, draw, seed))
        assert int(steps.split(" of ")[0].replace(",", "")) == int(row["step"])
        for shown, column, digits in (
            (accuracy, "accuracy", 2),
            (used, "utilisation", 1),
            (right, "pseudo_label_accuracy", 1),
        ):
            found = re.search(r"([\d.]+) %", shown)
            assert found
            assert found[1] == f"{100 * float(row[column]):.{digits}f}", (name, start, draw, seed, column)
        if there := re.search(r"the paper's kappa there: ([\d.]+) %", accuracy):
            same = [r for r in rows if _run(r) == ("paper", start, draw, seed) and r["step"] == row["step"]]
            assert there[1] == f"{100 * float(same[0]['accuracy']):.2f}"
    assert seen == set(last)


def test_the_comparison_is_the_last_evaluation_of_every_run_from_the_same_features() -> None:
    last = _last(row for row in _rows() if row["start"] == "short")
    seen = set()
    for name, *cells, mean, used, right, threshold in _table("| method | seed 0 | seed 1 | seed 2 |"):
        accuracies = []
        for seed, cell in enumerate(cells):
            if cell:
                run = NAMES[name], "short", "usb", str(seed)
                seen.add(run)
                accuracies.append(100 * float(last[run]["accuracy"]))
                assert last[run]["step"] == "16000"
                assert cell == f"{accuracies[-1]:.2f} %", (name, seed)
        assert mean == (f"{sum(accuracies) / 3:.2f} %" if len(accuracies) == 3 else "")
        first = last[NAMES[name], "short", "usb", "0"]
        assert used == f"{100 * float(first['utilisation']):.1f} %", name
        assert right == f"{100 * float(first['pseudo_label_accuracy']):.1f} %", name
        assert threshold == f"{float(first['threshold']):.3f}", name
    assert seen == set(last)


def test_the_schedules_are_compared_as_they_were_evaluated() -> None:
    usual, longer = ("sgd", "features", "usb"), ("longer", "shared", "usb")
    runs = (*usual, "1"), (*usual, "2"), (*longer, "0"), (*longer, "1")
    known = {(_run(row), row["step"]): f"{100 * float(row['accuracy']):.1f}" for row in _rows()}
    table = _table("| learning rate | from 0.03, seed 1 |")
    assert len(table) == 5
    for _, *cells in table:
        for run, cell in zip(runs, cells, strict=True):
            accuracy, step = re.fullmatch(r"([\d.]+) % \(([\d,]+)\)", cell).groups()  # type: ignore[union-attr]
            assert accuracy == known[run, step.replace(",", "")]


def test_the_optimizers_are_compared_as_they_were_tried() -> None:
    names = {
        "Muon, 0.1": "250 labels",
        **{f"Muon, {rate}": f"250 labels, {rate}" for rate in (0.03, 0.2, 0.4)},
        "SGD, 0.03": "250 labels, SGD",
        "SGD, 0.03, the paper's kappa with base 0.95": "250 labels, SGD, the paper's kappa, base 0.95",
        "SGD, 0.03, FreeMatch": "250 labels, SGD, FreeMatch",
    }
    known = {(row["trial"], int(row["step"])): row for row in _rows("cifar10_40-trials.csv")}
    table = _table("| optimizer, learning rate |")
    assert {name for name, *_ in table} == set(names)
    for name, *cells, used, right in table:
        for step, cell in zip((2000, 4000, 8000, 12000, 16000), cells, strict=True):
            row = known.get((names[name], step))
            assert cell.strip("*") == (f"{100 * float(row['validation_accuracy']):.1f} %" if row else ""), (name, step)
        last = known.get((names[name], 16000))
        assert used == (f"{100 * float(last['utilisation']):.1f} %" if last else "")
        assert right == (f"{100 * float(last['pseudo_label_accuracy']):.1f} %" if last else "")


def test_mixing_is_compared_as_it_was_tried_and_as_it_ended() -> None:
    names = {"0": "250 labels again", "0.5": "250 labels, mix 0.5", "0.8": "250 labels, mix 0.8"}
    known = {(row["trial"], int(row["step"])): row for row in _rows("cifar10_40-trials.csv")}
    table = _table("| mix |")
    assert {share for share, *_ in table} == set(names)
    for share, *cells, used, right in table:
        for step, cell in zip((2000, 4000, 8000, 12000, 16000), cells, strict=True):
            row = known[names[share], step]
            assert cell.strip("*") == f"{100 * float(row['validation_accuracy']):.1f} %", (share, step)
        last = known[names[share], 16000]
        assert used == f"{100 * float(last['utilisation']):.1f} %"
        assert right == f"{100 * float(last['pseudo_label_accuracy']):.1f} %"

    ends = _table("| steps before the end | mixing, Muon, seed 0 |")
    runs = ("mixed", "features", "usb", "0"), ("unmixed", "features", "usb", "2"), ("longer", "shared", "usb", "0")
    _require_ends(ends, runs)
    runs = ("mixed", "features", "usb", "2"), ("unmixed", "features", "usb", "2"), ("mixed", "features", "usb", "0")
    _require_steps(_table("| step | mixing, seed 2 |"), runs)


def test_the_recipe_is_shown_as_it_ran() -> None:
    recipe = ("instant", "features", "usb", "1"), ("instant", "shared", "usb", "2")
    earlier = ("unmixed", "features", "usb", "2"), ("mixed", "features", "usb", "0")
    _require_steps(_table("| step | seed 1 | right |"), (*recipe, *earlier))
    _require_ends(_table("| steps before the end | seed 1 |"), recipe)


def _require_steps(table: list[list[str]], runs: tuple[tuple[str, ...], ...]) -> None:
    known = {(_run(row), int(row["step"])): row for row in _rows()}
    assert len(table) >= 6
    for step, *cells in table:
        for number, run in enumerate(runs):
            row = known[run, int(step.replace(",", ""))]
            found = [f"{100 * float(row['accuracy']):.2f} %", f"{100 * float(row['pseudo_label_accuracy']):.1f} %"]
            assert cells[2 * number : 2 * number + 2] == found, (run, step)


def _require_ends(table: list[list[str]], runs: tuple[tuple[str, ...], ...]) -> None:
    known = {(_run(row), int(row["step"])): row for row in _rows()}
    assert len(table) == 7
    for before, *cells in table:
        for number, run in enumerate(runs):
            row = known[run, max(step for name, step in known if name == run) - int(before.replace(",", ""))]
            columns = (("accuracy", 2), ("utilisation", 1), ("pseudo_label_accuracy", 1))
            found = [f"{100 * float(row[name]):.{digits}f}" for name, digits in columns]
            assert cells[3 * number : 3 * number + 3] == found, (run, before)


@pytest.mark.parametrize("name", ["cifar10_40.csv", "cifar10_40-trials.csv"])
def test_every_command_means_a_run_of_as_many_steps(name: str) -> None:
    """As the recipes are today, where a setting that they change would change what an old command means."""
    last = {row["command"]: row for row in _rows(name)}
    assert len(last) > 20
    for command, row in last.items():
        words = command.removeprefix("instant train ").split()
        settings = dict(word.split("=", 1) for word in words[1:])
        recipe = resolve(words[0], {key: text for key, text in settings.items() if key != "pretrained"})
        assert recipe.steps >= int(row["step"]), command
        if "name" in row and row["hardware"]:  # which is known of finished runs
            assert recipe.steps == int(row["step"]), command
        if row.get("name") == "mixed":
            assert (recipe.mix, recipe.mix_after) == (0.5, 0), command
        elif row.get("name") == "instant" and row["start"] != "short":
            assert (recipe.mix, round(recipe.mix_after * recipe.steps)) == (0.5, 50_000), command
        elif "mix 0." not in row.get("trial", ""):
            assert recipe.mix == 0, command


def test_the_readme_has_every_result_of_instant() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for (name, *_), row in _last(_rows()).items():
        if name == "instant":
            assert f"{100 * float(row['accuracy']):.2f} %" in readme


def _rows(name: str = "cifar10_40.csv") -> list[dict[str, str]]:
    with open(ROOT / "benchmarks" / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _last(rows: Iterable[dict[str, str]]) -> dict[tuple[str, ...], dict[str, str]]:
    return {_run(row): row for row in rows}  # evaluations stand in the order of their steps


def _table(head: str) -> list[list[str]]:
    text = "\n\n".join(
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("cifar10.md", "cifar10-trials.md")
    )
    lines = text.split(head)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _run(row: dict[str, str]) -> tuple[str, ...]:
    return row["name"], row["start"], row["draw"], row["seed"]
