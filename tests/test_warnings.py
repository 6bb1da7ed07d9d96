"""Every warning is provoked by a run that deserves it, and by no run that does not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from runs import points

from instant import recipes
from instant.config import Recipe
from instant.data.sources import arrays
from instant.data.split import Split
from instant.engine.build import split_for
from instant.engine.fit import fit
from instant.report.warnings import Warn, Watch, flooding, flooding_records, from_records, lagging, unequal


def record(step: int, used: float, threshold: float = 0.9, right: float | None = None) -> dict[str, Any]:
    known = {} if right is None else {"pseudo_label_accuracy": right}
    return {"step": step, "utilisation": used, "threshold": threshold, "threshold_quantiles": [threshold] * 5} | known


def kinds(found: list[Warn]) -> list[str]:
    return [warning.kind for warning in found]


def told(recipe: Recipe, split: Split) -> list[str]:
    """What is said while this is trained."""
    said: list[str] = []
    fit(recipe, split, callbacks=[Watch(said.append)])
    return said


RECIPE = recipes.digits(method="instant").override({"steps": "100"})


def test_nobody_is_accepted() -> None:
    records = [record(step, used) for step, used in ((40, 0.3), (60, 0.004), (80, 0.0), (100, 0.001))]
    assert kinds(from_records(records, RECIPE)) == ["none"]
    sentence = from_records(records, RECIPE)[0].sentence
    assert "Almost no unlabelled sample is accepted: 0.1 % at step 100" in sentence
    assert "Lower method.base (now 0.95)" in sentence
    assert from_records(records[:3], RECIPE) == []  # 0.3 is among the last three
    early = [record(step, 0.0) for step in (5, 10, 15)]  # before a quarter of the steps: every run starts so
    assert from_records(early, RECIPE) == []


def test_everybody_is_accepted() -> None:
    records = [record(step, 0.999, right=0.7) for step in (60, 80, 100)]
    assert kinds(from_records(records, RECIPE)) == ["all"]
    assert "Raise method.base (now 0.95)" in from_records(records, RECIPE)[0].sentence
    assert kinds(from_records([record(step, 0.999) for step in (60, 80, 100)], RECIPE)) == ["all"]  # truth not known
    assert from_records([record(step, 0.999, right=0.99) for step in (60, 80, 100)], RECIPE) == []  # all, and rightly
    assert from_records([record(step, 0.99) for step in (60, 80, 100)], RECIPE) == []
    assert from_records([record(step, 1.0, threshold=0.0) for step in (60, 80, 100)], RECIPE) == []  # has no threshold


def test_thresholds_stuck_at_one() -> None:
    """Said instead of the sentence about nobody, which only follows from it."""
    records = [record(step, 0.0, threshold=1.0) for step in (60, 80, 100)]
    assert kinds(from_records(records, RECIPE)) == ["threshold"]
    assert from_records([record(step, 0.1, threshold=0.99) for step in (60, 80, 100)], RECIPE) == []


def test_averaged_weights_lag_behind() -> None:
    records = [record(100, 0.75), {"step": 100, "accuracy": 0.5}]
    assert kinds(lagging(records, RECIPE, accepted=0)) == ["lag"]
    assert "training used 75 %" in lagging(records, RECIPE, accepted=0)[0].sentence
    assert lagging(records, RECIPE, accepted=1) == []
    assert lagging([record(100, 0.004)], RECIPE, accepted=0) == []  # nobody was, all the time
    assert lagging(records, dataclasses.replace(RECIPE, ema=0.0), accepted=0) == []  # there is no average


@pytest.mark.parametrize(
    ("calls", "labels", "floods"),
    [
        ([85, 15], [20, 20], False),  # odds 5.67 against 1
        ([86, 14], [20, 20], True),  # 6.14
        ([39] + [61 / 9] * 9, [4] * 10, False),  # 0.639 against 0.111: 5.75 times
        ([41] + [59 / 9] * 9, [4] * 10, True),  # 6.25 times
        ([19] + [81 / 99] * 99, [4] * 100, False),  # many times its share, and yet no flood
        ([21] + [79 / 99] * 99, [4] * 100, True),
        ([90, 10], [36, 4], False),  # as common as its labels say
        ([0, 0], [20, 20], False),  # nobody is accepted
        ([100, 0], [20, 20], True),
    ],
)
def test_one_class_floods(calls: list[float], labels: list[int], floods: bool) -> None:
    recipe, split = points("fixmatch")
    names, targets = tuple(f"class {k}" for k in range(len(calls))), np.repeat(np.arange(len(labels)), labels)
    split = dataclasses.replace(split, classes=names, targets=targets)
    found = flooding(calls, "the accepted samples", recipe, split)
    assert kinds(found) == ["flood"] * floods
    if floods:
        assert f"{calls[0]} % of the accepted samples are called 'class 0'" in found[0].sentence
        assert "use a method that aligns" in found[0].sentence
        aligned = flooding(calls, "the accepted samples", points("instant")[0], split)
        assert "use a method that aligns" not in aligned[0].sentence  # it does already
        able = points("instant", **{"method.align": "false"})[0]
        assert "or add method.align=true;" in flooding(calls, "the accepted samples", able, split)[0].sentence


def test_a_flood_lasts() -> None:
    recipe, split = points()
    steps = recipe.steps

    def at(share: float, *called: float) -> dict[str, Any]:
        return {"step": round(share * steps), "utilisation": 0.5, "called": list(called)}

    flood, calm, other = (0.95, 0.05, 0.0), (0.4, 0.3, 0.3), (0.0, 0.05, 0.95)
    assert kinds(flooding_records([at(0.5, *flood), at(1, *flood)], recipe, split)) == ["flood"]
    assert flooding_records([at(0.5, *calm), at(1, *flood)], recipe, split) == []
    assert flooding_records([at(0.5, *flood), at(1, *calm)], recipe, split) == []
    assert flooding_records([at(0.5, *other), at(1, *flood)], recipe, split) == []
    assert flooding_records([at(0.1, *flood), at(0.6, *flood)], recipe, split) == []


def skewed(method: str, counts: tuple[int, ...], **settings: str) -> tuple[Recipe, Split]:
    """Every sample labelled, so many of each class."""
    y = np.repeat(np.arange(len(counts)), counts)
    x = np.random.default_rng(0).normal(size=(len(y), 5)) + 2 * y[:, None]
    recipe = recipes.vectors(method=method).override(
        {"steps": "4", "batch": "8", "ratio": "2", "backbone.width": "8", "device": "cpu"} | settings
    )
    return recipe, split_for(recipe, arrays(x, y, x, y))


def test_equal_shares_against_unequal_labels() -> None:
    found = unequal(*skewed("instant", (30, 10)))
    assert kinds(found) == ["unequal"]
    assert "30 of '0' against 10 of '1'. Set method.align_target=labelled" in found[0].sentence
    assert "Use method=adamatch" in unequal(*skewed("softmatch", (30, 10)))[0].sentence
    assert kinds(unequal(*skewed("instant", (30, 10), **{"method.transition": "network"}))) == ["unequal"]
    for method, counts in (
        ("instant", (20, 20)),
        ("instant", (13, 8)),  # 2 x 2.5^2 / 10.5 = 1.19: chance does this to every fourth draw
        ("instant", (1100, 900)),  # surely unequal, and not by much
        ("adamatch", (30, 10)),  # aligns with the labels
        ("fixmatch", (30, 10)),  # does not align
        ("instant_2", (30, 10)),
        ("supervised", (30, 10)),
    ):
        assert unequal(*skewed(method, counts)) == [], (method, counts)
    assert unequal(*skewed("instant", (30, 10), **{"method.align_target": "labelled"})) == []


LONGER = {"steps": "40", "log_every": "4", "evaluate_every": "8"}


def test_real_runs_that_go_wrong_say_so_once() -> None:
    """A base of 1 asks for certainty; untrained, FixMatch accepts everybody at 0.01 and nobody at 0.99."""
    stuck = told(*points("instant", **LONGER, **{"method.base": "1.0", "method.relative": "false"}))
    assert len(stuck) == 1
    assert stuck[0].startswith("Thresholds are stuck at 1: since step")
    open_gate = told(*points("fixmatch", **LONGER, **{"method.threshold": "0.01", "optim.lr": "0.0001"}))
    assert any(sentence.startswith("Nearly every unlabelled sample is accepted: 100.0 %") for sentence in open_gate)
    shut = told(*points("fixmatch", **LONGER, **{"method.threshold": "0.99", "optim.lr": "0.00001"}))
    assert [sentence[:41] for sentence in shut if "flood" not in sentence] == [
        "Almost no unlabelled sample is accepted: "
    ]


def test_a_real_run_with_unequal_labels_says_so_at_once() -> None:
    assert "The method makes classes equally common" in told(*skewed("instant", (30, 10)))[0]


def test_a_real_flood() -> None:
    """Nine unlabelled samples in ten are of one class, the labels are half and half."""
    y = np.repeat([0, 1], (190, 10))
    x = np.random.default_rng(0).normal(size=(200, 5)) + 4 * y[:, None]
    recipe = recipes.vectors(labels=10, method="fixmatch").override(
        LONGER | {"batch": "8", "ratio": "2", "backbone.width": "16", "device": "cpu"}
    )
    said = told(recipe, split_for(recipe, arrays(x, y, x, y)))
    assert len(said) == 1
    assert said[0].startswith("One class floods the others: ")
    assert "are called '0', which has 50 % of the labels" in said[0]


@pytest.mark.parametrize("method", ["instant", "fixmatch", "freematch", "softmatch", "mean_teacher", "supervised"])
def test_healthy_runs_are_silent(method: str) -> None:
    assert told(*points(method, steps="200", log_every="10", evaluate_every="50")) == []
