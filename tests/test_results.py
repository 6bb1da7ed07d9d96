"""What a finished run says of itself: summary, curves, evaluation."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import (
    DIGITS,
    curves,
    points,
)

from instant.cli import main
from instant.data.sources import arrays
from instant.data.split import Oracle, make_split
from instant.engine.evaluate import evaluate_run
from instant.engine.fit import fit
from instant.engine.metrics import BINS, Meter, accuracy, quantiles, summarise_accuracy
from instant.errors import InputError
from instant.run import Run
from instant.types import Decision, Output


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
        assert {
            "loss",
            "utilisation",
            "threshold",
            "threshold_quantiles",
            "threshold_by_class",
            "confidence",
        } <= record.keys()
        assert ("accuracy" in record) == (record["step"] in (10, 20, 24))
        # Known truth, so the share of right pseudo-labels is told wherever one was used
        assert ("pseudo_label_accuracy" in record) == (record["utilisation"] > 0)
    assert any("pseudo_label_accuracy" in record for record in records)


def test_the_meter_by_hand() -> None:
    """Two steps of three rows: class 0 is called at 0.5 and 0.7 and 0.6, class 2 at 0.9, 1 and 0.8, class 1 never."""
    meter = Meter(Oracle(np.array([0, 2, 2])), classes=3)
    zero = torch.tensor(0.0)
    for label, threshold, weight in (
        ([0, 2, 0], [0.5, 0.9, 0.7], [1.0, 0, 1]),
        ([0, 2, 2], [0.6, 1.0, 0.8], [1, 0, 1]),
    ):
        seen = Decision(
            torch.arange(3), torch.tensor(label), torch.ones(3), torch.tensor(threshold), torch.tensor(weight)
        )
        meter.add(Output(zero, {"loss_u": zero + 2}, {}, seen), zero.long())
    record = meter.read()
    assert record["threshold_by_class"] == [0.6, None, 0.9]
    assert record["threshold"] == pytest.approx(4.5 / 6)
    assert record["threshold_quantiles"][0] == pytest.approx(0.5025)  # the middle of the bin from 0.5
    assert record["utilisation"] == pytest.approx(4 / 6)
    assert record["confidence"] == 1
    assert record["pseudo_label_accuracy"] == pytest.approx(3 / 4)  # of weight 4: rows 0, not 2, 0, 2
    assert (record["loss"], record["loss_u"]) == (0, 2)
    assert meter.read().keys() == {"loss", "loss_u"}  # it starts anew


def test_the_meter_counts_no_row_whose_truth_is_unknown() -> None:
    meter = Meter(Oracle(np.array([-1, 0, 1])), classes=2)
    zero = torch.zeros(3).long()
    meter.add(Output(torch.tensor(0.0), {}, {}, Decision(torch.arange(3), zero, *(torch.ones(3),) * 3)), zero[0])
    assert meter.read()["pseudo_label_accuracy"] == 0.5


def test_the_meter_says_nothing_of_what_no_row_was_used_for() -> None:
    """Both rows refused, at the lowest and the highest threshold: the middles of the first and of the last bin."""
    meter = Meter(Oracle(np.array([0, 0])), classes=2)
    zero = torch.zeros(2).long()
    seen = Decision(torch.arange(2), zero, torch.ones(2), torch.tensor([0.0, 1.0]), torch.zeros(2))
    meter.add(Output(torch.tensor(0.0), {}, {}, seen), zero[0])
    record = meter.read()
    assert record["utilisation"] == 0
    assert "pseudo_label_accuracy" not in record
    assert (record["threshold_quantiles"][0], record["threshold_quantiles"][-1]) == (0.5 / BINS, 1 - 0.5 / BINS)


@pytest.mark.parametrize("first", [0, 3])
def test_the_meter_keeps_the_first_step_that_breaks_and_what_broke_it(first: int) -> None:
    meter = Meter(Oracle(np.array([0])), classes=2)
    fine, lost = torch.tensor(1.0), torch.tensor(float("nan"))
    for step in range(6):
        metrics = {"calm": fine, "wild": lost if step == first else fine, "late": lost if step > first else fine}
        meter.add(Output(lost if step >= first else fine, metrics, {}), torch.tensor(step))
    assert meter.culprits() == ["loss", "wild"]
    assert meter.read()["broken_step"] == first


def test_quantiles_are_the_middles_of_their_bins() -> None:
    """Of 100 values in five bins 3, 30, 60, 90, 100 lie at or below: 5, 25, 50, 75, 95 of them from the second on."""
    found = quantiles(np.array([3.0, 27.0, 30.0, 30.0, 10.0]))
    assert found == pytest.approx([0.3, 0.3, 0.5, 0.7, 0.9])


def test_accuracy_is_of_the_samples_whose_class_is_known() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.6, 0.4]])
    assert accuracy(probs, np.array([0, 1, 1, -1])) == pytest.approx(2 / 3)
    assert accuracy(probs, np.array([-1, 0, 0, -1])) == 0.5  # class 0 is a class


def test_last_and_best_are_told_apart() -> None:
    found = summarise_accuracy([0.25, 0.75, 0.5])
    assert (found["accuracy_last"], found["accuracy_median20"], found["accuracy_best"]) == (0.5, 0.5, 0.75)
    assert set(summarise_accuracy([0.5, float("nan")]).values()) == {None}


def test_the_median_is_of_the_last_twenty() -> None:
    assert summarise_accuracy([k / 100 for k in range(1, 26)])["accuracy_median20"] == pytest.approx(0.155)


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
    """Nor does truth that was trained on: it says nothing about the others."""
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.full(60, -1)
    y[:12] = [0, 1, 2] * 4
    recipe = points("pi_model", labels="6")[0]  # uses every sample: an interval of 5 x 16 rows sees all 60
    half, whole = (make_split(arrays(x, y), labels=labels) for labels in (6, None))
    for split, told in (
        (half, True),
        (whole, False),
        (dataclasses.replace(half, oracle=Oracle(np.full(60, -1))), False),
    ):
        for record in fit(recipe, split).history[:4]:
            assert record["utilisation"] == 1
            assert ("pseudo_label_accuracy" in record) is told
