"""VolMinNet (Li 2021): of the matrices that explain the predictions, the one of least volume."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from instant.transition.base import Transition


class VolumeMinimal(Transition):
    """T = N(I + off-diagonal sigmoid(w)), N dividing rows by their sums; lambda log |det T| joins the loss.

    The diagonal is the largest entry of its row, the paper's constraint. The volume term is what makes T
    identifiable from predictions alone when the clean posterior is sufficiently scattered, so its own data term is
    the forward-corrected loss of unlabelled rows (`trained_on=unlabelled`); on labelled pairs it is a regulariser.
    """

    def __init__(self, classes: int, *, start: float = 0.95, volume: float = 1e-4) -> None:
        super().__init__()
        self.volume = volume
        share = (1 - start) / (start * (classes - 1))  # sigmoid(w) at the start
        self.weight = nn.Parameter(torch.full((classes, classes), math.log(share / (1 - share))))

    def forward(self, features: Tensor, x: Tensor) -> Tensor:
        eye = torch.eye(len(self.weight), device=self.weight.device)
        raw = eye + (1 - eye) * torch.sigmoid(self.weight)
        return raw / raw.sum(1, keepdim=True)

    def penalty(self, matrix: Tensor) -> Tensor:
        return self.volume * log_volume(matrix)


def log_volume(matrix: Tensor) -> Tensor:
    """log |det T|, its gradient T^-T written out: the library's own solves, and checks on the host if they could."""
    fixed = matrix.detach()
    value = torch.linalg.slogdet(fixed).logabsdet
    inverse = torch.linalg.inv_ex(fixed).inverse
    first_order = (inverse.t() * matrix).sum()
    return value + first_order - first_order.detach()
