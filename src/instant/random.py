"""Randomness as a pure function of (seed, step): counter-based numbers from integer hashing.

A key is an int64 tensor of two 32-bit words. `fold` derives a new key from a number, which may be a tensor on the
device: a whole training step draws its randomness from `fold(root, step)` without a generator, so a resumed run, a
compiled step and a captured CUDA graph all see the same numbers, and the integer part is equal on every device.

All products stay below 2**63, so nothing relies on the wrap-around of signed integers.
The mixing constants are those of C. Wellons' hash prospector (16, 0x21f0aaad, 15, 0x735a2d97, 15).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


def _mix(x: Tensor) -> Tensor:
    """A bijection of 32-bit words with good avalanche; x is int64 in [0, 2**32)."""
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _MASK
    x = ((x ^ (x >> 15)) * 0x735A2D97) & _MASK
    return x ^ (x >> 15)


def root(seed: int) -> Tensor:
    """The key of a run; make it once, outside the step."""
    return fold(torch.tensor([seed & _MASK, (seed >> 32) & _MASK]), 0x9E3779B9)


def fold(key: Tensor, number: int | Tensor) -> Tensor:
    """A new key for `number`, which is a Python int or a 0-d integer tensor."""
    number = number & _MASK if isinstance(number, int) else number.to(torch.int64) & _MASK
    first = _mix((key[0] + number) & _MASK)
    second = _mix(key[1] ^ first)
    return torch.stack([_mix((first + second) & _MASK), second])


def bits(key: Tensor, *shape: int, first: int = 0) -> Tensor:
    """Uniform 32-bit words as int64, one per counter from `first` on."""
    counter = torch.arange(first, first + math.prod(shape), dtype=torch.int64, device=key.device)
    return _mix(_mix((counter + key[0]) & _MASK) ^ key[1]).view(*shape)


def uniform(key: Tensor, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    """float32 in [low, high).

    >>> float(uniform(root(0), 100_000).mean().round(decimals=2))
    0.5
    """
    return (bits(key, *shape) >> 8).float() * ((high - low) / 2**24) + low


def integers(key: Tensor, high: int, *shape: int) -> Tensor:
    """int64 in [0, high); high at most 2**31, bias below high / 2**32."""
    return (bits(key, *shape) * high) >> 32


def normal(key: Tensor, *shape: int) -> Tensor:
    """Standard normal float32, by the inverse of the error function; always finite, at most 5.3 from 0."""
    # 23 bits and a half fit float32 exactly; 24 would round up to 1, whose quantile is infinite
    centred = (bits(key, *shape) >> 9).float().add(0.5) * (2 / 2**23) - 1
    return torch.erfinv(centred) * math.sqrt(2)


def permutations(key: Tensor, n: int, *, rows: int = 1, first: int = 0) -> Tensor:
    """Permutations number `first` to `first + rows - 1` of range(n), as int64 (rows, n)."""
    return bits(key, rows, n, first=first * n).argsort(dim=1, stable=True)
