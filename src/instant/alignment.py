"""Distribution alignment: predictions are rescaled so that their running mean meets a wanted class prior.

ReMixMatch (Berthelot 2020), AdaMatch (Berthelot 2022); InstanT section 4.3:
P_j <- Norm(P_j * target_j / model_j), Norm = divide by the sum.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from instant.types import State


class Alignment(nn.Module):
    """Aligns with a uniform prior, or with the running mean of the labelled predictions (`learn_target`).

    The model's running mean starts from the first batch's mean, the target's from uniform; both are moved first and
    used then, as in AdaMatch.
    """

    model: Tensor
    target: Tensor
    started: Tensor

    def __init__(self, classes: int, *, learn_target: bool = False, momentum: float = 0.999) -> None:
        super().__init__()
        self.learn_target = learn_target
        self.momentum = momentum
        self.register_buffer("model", torch.full((classes,), 1 / classes))
        self.register_buffer("target", torch.full((classes,), 1 / classes))
        self.register_buffer("started", torch.zeros(()))

    def forward(self, probs: Tensor, probs_l: Tensor) -> tuple[Tensor, State]:
        mean = probs.mean(0)
        model = torch.where(self.started > 0, self.model.lerp(mean, 1 - self.momentum), mean)
        state = {"model": model, "started": torch.ones_like(self.started)}
        target = self.target
        if self.learn_target:
            state["target"] = target = target.lerp(probs_l.mean(0), 1 - self.momentum)
        return rescaled(probs, target, model), state


def rescaled(probs: Tensor, target: Tensor, model: Tensor) -> Tensor:
    """Norm(P_j * target_j / model_j), row by row."""
    aligned = probs * (target + 1e-6) / (model + 1e-6)
    return aligned / aligned.sum(1, keepdim=True)
