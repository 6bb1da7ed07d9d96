"""Moving pixels: per-image affine maps by Pillow's 16.16 fixed-point arithmetic, and the reflected crop.

An affine map (B, 6) holds, as int64 multiples of 2**-16, the (a, b, c, d, e, f) that send output pixel (x, y) to
the source pixel (a x + b y + c, d x + e y + f); c and f already contain the half pixel of the centre. With
integers the sampled pixel is Pillow's, and the same on every device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def affine_map(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor, f: Tensor) -> Tensor:
    """Six float64 (B,) coefficients of `Image.transform(AFFINE)` as a fixed-point map."""
    exact = torch.stack([a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5], dim=1)
    return (exact * 2**16 + 0.5).floor().long()


def identity_map(batch: int, device: torch.device) -> Tensor:
    """The map that leaves every pixel in place."""
    return translate_x_map(torch.zeros(batch, device=device), 1)


def rotation_map(degrees: Tensor, height: int, width: int) -> Tensor:
    """Counter-clockwise about the image centre, as `Image.rotate`."""
    angle = degrees.double() * (-math.pi / 180)
    cosine, sine = angle.cos(), angle.sin()
    c = -cosine * (width / 2) - sine * (height / 2) + width / 2
    f = sine * (width / 2) - cosine * (height / 2) + height / 2
    return affine_map(cosine, sine, c, -sine, cosine, f)


def shear_x_map(amount: Tensor) -> Tensor:
    """Each row is read `amount` pixels further right than the row above."""
    one, zero = _one_and_zero(amount)
    return affine_map(one, amount.double(), zero, zero, one, zero)


def shear_y_map(amount: Tensor) -> Tensor:
    """Each column is read `amount` pixels further down than the column on its left."""
    one, zero = _one_and_zero(amount)
    return affine_map(one, zero, zero, amount.double(), one, zero)


def translate_x_map(share: Tensor, width: int) -> Tensor:
    """Read `share` of the width further right."""
    one, zero = _one_and_zero(share)
    return affine_map(one, zero, _whole_pixels(share, width), zero, one, zero)


def translate_y_map(share: Tensor, height: int) -> Tensor:
    """Read `share` of the height further down."""
    one, zero = _one_and_zero(share)
    return affine_map(one, zero, zero, zero, one, _whole_pixels(share, height))


def _one_and_zero(like: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ones_like(like, dtype=torch.float64), torch.zeros_like(like, dtype=torch.float64)


def _whole_pixels(share: Tensor, side: int) -> Tensor:
    # Pillow translates in float64, not in fixed point: take the nearest whole shift before it is quantised.
    return (share.double() * side + 0.5).floor()


def sample(images: Tensor, mapping: Tensor) -> Tensor:
    """The nearest source pixel of every output pixel, black where it lies outside."""
    height, width = images.shape[-2:]
    x = torch.arange(width, device=images.device)
    y = torch.arange(height, device=images.device).unsqueeze(1)
    a, b, c, d, e, f = mapping.view(-1, 6, 1, 1).unbind(1)
    column = (a * x + (b * y + c)) >> 16
    row = (d * x + (e * y + f)) >> 16
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    # Outside pixels read one black pixel appended to the image.
    source = torch.where(inside, row * width + column, height * width)
    return _take(torch.nn.functional.pad(images.flatten(2), (0, 1)), source)


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
    index = source.view(batch, 1, -1).expand(batch, channels, -1)
    return flat.gather(2, index).view(batch, channels, *source.shape[1:])
