"""Estimators of the transition matrix T(x)[i, j] = P(predicted j | true i, x); rows sum to 1."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from instant.types import State


class Sight(NamedTuple):
    """What a step shows of the unlabelled rows, detached: no class is known, but each row was looked at twice."""

    probs: Tensor  # (B, K) weak-view probabilities, as the classifier gives them
    other: Tensor  # (B,) hard predictions for the same rows in their other view
    label: Tensor  # (B,) pseudo-labels
    above: Tensor  # (B,) by how much a row is more confident than its threshold


class Transition(nn.Module):
    """The face of every estimator: matrices out, and what moves them.

    `forward` receives the classifier's detached features (rows, D) and the network's inputs (rows, ...), and returns
    (rows, K, K), or (K, K) when the estimate does not depend on x. It is all that an estimator with parameters
    must write: they are trained by `loss`. One with running statistics reads its buffers in `forward` and returns
    their next values from `observe`; the engine commits them after the backward pass, so a step works with the T of
    the steps before it. `decay` is the weight decay of its parameters where the method's options name none: right where
    zero means near the identity, so that what no data speaks of any more is forgotten.
    """

    decay: float = 0.0

    def forward(self, features: Tensor, x: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} must define forward(features, x)")

    def loss(self, matrix: Tensor, y: Tensor, predicted: Tensor, weight: Tensor | None = None) -> Tensor:
        """-mean log T(x)[y, predicted] (InstanT eq. 7): of each row its class and the current hard prediction."""
        place = y.view(-1, 1, 1).expand(-1, 1, matrix.shape[-1])
        rows = matrix[y] if matrix.ndim == 2 else matrix.gather(1, place).squeeze(1)
        surprise = -rows.gather(1, predicted.unsqueeze(1)).clamp_min(1e-12).log()
        if weight is None:
            return surprise.mean()
        return (weight * surprise.squeeze(1)).sum() / weight.sum()

    def penalty(self, matrix: Tensor) -> Tensor:
        """What the estimator asks of its matrix whatever it is trained on; added to the loss."""
        return matrix.new_zeros(())

    def observe(self, sight: Sight) -> State:
        """The next values of the estimator's buffers."""
        return {}


def inflow(matrix: Tensor, k: Tensor) -> Tensor:
    """Column k of each row's matrix, (B, K)."""
    if matrix.ndim == 2:
        return matrix.t()[k]
    return matrix.gather(2, k.view(-1, 1, 1).expand(-1, matrix.shape[1], 1)).squeeze(2)


def diagonal_scale(classes: int, start: float) -> float:
    """The s for which softmax(s * I) has `start` on its diagonal."""
    return math.log(start / (1 - start) * (classes - 1))


def near_identity(classes: int, start: float) -> Tensor:
    """`start` on the diagonal, the rest of each row shared evenly."""
    return torch.full((classes, classes), (1 - start) / (classes - 1)).fill_diagonal_(start)


def rows_near_identity(logits: Tensor, scale: float) -> Tensor:
    """softmax over predicted classes of (logits + scale * I), (rows, K * K) -> (rows, K, K)."""
    classes = math.isqrt(logits.shape[1])
    square = logits.view(-1, classes, classes)
    return torch.softmax(square + scale * torch.eye(classes, device=logits.device), dim=2)
