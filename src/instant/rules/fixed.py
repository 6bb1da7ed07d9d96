"""One constant threshold for everybody (Pseudo-Label, UDA, FixMatch)."""

from __future__ import annotations

import torch
from torch import Tensor

from instant.rules.base import Rule
from instant.types import Evidence, State


class Fixed(Rule):
    """Keeps p >= value.

    >>> Fixed(0.95)
    Fixed(0.95)
    """

    value: Tensor

    def __init__(self, value: float) -> None:
        super().__init__()
        self.register_buffer("value", torch.tensor(float(value)), persistent=False)
        self._shown = value

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        return self.value, {}

    def extra_repr(self) -> str:
        return f"{self._shown}"
