"""What a data set gives: its training pool, its test part, and what is known about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from instant.data.store import Store


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """A data set as it is read, before anybody decides who is labelled.

    `targets` and `test_targets` are int64 class numbers; -1 means that the truth is not known. They are handed to
    `make_split`, which seals them; nothing downstream of the split sees them.
    """

    name: str
    train: Store
    targets: np.ndarray
    test: Store
    test_targets: np.ndarray
    classes: tuple[str, ...]
    mean: tuple[float, ...]  # per channel in [0, 1] scale for images, per feature for vectors
    std: tuple[float, ...]
    mirror: bool = True  # may an image be flipped left to right and stay in its class?
    files: Sequence[str] = ()  # of the training samples, where each was a file
    key: str | None = None  # of those files, changes whenever one of them does; no part of what a run keeps
