"""VAT's parts against closed forms, and why xi is not the published 1e-6."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F

from instant import random
from instant.backbones import build
from instant.types import Prediction, Views
from instant.vat import VAT, direction, divergence, unit


def test_divergence_by_hand() -> None:
    p, q = torch.tensor([[0.7, 0.3]]), torch.tensor([[0.5, 0.5]])
    expected = 0.7 * math.log(0.7 / 0.5) + 0.3 * math.log(0.3 / 0.5)
    assert float(divergence(p, q.log())) == pytest.approx(expected, rel=1e-5)


def test_unit_is_per_sample() -> None:
    d = unit(torch.tensor([[[3.0, 4.0]], [[0.0, 2.0]]]))
    torch.testing.assert_close(d, torch.tensor([[[0.6, 0.8]], [[0.0, 1.0]]]))


def linear(weight: torch.Tensor):
    return lambda x: Prediction(x @ weight.t(), x)


def test_direction_of_a_linear_classifier_is_its_weight_difference() -> None:
    """Two classes with logits (w.x, 0): the prediction changes along w and nowhere else."""
    w = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    x = torch.tensor([[0.1, 0.2], [-0.3, 0.1]])
    p = F.softmax(x @ w.t(), 1)
    found = direction(lambda x: x @ w.t(), x, p, random.root(0))
    torch.testing.assert_close(found.abs(), torch.tensor([[0.6, 0.8], [0.6, 0.8]]), atol=1e-3, rtol=1e-3)


def test_the_direction_is_looked_for_at_a_distance_of_xi() -> None:
    x, w, seen = torch.zeros(3, 2), torch.tensor([[3.0, 4.0], [0.0, 0.0]]), []

    def logits(moved: torch.Tensor) -> torch.Tensor:
        seen.append(moved.detach())
        return moved @ w.t()

    direction(logits, x, torch.full((3, 2), 0.5), random.root(0), 0.25)
    assert len(seen) == 1, "one power iteration"
    torch.testing.assert_close(seen[0].norm(dim=1), torch.full((3,), 0.25))


def test_loss_by_hand() -> None:
    w = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    x_l, x_w = torch.tensor([[0.2, 0.0]]), torch.tensor([[0.0, 0.0]])
    method = VAT(eps=0.1, entropy=0.5, weight=2.0)
    y_l = torch.tensor([0])
    views = Views(x_l, y_l, x_w, x_w[:0], torch.tensor([0]), torch.tensor(9), random.root(0), y_l, torch.ones(0))
    out = method(linear(w), linear(w), views)
    # x_w: p = (1/2, 1/2), entropy log 2; moved by 0.1 along +-(.6, .8) the logit is +-.5
    q = 1 / (1 + math.exp(-0.5))
    adversarial = 0.5 * math.log(0.5 / q) + 0.5 * math.log(0.5 / (1 - q))
    supervised = -math.log(1 / (1 + math.exp(-0.6)))
    expected = supervised + 2 * adversarial + 0.5 * math.log(2)
    assert float(out.loss) == pytest.approx(expected, rel=1e-3)


def test_the_prediction_is_held_still_and_all_rows_count_alike() -> None:
    """Each pass adds an offset of its own to the unlabelled logits: that of the first, p's, has no gradient.

    At x = 0 the logits are 0, and the entropy of both rows is at its largest: log 2, without a gradient.
    """
    w = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    offsets = [torch.zeros(2, requires_grad=True) for _ in range(3)]
    passes = iter(offsets)

    def model(x: torch.Tensor, still: torch.Tensor | None = None) -> Prediction:
        logits = x @ w.t()
        return Prediction(torch.cat([logits[:1], logits[1:] + next(passes)]), x)

    x_l, x_w, y_l = torch.zeros(1, 2), torch.zeros(2, 2), torch.tensor([0])
    views = Views(x_l, y_l, x_w, x_w[:0], torch.arange(2), torch.tensor(9), random.root(0), y_l, torch.ones(0))
    out = VAT(eps=0.1, entropy=0.5)(model, model, views)
    assert float(out.metrics["entropy"]) == pytest.approx(math.log(2))
    q = 1 / (1 + math.exp(-0.5))  # as above, the same for both rows
    adversarial = 0.5 * math.log(0.5 / q) + 0.5 * math.log(0.5 / (1 - q))
    assert float(out.loss.detach()) == pytest.approx(1.5 * math.log(2) + adversarial, rel=1e-4)
    of_p, _, of_moved = torch.autograd.grad(out.loss, offsets, allow_unused=True)
    torch.testing.assert_close(of_p, torch.zeros(2))
    assert of_moved.abs().min() > 0.01


def test_predictions_are_held_against_those_of_the_same_batch() -> None:
    """Batch statistics of other rows would make a difference where nothing has moved."""
    torch.manual_seed(0)
    model = build("small_cnn", shape=(1, 8, 8), classes=3).train()
    x_l, x_w, y_l = torch.randn(4, 1, 8, 8) + 2, torch.randn(6, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    views = Views(x_l, y_l, x_w, x_w[:0], torch.arange(6), torch.tensor(9), random.root(0), y_l, torch.ones(0))
    assert float(VAT(eps=0.0)(model, model, views).metrics["loss_unsupervised"]) == pytest.approx(0, abs=1e-6)
    assert float(VAT(eps=1.0)(model, model, views).metrics["loss_unsupervised"]) > 1e-3


def agreement(xi: float) -> float:
    """Mean cosine between the direction found in float32 and, with a well-chosen step, in float64."""
    torch.manual_seed(0)
    model = build("wrn_28_2", shape=(3, 32, 32), classes=10)
    x = torch.randn(6, 3, 32, 32)
    exact = copy.deepcopy(model).double()
    p = F.softmax(model(x).logits.detach(), 1)
    found = direction(lambda x: model(x).logits, x, p, random.root(0), xi)
    p64 = F.softmax(exact(x.double()).logits.detach(), 1)
    true = direction(lambda x: exact(x).logits, x.double(), p64, random.root(0), 1e-4)
    return float(F.cosine_similarity(found.flatten(1).double(), true.flatten(1)).mean())


def test_our_step_finds_the_direction_and_the_published_one_finds_noise() -> None:
    assert agreement(VAT().xi) > 0.98
    assert agreement(1e-6) < 0.7
