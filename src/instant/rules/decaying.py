"""Dash (Xu 2021): keep what the classifier finds easy, with a bar on the loss that decays over the run."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from instant.losses import cross_entropy, hard, sharpen
from instant.rules.base import Rule
from instant.types import Evidence, Selection, State


class Decaying(Rule):
    """Keeps rows whose own weak-view loss is at most rho_t = max(floor, scale * gamma^-n * rho_0).

    n counts decay periods since the warm-up. During the warm-up nothing is kept and rho_0 follows the labelled loss, in
    a short one faster, so as not to stay where it began; the target is soft (sharpened) until rho_t reaches the floor,
    then hard. The threshold reported is the confidence exp(-rho_t) at which a hard label would be kept.
    """

    rho_0: Tensor

    def __init__(
        self,
        *,
        warmup: int,
        period: int,
        gamma: float = 1.27,
        scale: float = 1.0001,
        floor: float = 0.05,
        temperature: float = 0.5,
        momentum: float = 0.99,
    ) -> None:
        super().__init__()
        self.warmup, self.period = warmup, period
        self.gamma, self.scale, self.floor = gamma, scale, floor
        self.temperature = temperature
        self.momentum = min(momentum, max(0.0, 1 - 5 / max(1, warmup)))
        self.register_buffer("rho_0", torch.zeros(()))

    def rho(self, step: Tensor) -> Tensor:
        periods = torch.div(step - self.warmup, self.period, rounding_mode="floor").clamp_min(0)
        return (self.scale * self.gamma ** -periods.float() * self.rho_0).clamp_min(self.floor)

    def target(self, probs: Tensor, seen: Evidence) -> Tensor:
        """The distribution the strong view learns: soft until the floor is reached, hard from then on."""
        return torch.where(self.rho(seen.step) <= self.floor, hard(probs), sharpen(probs, self.temperature))

    def forward(self, seen: Evidence) -> tuple[Selection, State]:
        rho = self.rho(seen.step)
        loss = cross_entropy(seen.probs.clamp_min(1e-12).log(), self.target(seen.probs, seen))
        warm = seen.step < self.warmup
        weight = (loss <= rho).float() * ~warm
        loss_l = F.nll_loss(seen.probs_l.clamp_min(1e-12).log(), seen.y_l)
        tracked = torch.where(seen.step == 0, loss_l, self.rho_0.lerp(loss_l, 1 - self.momentum))
        state = {"rho_0": torch.where(warm, tracked, self.rho_0)}
        return Selection(weight, torch.exp(-rho).expand_as(weight)), state
