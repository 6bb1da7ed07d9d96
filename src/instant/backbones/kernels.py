"""Triton kernels for the passes over activations that cuDNN and torch.compile leave slow on a GPU.

Activations are (N, C, H, W) in channels-last memory: rows of C values, one a pixel. Batch norm needs two passes
that reduce over pixels: `moments` forward, of an activation or of the sum of two, and `pulls` backward. `usable`
says where they apply; elsewhere torch's own operations do the same. Sums are taken in a fixed order: the same input
gives the same bits. Triton launches on the current GPU, torch on that of its tensors: every launch says which.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # no GPU build of torch
    triton = None

TILE = 4096  # values a program reads at a time: more would take its registers
PROGRAMS = 528  # at most; four to each multiprocessor of an H100

enabled = True  # `able.settle` knows better, once it has tried
INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"  # on the CPU: how tests see kernels


def present(x: Tensor) -> bool:
    """On a GPU with Triton."""
    return triton is not None and enabled and (x.is_cuda or INTERPRETED)


def usable(x: Tensor) -> bool:
    """Where they are present, for channel counts that are powers of two."""
    channels = x.shape[1]
    return present(x) and channels & (channels - 1) == 0 and 16 <= channels <= 1024


if triton is not None:

    @triton.jit
    def _moments(
        x, other, total, partial, rows,
        C: tl.constexpr, BLOCK: tl.constexpr, TILES: tl.constexpr, ADD: tl.constexpr,
    ):  # fmt: skip
        """Sums of (v - v0) and (v - v0)^2, v0 the first row: no cancellation where the mean is large."""
        lane = tl.arange(0, BLOCK)
        channel = tl.arange(0, C)
        start = tl.load(x + channel).to(tl.float32)
        if ADD:
            start = (start + tl.load(other + channel).to(tl.float32)).to(total.dtype.element_ty).to(tl.float32)
        once = tl.zeros((BLOCK, C), tl.float32)
        twice = tl.zeros((BLOCK, C), tl.float32)
        for tile in range(TILES):
            row = (tile * tl.num_programs(0) + tl.program_id(0)) * BLOCK + lane
            place = row.to(tl.int64)[:, None] * C + channel[None, :]
            kept = row[:, None] < rows
            v = tl.load(x + place, mask=kept, other=0.0)
            if ADD:
                v = v.to(tl.float32) + tl.load(other + place, mask=kept, other=0.0).to(tl.float32)
                v = v.to(total.dtype.element_ty)
                tl.store(total + place, v, mask=kept)
            d = tl.where(kept, v.to(tl.float32) - start[None, :], 0.0)
            once += d
            twice += d * d
        place = partial + tl.program_id(0) * (2 * C) + channel
        tl.store(place, tl.sum(once, 0))
        tl.store(place + C, tl.sum(twice, 0))

    @triton.jit
    def _pulls(
        grad, x, scale, shift, mean, partial, rows, slope,
        C: tl.constexpr, BLOCK: tl.constexpr, TILES: tl.constexpr, SUMS: tl.constexpr,
    ):  # fmt: skip
        """Sums of dz and dz d, dz the gradient before the activation, d = x - mean; of four, of d and d^2 too."""
        lane = tl.arange(0, BLOCK)
        channel = tl.arange(0, C)
        scales = tl.load(scale + channel)[None, :]
        shifts = tl.load(shift + channel)[None, :]
        means = tl.load(mean + channel)[None, :]
        once = tl.zeros((BLOCK, C), tl.float32)
        twice = tl.zeros((BLOCK, C), tl.float32)
        off = tl.zeros((BLOCK, C), tl.float32)
        square = tl.zeros((BLOCK, C), tl.float32)
        for tile in range(TILES):
            row = (tile * tl.num_programs(0) + tl.program_id(0)) * BLOCK + lane
            place = row.to(tl.int64)[:, None] * C + channel[None, :]
            kept = row[:, None] < rows
            g = tl.load(grad + place, mask=kept, other=0.0).to(tl.float32)
            v = tl.load(x + place, mask=kept, other=0.0).to(tl.float32)
            dz = tl.where(v * scales + shifts > 0, g, slope * g)
            d = tl.where(kept, v - means, 0.0)
            once += dz
            twice += dz * d
            if SUMS == 4:
                off += d
                square += d * d
        place = partial + tl.program_id(0) * (SUMS * C) + channel
        tl.store(place, tl.sum(once, 0))
        tl.store(place + C, tl.sum(twice, 0))
        if SUMS == 4:
            tl.store(place + 2 * C, tl.sum(off, 0))
            tl.store(place + 3 * C, tl.sum(square, 0))

    @triton.jit
    def _combine(
        partial, start, out, programs, rows,
        C: tl.constexpr, WIDE: tl.constexpr, PAD: tl.constexpr, MOMENTS: tl.constexpr, SHIFTED: tl.constexpr,
    ):  # fmt: skip
        """Sum (programs, sums, C) over programs, two sums at a time; with MOMENTS make mean and variance of them."""
        channel = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
        pair = tl.program_id(1) * (2 * C)
        program = tl.arange(0, PAD)[:, None]
        place = partial + program * (tl.num_programs(1) * 2 * C) + pair + channel[None, :]
        once = tl.sum(tl.load(place, mask=program < programs, other=0.0), 0)
        twice = tl.sum(tl.load(place + C, mask=program < programs, other=0.0), 0)
        if MOMENTS:
            once = once / rows
            twice = tl.maximum(twice / rows - once * once, 0.0)  # of a constant channel, rounding may leave less
        if SHIFTED:
            once += tl.load(start + channel).to(tl.float32)
        tl.store(out + pair + channel, once)
        tl.store(out + pair + C + channel, twice)


def nhwc(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _plan(x: Tensor) -> tuple[int, int, int, int]:
    """(rows, rows a tile, programs, tiles a program)."""
    rows = x.numel() // x.shape[1]
    block = max(TILE // x.shape[1], 16)
    tiles = triton.cdiv(rows, block)
    programs = min(tiles, PROGRAMS)
    return rows, block, programs, triton.cdiv(tiles, programs)


def combine(partial: Tensor, *, rows: int = 0, start: Tensor | None = None) -> Tensor:
    """(programs, sums, C) to (sums, C); with the number of rows two sums about `start` to mean and variance."""
    programs, sums, channels = partial.shape
    out = partial.new_empty(sums, channels)
    with torch.cuda.device_of(partial):
        _combine[(channels // 4, sums // 2)](
            partial, partial if start is None else start, out, programs, rows,
            channels, 4, triton.next_power_of_2(programs), rows > 0, start is not None, num_warps=8,
        )  # fmt: skip
    return out


@torch.library.custom_op("instant::moments", mutates_args=())
def moments(x: Tensor) -> Tensor:
    """(2, C): mean and variance over pixels."""
    return _reduce(nhwc(x), None)[1]


@moments.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(2, x.shape[1], dtype=torch.float32)


@torch.library.custom_op("instant::add_moments", mutates_args=())
def add_moments(x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """x + other, and its moments, in one pass."""
    total, sums = _reduce(nhwc(x), nhwc(other))
    assert total is not None
    return total, sums


@add_moments.register_fake
def _(x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x, memory_format=torch.channels_last), x.new_empty(2, x.shape[1], dtype=torch.float32)


def _reduce(x: Tensor, other: Tensor | None) -> tuple[Tensor | None, Tensor]:
    """(x + other, (mean, variance) of it over pixels)."""
    channels = x.shape[1]
    rows, block, programs, tiles = _plan(x)
    partial = x.new_empty(programs, 2, channels, dtype=torch.float32)
    total = None if other is None else torch.empty_like(x)
    with torch.cuda.device_of(x):
        _moments[(programs,)](
            x, x if other is None else other, x if total is None else total, partial, rows,
            channels, block, tiles, other is not None, num_warps=8,
        )  # fmt: skip
    # in memory the first C values are pixel 0
    return total, combine(partial, rows=rows, start=x if total is None else total)


@torch.library.custom_op("instant::pulls", mutates_args=())
def pulls(grad: Tensor, x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, slope: float, sums: int) -> Tensor:
    """(sums, C) over pixels: of dz and dz d, dz = grad * leaky'(scale x + shift), d = x - mean; then of d and d^2."""
    grad, x = nhwc(grad), nhwc(x)
    channels = x.shape[1]
    rows, block, programs, tiles = _plan(x)
    partial = x.new_empty(programs, sums, channels, dtype=torch.float32)
    with torch.cuda.device_of(x):
        _pulls[(programs,)](
            grad, x, scale, shift, mean, partial, rows, slope, channels, block, tiles, sums, num_warps=8
        )
    return combine(partial)


@pulls.register_fake
def _(grad: Tensor, x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, slope: float, sums: int) -> Tensor:
    return x.new_empty(sums, x.shape[1], dtype=torch.float32)
