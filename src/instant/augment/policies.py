"""Weak and strong views of images (FixMatch, arXiv 2001.07685, with USB's ranges); all draws come from a key.

A policy is called as `policy(samples, key)`; any callable with that face may replace one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from instant import random
from instant.augment import geometry, images
from instant.errors import InputError

_FILL = {1: (123,), 3: (125, 123, 114)}


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
        return self.view(samples, random.bits(key, 3, len(samples)))

    def view(self, samples: Tensor, words: Tensor) -> Tensor:
        """The view that three random words per image, (3, B), stand for."""
        height, width = samples.shape[-2:]
        pad_y, pad_x = round(height * self.pad), round(width * self.pad)
        down = _below(2 * pad_y + 1, words[0]) - pad_y
        right = _below(2 * pad_x + 1, words[1]) - pad_x
        mirrored = _below(2 if self.mirror else 1, words[2]) == 1
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
        if rounds < 0:
            raise InputError(f"rounds: the number of operations must be 0 or more, got {rounds}.")
        if not 0 <= cutout <= 1:
            raise InputError(f"cutout: must be a share of the width between 0 and 1, got {cutout}.")
        self.weak = Weak(mirror, pad)
        self.channels = channels
        self.rounds = rounds
        self.cutout = cutout

    def forward(self, samples: Tensor, key: Tensor) -> Tensor:
        check_images(samples)
        if samples.shape[1] != self.channels:
            raise InputError(f"images: this policy is for {self.channels} channel(s), got {samples.shape[1]}.")
        # A key of its own: under the same key the weak view has another crop.
        return self.view(samples, random.bits(random.fold(key, 1), 6 + 2 * self.rounds, len(samples)))

    def view(self, samples: Tensor, words: Tensor) -> Tensor:
        """The view that 6 + 2 * rounds random words per image, (6 + 2 * rounds, B), stand for."""
        height, width = samples.shape[-2:]
        samples = self.weak.view(samples, words[:3])
        operation, strength = draw_operation(words[6:].view(self.rounds, 2, len(samples)).unbind(1))
        amounts = images.amounts(operation, strength, height, width)
        for number in range(self.rounds):
            samples = images.perform(samples, images.Amounts(*(amount[number] for amount in amounts)))
        side, centre_x, centre_y = _below(images.STRENGTHS, words[3:6])
        return images.cutout(
            samples,
            images.between(side, 0, self.cutout) * width,
            images.between(centre_x, 0, width),
            images.between(centre_y, 0, height),
            _FILL[self.channels],
        )


def draw_operation(words: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The operation number and the strength that two random words per image, each (..., B), stand for."""
    return _below(len(images.OPERATIONS), words[0]), _below(images.STRENGTHS, words[1])


def _below(high: int, words: Tensor) -> Tensor:
    """32-bit words mapped evenly onto 0 .. high - 1."""
    return (words * high) >> 32


def check_images(samples: Tensor) -> None:
    """Refuse anything but uint8 (B, 1 or 3, H, W)."""
    if samples.dtype != torch.uint8 or samples.dim() != 4 or samples.shape[1] not in _FILL:
        raise InputError(
            f"images: augmentation takes uint8 of shape (B, C, H, W) with 1 or 3 channels, "
            f"got {samples.dtype} of shape {tuple(samples.shape)}."
        )


def for_images(channels: int, mirror: bool, *, shift: float = 1 / 8, operations: int = 3) -> tuple[Weak, Strong]:
    """The weak and the strong policy; `mirror=False` where left and right matter, as with digits."""
    return Weak(mirror, shift), Strong(mirror, channels, rounds=operations, pad=shift)
