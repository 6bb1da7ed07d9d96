"""Grey-level operations as lookup tables: what each of the 256 levels becomes, per image and channel.

The arithmetic is that of Pillow's `ImageOps` and `ImageEnhance`, and so are the resulting levels.
Shapes: images (B, C, H, W) uint8, per-image magnitudes (B,), tables (B, 1 or C, 256) uint8.
"""

from __future__ import annotations

import torch
from torch import Tensor


def blend(degenerate: Tensor, original: Tensor, factor: Tensor) -> Tensor:
    """`Image.blend`: degenerate + factor * (original - degenerate) in float32, clipped, cut to an integer."""
    start = degenerate.float()
    blended = (original.float() - start) * factor
    return blended.add_(start).clamp_(0, 255).to(torch.uint8)


def luma(images: Tensor) -> Tensor:
    """Pillow's conversion to mode "L", (B, 1, H, W)."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.int().split(1, dim=1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16).to(torch.uint8)


def look_up(images: Tensor, table: Tensor) -> Tensor:
    """Every pixel's level replaced by its entry in its image's table."""
    levels = table.expand(images.shape[0], images.shape[1], 256)
    return levels.gather(2, images.flatten(2).long()).view(images.shape)


def identity_table(device: torch.device) -> Tensor:
    """The 256 levels themselves, (1, 1, 256)."""
    return torch.arange(256, dtype=torch.uint8, device=device).view(1, 1, 256)


def brightness_table(factor: Tensor) -> Tensor:
    """A blend with black."""
    levels = identity_table(factor.device)
    return blend(torch.zeros_like(levels), levels, factor.view(-1, 1, 1))


def contrast_table(grey: Tensor, factor: Tensor) -> Tensor:
    """A blend with the image's mean grey, the mean rounded half up; `grey` comes from `luma`."""
    pixels = grey.shape[-2] * grey.shape[-1]
    mean = (2 * grey.sum(dim=(1, 2, 3)) + pixels) // (2 * pixels)
    return blend(mean.view(-1, 1, 1), identity_table(grey.device), factor.view(-1, 1, 1))


def posterize_table(bits: Tensor) -> Tensor:
    """The top `bits` bits of a level, 1 to 8."""
    dropped = (8 - bits).view(-1, 1, 1)
    return ((identity_table(bits.device) >> dropped) << dropped).to(torch.uint8)


def solarize_table(threshold: Tensor) -> Tensor:
    """Levels at or above the threshold inverted."""
    levels = identity_table(threshold.device)
    return torch.where(levels < threshold.view(-1, 1, 1), levels, 255 - levels)


def autocontrast_table(images: Tensor) -> Tensor:
    """The channel's darkest level to 0 and its lightest to 255; a flat channel stays."""
    levels = identity_table(images.device)
    flat = images.flatten(2)
    # int32, because a compiled minimum of uint8 on the CPU is wrong (pytorch issue 191499, torch 2.13).
    low = flat.int().amin(dim=2, keepdim=True).double()
    span = flat.amax(dim=2, keepdim=True) - low
    # Not `255 / span`, which torch computes as reciprocal times 255: two roundings where Pillow has one.
    scale = torch.full_like(span, 255) / span.clamp(min=1)
    stretched = _rounded_product(levels.double(), scale) - _rounded_product(low, scale)
    return torch.where(span > 0, stretched.clamp(0, 255).to(torch.uint8), levels)


def _rounded_product(level: Tensor, scale: Tensor) -> Tensor:
    """level * scale, rounded once to float64 even where a compiler fuses the product into the next addition.

    The lightest level becomes 255 or 254 by that rounding. Both partial products are exact (8 + 24 and 8 + 37
    bits), so fused or not, only their sum is rounded.
    """
    coarse = (scale * 2**16).floor() / 2**16
    return level * coarse + level * (scale - coarse)


def equalize_table(images: Tensor) -> Tensor:
    """Levels spread so that the channel's histogram becomes flat; a channel with too few levels stays."""
    levels = identity_table(images.device)
    flat = images.flatten(2)
    one = torch.ones((), dtype=torch.int32, device=images.device)
    counts = torch.zeros(*flat.shape[:2], 256, dtype=torch.int32, device=images.device)
    counts = counts.scatter_add(2, flat.long(), one.expand(flat.shape))
    lightest = counts.gather(2, flat.amax(dim=2, keepdim=True).long())
    step = (flat.shape[2] - lightest) // 255
    below = counts.cumsum(dim=2, dtype=torch.int32) - counts
    spread = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, spread.to(torch.uint8), levels)
