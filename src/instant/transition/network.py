"""T(x) from a network of its own on the images, as the paper draws it (InstanT figure 2)."""

from __future__ import annotations

from torch import Tensor, nn

from instant.transition.base import Transition, diagonal_scale, rows_near_identity


class TransitionNetwork(Transition):
    """A backbone with K * K outputs, added to a scaled identity; rows by softmax."""

    def __init__(self, backbone: nn.Module, classes: int, *, start: float = 0.95) -> None:
        super().__init__()
        self.backbone = backbone
        self.scale = diagonal_scale(classes, start)

    def forward(self, features: Tensor, x: Tensor) -> Tensor:
        return rows_near_identity(self.backbone(x).logits.float(), self.scale)
