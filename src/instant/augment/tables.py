"""Grey-level operations: what each of the 256 levels becomes, per image and channel.

The arithmetic is that of Pillow's `ImageOps` and `ImageEnhance`, and so are the resulting levels. Shapes: images
(B, C, H, W) uint8; pixels their levels (B, C, H * W); levels any uint8 (B or 1, C or 1, n), pixels or the table of all
256; magnitudes broadcast against levels.

On a CPU torch vectorises arithmetic but not `where`, `masked_fill`, integer division or float to uint8, which cost
five to twenty times as much. Passes over whole images therefore keep to arithmetic, with the same levels.
"""

from __future__ import annotations

import torch
from torch import Tensor


def to_bytes(numbers: Tensor) -> Tensor:
    """Numbers in [0, 256) cut to whole levels; by way of int16, which a CPU converts to faster."""
    return numbers.short().to(torch.uint8)


def choose(condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """`torch.where` for uint8, in bit operations."""
    return no ^ ((no ^ yes) & (condition.to(torch.uint8) * 255))


def luma(images: Tensor) -> Tensor:
    """Pillow's conversion to mode "L", (B, 1, H, W); its 16-bit fixed point fits float32 exactly."""
    if images.shape[1] == 1:
        return images
    red, green, blue = (channel.float() for channel in images.split(1, dim=1))
    return to_bytes(red.mul_(19595).add_(green, alpha=38470).add_(blue, alpha=7471).add_(0x8000).mul_(2**-16))


def mean_level(grey: Tensor) -> Tensor:
    """The mean of `luma`, rounded half up, uint8 (B, 1, 1, 1)."""
    pixels = grey.shape[-2] * grey.shape[-1]
    return ((2 * grey.sum(dim=(1, 2, 3), keepdim=True) + pixels) // (2 * pixels)).to(torch.uint8)


def identity_table(device: torch.device) -> Tensor:
    """The 256 levels themselves, (1, 1, 256)."""
    return torch.arange(256, dtype=torch.uint8, device=device).view(1, 1, 256)


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """Every pixel's level, as int64 (B, C, n), replaced by its entry in its image's table."""
    return table.expand(*index.shape[:2], 256).gather(2, index)


def posterize(levels: Tensor, bits: Tensor) -> Tensor:
    """The top `bits` bits, 1 to 8."""
    return levels & (255 << (8 - bits)).to(torch.uint8)


def solarize(levels: Tensor, threshold: Tensor) -> Tensor:
    """Levels at or above the threshold inverted."""
    return choose(levels < threshold, levels, 255 - levels)


def extremes(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Every channel's darkest and lightest level, int16 (B, C, 1)."""
    # int16, because a compiled minimum of uint8 on the CPU is wrong (pytorch issue 191499, torch 2.13).
    numbers = pixels.short()
    return numbers.amin(dim=2, keepdim=True), numbers.amax(dim=2, keepdim=True)


def stretch(levels: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Autocontrast: the level `low` to 0 and `high` to 255; where they are one, all levels stay."""
    flat = low == high
    start = torch.where(flat, 0, low).double()
    span = torch.where(flat, 255, high - low).double()
    # Not `255 / span`, which torch computes as reciprocal times 255: two roundings where Pillow has one.
    scale = torch.full_like(span, 255) / span
    return to_bytes(_rounded_product(levels.double(), scale).sub_(_rounded_product(start, scale)).clamp_(0, 255))


def _rounded_product(level: Tensor, scale: Tensor) -> Tensor:
    """level * scale, rounded once to float64 even where a compiler fuses the product into the next addition.

    The lightest level becomes 255 or 254 by that rounding. Both partial products are exact (8 + 24 and 8 + 37
    bits), so fused or not, only their sum is rounded.
    """
    coarse = (scale * 2**16).floor() / 2**16
    return (level * coarse).addcmul_(level, scale - coarse)


def equalize_table(index: Tensor, lightest: Tensor) -> Tensor:
    """Levels spread so that a channel's histogram becomes flat; a channel with too few levels stays.

    `index` are the pixels as int64, `lightest` comes from `extremes`.
    """
    counts = torch.zeros(*index.shape[:2], 256, dtype=torch.int32, device=index.device)
    counts = counts.scatter_add(2, index, counts.new_ones(index.shape[2]).expand(index.shape))
    step = (index.shape[2] - counts.gather(2, lightest.long())) // 255
    below = counts.cumsum(dim=2, dtype=torch.int32).sub_(counts)
    # In float64 the quotient of whole numbers is cut at the right one: it is nearer to no other than 1 / step.
    spread = below.add_(step // 2).double().div_(step.clamp(min=1)).clamp_(max=255)
    return choose(step > 0, to_bytes(spread), identity_table(index.device))
