"""What the readers share: what is known of a set, where its files are, exact reading."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from instant.data.download import fetch
from instant.data.levels import count_levels, level_statistics
from instant.data.source import Source
from instant.data.sources.archive import unpack
from instant.data.store import blocks
from instant.errors import InputError


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A published file: where it is and what its bytes are."""

    base_url: str
    name: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a reader looks for its files, and whether it may download them."""

    name: str
    folders: tuple[Path, ...]
    home: Path  # where a download goes
    download: bool = True
    progress: bool = True
    base_url: str | None = None  # a mirror in place of the published address

    def find(self, file: str) -> Path | None:
        """The first folder's file of that name."""
        return next((folder / file for folder in self.folders if os.path.isfile(folder / file)), None)

    def fetch(self, remote: RemoteFile) -> Path:
        base = (self.base_url or remote.base_url).rstrip("/")
        return fetch(
            f"{base}/{remote.name}",
            self.home / remote.name,
            sha256=remote.sha256,
            size=remote.size,
            progress=self.progress,
        )

    def missing(self, expected: str) -> InputError:
        """The error of a set that is not there."""
        where = " or ".join(str(folder) for folder in self.folders)
        return InputError(
            f"{self.name} was not found in {where}: expected {expected}. Put it there, name another folder with "
            f"root= or the environment variable INSTANT_DATA, or allow the download."
        )


@dataclass(frozen=True, kw_only=True)
class SourceInfo:
    """One line of the registry: what a set is, and how it is read."""

    name: str
    about: str
    classes: int
    shape: tuple[int, ...]  # of one sample
    origin: str
    licence: str
    download_bytes: int
    read: Callable[[Place], Source]


@dataclass(frozen=True, kw_only=True)
class Form:
    """One published form of a set: an archive with one folder of files."""

    archive: str
    folder: str
    files: tuple[str, ...]


def locate(place: Place, forms: Sequence[Form], remote: RemoteFile) -> tuple[Form, Path]:
    """The form at hand and its folder; unpacks an archive or downloads `remote`, which is one of the forms."""
    seen: list[str] = []
    for form in forms:
        # A user may also point at the inner folder itself.
        inner = [folder for folder in place.folders if folder.name == form.folder]
        for folder in [folder / form.folder for folder in place.folders] + inner:
            absent = [file for file in form.files if not os.path.isfile(folder / file)]
            if not absent:
                return form, folder
            if len(absent) < len(form.files):
                seen.append(f"{folder} lacks {', '.join(absent)}")
    for form in forms:
        if archive := place.find(form.archive):
            return form, unpack(archive, form.folder, form.files, progress=place.progress)
    if place.download:
        form = next(form for form in forms if form.archive == remote.name)
        return form, unpack(place.fetch(remote), form.folder, form.files, progress=place.progress)
    known = " or ".join(f"the folder {form.folder} or {form.archive}" for form in forms)
    raise place.missing(f"{known}{''.join(f' ({what})' for what in seen)}")


def read_exact(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """A headerless file of bytes, as long as `shape` says."""
    check_length(path, path.stat().st_size, math.prod(shape))
    return np.fromfile(path, dtype=np.uint8).reshape(shape)


def map_exact(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """As `read_exact`, memory-mapped."""
    check_length(path, path.stat().st_size, math.prod(shape))
    return np.memmap(path, dtype=np.uint8, mode="r", shape=shape)


def check_length(path: Path, got: int, expected: int) -> None:
    """Refuse a file that is empty, cut short or too long."""
    if got == expected:
        return
    state = "empty" if got == 0 else "cut short" if got < expected else "too long"
    raise broken(path, f"the file is {state}: expected {expected:,} bytes, got {got:,}")


def broken(path: Path, what: str) -> InputError:
    """The error of a file whose content cannot be right."""
    return InputError(f"{path}: {what}. Delete it and load again to get a good copy.")


def check_labels(path: Path, labels: np.ndarray, low: int, high: int) -> np.ndarray:
    """Class numbers from 0 as int64, after a look that every byte is within [low, high]."""
    wrong = np.flatnonzero((labels < low) | (labels > high))
    if wrong.size:
        raise broken(path, f"record {wrong[0]} has label {labels[wrong[0]]}, expected {low} to {high}")
    return labels.astype(np.int64) - low


def image_statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel in [0, 1] scale, exact; 1 in place of a deviation of 0."""
    counts = np.zeros((images.shape[1], 256), np.int64)
    for part in blocks(images):
        counts += count_levels(part)
    return level_statistics(counts)
