"""Samples somebody brings to a finished run, in the shape it was trained on: image files, arrays, files of arrays."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from instant.data.files import exists
from instant.data.folder.array_file import ARRAYS, SAMPLES, which
from instant.data.folder.problems import Flaw
from instant.data.folder.read import read_new
from instant.data.folder.table import TABLES
from instant.data.store import Store, as_bytes, not_finite
from instant.errors import InputError
from instant.labelling.probabilities import as_array


class Brought(NamedTuple):
    """Samples, what they are called, and what they are known by: it changes whenever they do."""

    store: Store
    ids: Sequence[str] | None  # without names they are numbered
    known_by: dict[str, Any]


def open_samples(path: Path, shape: tuple[int, ...], problems: list[Flaw]) -> Brought:
    """A folder of images or a table of their paths, decoded once; or a `.npy` or `.npz`.

    Decoded images, and uint8 images and float32 vectors of a `.npy`, stay on disk.
    """
    if not exists(path):
        raise InputError(f"{path} is not there; check the path.")
    where = str(path.resolve())
    if path.is_dir() or path.suffix.lower() in TABLES:
        store, names, key = read_new(path, shape, problems)
        return Brought(store, names, {"path": where, "key": key})
    if path.suffix.lower() not in ARRAYS:
        raise InputError(
            f"{path}: expected a folder of images, a table of their paths ({', '.join(TABLES)}), or arrays "
            f"({', '.join(ARRAYS)}) of images or vectors, got {path.suffix or 'no suffix'!r}."
        )
    known = path.stat()
    store = _read_arrays(path, shape)
    return Brought(store, None, {"path": where, "bytes": known.st_size, "changed": known.st_mtime_ns})


def _read_arrays(path: Path, shape: tuple[int, ...]) -> Store:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read ({error}); is it a complete file of plain numbers?") from error
    if isinstance(found, np.ndarray):
        return as_store(found, shape, str(path))
    with found:
        names = list(found.files)
        name = names[0] if len(names) == 1 else which(names, SAMPLES, path)
        if name is None:
            raise InputError(
                f"{path}: expected one array, or one called {', '.join(SAMPLES[:-1])} or {SAMPLES[-1]}, got "
                f"{', '.join(names) or 'none'}."
            )
        try:
            array = found[name]
        except (ValueError, zipfile.BadZipFile) as error:
            raise InputError(f"{path}: {name} cannot be read ({error}).") from error
    return as_store(array, shape, str(path))


def as_store(x: Any, shape: tuple[int, ...], name: str = "X") -> Store:
    """Images (n, h, w), (n, h, w, c) or (n, c, h, w), uint8 or floats from 0 to 1, or vectors (n, d), as a Store."""
    array = as_array(x, name)
    if array.ndim and len(array) == 0:
        raise InputError(f"{name}: there are no samples, got shape {array.shape}; give at least one.")
    if array.ndim == 0 or array.dtype.kind not in "buif":
        raise InputError(f"{name}: expected numbers, one sample a row, got {array.dtype} of shape {array.shape}.")
    if len(shape) == 1 and array.shape[1:] == shape:
        with np.errstate(over="ignore"):
            vectors = array.astype(np.float32, copy=False)
        if (place := not_finite(vectors)) is not None and np.isfinite(array[place]):
            raise InputError(
                f"{name}: row {place[0]}, column {place[1]} is {array[place]:g}, more than float32 holds; no sample "
                "that was trained on is like it. Correct or drop that row."
            )
        return Store(vectors, name)
    channels, *sides = shape if len(shape) == 3 else (0,)
    if array.shape[1:] == shape and len(shape) == 3:
        images = array
    elif array.shape[1:] == (*sides, channels):
        images = array.transpose(0, 3, 1, 2)
    elif array.shape[1:] == tuple(sides) and channels == 1:
        images = array[:, None]
    else:
        kind = "vectors" if len(shape) == 1 else "images"
        raise InputError(
            f"{name}: expected {kind} of shape {shape}, as the model was trained on, got {array.shape[1:]}. Bring them "
            "to that size first."
        )
    return Store(images if images.dtype == np.uint8 else as_bytes(images, name), name)
