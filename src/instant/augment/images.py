"""FixMatch's fourteen operations of RandAugment, and Cutout, per image, on uint8 batches (B, C, H, W).

Every magnitude is a (B,) tensor: each image has its own. The operations follow Pillow to the grey level.
`apply` gives each image its own operation in three passes over the batch (blend, geometry, table); in the passes
of the other families the image meets the identity. Shapes are fixed and the host waits for nothing.

>>> images = torch.full((2, 3, 8, 8), 100, dtype=torch.uint8)
>>> brightness(images, torch.tensor([0.5, 1.0]))[:, 0, 0, 0]
tensor([ 50, 100], dtype=torch.uint8)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from instant.augment import geometry, tables

OPERATIONS = (
    "autocontrast",
    "brightness",
    "color",
    "contrast",
    "equalize",
    "identity",
    "posterize",
    "rotate",
    "sharpness",
    "shear_x",
    "shear_y",
    "solarize",
    "translate_x",
    "translate_y",
)
STRENGTHS = 2**16
"""Strengths are integers below this; `apply` maps them onto the range of the operation drawn."""


def autocontrast(images: Tensor) -> Tensor:
    """Stretch every channel to the full range."""
    return tables.look_up(images, tables.autocontrast_table(images))


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """0 is black, 1 the image."""
    return tables.look_up(images, tables.brightness_table(factor))


def color(images: Tensor, factor: Tensor) -> Tensor:
    """0 is grey, 1 the image."""
    return tables.blend(tables.luma(images), images, _per_pixel(factor))


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """0 is the mean grey everywhere, 1 the image."""
    return tables.look_up(images, tables.contrast_table(tables.luma(images), factor))


def equalize(images: Tensor) -> Tensor:
    """Flatten the histogram of every channel."""
    return tables.look_up(images, tables.equalize_table(images))


def identity(images: Tensor) -> Tensor:
    """The images themselves."""
    return images


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the top `bits` bits, an integer tensor with values 1 to 8."""
    return tables.look_up(images, tables.posterize_table(bits))


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """Counter-clockwise about the centre."""
    return geometry.move(images, degrees=degrees)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """0 is smoothed, 1 the image."""
    return tables.blend(smooth(images), images, _per_pixel(factor))


def shear_x(images: Tensor, amount: Tensor) -> Tensor:
    """Shift every row by `amount` times its height in the image."""
    return geometry.move(images, shear_x=amount)


def shear_y(images: Tensor, amount: Tensor) -> Tensor:
    """Shift every column by `amount` times its distance from the left."""
    return geometry.move(images, shear_y=amount)


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels at or above the threshold."""
    return tables.look_up(images, tables.solarize_table(threshold))


def translate_x(images: Tensor, share: Tensor) -> Tensor:
    """Shift left by a share of the width."""
    return geometry.move(images, share_x=share)


def translate_y(images: Tensor, share: Tensor) -> Tensor:
    """Shift up by a share of the height."""
    return geometry.move(images, share_y=share)


def smooth(images: Tensor) -> Tensor:
    """`ImageFilter.SMOOTH`: the 3x3 mean with the centre counted five times; the border stays."""
    pixels = images.short()
    rows = pixels[..., :-2, :] + pixels[..., 1:-1, :] + pixels[..., 2:, :]
    total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * pixels[..., 1:-1, 1:-1]
    smoothed = images.clone()
    # total / 13 + 0.5 is never nearer to an integer than 1 / 26, so float rounding cannot matter.
    smoothed[..., 1:-1, 1:-1] = total.float().mul_(1 / 13).add_(0.5)
    return smoothed


def cutout(images: Tensor, side: Tensor, centre_x: Tensor, centre_y: Tensor, fill: Sequence[int]) -> Tensor:
    """Paint a square, clipped at the border, in one level per channel; side and centre in pixels, (B,)."""
    height, width = images.shape[-2:]
    columns = _covered(width, side, centre_x)
    rows = _covered(height, side, centre_y)
    hole = rows.unsqueeze(2) & columns.unsqueeze(1)
    return torch.stack([images[:, c].masked_fill(hole, level) for c, level in enumerate(fill)], dim=1)


def _covered(length: int, side: Tensor, centre: Tensor) -> Tensor:
    """Which pixel centres of an axis lie within half a side of `centre`, (B, length)."""
    middle = torch.arange(length, device=side.device) + 0.5
    return (middle - centre.unsqueeze(1)).abs() < side.unsqueeze(1) / 2


def apply(images: Tensor, operation: Tensor, strength: Tensor) -> Tensor:
    """Give image i the operation `OPERATIONS[operation[i]]` at `strength[i]`, an integer below STRENGTHS."""
    drawn = {name: operation == number for number, name in enumerate(OPERATIONS)}
    factor = between(strength, 0.05, 0.95)
    tilt = between(strength, -0.3, 0.3)
    grey = tables.luma(images)

    table = tables.identity_table(images.device)
    for name, candidate in {
        "brightness": tables.brightness_table(factor),
        "contrast": tables.contrast_table(grey, factor),
        "posterize": tables.posterize_table(4 + strength * 5 // STRENGTHS),
        "solarize": tables.solarize_table(between(strength, 0, 256)),
        "autocontrast": tables.autocontrast_table(images),
        "equalize": tables.equalize_table(images),
    }.items():
        table = torch.where(drawn[name].view(-1, 1, 1), candidate, table)

    degenerate = torch.where(_per_pixel(drawn["color"]), grey, smooth(images))
    share = torch.where(drawn["color"] | drawn["sharpness"], factor, 1.0)
    blended = tables.blend(degenerate, images, _per_pixel(share))
    moved = geometry.move(
        blended,
        degrees=torch.where(drawn["rotate"], between(strength, -30, 30), 0.0),
        shear_x=torch.where(drawn["shear_x"], tilt, 0.0),
        shear_y=torch.where(drawn["shear_y"], tilt, 0.0),
        share_x=torch.where(drawn["translate_x"], tilt, 0.0),
        share_y=torch.where(drawn["translate_y"], tilt, 0.0),
    )
    return tables.look_up(moved, table)


def between(strength: Tensor, low: float, high: float) -> Tensor:
    """Strengths mapped evenly onto [low, high), float32 in steps of 2**-14.

    In such steps a blend is exact in float32, so a compiler's fused multiply-add cannot move a grey level.
    """
    first, last = round(low * 2**14), round(high * 2**14)
    return (first + strength * (last - first) // STRENGTHS).float() / 2**14


def _per_pixel(per_image: Tensor) -> Tensor:
    return per_image.view(-1, 1, 1, 1)
