"""ResizeMix (Qin 2020, arXiv 2012.11101): a smaller copy of another image somewhere in each."""

from __future__ import annotations

import torch
from torch import Tensor

from instant import random

SCALES = 0.1, 0.8  # of the copy's side, evenly


def resize_mix(images: Tensor, others: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """(M, C, H, W) of float images, each with a smaller copy of the other laid into it; and the share (M,) left of it.

    >>> mixed, kept = resize_mix(torch.zeros(2, 1, 8, 8), torch.ones(2, 1, 8, 8), random.root(0))
    >>> bool(torch.allclose(mixed.mean((1, 2, 3)), 1 - kept))
    True
    """
    scale = random.uniform(random.fold(key, 0), len(images), low=SCALES[0], high=SCALES[1])
    place = random.uniform(random.fold(key, 1), 2, len(images))
    (height, down), (width, right) = (
        _side(scale, where, side) for where, side in zip(place, images.shape[-2:], strict=True)
    )
    return paste(images, others, height, width, down, right), 1 - height * width / images[0, 0].numel()


def paste(images: Tensor, others: Tensor, height: Tensor, width: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """The others, shrunk to (M,) whole numbers of pixels by the mean of what each covers, laid into the images."""
    row, column = _cover(height, down, images.shape[-2]), _cover(width, right, images.shape[-1])
    small = row.unsqueeze(1) @ others @ column.mT.unsqueeze(1)
    inside = (row.sum(2) > 0.5).unsqueeze(2) & (column.sum(2) > 0.5).unsqueeze(1)
    return torch.where(inside.unsqueeze(1), small, images)


def _side(scale: Tensor, place: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """How many pixels the copy has, and where it begins so that it lies inside."""
    size = (scale * side).round().clamp(min=1)
    return size, (place * (side - size + 1)).floor()


def _cover(size: Tensor, start: Tensor, side: int) -> Tensor:
    """(M, side, side): how much of output pixel o is input pixel i, when `size` outputs from `start` on show all."""
    pixel = torch.arange(side, device=size.device, dtype=size.dtype)
    step = (side / size).view(-1, 1, 1)
    first = (pixel - start.unsqueeze(1)).unsqueeze(2) * step
    overlap = torch.minimum(first + step, pixel + 1) - torch.maximum(first, pixel)
    inside = (pixel >= start.unsqueeze(1)) & (pixel < (start + size).unsqueeze(1))
    return torch.where(inside.unsqueeze(2), overlap.clamp(min=0) / step, 0.0)
