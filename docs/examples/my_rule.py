"""Keep the most confident share q_t of every predicted class, q_t growing over the run.

Class-balanced self-training (Zou 2018) sorts the whole pool once a round; here the quantile of each class is followed
from step to step: tau_c rises while more than q_t of the rows called c pass it, and sinks while fewer do.
"""

import torch
from torch import Tensor

from instant.losses import hard
from instant.match import Match
from instant.rules import Rule
from instant.types import Evidence, Problem, State


class ClassQuantile(Rule):
    """tau_c <- tau_c + rate * (passing_c - q_t), passing_c being the share of the rows called c that pass tau_c."""

    tau: Tensor

    def __init__(self, classes: int, *, first: float, last: float, ramp: int, rate: float) -> None:
        super().__init__()
        self.first, self.last, self.ramp, self.rate = first, last, ramp, rate
        self.register_buffer("tau", torch.full((classes,), 0.5))

    def share(self, step: Tensor) -> Tensor:
        """q_t: linear from `first` to `last` over `ramp` steps, then constant."""
        return self.first + (self.last - self.first) * (step / self.ramp).clamp_max(1.0)

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        confidence, label = seen.probs.max(1)
        bar = self.tau[label]
        called = hard(seen.probs)  # (B, K), one-hot
        excess = (confidence >= bar).float() - self.share(seen.step)
        # The mean excess of each class's rows; a class that no row was called has none and stays where it is.
        move = excess @ called / called.sum(0).clamp_min(1.0)
        return bar, {"tau": (self.tau + self.rate * move).clamp(0.0, 1.0)}


def my_method(p: Problem, *, first: float = 0.2, last: float = 0.9, ramp: float = 0.5, rate: float = 0.05) -> Match:
    """FixMatch with a quantile of each class in place of the constant 0.95; q_t grows over `ramp` of the run."""
    return Match(ClassQuantile(p.classes, first=first, last=last, ramp=max(1, round(ramp * p.steps)), rate=rate))
