"""AdaMatch's relative threshold (Berthelot 2022), InstanT's kappa_t (eq. 4)."""

from __future__ import annotations

from torch import Tensor

from instant.rules.base import Rule
from instant.types import Evidence, State


class Relative(Rule):
    """kappa_t = base * mean confidence of this step's labelled samples.

    `of_unlabelled=True` takes the mean over the aligned unlabelled batch, as the authors' release of InstanT does.
    """

    def __init__(self, base: float, *, of_unlabelled: bool = False) -> None:
        super().__init__()
        self.base = base
        self.of_unlabelled = of_unlabelled

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        probs = seen.probs if self.of_unlabelled else seen.probs_l
        return self.base * probs.amax(1).mean(), {}

    def extra_repr(self) -> str:
        return f"{self.base}" + (", of_unlabelled=True" if self.of_unlabelled else "")
