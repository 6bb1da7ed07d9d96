"""Dual-T (Yao 2020): T in two steps through an intermediate class, each easier to estimate than T itself."""

from __future__ import annotations

from torch import Tensor

from instant.losses import hard, one_hot
from instant.transition.anchor import AnchorPoints
from instant.transition.base import Sight, Transition, near_identity
from instant.types import State


class DualT(Transition):
    """T = C S: C_il = P(intermediate l | true i) from anchor points, S_lj = P(called j | intermediate l).

    The intermediate class is the most probable one of the weak view, the call the hard prediction of the other view.
    S needs no posterior, only counts: S_lj = N(l, j) / N(l), here a running mean over steps.
    """

    counts: Tensor

    def __init__(self, classes: int, *, momentum: float = 0.99, start: float = 0.95) -> None:
        super().__init__()
        self.momentum = momentum
        self.anchors = AnchorPoints(classes, start=start)
        self.register_buffer("counts", near_identity(classes, start) / classes)

    def forward(self, features: Tensor, x: Tensor) -> Tensor:
        return self.anchors(features, x) @ (self.counts / self.counts.sum(1, keepdim=True))

    def observe(self, sight: Sight) -> State:
        called = one_hot(sight.other, len(self.counts))
        now = hard(sight.probs).t() @ called / len(called)
        # a class without a row shrinks as a whole and keeps its ratios; the floor keeps it from vanishing
        counts = self.counts.lerp(now, 1 - self.momentum).clamp_min(1e-12)
        return {"counts": counts} | {f"anchors.{name}": value for name, value in self.anchors.observe(sight).items()}
