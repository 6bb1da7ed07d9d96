"""InstanT on real images: ten labelled digits beat the supervised baseline and LabelSpreading by a wide margin.

The measured bars (600 steps, three splits) are in benchmarks/digits.csv; here a third of the run must do.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from instant.data.sources import load
from instant.demo import label_spreading
from instant.engine.build import split_for
from instant.engine.fit import fit
from instant.recipes import digits


def test_ten_labels_and_unlabelled_digits_beat_ten_labels() -> None:
    source = load("digits")
    found = {}
    for method in ("supervised", "instant"):
        recipe = digits(labels=10, method=method).override({"steps": "200", "evaluate_every": "200"})
        split = split_for(recipe, source)
        trained = fit(recipe, split)
        found[method] = trained.summary["accuracy_last"]
    found["label spreading"] = label_spreading(source, split)
    assert found["instant"] > 0.88, found
    assert found["instant"] > found["supervised"] + 0.2, found
    assert found["instant"] > found["label spreading"], found
    assert trained.summary["pseudo_label_accuracy"] > 0.85
    assert trained.summary["utilisation"] > 0.6


def test_the_benchmark_loses_no_cell_and_measures_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    benchmark = importlib.import_module("digits")
    monkeypatch.setattr(benchmark, "METHODS", ("label_spreading", "no_such_method"))
    monkeypatch.setattr(benchmark, "LABELS", (10,))
    monkeypatch.setattr(benchmark, "SEEDS", (0, 1))
    path = tmp_path / "digits.csv"
    published = Path(benchmark.HERE / "digits.csv").read_text(encoding="utf-8").splitlines()
    seed_0 = next(line for line in published if ",10,0,label_spreading," in line)
    path.write_text(f"{published[0]}\n{seed_0}\n", encoding="utf-8")
    failed = benchmark.run(path, 1)
    assert len(failed) == 2
    assert all("'no_such_method' is not known" in sentence for sentence in failed)
    head, first, second = path.read_text(encoding="utf-8").splitlines()
    assert (head, first) == (published[0], seed_0)
    assert ",10,1,label_spreading,0." in second
    benchmark.table(benchmark.read(path))
    assert "(86.4 8" in capsys.readouterr().out
