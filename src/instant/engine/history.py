"""What happened to every sample of the pool while training: when it was first accepted, how often its label changed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from instant.types import Decision


class History(nn.Module):
    """Twelve bytes a sample on the device, written by the step without waiting for the host.

    first   the first step in which the sample counted in full, -1: never
    flips   how often its pseudo-label was another one than the last time it was looked at
    last    its pseudo-label when it was last looked at, -1: never looked at

    A batch that goes from one epoch into the next may hold a sample twice. The larger value is kept then, whatever the
    order of writing: accepted if either look was, at most one flip a step, the higher class number remembered.
    """

    first: Tensor
    flips: Tensor
    last: Tensor

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.register_buffer("first", torch.full((samples,), -1, dtype=torch.int32))
        self.register_buffer("flips", torch.zeros(samples, dtype=torch.int32))
        self.register_buffer("last", torch.full((samples,), -1, dtype=torch.int32))

    @torch.no_grad()
    def add(self, decision: Decision, step: Tensor) -> None:
        index, label = decision.index, decision.label.int()
        first, last = self.first[index], self.last[index]
        now = torch.where(decision.weight >= 1, step.int(), -1)
        self.first.scatter_reduce_(0, index, torch.where(first >= 0, first, now), "amax")
        flipped = (last >= 0) & (label != last)
        self.flips.scatter_reduce_(0, index, self.flips[index] + flipped.int(), "amax")
        self.last.scatter_reduce_(0, index, label, "amax", include_self=False)
