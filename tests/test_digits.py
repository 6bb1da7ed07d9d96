"""InstanT on real images: ten labelled digits beat the supervised baseline and LabelSpreading by a wide margin.

The measured bars (600 steps, three splits) are in benchmarks/digits.csv; here a third of the run must do.
"""

from __future__ import annotations

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
