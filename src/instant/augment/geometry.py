"""Moving pixels: rotation, shear and translation by Pillow's fixed-point arithmetic, and the reflected crop."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def move(
    images: Tensor,
    *,
    degrees: Tensor | None = None,
    shear_x: Tensor | None = None,
    shear_y: Tensor | None = None,
    share_x: Tensor | None = None,
    share_y: Tensor | None = None,
) -> Tensor:
    """Rotate (counter-clockwise, about the centre), shear or shift each image; nearest pixel, black outside.

    Amounts are (B,); an image should have at most one that is not zero. The output pixel (x, y) is read at
    (a x + b y + c, d x + e y + f), as in `Image.transform(AFFINE)`; shifts are shares of the side.
    """
    height, width = images.shape[-2:]
    still = torch.zeros(len(images), dtype=torch.float64, device=images.device)
    turn, slant_x, slant_y, right, down = (
        still if amount is None else amount.double() for amount in (degrees, shear_x, shear_y, share_x, share_y)
    )
    angle = turn * (-math.pi / 180)
    cosine, sine = angle.cos(), angle.sin()
    a, b = cosine, sine + slant_x
    d, e = slant_y - sine, cosine
    # Pillow shifts in float64, not in fixed point: take the nearest whole pixel before quantising.
    c = (right * width + 0.5).floor() + (width / 2 - cosine * (width / 2) - sine * (height / 2))
    f = (down * height + 0.5).floor() + (height / 2 + sine * (width / 2) - cosine * (height / 2))
    return _sample(images, _fixed(a), _fixed(b), _fixed(c + (a + b) / 2), _fixed(d), _fixed(e), _fixed(f + (d + e) / 2))


def _fixed(number: Tensor) -> Tensor:
    """Multiples of 2**-16 in 32 bits, (B, 1, 1): enough for sides below 2**14."""
    return (number * 2**16 + 0.5).floor().int().view(-1, 1, 1)


def _sample(images: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor, f: Tensor) -> Tensor:
    """Integers throughout: the pixel is Pillow's, and the same on every device."""
    height, width = images.shape[-2:]
    x = torch.arange(width, dtype=torch.int32, device=images.device)
    y = torch.arange(height, dtype=torch.int32, device=images.device).unsqueeze(1)
    column = (a * x + (b * y + c)) >> 16
    row = (d * x + (e * y + f)) >> 16
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    # Outside pixels read one black pixel appended to the image.
    source = torch.where(inside, row * width + column, height * width)
    return _take(torch.nn.functional.pad(images.flatten(2), (0, 1)), source.long())


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
