"""STL-10 (Coates, Ng and Lee, 2011): 5,000 + 8,000 labelled and 100,000 unlabelled colour images of 96 x 96.

Pixels are stored channel by channel and, within a channel, column by column; labels are 1 to 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from instant.data.files import atomic, locked
from instant.data.progress import reporting
from instant.data.source import Source
from instant.data.sources.base import Form, Place, RemoteFile, check_labels, locate, map_exact, read_exact
from instant.data.store import Store
from instant.errors import InputError

_CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
_IMAGE = (3, 96, 96)
_POOL = "pool.npy"
_CHUNK = 1000  # images turned at a time: 28 MB


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many images the parts have, and where they come from."""

    train: int
    test: int
    unlabelled: int
    remote: RemoteFile


STL10 = Layout(
    train=5_000,
    test=8_000,
    unlabelled=100_000,
    remote=RemoteFile(
        base_url="https://ai.stanford.edu/~acoates/stl10",
        name="stl10_binary.tar.gz",
        size=2_640_397_119,
        sha256="f31fd99273a1acb8609c8db427cebb1de3f71de77758cdc0e22956e1289b9866",
    ),
)

_FORM = Form(
    archive="stl10_binary.tar.gz",
    folder="stl10_binary",
    files=("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "unlabeled_X.bin"),
)


def read(place: Place, layout: Layout = STL10) -> Source:
    """The training pool is the labelled training images, then the unlabelled ones, whose target is -1."""
    _, folder = locate(place, (_FORM,), layout.remote)
    train_y = _labels(folder / "train_y.bin", layout.train)
    return Source(
        name="stl10",
        train=Store(_pool(folder, layout, place.progress), "stl10 train"),
        targets=np.concatenate([train_y, np.full(layout.unlabelled, -1, np.int64)]),
        test=Store(_upright(read_exact(folder / "test_X.bin", (layout.test, *_IMAGE))), "stl10 test"),
        test_targets=_labels(folder / "test_y.bin", layout.test),
        classes=_CLASSES,
        mean=(0.4408, 0.4279, 0.3867),
        std=(0.2682, 0.2610, 0.2686),
    )


def _labels(path: Path, count: int) -> np.ndarray:
    return check_labels(path, read_exact(path, (count,)), 1, len(_CLASSES))


def _upright(columns: np.ndarray) -> np.ndarray:
    """(N, C, W, H) as stored, to (N, C, H, W)."""
    return np.ascontiguousarray(columns.swapaxes(2, 3))


def _pool(folder: Path, layout: Layout, progress: bool) -> np.ndarray:
    """The training pool in our order, memory-mapped from a file written on first use (2.9 GB)."""
    parts = [
        map_exact(folder / "train_X.bin", (layout.train, *_IMAGE)),
        map_exact(folder / "unlabeled_X.bin", (layout.unlabelled, *_IMAGE)),
    ]
    shape = (layout.train + layout.unlabelled, *_IMAGE)
    path = folder / _POOL
    newest = max((folder / file).stat().st_mtime_ns for file in ("train_X.bin", "unlabeled_X.bin"))
    try:
        if not _is_current(path, shape, newest):
            with locked(path):
                if not _is_current(path, shape, newest):  # nobody made it while we waited
                    _write_pool(path, parts, shape, progress)
    except OSError as error:
        raise InputError(
            f"Cannot write {path}: {error.strerror or error}. STL-10 needs a folder that can be written to, with "
            f"{math.prod(shape):,} bytes free; copy the set to one and name it with root=."
        ) from error
    # Copy-on-write rather than read-only: torch warns when it wraps an array that refuses writes.
    return np.load(path, mmap_mode="c", allow_pickle=False)


def _write_pool(path: Path, parts: list[np.ndarray], shape: tuple[int, ...], progress: bool) -> None:
    total = math.prod(shape)
    with reporting("Preparing the STL-10 pool", f"in {path}", total, progress) as report, atomic(path) as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            for start in range(0, len(part), _CHUNK):
                file.write(_upright(part[start : start + _CHUNK]).data)
                report(file.tell())


def _is_current(path: Path, shape: tuple[int, ...], newest: int) -> bool:
    if not path.is_file() or path.stat().st_mtime_ns < newest:
        return False
    try:
        pool = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return False
    return pool.shape == shape and pool.dtype == np.uint8
