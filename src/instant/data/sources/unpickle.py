"""CIFAR's python batches without running code from a file.

A pickle is a program. This reader lets it build dicts, lists, strings, numbers and uint8 arrays; the names by which a
pickle asks for numpy lead to stand-ins of ours, so that not even numpy's own unpickling sees the file's bytes.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from instant.errors import InputError


class _Dtype:
    """Stands in for numpy.dtype and remembers the code only."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.code = code.decode("ascii") if isinstance(code, bytes) else code

    def __setstate__(self, state: object) -> None:
        """A dtype's state is byte order and fields, of which uint8 has none."""


class _Array:
    """Stands in for numpy.ndarray: uint8 from a shape and raw bytes."""

    value: np.ndarray | None = None

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Dtype, bool, bytes]) -> None:
        _, shape, dtype, column_major, raw = state
        if dtype.code != "u1":
            raise pickle.UnpicklingError(f"an array of type {dtype.code!r}, expected uint8")
        self.value = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if column_major else "C").copy()


def _new_array(*_: object) -> _Array:
    return _Array()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r}, expected latin1")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _new_array,
    ("numpy._core.multiarray", "_reconstruct"): _new_array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


class _Refused(Exception):
    pass


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


def read_batch(path: Path) -> dict[str, Any]:
    """The dict in a pickled batch, its keys as text and its arrays as numpy's."""
    content = path.read_bytes()
    stream = io.BytesIO(content)
    try:
        batch = _Reader(stream, encoding="bytes").load()
        if not isinstance(batch, dict):
            raise pickle.UnpicklingError(f"a {type(batch).__name__}, expected a dict")
        if stream.tell() != len(content):
            raise pickle.UnpicklingError(f"{len(content) - stream.tell():,} bytes after its end")
    except _Refused as refused:
        raise InputError(
            f"{path}: the pickle asks for {refused}, which a CIFAR batch never needs, so it was not loaded and "
            f"nothing in it was run. Delete it and get the set from its publisher."
        ) from None
    except Exception as error:  # what a damaged pickle raises can be anything
        raise InputError(
            f"{path} ({len(content):,} bytes) is not a whole CIFAR python batch: {error}. Delete it and load again "
            f"to get a good copy."
        ) from error
    text = {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in batch.items()}
    return {key: value.value if isinstance(value, _Array) else value for key, value in text.items()}
