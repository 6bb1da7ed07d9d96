"""Weak and strong views of vectors (B, D), float32 and standardised: every feature has mean 0, deviation 1."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from instant import random
from instant.errors import InputError


class WeakVector(nn.Module):
    """Add Gaussian noise of standard deviation `scale`."""

    def __init__(self, scale: float = 0.1) -> None:
        super().__init__()
        if scale < 0:
            raise InputError(f"scale: the noise must have a standard deviation of at least 0, got {scale}.")
        self.scale = scale

    def forward(self, samples: Tensor, key: Tensor) -> Tensor:
        return samples + self.scale * random.normal(key, *samples.shape)


class StrongVector(nn.Module):
    """Add Gaussian noise, then set each feature with probability `drop` to 0, its mean."""

    def __init__(self, scale: float = 0.25, drop: float = 0.2) -> None:
        super().__init__()
        if not 0 <= drop <= 1:
            raise InputError(f"drop: must be a probability, got {drop}.")
        self.noise = WeakVector(scale)
        self.drop = drop

    def forward(self, samples: Tensor, key: Tensor) -> Tensor:
        noisy = self.noise(samples, random.fold(key, 0))
        dropped = random.uniform(random.fold(key, 1), *samples.shape) < self.drop
        return torch.where(dropped, 0.0, noisy)


def between(samples: Tensor, others: Tensor, key: Tensor) -> Tensor:
    """A point on the way from each sample (B, D) to its other one, uniformly drawn."""
    return samples + random.uniform(key, len(samples), 1) * (others - samples)


def for_vectors(noise: float = 0.1) -> tuple[WeakVector, StrongVector]:
    """The weak and the strong policy; the strong noise is 2.5 times the weak one."""
    return WeakVector(noise), StrongVector(2.5 * noise)
