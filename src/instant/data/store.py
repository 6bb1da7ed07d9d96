"""Samples on their way to the device: uint8 images (N, C, H, W) or float32 vectors (N, D)."""

from __future__ import annotations

import hashlib
import mmap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from instant.errors import InputError

BLOCK = 1 << 26  # bytes of samples looked at in one go, where all of them are: they may be more than memory holds
ON_GPU = 3 * 2**20  # bytes of samples at a time, of which a network makes hundreds of times as many

LOOKED_AT = 512  # samples that a fingerprint is of


@dataclass(frozen=True, eq=False)
class Store:
    """A checked, read-only block of samples of one kind; a memory-mapped one stays on disk."""

    samples: np.ndarray
    name: str = "data"

    def __post_init__(self) -> None:
        samples = self.samples
        if samples.ndim == 4 and samples.dtype == np.uint8 and samples.shape[1] in (1, 3):
            return
        if samples.ndim == 2 and samples.dtype == np.float32:
            if (place := not_finite(samples)) is not None:
                row, column = place
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

    def fingerprint(self) -> str:
        """Tells other values, or the same in another order; of some hundred samples, as there may be millions."""
        rows = np.unique(np.linspace(0, len(self) - 1, LOOKED_AT).astype(int)) if len(self) else np.arange(0)
        digest = hashlib.sha256(f"{self.samples.dtype}|{self.samples.shape}".encode())
        digest.update(np.ascontiguousarray(self.samples[rows]).tobytes())
        return digest.hexdigest()[:16]

    def take(self, rows: np.ndarray) -> Store:
        """The samples at these positions."""
        return Store(self.samples[rows], self.name)


def blocks(samples: np.ndarray) -> Iterator[np.ndarray]:
    """All samples, in parts of at most BLOCK bytes or one sample."""
    rows = max(1, BLOCK // max(1, samples[:1].nbytes))
    for start in range(0, len(samples), rows):
        yield samples[start : start + rows]


def as_bytes(images: np.ndarray, what: str) -> np.ndarray:
    """Floats from 0 to 1 as grey levels, a part at a time."""
    found = np.empty(images.shape, np.uint8)
    start = 0
    for part in blocks(images):
        low, high = part.min(), part.max()
        if part.dtype.kind != "f" or not (low >= 0 and high <= 1):
            raise InputError(
                f"{what}: expected images of uint8, or of floats from 0 to 1, got {part.dtype} from {low} to {high}. "
                "Scale them, or convert 0 to 255 with .astype(numpy.uint8)."
            )
        found[start : start + len(part)] = np.rint(part * np.float32(255))
        start += len(part)
    return found


def batches(
    store: Store, device: torch.device, rows: np.ndarray | None = None, *, batch: int | None = None
) -> Iterator[Tensor]:
    """All samples, or those at these positions, on the device, as many at a time as `batch` and memory allow.

    A CPU is given few: with more, what the network makes of them leaves its caches, which is slower, and takes memory
    in blocks so large that the heap is left in pieces and grows with the number of batches. A GPU is given 1,024 images
    of 32 x 32 at a time, and fewer of larger ones.
    """
    each = max(1, store.samples[:1].nbytes)
    batch = batch or (128 if device.type == "cpu" else min(1024, max(16, ON_GPU // each)))
    size = max(1, min(batch, BLOCK // each))
    for start in range(0, len(store) if rows is None else len(rows), size):
        places = slice(start, start + size) if rows is None else rows[start : start + size]
        yield torch.from_numpy(np.require(store.samples[places], requirements=["C", "W"])).to(device)


def let_go(samples: np.ndarray) -> None:
    """Give back the pages of a file mapped to be read: until the system is short of memory it counts them as ours."""
    while isinstance(samples.base, np.ndarray):  # a view, as most are
        samples = samples.base
    # In another mode they may hold what was written; Windows has no such advice
    if isinstance(samples, np.memmap) and samples.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        assert isinstance(samples.base, mmap.mmap)
        samples.base.madvise(mmap.MADV_DONTNEED)


def not_finite(vectors: np.ndarray) -> tuple[int, int] | None:
    """Row and column of the first entry that is no finite number."""
    before = 0
    for part in blocks(vectors):
        finite = np.isfinite(part)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            return before + int(row), int(column)
        before += len(part)
    return None


def as_tensor(samples: np.ndarray) -> Tensor:
    """A tensor to read from, over the same memory: a mapped file stays mapped. Only another order than C is copied."""
    with warnings.catch_warnings():
        # torch says that it would write to arrays that refuse it; nothing writes to samples
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.require(samples, requirements=["C"]))
