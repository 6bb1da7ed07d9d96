"""FreeMatch's self-adaptive class fairness (Wang 2023, eq. 11-13)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from instant.losses import hard
from instant.types import State


def _normalised_ratio(probs: Tensor, histogram: Tensor) -> Tensor:
    """N(p / h) with N = divide by the sum; classes nobody was assigned to (h = 0) drop out."""
    ratio = torch.where(histogram > 0, probs / histogram.clamp_min(1e-12), 0.0)
    return ratio / ratio.sum().clamp_min(1e-12)


class Fairness(nn.Module):
    """sum_c N(p~/h~)_c log N(pbar/hbar)_c over the selected strong predictions, added with a small weight.

    p~ and h~ are running means of the weak predictions and of their argmax histogram, both from 1/K and moved before
    use; pbar and hbar are those of the selected strong predictions of this step.
    """

    model: Tensor
    histogram: Tensor

    def __init__(self, classes: int, *, weight: float = 0.001, momentum: float = 0.999) -> None:
        super().__init__()
        self.weight = weight
        self.momentum = momentum
        self.register_buffer("model", torch.full((classes,), 1 / classes))
        self.register_buffer("histogram", torch.full((classes,), 1 / classes))

    def forward(self, probs: Tensor, logits_s: Tensor, selected: Tensor) -> tuple[Tensor, State]:
        model = self.model.lerp(probs.mean(0), 1 - self.momentum)
        histogram = self.histogram.lerp(hard(probs).mean(0), 1 - self.momentum)

        probs_s = F.softmax(logits_s, dim=1)
        kept = selected.unsqueeze(1)
        count = selected.sum().clamp_min(1.0)
        mean_s = (probs_s * kept).sum(0) / count
        histogram_s = (hard(probs_s) * kept).sum(0) / count
        wanted = _normalised_ratio(model, histogram)
        given = _normalised_ratio(mean_s, histogram_s)
        loss = (wanted * torch.log(given + 1e-12)).sum() * (selected.sum() > 0)
        return self.weight * loss, {"model": model, "histogram": histogram}
