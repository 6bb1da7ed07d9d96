"""docs/cifar10.md: what its first table says is what benchmarks/cifar10_40.csv holds."""

from __future__ import annotations

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = {
    "InstanT": "instant",
    "InstanT, shorter and at 0.1": "shorter",
    "InstanT, the paper's kappa": "paper",
    "AdaMatch": "adamatch",
    "FreeMatch": "freematch",
    "FixMatch": "fixmatch",
    "InstanT as released": "released",
    "InstanT, `kappa=self_adaptive`": "self_adaptive",
}


def test_the_table_is_the_last_evaluation_of_every_run() -> None:
    with open(ROOT / "benchmarks" / "cifar10_40.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    last = {_run(row): row for row in rows}  # evaluations stand in the order of their steps
    text = (ROOT / "docs" / "cifar10.md").read_text(encoding="utf-8")
    table = text.split("| method | start | labels | seed | steps |")[1].split("\n\n")[0].splitlines()[2:]
    seen = set()
    for line in table:
        name, start, draw, seed, steps, accuracy, used, right = (cell.strip() for cell in line.strip("|").split("|"))
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
            assert found[1] == f"{100 * float(row[column]):.{digits}f}", (line, column)
        if there := re.search(r"the paper's kappa there: ([\d.]+) %", accuracy):
            same = [r for r in rows if _run(r) == ("paper", start, draw, seed) and r["step"] == row["step"]]
            assert there[1] == f"{100 * float(same[0]['accuracy']):.2f}"
    assert seen == set(last)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for (name, *_), row in last.items():
        if name == "instant":
            assert f"{100 * float(row['accuracy']):.2f} %" in readme


def _run(row: dict[str, str]) -> tuple[str, ...]:
    return row["name"], row["start"], row["draw"], row["seed"]
