"""Samples on their way to the device: uint8 images (N, C, H, W) or float32 vectors (N, D)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from instant.errors import InputError


@dataclass(frozen=True, eq=False)
class Store:
    """A checked, read-only block of samples of one kind."""

    samples: np.ndarray
    name: str = "data"

    def __post_init__(self) -> None:
        samples = self.samples
        if samples.ndim == 4 and samples.dtype == np.uint8 and samples.shape[1] in (1, 3):
            return
        if samples.ndim == 2 and samples.dtype == np.float32:
            finite = np.isfinite(samples)
            if not finite.all():
                row, column = np.argwhere(~finite)[0]
                raise InputError(
                    f"{self.name}: row {row}, column {column} is {samples[row, column]}; every feature must be a "
                    f"finite number. Drop those rows or fill them in first."
                )
            return
        raise InputError(
            f"{self.name}: expected uint8 images of shape (N, C, H, W) with 1 or 3 channels, or float32 vectors of "
            f"shape (N, D), got {samples.dtype} of shape {samples.shape}."
        )

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.samples.shape[1:])

    @property
    def is_images(self) -> bool:
        return self.samples.ndim == 4

    def take(self, rows: np.ndarray) -> Store:
        """The samples at these positions."""
        return Store(self.samples[rows], self.name)
