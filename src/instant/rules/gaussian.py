"""SoftMatch (Chen 2023): no bar but a weight, a truncated Gaussian of the confidence."""

from __future__ import annotations

import torch
from torch import Tensor

from instant.rules.base import Rule
from instant.types import Evidence, Selection, State


class TruncatedGaussian(Rule):
    """weight = exp(-min(conf - mu, 0)^2 / (2 var / sigmas^2)); mu and var are running, moved before use.

    The threshold reported is mu, above which a sample has full weight.
    """

    mu: Tensor
    var: Tensor

    def __init__(self, classes: int, *, sigmas: float = 2.0, momentum: float = 0.999) -> None:
        super().__init__()
        self.sigmas = sigmas
        self.momentum = momentum
        self.register_buffer("mu", torch.tensor(1 / classes))
        self.register_buffer("var", torch.tensor(1.0))

    def forward(self, seen: Evidence) -> tuple[Selection, State]:
        confidence = seen.probs.amax(1)
        mu = self.mu.lerp(confidence.mean(), 1 - self.momentum)
        var = self.var.lerp(confidence.var(correction=min(1, len(confidence) - 1)), 1 - self.momentum)
        short = (confidence - mu).clamp_max(0)
        weight = torch.exp(-short.square() / (2 * var.clamp_min(1e-12) / self.sigmas**2))
        return Selection(weight, mu.expand_as(weight)), {"mu": mu, "var": var}
