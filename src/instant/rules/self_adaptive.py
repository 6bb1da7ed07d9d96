"""FreeMatch (Wang 2023): a global bar that follows the confidence, modulated by how each class is predicted."""

from __future__ import annotations

import torch
from torch import Tensor

from instant.rules.base import Rule
from instant.types import Evidence, State


class SelfAdaptive(Rule):
    """threshold_c = base * tau_t * p~_c / max p~ (eq. 5-7, base 1); tau_t and p~ are running means from 1/K.

    Both are moved first and used then.
    """

    tau: Tensor
    model: Tensor

    def __init__(self, classes: int, *, base: float = 1.0, momentum: float = 0.999) -> None:
        super().__init__()
        self.base = base
        self.momentum = momentum
        self.register_buffer("tau", torch.tensor(1 / classes))
        self.register_buffer("model", torch.full((classes,), 1 / classes))

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        confidence, label = seen.probs.max(1)
        tau = self.tau.lerp(confidence.mean(), 1 - self.momentum)
        model = self.model.lerp(seen.probs.mean(0), 1 - self.momentum)
        return (self.base * tau * model / model.max())[label], {"tau": tau, "model": model}
