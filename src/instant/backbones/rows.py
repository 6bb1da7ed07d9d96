"""A batch of which only the first rows learn: shared batch statistics, half of the backward pass.

The weak views of unlabelled samples are only looked at, yet in one ordinary batch the backward pass runs over them
too, because they take part in the batch statistics. Here every operation runs forward over all rows at once and
backward over the learning rows alone. With all rows learning it is the ordinary gradient.

The gradient through the other rows cannot just be left out. Batch norm makes a network blind to the scale and shift
of what each layer gives it, and the ordinary gradient knows: it has no component along them. Without the other rows
it would have, pushing every weight to grow (InstanT on CIFAR-10 with 250 labels then stayed at 10 %, where the
ordinary gradient reached 54 % in as many steps). So the learning rows stand in for the others: the gradient is
projected until, over the learning rows, it has no component along scale and shift. Where both parts of the batch
are alike, that is the ordinary gradient again.

The backward passes are written out because they decide how often the activations are read: batch norm and
activation recompute from their input what they need, and one reduction and one pointwise pass are left.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from instant.backbones import kernels, narrow
from instant.errors import InputError

# Asked once: before 2.13 torch.compile cannot follow the question, and would cut the step in two there
AUTOCAST = frozenset(kind for kind in ("cpu", "cuda", "mps", "xpu") if torch.amp.is_autocast_available(kind))


class Rows(NamedTuple):
    """Activations of one batch, channels second."""

    first: Tensor  # the learning rows, with gradient
    whole: Tensor  # all rows, the learning ones first; no gradient
    moments: Tensor | None = None  # (2, C) mean and variance of all rows, where they were found in passing

    @classmethod
    def of(cls, x: Tensor, still: Tensor | None = None) -> Rows:
        """Rows x learn, rows `still` do not; in the number type of autocast, where that is on."""
        whole = x if still is None else torch.cat([x, still])
        device = x.device.type
        if device in AUTOCAST and torch.is_autocast_enabled(device):
            kind = torch.get_autocast_dtype(device)
            x, whole = x.to(kind), whole.to(kind)
        return cls(x, whole.detach())


class _Convolve(torch.autograd.Function):
    """y = x * weight + skip, and where it comes for free the moments of y."""

    @staticmethod
    def forward(
        ctx: Any, first: Tensor, whole: Tensor, weight: Tensor, skip_first: Tensor | None, skip: Tensor | None,
        stride: tuple[int, int], padding: tuple[int, int], thin: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        ctx.save_for_backward(whole, weight)
        ctx.rows, ctx.stride, ctx.padding, ctx.thin = len(first), stride, padding, thin
        outputs: tuple[Tensor, ...]
        if thin:
            outputs = narrow.convolve(whole, narrow.widened(weight), skip)
        else:
            outputs = (F.conv2d(whole, weight, None, stride, padding),)
            if skip is not None:
                outputs = kernels.add_moments(outputs[0], skip) if kernels.usable(skip) else (outputs[0] + skip,)
        ctx.mark_non_differentiable(*outputs)
        return outputs[0][: ctx.rows], *outputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        whole, weight = ctx.saved_tensors
        x, of_x, of_weight = whole[: ctx.rows], ctx.needs_input_grad[0], ctx.needs_input_grad[2]
        wanted = [of_x and not (ctx.thin and narrow.turns(weight)), of_weight and not ctx.thin, False]
        dx, dw = None, None
        if any(wanted):
            dx, dw, _ = torch.ops.aten.convolution_backward(
                grad, x, weight, None, ctx.stride, ctx.padding, (1, 1), False, (0, 0), 1, wanted
            )
        if of_x and not wanted[0]:
            dx = narrow.input_gradient(weight, grad)
        if of_weight and not wanted[1]:
            dw = narrow.weight_gradient(x, grad).to(weight.dtype)
        return dx, None, dw, grad if ctx.needs_input_grad[3] else None, None, None, None, None


class _NormAct(torch.autograd.Function):
    """y = leaky(gamma (x - mean) / sqrt(var + eps) + beta), mean and var over all rows."""

    @staticmethod
    def forward(
        ctx: Any, first: Tensor, whole: Tensor, moments: Tensor, gamma: Tensor, beta: Tensor, eps: float, slope: float
    ) -> tuple[Tensor, Tensor]:
        mean, var = moments
        inverse = torch.rsqrt(var + eps)
        scale = gamma * inverse
        shift = beta - mean * scale
        z = whole.to(gamma.dtype) * _column(scale) + _column(shift)
        y = F.leaky_relu(z, slope).to(whole.dtype)
        ctx.save_for_backward(whole, mean, inverse, scale, shift)
        ctx.rows, ctx.eps, ctx.slope = len(first), eps, slope
        ctx.mark_non_differentiable(y)
        return y[: ctx.rows], y

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        whole, mean, inverse, scale, shift = ctx.saved_tensors
        x = whole[: ctx.rows]
        count = x.numel() // x.shape[1]
        sums = 2 if len(x) == len(whole) else 4
        if kernels.usable(x):
            found = kernels.pulls(grad, x, scale, shift, mean, ctx.slope, sums)
        else:
            dz, d = _before_activation(grad, x, scale, shift, ctx.slope), x - _column(mean)
            found = torch.stack([part.sum((0, 2, 3)) for part in (dz, dz * d, d, d * d)[:sums]])
        pull, pull_d = found[0], found[1]
        # dx = scale (dz - a - b d): what is left of dz without its components along 1 and d = x - mean
        if sums == 2:
            a, b = pull / count, pull_d * inverse.square() / count  # d sums to 0, d^2 to count * variance
        else:
            off, square = found[2], found[3] + count * ctx.eps
            determinant = count * square - off * off
            a, b = (square * pull - off * pull_d) / determinant, (count * pull_d - off * pull) / determinant
        dz = _before_activation(grad, x, scale, shift, ctx.slope)
        dx = _column(scale) * dz - _column(scale * b) * x - _column(scale * (a - b * mean))
        return dx.to(whole.dtype), None, None, inverse * pull_d, pull, None, None


def _before_activation(grad: Tensor, x: Tensor, scale: Tensor, shift: Tensor, slope: float) -> Tensor:
    z = x * _column(scale) + _column(shift)
    return torch.ops.aten.leaky_relu_backward(grad.to(scale.dtype), z, slope, False)


def _column(values: Tensor) -> Tensor:
    return values.view(1, -1, 1, 1)


def _moments(rows: Rows, kind: torch.dtype) -> Tensor:
    if rows.moments is not None:
        return rows.moments
    if kernels.usable(rows.whole):
        return kernels.moments(rows.whole)
    var, mean = torch.var_mean(rows.whole.to(kind), dim=(0, 2, 3), correction=0)
    return torch.stack([mean, var])


def convolve(conv: nn.Module, rows: Rows, skip: Rows | None = None) -> Rows:
    """A convolution without bias, plus `skip`; nn.Identity hands the rows on."""
    if isinstance(conv, nn.Identity):
        return rows
    assert isinstance(conv, nn.Conv2d)
    first, whole, weight = rows.first, rows.whole, conv.weight.to(rows.whole.dtype)
    if not (conv.training or torch.is_grad_enabled() or whole.is_cuda):  # plain operations, which can be exported
        y = F.conv2d(whole, weight, None, conv.stride, conv.padding)
        y = y if skip is None else y + skip.whole
        return Rows(y, y)
    thin = narrow.fits(conv, whole)
    if thin:
        first, whole, weight = (narrow.padded(part) for part in (first, whole, weight))
    others = (None, None) if skip is None else (skip.first, skip.whole)
    return Rows(*_Convolve.apply(first, whole, weight, *others, conv.stride, conv.padding, thin))


class NormAct(nn.BatchNorm2d):
    """Batch normalisation over all rows, then LeakyReLU."""

    def __init__(self, channels: int, *, momentum: float, eps: float = 1e-5, slope: float = 0.1) -> None:
        super().__init__(channels, momentum=momentum, eps=eps)
        self.slope = slope
        self.num_batches_tracked = None  # counts nothing here: the momentum is fixed

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any) -> None:
        """Tensors from a file say no version, and torch would add the count that there is none of here."""
        super()._load_from_state_dict(state_dict, prefix, {**local_metadata, "version": 2}, *rest)

    def forward(self, rows: Rows) -> Rows:  # type: ignore[override]
        if not self.training:
            assert rows.first.shape == rows.whole.shape, "without batch statistics rows are independent"
            y = F.leaky_relu(super().forward(rows.first), self.slope)
            return Rows(y, y.detach())
        count = rows.whole.numel() // self.num_features
        if count < 2:
            raise InputError("batch=1 leaves one pixel a channel, of which there are no statistics; raise batch.")
        moments = _moments(rows, self.weight.dtype)
        self._follow(moments[0], moments[1], count)
        return Rows(*_NormAct.apply(rows.first, rows.whole, moments, self.weight, self.bias, self.eps, self.slope))

    @torch.no_grad()
    def _follow(self, mean: Tensor, var: Tensor, count: int) -> None:
        """Move the running statistics, the variance unbiased, as nn.BatchNorm2d does."""
        assert self.momentum is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(var * (count / (count - 1)), self.momentum)
