"""Weak and strong views of images (FixMatch, arXiv 2001.07685, with USB's ranges); all draws come from a key.

A policy is called as `policy(samples, key)`; any callable with that face may replace one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from instant import random
from instant.augment import geometry, images
from instant.errors import InputError

_FILL = {1: (123,), 3: (125, 123, 114)}


class NoAugment(nn.Module):
    """The samples as they are, for evaluation."""

    def forward(self, samples: Tensor, key: Tensor) -> Tensor:
        return samples


class Weak(nn.Module):
    """Reflect-pad by a share of the side and crop back at random; mirror half of the images if `mirror`.

    >>> weak = Weak(mirror=True)
    >>> weak(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), random.root(0)).shape
    torch.Size([2, 3, 32, 32])
    """

    def __init__(self, mirror: bool, pad: float = 1 / 8) -> None:
        super().__init__()
        if not 0 <= pad <= 0.5:
            raise InputError(f"pad: must be a share of the side between 0 and 0.5, got {pad}.")
        self.mirror = mirror
        self.pad = pad

    def forward(self, samples: Tensor, key: Tensor) -> Tensor:
        check_images(samples)
        batch, _, height, width = samples.shape
        pad_y, pad_x = round(height * self.pad), round(width * self.pad)
        down = random.integers(random.fold(key, 0), 2 * pad_y + 1, batch) - pad_y
        right = random.integers(random.fold(key, 1), 2 * pad_x + 1, batch) - pad_x
        if self.mirror:
            mirrored = random.integers(random.fold(key, 2), 2, batch) == 1
        else:
            mirrored = torch.zeros(batch, dtype=torch.bool, device=samples.device)
        return geometry.crop(samples, down, right, mirrored)


class Strong(nn.Module):
    """Weak geometry, then `rounds` operations drawn with replacement per image, then Cutout.

    `cutout` is the largest side of the square as a share of the width.
    """

    def __init__(
        self, mirror: bool, channels: int, *, rounds: int = 3, pad: float = 1 / 8, cutout: float = 0.5
    ) -> None:
        super().__init__()
        if channels not in _FILL:
            raise InputError(f"channels: strong augmentation knows 1 (grey) and 3 (RGB), got {channels}.")
        self.weak = Weak(mirror, pad)
        self.channels = channels
        self.rounds = rounds
        self.cutout = cutout

    def forward(self, samples: Tensor, key: Tensor) -> Tensor:
        check_images(samples)
        batch, channels, height, width = samples.shape
        if channels != self.channels:
            raise InputError(f"images: this policy is for {self.channels} channel(s), got {channels}.")
        samples = self.weak(samples, random.fold(key, 0))
        operations, strengths = draw_operations(random.fold(key, 1), batch, self.rounds)
        for operation, strength in zip(operations.unbind(1), strengths.unbind(1)):
            samples = images.apply(samples, operation, strength)
        spot = random.integers(random.fold(key, 2), images.STRENGTHS, 3, batch)
        side = images.between(spot[0], 0, self.cutout) * width
        centre_x, centre_y = images.between(spot[1], 0, width), images.between(spot[2], 0, height)
        return images.cutout(samples, side, centre_x, centre_y, _FILL[channels])


def draw_operations(key: Tensor, batch: int, rounds: int) -> tuple[Tensor, Tensor]:
    """Independent uniform operation numbers and strengths, both (batch, rounds)."""
    operations = random.integers(random.fold(key, 0), len(images.OPERATIONS), batch, rounds)
    strengths = random.integers(random.fold(key, 1), images.STRENGTHS, batch, rounds)
    return operations, strengths


def check_images(samples: Tensor) -> None:
    """Refuse anything but uint8 (B, 1 or 3, H, W)."""
    if samples.dtype != torch.uint8 or samples.dim() != 4 or samples.shape[1] not in _FILL:
        raise InputError(
            f"images: augmentation takes uint8 of shape (B, C, H, W) with 1 or 3 channels, "
            f"got {samples.dtype} of shape {tuple(samples.shape)}."
        )


def for_images(channels: int, mirror: bool) -> tuple[Weak, Strong]:
    """The weak and the strong policy; `mirror=False` where left and right matter, as with digits."""
    return Weak(mirror), Strong(mirror, channels)
