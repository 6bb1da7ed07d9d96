"""FixMatch's fourteen operations of RandAugment, and Cutout, per image, on uint8 batches (B, C, H, W).

Every magnitude is a (B,) tensor: each image has its own. The operations follow Pillow to the grey level.
`apply` gives each image its own operation in three passes over the batch (levels, mixing, moving); in the passes of
the other families the image meets the identity. Shapes are fixed and the host waits for nothing. On a CPU there is
nobody to wait for, and a pass takes just the images that need it.

>>> images = torch.full((2, 3, 8, 8), 100, dtype=torch.uint8)
>>> solarize = torch.full((2,), OPERATIONS.index("solarize"))
>>> apply(images, solarize, torch.tensor([0, STRENGTHS // 2]))[:, 0, 0, 0]  # from 0 on, and from 128 on
tensor([155, 100], dtype=torch.uint8)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

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


def smooth(images: Tensor) -> Tensor:
    """`ImageFilter.SMOOTH`: the 3x3 mean with the centre counted five times; the border stays."""
    width = images.shape[-1]
    # Rows laid end to end: long runs of pixels add faster than rows without their ends.
    pixels = images.flatten(2).short()
    rows = pixels[..., : -2 * width] + pixels[..., width:-width] + pixels[..., 2 * width :]
    within = slice(width + 1, -width - 1)
    total = (rows[..., :-2] + rows[..., 1:-1]).add_(rows[..., 2:]).add_(pixels[..., within], alpha=4)
    # total / 13 + 0.5 is never nearer to an integer than 1 / 26, so float rounding cannot matter.
    mean = tables.to_bytes(total.float().mul_(1 / 13).add_(0.5))
    smoothed = images.flatten(2).clone()
    column = torch.arange(smoothed.shape[2], device=images.device)[within] % width
    border = (column == 0) | (column == width - 1)
    smoothed[..., within] = tables.choose(border, smoothed[..., within], mean)
    return smoothed.view(images.shape)


def cutout(images: Tensor, side: Tensor, centre_x: Tensor, centre_y: Tensor, fill: Sequence[int]) -> Tensor:
    """Paint a square, clipped at the border, in one level per channel; side and centre in pixels, (B,)."""
    height, width = images.shape[-2:]
    hole = _covered(height, side, centre_y).unsqueeze(2) * _covered(width, side, centre_x).unsqueeze(1)
    kept = 1 - hole
    return torch.stack([images[:, c] * kept + hole * level for c, level in enumerate(fill)], dim=1)


def _covered(length: int, side: Tensor, centre: Tensor) -> Tensor:
    """1 for the pixel centres of an axis that lie within half a side of `centre`, else 0, uint8 (B, length)."""
    middle = torch.arange(length, device=side.device) + 0.5
    return ((middle - centre.unsqueeze(1)).abs() < side.unsqueeze(1) / 2).to(torch.uint8)


class Amounts(NamedTuple):
    """What every image goes through, (..., B); where an operation is not drawn, the amount that changes nothing."""

    bits: Tensor
    threshold: Tensor
    stretched: Tensor
    equalized: Tensor
    share: Tensor
    smoothed: Tensor
    greyed: Tensor
    flattened: Tensor
    path: Tensor  # (..., B, 6), of `geometry.path`
    passed: Tensor  # which pass changes the image: its place in PASSES, or -1


def amounts(operation: Tensor, strength: Tensor, height: int, width: int) -> Amounts:
    """Of the operations `OPERATIONS[operation]` at `strength`, integers below STRENGTHS; of all rounds at once."""
    drawn = {name: operation == number for number, name in enumerate(OPERATIONS)}
    mixed = drawn["brightness"] | drawn["color"] | drawn["contrast"] | drawn["sharpness"]
    relevelled = drawn["autocontrast"] | drawn["equalize"] | drawn["posterize"] | drawn["solarize"]
    tilt = between(strength, -0.3, 0.3)
    return Amounts(
        bits=torch.where(drawn["posterize"], 4 + strength * 5 // STRENGTHS, 8),
        threshold=torch.where(drawn["solarize"], between(strength, 0, 256), 256),
        stretched=drawn["autocontrast"],
        equalized=drawn["equalize"],
        share=torch.where(mixed, between(strength, 0.05, 0.95), 1),
        smoothed=drawn["sharpness"],
        greyed=drawn["color"],
        flattened=drawn["contrast"],
        path=geometry.path(
            degrees=between(strength, -30, 30) * drawn["rotate"],
            shear_x=tilt * drawn["shear_x"],
            shear_y=tilt * drawn["shear_y"],
            share_x=tilt * drawn["translate_x"],
            share_y=tilt * drawn["translate_y"],
            height=height,
            width=width,
        ),
        passed=torch.where(relevelled, 0, torch.where(mixed, 1, torch.where(drawn["identity"], -1, 2))),
    )


def apply(images: Tensor, operation: Tensor, strength: Tensor) -> Tensor:
    """Give image i the operation `OPERATIONS[operation[i]]` at `strength[i]`, an integer below STRENGTHS."""
    return perform(images, amounts(operation, strength, *images.shape[-2:]))


def perform(images: Tensor, amounts: Amounts) -> Tensor:
    """Give each image the one operation that its amounts, (B,), stand for."""
    if images.device.type == "cpu" and not (torch.compiler.is_compiling() or isinstance(images, FakeTensor)):
        return _perform_where_needed(images, amounts)
    for change in PASSES:
        images = change(images, amounts)
    return images


def _perform_where_needed(images: Tensor, amounts: Amounts) -> Tensor:
    changed = images.clone()
    for number, change in enumerate(PASSES):
        rows = (amounts.passed == number).nonzero().squeeze(1)
        if len(rows):
            changed[rows] = change(images[rows], Amounts(*(amount[rows] for amount in amounts)))
    return changed


def relevel(images: Tensor, amounts: Amounts) -> Tensor:
    """The operations that look only at a pixel's own level and at the histogram, in one table."""
    bits, threshold, stretched, equalized = (amount.view(-1, 1, 1) for amount in amounts[:4])
    pixels = images.flatten(2)
    low, high = tables.extremes(pixels)
    levels = tables.posterize(tables.identity_table(images.device), bits)
    levels = tables.solarize(levels, threshold)
    levels = tables.stretch(levels, torch.where(stretched, low, 0), torch.where(stretched, high, 255))
    index = pixels.long()
    levels = tables.choose(equalized, tables.equalize_table(index, high), levels)
    return tables.look_up(levels, index).view(images.shape)


def mix(images: Tensor, amounts: Amounts) -> Tensor:
    """The operations that mix the image with another one: itself smoothed, its greys, its mean grey, or black."""
    share, smoothed, greyed, flattened = (amount.view(-1, 1, 1, 1) for amount in amounts[4:8])
    grey = tables.luma(images)
    other = (smooth(images) * smoothed).add_(grey * greyed).add_(tables.mean_level(grey) * flattened)
    return tables.to_bytes(other.float().lerp_(images.float(), share))  # `Image.blend`; every step is exact here


def move(images: Tensor, amounts: Amounts) -> Tensor:
    """The operations that move pixels."""
    return geometry.follow(images, amounts.path)


PASSES = (relevel, mix, move)


def between(strength: Tensor, low: float, high: float) -> Tensor:
    """Strengths mapped evenly onto [low, high), float32 in steps of 2**-14.

    In such steps a blend is exact in float32, so a compiler's fused multiply-add cannot move a grey level.
    """
    first, last = round(low * 2**14), round(high * 2**14)
    return (first + strength * (last - first) // STRENGTHS).float() / 2**14
