"""A rule decides which unlabelled samples a step learns from; most rules only say how high the bar is."""

from __future__ import annotations

from torch import Tensor, nn

from instant.types import Evidence, Selection, State


class Rule(nn.Module):
    """Keeps what is at least as confident as its threshold.

    Write `threshold(seen) -> (tensor, state)`: a 0-d tensor or one value per row, and the next values of the rule's
    buffers. State is never written in place: the engine commits it after the backward pass.
    """

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        raise TypeError(f"{type(self).__name__} must define threshold(seen) or forward(seen)")

    def forward(self, seen: Evidence) -> tuple[Selection, State]:
        threshold, state = self.threshold(seen)
        confidence = seen.probs.amax(1)
        return Selection((confidence >= threshold).float(), threshold.expand_as(confidence)), state
