"""FlexMatch (Zhang 2021): classes that are learnt less get a lower bar."""

from __future__ import annotations

import torch
from torch import Tensor

from instant.rules.base import Rule
from instant.types import Evidence, State


class Curriculum(Rule):
    """threshold_c = value * b_c / (2 - b_c), with b_c = count_c / max(counts, unused).

    counts are over the last confident prediction (p >= value) of every unlabelled sample, `unused` counts those
    that never had one (eq. 7-11 with the convex map).
    """

    last: Tensor

    def __init__(self, classes: int, unlabelled: int, value: float = 0.95) -> None:
        super().__init__()
        self.classes = classes
        self.value = value
        self.register_buffer("last", torch.full((unlabelled,), -1))

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        confidence, label = seen.probs.max(1)
        counts = torch.zeros(self.classes + 1, device=self.last.device)
        counts = counts.scatter_add(0, self.last + 1, torch.ones_like(self.last, dtype=counts.dtype))
        status = counts[1:] / counts.max()
        threshold = self.value * (status / (2 - status))[label]
        sure = torch.where(confidence >= self.value, label, -1)
        # a sample may be drawn twice and be sure once: of two writes nobody promises which comes last
        claimed = torch.full_like(self.last, -1).scatter_reduce(0, seen.index, sure, "amax")
        return threshold, {"last": torch.where(claimed >= 0, claimed, self.last)}
