"""The README's Python runs, and its numbers are those of the files beside them."""

from __future__ import annotations

import csv
import re
import statistics
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    short, code = re.findall(r"```python\n(.*?)```", README, re.S)
    rng = np.random.default_rng(0)
    y_test = np.arange(60) % 3
    centres = rng.normal(size=(3, 5)) * 4
    truth = np.arange(240) % 3
    names = {
        "x": centres[truth] + rng.normal(size=(240, 5)),
        "y": np.where(np.arange(240) < 6, truth, -1),
        "x_test": centres[y_test] + rng.normal(size=(60, 5)),
        "y_test": y_test,
    }
    exec(short, names | {"X": names["x"], "X_new": names["x_test"]})
    exec(code.replace("vectors()", 'vectors().override({"steps": "60"})'), names)
    assert float(capsys.readouterr().out) > 0.9


def test_the_digits_table_is_what_was_measured() -> None:
    measured: dict[tuple[str, str], list[float]] = {}
    with open(ROOT / "benchmarks" / "digits.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            measured.setdefault((row["method"], row["labels"]), []).append(100 * float(row["accuracy"]))
    shown = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|$", README, re.M)
    assert {name for name, _, _ in shown} == {name for name, _ in measured}
    for name, ten, forty in shown:
        assert float(ten) == pytest.approx(statistics.mean(measured[name, "10"]), abs=0.06)
        assert float(forty) == pytest.approx(statistics.mean(measured[name, "40"]), abs=0.06)
