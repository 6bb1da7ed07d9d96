"""The problem whose truth is known: what it says of its samples, and the docs of the estimators, is true."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instant.data.synthetic import Smudged
from instant.errors import InputError

PROBLEM = Smudged()
ROOT = Path(__file__).parent.parent


def test_posterior_is_that_of_the_gaussians() -> None:
    drawn = PROBLEM.draw(50, seed=0)
    means = np.zeros((5, 6))
    means[:, :5] = 2.5 * np.eye(5)
    density = np.exp(-0.5 * ((drawn.latent[:, None] - means) ** 2).sum(2))
    np.testing.assert_allclose(drawn.posterior, density / density.sum(1, keepdims=True), rtol=1e-10)


def test_transition_by_hand() -> None:
    sample = np.zeros((1, 6))  # u = 0: e = .05 + .55 / 2 = .325
    (matrix,) = PROBLEM.transition(sample)
    np.testing.assert_allclose(matrix[0], [0.675, 0.75 * 0.325, *[0.25 / 3 * 0.325] * 3])
    assert matrix[4, 0] == pytest.approx(0.75 * 0.325)  # the class after the last is the first
    np.testing.assert_allclose(matrix.sum(1), 1)


def test_calls_follow_the_matrix_of_their_sample() -> None:
    drawn = PROBLEM.draw(40_000, seed=1)
    np.testing.assert_allclose(drawn.noisy, (drawn.posterior[:, :, None] * drawn.transition).sum(1))
    for k in range(5):
        called = np.bincount(drawn.called[drawn.y == k], minlength=5) / (drawn.y == k).sum()
        np.testing.assert_allclose(called, drawn.transition[:, k].mean(0), atol=0.02)
    # two views of a smudged sample are wrong more often together than two samples: E[e^2] = .14, E[e]^2 = .11
    error = PROBLEM.error(drawn.latent)
    both = ((drawn.called != drawn.y) & (drawn.again != drawn.y)).mean()
    assert both == pytest.approx((error**2).mean(), abs=0.01)
    assert both > error.mean() ** 2 + 0.02


def test_images_say_what_their_vectors_say() -> None:
    images, vectors = Smudged(images=True).draw(20, seed=2), PROBLEM.draw(20, seed=2)
    assert images.x.shape == (20, 1, 8, 8)
    flat = images.x.reshape(20, 64)
    np.testing.assert_allclose(flat @ flat.T, vectors.x @ vectors.x.T, atol=1e-4)
    np.testing.assert_array_equal(images.called, vectors.called)


def test_labelled_draws_take_the_classes_in_turn() -> None:
    assert PROBLEM.draw(10, seed=3, balanced=True).y.tolist() == [0, 1, 2, 3, 4] * 2


@pytest.mark.parametrize("wrong", [{"classes": 2}, {"classes": 9, "images": True}, {"low": 0.7}, {"high": 1.5}])
def test_what_is_no_problem(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected at least 3 classes, in images at most 8, and 0 <= low <= high <= 1"):
        Smudged(**wrong)


@pytest.mark.parametrize(
    ("file", "columns"),
    [
        ("transition.csv", "SYNTHETIC"),
        ("transition-mixture.csv", "TRAINED"),
        ("transition-digits.csv", "TRAINED"),
        ("transition-digits-full.csv", "TRAINED"),
        ("transition-digits-decay.csv", "TRAINED"),
    ],
)
def test_the_tables_of_the_docs_are_what_was_measured(file: str, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark = importlib.import_module("transition")
    measured = benchmark.table(benchmark.read(ROOT / "benchmarks" / file), getattr(benchmark, columns))
    assert measured in (ROOT / "docs" / "transition.md").read_text(encoding="utf-8")


def test_the_true_matrix_accepts_just_the_bayes_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """P(k) - m(x) = T_kk (P(Y = k) - P(Y = s)): above the threshold if and only if k is the Bayes label."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    measures = importlib.import_module("transition_measure")
    found = measures.measure_synthetic(measures.Job("vectors", 1, 4, "true T"))
    test = PROBLEM.draw(measures.TEST, 3 * 4 + 2)
    share = (test.noisy.argmax(1) == test.posterior.argmax(1)).mean()
    assert (found["error_T"], found["error_tau"], found["bayes"]) == (0, 0, 1)
    assert found["share"] == pytest.approx(share)
