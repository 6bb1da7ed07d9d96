"""Grey levels counted, and the statistics they give; apart, because processes that decode must not need torch."""

from __future__ import annotations

import numpy as np


def count_levels(images: np.ndarray) -> np.ndarray:
    """How often every level occurs in every channel, (C, 256)."""
    return np.stack([np.bincount(images[:, c].reshape(-1), minlength=256) for c in range(images.shape[1])])


def level_statistics(counts: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel in [0, 1] scale, exact; 1 in place of a deviation of 0."""
    levels = np.arange(256) / 255
    means, stds = [], []
    for share in counts / counts.sum(axis=1, keepdims=True):
        mean = float(share @ levels)
        means.append(mean)
        stds.append(float(np.sqrt(share @ (levels - mean) ** 2)) if share.max() < 1 else 1.0)
    return tuple(means), tuple(stds)
