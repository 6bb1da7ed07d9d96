"""Rows that learn beside rows that do not, in one batch: shared batch statistics, half of the backward pass.

The weak views of unlabelled samples are only looked at, yet in one concatenated batch the backward pass runs over
them too, because they take part in the batch statistics. Two streams keep the statistics shared and drop just that
part of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Streams = list[Tensor]
"""Parts of one batch; the first carries gradient, the others do not."""


def each(function: Callable[[Tensor], Tensor], xs: Streams) -> Streams:
    """Apply to every stream, without gradient from the second on."""
    first, *rest = xs
    with torch.no_grad():
        others = [function(x) for x in rest]
    return [function(first), *others]


class BatchNorm(nn.BatchNorm2d):
    """Batch normalisation over all streams together; of one stream it is nn.BatchNorm2d."""

    def forward(self, xs: Streams) -> Streams:  # type: ignore[override]
        if len(xs) == 1 or not self.training:
            return each(super().forward, xs)
        shares = [x.numel() / sum(part.numel() for part in xs) for x in xs]
        moments = _moments(xs)
        mean = sum(share * m for share, (_, m) in zip(shares, moments))
        var = sum(share * (v + (m - mean).square()) for share, (v, m) in zip(shares, moments))
        assert isinstance(mean, Tensor)
        assert isinstance(var, Tensor)
        self._follow(mean.detach(), var.detach(), sum(x.numel() for x in xs) // self.num_features)
        scale = self.weight * torch.rsqrt(var + self.eps)
        shift = self.bias - mean * scale
        first, *rest = xs
        with torch.no_grad():
            others = [_affine(x, scale, shift) for x in rest]
        return [_affine(first, scale, shift), *others]

    @torch.no_grad()
    def _follow(self, mean: Tensor, var: Tensor, count: int) -> None:
        """Move the running statistics, the variance unbiased, as nn.BatchNorm2d does."""
        assert self.momentum is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(var * (count / (count - 1)), self.momentum)


def _moments(xs: Streams) -> list[tuple[Tensor, Tensor]]:
    """(variance, mean) per channel of each stream, in float32."""
    first, *rest = xs
    with torch.no_grad():
        others = [torch.var_mean(x.float(), dim=(0, 2, 3), correction=0) for x in rest]
    return [torch.var_mean(first.float(), dim=(0, 2, 3), correction=0), *others]


def _affine(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return (x.float() * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)).to(x.dtype)
