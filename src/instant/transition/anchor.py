"""Anchor points (Patrini 2017): the surest sample of a class shows how that class is called."""

from __future__ import annotations

import torch
from torch import Tensor

from instant.transition.base import Sight, Transition, near_identity
from instant.types import State


class AnchorPoints(Transition):
    """T_ij = P(j | x_i), x_i = argmax_x P(i | x) over the unlabelled rows (theorem 3).

    The paper searches the whole set once. Here the record of each class is kept from step to step and fades by
    `fade`, so that a surer, or just newer, sample takes its place while the classifier learns. No labels enter.
    """

    best: Tensor
    rows: Tensor

    def __init__(self, classes: int, *, fade: float = 0.99, start: float = 0.95) -> None:
        super().__init__()
        self.fade = fade
        self.register_buffer("best", torch.zeros(classes))  # P(i | x_i), faded
        self.register_buffer("rows", near_identity(classes, start))

    def forward(self, features: Tensor, x: Tensor) -> Tensor:
        return self.rows

    def observe(self, sight: Sight) -> State:
        best, place = sight.probs.max(0)
        faded = self.fade * self.best
        newer = best > faded
        return {
            "best": torch.where(newer, best, faded),
            "rows": torch.where(newer.unsqueeze(1), sight.probs[place], self.rows),
        }
