"""Part-dependent T(x) (Xia 2020): samples are made of parts, and each part has its own way of being mistaken."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from instant.transition.base import Transition, diagonal_scale, rows_near_identity


class PartDependent(Transition):
    """T(x) = sum_r h_r(x) P_r : h >= 0 and sum_r h_r = 1, each P_r a transition matrix.

    The paper factorises the whole set for h and fits P_r to anchor points. A step sees a batch, so here
    h = softmax(W f) of the normalised features f, and W and P_r are trained together by T's loss: R (D + K^2) numbers
    instead of the head's D K^2.
    """

    def __init__(self, features: int, classes: int, *, parts: int = 10, start: float = 0.95) -> None:
        super().__init__()
        self.scale = diagonal_scale(classes, start)
        self.share = nn.Linear(features, parts, bias=False)  # starts at random: equal parts would stay equal
        self.part = nn.Parameter(torch.zeros(parts, classes * classes))

    def forward(self, features: Tensor, x: Tensor) -> Tensor:
        shares = torch.softmax(self.share(F.layer_norm(features, features.shape[1:])), dim=1)
        return torch.einsum("br,rij->bij", shares, rows_near_identity(self.part, self.scale))
