"""Labels that numpy saved as Python objects, as names with None or NaN between them, without running the file's code.

Such an array is a pickle, and a pickle is a program. This reader lets it build text, numbers and None in a list; the
names by which it asks for numpy, and for pandas' NA, lead to stand-ins of ours, and any other name is refused.
"""

from __future__ import annotations

import pickle
import re
from typing import IO, Any

import numpy as np


class _Array:
    """Stands in for numpy.ndarray, whose state is version, shape, type, order and the list of its objects."""

    values: list[Any]

    def __setstate__(self, state: tuple[int, tuple[int, ...], object, bool, list[Any]]) -> None:
        if len(state[1]) != 1 or not isinstance(state[4], list):
            raise pickle.UnpicklingError("samples must be one array of numbers, and labels one text or number a row")
        self.values = state[4]


class _Dtype:
    """Stands in for numpy.dtype, of which the code, such as i8 or U3, and the order of the bytes are kept."""

    code, order = "", ""

    def __init__(self, code: object = "", *_: object) -> None:
        self.code = str(code)

    def __setstate__(self, state: tuple[int, str, *tuple[object, ...]]) -> None:
        self.order = str(state[1])


def _new_array(*_: object) -> _Array:
    return _Array()


def _scalar(kind: object, content: object) -> str | bytes | int | float:
    """Stands in for numpy's maker of single values: the value as Python has it."""
    if not isinstance(kind, _Dtype) or not isinstance(content, bytes) or not PLAIN.fullmatch(kind.order + kind.code):
        raise pickle.UnpicklingError("it holds a value that is neither text nor a number")
    if kind.code[0] == "S":
        return content.rstrip(b"\0")
    if kind.code[0] == "U":
        return content.decode("utf-32-be" if kind.order == ">" else "utf-32-le").rstrip("\0")
    (value,) = np.frombuffer(content, np.dtype(kind.order + kind.code))
    return float(value) if kind.code[0] == "f" else value.item()  # numpy's longest floats have no other in Python


PLAIN = re.compile(r"[<>|][biufUS][0-9]{1,9}")  # types of single values: truths, numbers and text
MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
STAND_INS: dict[tuple[str, str], Any] = {  # nothing else is ever looked up
    **{(module, "_reconstruct"): _new_array for module in MULTIARRAY},
    **{(module, "scalar"): _scalar for module in MULTIARRAY},
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("pandas", "NA"): None,  # as pandas 3 calls it, and those before
    ("pandas._libs.missing", "NA"): None,
    ("pandas._libs.missing", "C_NA"): None,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in STAND_INS:
            return STAND_INS[module, name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which labels never need; nothing in it was run")


def read_objects(file: IO[bytes]) -> np.ndarray:
    """The one-dimensional array of text, numbers and None in an open .npy; ValueError where it holds anything else."""
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    header(file)
    try:
        found = _Reader(file).load()
        values = found.values
    except Exception as error:  # what a damaged pickle raises can be anything
        raise ValueError(f"it holds Python objects: {error}") from error
    if not all(value is None or isinstance(value, (str, bytes, int, float)) for value in values):
        raise ValueError("it holds objects that are neither text nor numbers")
    array = np.empty(len(values), object)
    array[:] = values
    return array
