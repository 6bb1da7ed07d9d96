"""A rule decides which unlabelled samples a step learns from; most rules only say how high the bar is."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from instant.errors import InputError
from instant.types import Evidence, Selection, State


class Rule(nn.Module):
    """Keeps what is at least as confident as its threshold.

    Write `threshold(seen) -> (tensor, state)`: a 0-d tensor or one value per row, and the next values of the rule's
    buffers. State is never written in place: the engine commits it after the backward pass.
    """

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        raise TypeError(f"{type(self).__name__} must define threshold(seen) or forward(seen)")

    def forward(self, seen: Evidence) -> tuple[Selection, State]:
        confidence = seen.probs.amax(1)
        threshold, state = _bar(self.threshold(seen), type(self).__name__, confidence)
        return Selection((confidence >= threshold).float(), threshold.expand_as(confidence)), state


def _bar(found: Any, name: str, confidence: Tensor) -> tuple[Tensor, State]:
    """What `threshold` returned, or one sentence on what is wrong with it."""
    if not isinstance(found, tuple) or len(found) != 2:
        got = f"a tuple of {len(found)}" if isinstance(found, tuple) else type(found).__name__
        raise InputError(f"{name}.threshold must return threshold, state ({{}} where there is none), got {got}.")
    threshold, state = found
    if not isinstance(state, dict):
        raise InputError(
            f"{name}.threshold must return its state as a dict, {{}} for none, got {type(state).__name__}."
        )
    if not isinstance(threshold, Tensor):
        raise InputError(f"{name}.threshold must return its bar as a tensor, got {type(threshold).__name__}.")
    if threshold.device != confidence.device:
        raise InputError(
            f"{name}.threshold must return its bar on the device of the samples, {confidence.device}, got one on "
            f"{threshold.device}; make a constant a buffer (register_buffer)."
        )
    rows = confidence.shape[0]
    fits = threshold.ndim == 0 or (threshold.ndim == 1 and (threshold.shape[0] == rows or threshold.shape[0] == 1))
    if not fits:  # in this order an export, where the rows are any number, asks nothing about it
        raise InputError(
            f"{name}.threshold must return one number or one a row, shape () or ({rows},), got a bar of shape "
            f"{tuple(threshold.shape)}."
        )
    return threshold, state
