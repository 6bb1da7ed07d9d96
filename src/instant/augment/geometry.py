"""Moving pixels: rotation, shear and translation by Pillow's fixed-point arithmetic, and the reflected crop."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def path(
    degrees: Tensor, shear_x: Tensor, shear_y: Tensor, share_x: Tensor, share_y: Tensor, *, height: int, width: int
) -> Tensor:
    """Where pixels come from: (..., B, 6) of amounts (..., B), of which at most one should not be zero.

    The output pixel (x, y) is read at (a x + b y + c, d x + e y + f), as in `Image.transform(AFFINE)`; shifts are
    shares of the side. The six are multiples of 2**-16 in 32 bits: enough for sides below 2**14.
    """
    angle = degrees.double() * (-math.pi / 180)
    cosine, sine = angle.cos(), angle.sin()
    a, b = cosine, sine + shear_x
    d, e = shear_y - sine, cosine
    # Pillow shifts in float64, not in fixed point: take the nearest whole pixel before quantising.
    right, down = (share_x.double() * width + 0.5).floor(), (share_y.double() * height + 0.5).floor()
    c = right + (width / 2 - cosine * (width / 2) - sine * (height / 2))
    f = down + (height / 2 + sine * (width / 2) - cosine * (height / 2))
    six = torch.stack([a, b, c + (a + b) / 2, d, e, f + (d + e) / 2], dim=-1)
    return (six * 2**16 + 0.5).floor().int()


def follow(images: Tensor, path: Tensor) -> Tensor:
    """Read every pixel where its image's path, (B, 6), says. Integers throughout: the pixel is Pillow's everywhere."""
    height, width = images.shape[-2:]
    a, b, c, d, e, f = path.view(-1, 6, 1, 1).unbind(1)
    x = torch.arange(width, dtype=torch.int32, device=images.device)
    y = torch.arange(height, dtype=torch.int32, device=images.device).unsqueeze(1)
    # Positions in the image with a black border of one pixel, where all that lies outside is read.
    column = (a * x + (b * y + (c + 2**16))).bitwise_right_shift_(16).clamp_(0, width + 1)
    row = (d * x + (e * y + (f + 2**16))).bitwise_right_shift_(16).clamp_(0, height + 1)
    source = row.mul_(width + 2).add_(column)
    return _take(torch.nn.functional.pad(images, (1, 1, 1, 1)).flatten(2), source.long())


def crop(images: Tensor, down: Tensor, right: Tensor, mirrored: Tensor) -> Tensor:
    """The window moved by whole pixels, borders reflected as in `numpy.pad`, then mirrored where asked."""
    height, width = images.shape[-2:]
    row = torch.arange(height, device=images.device) + down.view(-1, 1)
    column = torch.arange(width, device=images.device).expand(len(images), width)
    column = torch.where(mirrored.view(-1, 1), width - 1 - column, column) + right.view(-1, 1)
    return _take(images.flatten(2), _reflect(row, height).unsqueeze(2) * width + _reflect(column, width).unsqueeze(1))


def _reflect(position: Tensor, side: int) -> Tensor:
    return (side - 1) - ((side - 1) - position.abs()).abs()


def _take(flat: Tensor, source: Tensor) -> Tensor:
    """Pixels (B, C, H, W) of flat images (B, C, pixels) at positions (B, H, W)."""
    batch, channels, _ = flat.shape
    index = source.flatten(1).unsqueeze(1).expand(batch, channels, -1)
    return flat.gather(2, index).view(batch, channels, *source.shape[1:])
