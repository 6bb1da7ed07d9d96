"""Estimators of the transition matrix T(x)[i, j] = P(predicted j | true i, x); rows sum to 1."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Transition(nn.Module):
    """The face of every estimator: matrices out, and the loss that trains them.

    `forward` receives the classifier's detached features (rows, D) and the network's inputs (rows, ...), and returns
    (rows, K, K), or (K, K) when the estimate does not depend on x.
    """

    def forward(self, features: Tensor, x: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} must define forward(features, x)")

    def loss(self, matrix: Tensor, y: Tensor, predicted: Tensor) -> Tensor:
        """-mean log T(x)[y, predicted] over labelled rows (InstanT eq. 7), predicted = current hard predictions."""
        rows = matrix[y] if matrix.ndim == 2 else matrix.gather(1, _rows(y, matrix)).squeeze(1)
        return -rows.gather(1, predicted.unsqueeze(1)).clamp_min(1e-12).log().mean()


def _rows(y: Tensor, matrix: Tensor) -> Tensor:
    return y.view(-1, 1, 1).expand(-1, 1, matrix.shape[2])


def inflow(matrix: Tensor, k: Tensor) -> Tensor:
    """Column k of each row's matrix, (B, K)."""
    if matrix.ndim == 2:
        return matrix.t()[k]
    return matrix.gather(2, k.view(-1, 1, 1).expand(-1, matrix.shape[1], 1)).squeeze(2)


def diagonal_scale(classes: int, start: float) -> float:
    """The s for which softmax(s * I) has `start` on its diagonal."""
    return math.log(start / (1 - start) * (classes - 1))


def rows_near_identity(logits: Tensor, scale: float) -> Tensor:
    """softmax over predicted classes of (logits + scale * I), (rows, K * K) -> (rows, K, K)."""
    classes = math.isqrt(logits.shape[1])
    square = logits.view(-1, classes, classes)
    return torch.softmax(square + scale * torch.eye(classes, device=logits.device), dim=2)
