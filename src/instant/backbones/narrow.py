"""3x3 convolutions of few channels on a GPU, two pixels at a time.

With 32 channels and fewer cuDNN leaves most of the matrix unit idle. Here two neighbouring output pixels form a pair
that sees a window of four columns: channels double, and in channels-last memory the window is one contiguous run. A
program walks down a few images; a row of inputs meets the output rows above, at and below it, which stay in
registers, so each input row is read once. The forward kernel adds the residual and takes the sums for the next
batch norm on its way out. The gradient of the input is the same convolution with the weight turned around.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from instant.backbones.kernels import combine, nhwc, present

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

IMAGES = 2  # walked down side by side
WITH_RESIDUAL = 4  # where a residual is added on the way: its reads want company
widest = 64  # pixels of a row that a program can hold; less where `able.settle` found less shared memory


def fits(conv: nn.Conv2d, x: Tensor) -> bool:
    """Small enough for the kernels: 3x3, stride 1, padding 1, at most 32 channels, an even power-of-two width."""
    width = x.shape[3]
    square = conv.kernel_size == (3, 3) and conv.stride == (1, 1) and conv.padding == (1, 1)
    narrow = conv.in_channels in (3, 16, 32) and conv.out_channels in (16, 32)
    wide = 16 <= width <= widest and width & (width - 1) == 0
    return present(x) and square and narrow and wide and x.dtype == torch.bfloat16


def turns(weight: Tensor) -> bool:
    """Whether the kernels also convolve with the weight turned around: not to the few channels of an image."""
    return weight.shape[1] >= 16


if triton is not None:

    @triton.jit
    def _pairs(images, W: tl.constexpr, C: tl.constexpr, N: tl.constexpr):
        """Of each pair of this program: its image, its first column, and which columns of its window exist."""
        pair = tl.arange(0, N * (W // 2))
        image = tl.program_id(0) * N + pair // (W // 2)
        first = (pair % (W // 2)) * 2
        column = first[:, None] - 1 + (tl.arange(0, 4 * C) // C)[None, :]
        there = (image < images)[:, None]
        return image.to(tl.int64)[:, None], first[:, None], there, (column >= 0) & (column < W) & there

    @triton.jit
    def _forward(
        x, weight, residual, y, partial, images,
        H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
        ADD: tl.constexpr, SUMS: tl.constexpr,
    ):  # fmt: skip
        image, first, there, inside = _pairs(images, W, C, N)
        window = tl.arange(0, 4 * C)
        both = tl.arange(0, 2 * K)
        at_x = image * (H * W * C) + (first - 1) * C + window[None, :]
        at_y = image * (H * W * K) + first * K + both[None, :]
        taps = weight + window[:, None] * (2 * K) + both[None, :]
        upper = tl.load(taps)
        middle = tl.load(taps + 8 * C * K)
        lower = tl.load(taps + 16 * C * K)
        above = tl.zeros((N * (W // 2), 2 * K), tl.float32)  # output row h - 1, which lacks its lower tap
        here = tl.zeros((N * (W // 2), 2 * K), tl.float32)
        once = tl.zeros((2 * K,), tl.float32)
        twice = tl.zeros((2 * K,), tl.float32)
        for h in range(H + 1):
            v = tl.load(x + at_x + h * (W * C), mask=inside & (h < H), other=0.0)
            done = tl.dot(v, lower, above, input_precision="ieee")
            above = tl.dot(v, middle, here, input_precision="ieee")
            here = tl.dot(v, upper, input_precision="ieee")
            out = there & (h >= 1)
            if ADD:
                done += tl.load(residual + at_y + (h - 1) * (W * K), mask=out, other=0.0).to(tl.float32)
            stored = done.to(y.dtype.element_ty)
            tl.store(y + at_y + (h - 1) * (W * K), stored, mask=out)
            if SUMS:
                counted = tl.where(out, stored.to(tl.float32), 0.0)
                once += tl.sum(counted, 0)
                twice += tl.sum(counted * counted, 0)
        if SUMS:
            place = partial + tl.program_id(0) * (2 * K) + tl.arange(0, K)
            tl.store(place, tl.sum(tl.reshape(once, (2, K)), 0))
            tl.store(place + K, tl.sum(tl.reshape(twice, (2, K)), 0))

    @triton.jit
    def _weight_gradient(
        x, grad, out, images, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, K: tl.constexpr, N: tl.constexpr
    ):
        image, first, there, inside = _pairs(images, W, C, N)
        window = tl.arange(0, 4 * C)
        both = tl.arange(0, 2 * K)
        at_x = image * (H * W * C) + (first - 1) * C + window[None, :]
        at_g = image * (H * W * K) + first * K + both[None, :]
        upper = tl.zeros((4 * C, 2 * K), tl.float32)
        middle = tl.zeros((4 * C, 2 * K), tl.float32)
        lower = tl.zeros((4 * C, 2 * K), tl.float32)
        before = tl.zeros((N * (W // 2), 2 * K), grad.dtype.element_ty)
        here = tl.load(grad + at_g, mask=there, other=0.0)
        for h in range(H):
            after = tl.load(grad + at_g + (h + 1) * (W * K), mask=there & (h + 1 < H), other=0.0)
            v = tl.trans(tl.load(x + at_x + h * (W * C), mask=inside, other=0.0))
            upper = tl.dot(v, after, upper, input_precision="ieee")  # row h of the input lies above output row h + 1
            middle = tl.dot(v, here, middle, input_precision="ieee")
            lower = tl.dot(v, before, lower, input_precision="ieee")
            before = here
            here = after
        place = out + tl.program_id(0) * (24 * C * K) + window[:, None] * (2 * K) + both[None, :]
        tl.store(place, upper)
        tl.store(place + 8 * C * K, middle)
        tl.store(place + 16 * C * K, lower)


def padded(x: Tensor) -> Tensor:
    """Three channels become four, the last zero: of images and of the weights that read them."""
    return F.pad(x, (0, 0, 0, 0, 0, 1)) if x.shape[1] == 3 else x


def widened(weight: Tensor) -> Tensor:
    """(K, C, 3, 3) -> (3, 4, C, 2, K): what each column of the window does to each pixel of the pair."""
    taps = weight.permute(2, 3, 1, 0).unsqueeze(3)  # (3, 3, C, 1, K)
    shifted = [F.pad(taps, (0, 0, 0, 0, 0, 0, pixel, 1 - pixel)) for pixel in (0, 1)]
    return torch.cat(shifted, dim=3).contiguous()


def _folded(wide: Tensor) -> Tensor:
    """The transpose of `widened`."""
    return (wide[:, 0:3, :, 0] + wide[:, 1:4, :, 1]).permute(3, 2, 0, 1)


def _launch(x: Tensor, wide: Tensor, residual: Tensor | None, *, sums: bool) -> tuple[Tensor, Tensor]:
    """The output and, where `sums` are wanted, each program's sums of it and of its square."""
    x = nhwc(x)
    images, channels, height, width = x.shape
    outputs = wide.shape[-1]
    y = torch.empty((images, outputs, height, width), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    at_once, stages = (IMAGES, 4) if residual is None else (WITH_RESIDUAL, 3)
    programs = triton.cdiv(images, at_once)
    partial = x.new_empty(programs if sums else 0, 2, outputs, dtype=torch.float32)
    with torch.cuda.device_of(x):
        _forward[(programs,)](
            x, wide, x if residual is None else nhwc(residual), y, partial, images,
            height, width, channels, outputs, at_once, residual is not None, sums, num_warps=4, num_stages=stages,
        )  # fmt: skip
    return y, partial


def _output(x: Tensor, wide: Tensor) -> Tensor:
    images, _, height, width = x.shape
    return x.new_empty(images, wide.shape[-1], height, width).contiguous(memory_format=torch.channels_last)


@torch.library.custom_op("instant::narrow_convolve", mutates_args=())
def convolve(x: Tensor, wide: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
    """x * weight (+ residual), and its mean and variance over pixels; `wide` is the widened weight."""
    y, partial = _launch(x, wide, residual, sums=True)
    return y, combine(partial, rows=y.numel() // y.shape[1])


@convolve.register_fake
def _(x: Tensor, wide: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
    return _output(x, wide), x.new_empty(2, wide.shape[-1], dtype=torch.float32)


@torch.library.custom_op("instant::narrow_input_gradient", mutates_args=())
def _input_gradient_of(grad: Tensor, wide: Tensor) -> Tensor:
    return _launch(grad, wide, None, sums=False)[0]


@_input_gradient_of.register_fake
def _(grad: Tensor, wide: Tensor) -> Tensor:
    return _output(grad, wide)


def input_gradient(weight: Tensor, grad: Tensor) -> Tensor:
    """Of the convolution's input: the gradient, convolved with the weight turned around."""
    return _input_gradient_of(grad, widened(weight.flip(2, 3).transpose(0, 1)))


@torch.library.custom_op("instant::narrow_weight_gradient", mutates_args=())
def _weight_gradient_of(x: Tensor, grad: Tensor) -> Tensor:
    x, grad = nhwc(x), nhwc(grad)
    images, channels, height, width = x.shape
    outputs = grad.shape[1]
    programs = triton.cdiv(images, IMAGES)
    out = x.new_empty(programs, 3, 4, channels, 2, outputs, dtype=torch.float32)
    with torch.cuda.device_of(x):
        _weight_gradient[(programs,)](
            x, grad, out, images, height, width, channels, outputs, IMAGES, num_warps=4, num_stages=3
        )
    return out


@_weight_gradient_of.register_fake
def _(x: Tensor, grad: Tensor) -> Tensor:
    programs = -(-x.shape[0] // IMAGES)
    return x.new_empty(programs, 3, 4, x.shape[1], 2, grad.shape[1], dtype=torch.float32)


def weight_gradient(x: Tensor, grad: Tensor) -> Tensor:
    """(K, C, 3, 3) in float32."""
    return _folded(_weight_gradient_of(x, grad).sum(0))


# As torch counts a convolution: what it computes, not what the kernels do on top for the window's fourth column.


@register_flop_formula([torch.ops.instant.narrow_convolve, torch.ops.instant.narrow_input_gradient])
def _(x: torch.Size, wide: torch.Size, *_: object, **__: object) -> int:
    return 2 * 9 * x[0] * x[2] * x[3] * x[1] * wide[-1]


@register_flop_formula(torch.ops.instant.narrow_weight_gradient)
def _(x: torch.Size, grad: torch.Size, *_: object, **__: object) -> int:
    return 2 * 9 * x[0] * x[2] * x[3] * x[1] * grad[1]
