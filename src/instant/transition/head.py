"""T(x) from a light head on the classifier's detached features."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from instant.transition.base import Transition, diagonal_scale, rows_near_identity


class TransitionHead(Transition):
    """A linear map of the normalised features to K x K logits, added to a scaled identity; rows by softmax.

    The weights start at zero, so T starts with `start` on the diagonal everywhere, and decay: most rows of T(x) are
    seen by no labelled sample that looks like x, and what was learned there from features long gone would stay. As a
    row of T is taught by one in K labelled samples, more than ten classes have a decay of 1 / K instead of 0.1, or it
    would outweigh what they say.
    """

    def __init__(self, features: int, classes: int, *, start: float = 0.95) -> None:
        super().__init__()
        self.decay = min(0.1, 1 / classes)
        self.scale = diagonal_scale(classes, start)
        self.linear = nn.Linear(features, classes * classes)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, features: Tensor, x: Tensor) -> Tensor:
        normalised = F.layer_norm(features, features.shape[1:])
        return rows_near_identity(self.linear(normalised), self.scale)
