"""Labels as people have them, numbers or names with gaps, to class numbers with -1 for unlabelled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from instant.errors import InputError, nearest

# What becomes of -1, NaN and None when an array is made text; taken for a class, it would be the largest
MADE_TEXT = ("-1", "-1.0", "nan", "NaN", "None", "<NA>", "NaT")


class Labels(NamedTuple):
    """One value a row, all whole numbers or all names, and which of them are known."""

    values: np.ndarray  # int64 or text
    known: np.ndarray

    @property
    def are_names(self) -> bool:
        return self.values.dtype.kind == "U"


def made_text(names: Iterable[str]) -> list[str]:
    """Those of the names that are a gap made text.

    >>> made_text(["cat", "-1.0", " nan"])
    [' nan', '-1.0']
    """
    return sorted({str(name) for name in names if name.strip() in MADE_TEXT})


class Classes(NamedTuple):
    """The name of every class and the value that stands for it in the labels."""

    names: tuple[str, ...]
    values: np.ndarray


def read_labels(y: Any, what: str) -> Labels:
    """Whole numbers (-1 unlabelled) or names (None, NaN or "" unlabelled)."""
    array = np.asarray(one_by_one(y))
    if array.ndim != 1:
        raise InputError(f"{what}: expected one label a row, got an array of shape {array.shape}. Flatten it first.")
    if array.dtype.kind in "biuf":
        return _numbers(array, what)
    if array.dtype.kind not in "OUST":
        raise InputError(f"{what}: expected whole numbers or names, got {array.dtype}. Convert it first.")
    array = array.astype(object)
    known = np.array([not _is_missing(value) for value in array], bool)
    if all(isinstance(value, Real) for value in array[known]):
        numbers = np.full(len(array), np.nan)
        numbers[known] = array[known].astype(np.float64)
        return _numbers(numbers, what)
    values = np.full(len(array), "", dtype=object)
    for row in np.flatnonzero(known):
        value = array[row].decode() if isinstance(array[row], bytes) else array[row]
        if not isinstance(value, str):
            raise InputError(
                f"{what}: row {row} is {value!r}, expected a name like the others. Make all labels text, or all whole "
                f"numbers."
            )
        values[row] = value
    return Labels(values.astype(np.str_), known)


def one_by_one(y: Any) -> Any:
    """A list as an array of objects, a masked array too: what is masked is not known; a tensor as an array.

    As objects, because numpy would make the text "nan" of a NaN between names.

    >>> one_by_one([np.array(3), None]).tolist(), one_by_one(np.ma.masked_array([3, 4], [False, True])).tolist()
    ([3, None], [3, None])
    """
    if hasattr(y, "detach"):
        return y.detach().cpu().numpy()
    if isinstance(y, np.ma.MaskedArray):
        held = y.data.astype(object)
        held[np.ma.getmaskarray(y)] = None
        return held
    return np.array([_held(value) for value in y], dtype=object) if isinstance(y, (list, tuple)) else y


def _held(value: Any) -> Any:
    """What an array or a tensor without dimensions holds, as a data set of tensors gives labels one by one."""
    if value is np.ma.masked:
        return None
    single = getattr(value, "ndim", None) == 0 and not isinstance(value, np.generic)
    return value.item() if single else value


def _numbers(array: np.ndarray, what: str) -> Labels:
    wrong = np.zeros(len(array), bool)
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), -1.0, array)
        wrong = (array != np.trunc(array)) | (np.abs(array) > 2**53)  # beyond, floats skip whole numbers
    values = np.where(wrong, 0, array).astype(np.int64)
    wrong = np.flatnonzero(wrong | (values < -1))
    if wrong.size:
        raise InputError(
            f"{what}: row {wrong[0]} is {array[wrong[0]]:g}, expected a whole number from 0, or -1 for unlabelled. "
            f"Number the classes, or give their names as text."
        )
    return Labels(values, values != -1)


def _is_missing(value: Any) -> bool:
    if isinstance(value, (str, bytes)):
        return not value.strip()
    if isinstance(value, Real):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")  # pandas', which we do not import


def find_classes(labels: Labels, what: str, names: Sequence[str] | None) -> Classes:
    """The classes the caller names, else the values that occur, sorted."""
    if names is not None:
        names = tuple(str(name) for name in names)
        if not names or len(set(names)) < len(names) or "" in names:
            raise InputError(f"classes: expected different, non-empty names, got {list(names)}. Name each class once.")
        return Classes(names, np.array(names) if labels.are_names else np.arange(len(names)))
    values = np.unique(labels.values[labels.known])
    if not values.size:
        raise InputError(f"{what}: no row is labelled. Label at least one row of each class, or pass classes=.")
    if labels.are_names and (odd := made_text(values)):
        raise InputError(
            f"{what}: {odd[0]!r} stands among names as text; put '' or None where a label is not known, or name "
            "every class in classes=."
        )
    return Classes(tuple(str(value) for value in values), values)


def number(labels: Labels, classes: Classes, what: str) -> np.ndarray:
    """The position in `classes` of every label, -1 where it is unknown."""
    targets = np.full(len(labels.values), -1, np.int64)
    values = labels.values[labels.known]
    if labels.are_names != (classes.values.dtype.kind == "U") and values.size:
        expected, got = ("names", "numbers") if not labels.are_names else ("numbers", "names")
        raise InputError(f"{what}: expected class {expected} as in y, got class {got}. Use the same for both.")
    order = np.argsort(classes.values)
    slots = np.searchsorted(classes.values, values, sorter=order).clip(max=len(order) - 1)
    found = order[slots]
    unknown = np.flatnonzero(classes.values[found] != values)
    if unknown.size:
        value = values[unknown[0]]
        row = np.flatnonzero(labels.known)[unknown[0]]
        hint = nearest(value.item(), classes.names) if labels.are_names else f"they are {_some(classes.values)}"
        raise InputError(
            f"{what}: row {row} is {value.item()!r}, which is none of the {len(order)} classes. Correct it, or list "
            f"every class in classes=; {hint}"
        )
    targets[labels.known] = found
    return targets


def _some(values: np.ndarray) -> str:
    shown = ", ".join(str(value) for value in values[:10])
    return f"{shown}, ... {values[-1]}" if len(values) > 10 else shown
