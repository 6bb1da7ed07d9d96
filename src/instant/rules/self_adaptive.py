"""FreeMatch (Wang 2023): a global bar that follows the confidence, modulated by how each class is predicted."""

from __future__ import annotations

import torch
from torch import Tensor

from instant.rules.base import Rule
from instant.types import Evidence, State


class SelfAdaptive(Rule):
    """threshold_c = tau_t * p~_c / max p~ (eq. 5-7); tau_t and p~ are running means from 1/K, moved before use."""

    tau: Tensor
    model: Tensor

    def __init__(self, classes: int, *, momentum: float = 0.999) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("tau", torch.tensor(1 / classes))
        self.register_buffer("model", torch.full((classes,), 1 / classes))

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        confidence, label = seen.probs.max(1)
        tau = self.tau.lerp(confidence.mean(), 1 - self.momentum)
        model = self.model.lerp(seen.probs.mean(0), 1 - self.momentum)
        return (tau * model / model.max())[label], {"tau": tau, "model": model}
