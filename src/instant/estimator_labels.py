"""What people hand in as y: numbers with -1, or names with gaps, to one label a row and which of them are known."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from instant.data.sources.labels import made_text, one_by_one


class Given(NamedTuple):
    """The labels of n rows; what stands where none is known has no meaning."""

    labels: np.ndarray
    known: np.ndarray


def read_given(y: Any) -> Given:
    """Labels as scikit-learn would check them.

    >>> read_given(["cat", None, "dog", float("nan")]).known.tolist()
    [True, False, True, False]
    """
    if y is None:
        raise ValueError("y: this requires y to be passed, but the target y is None; -1 is for what is not known.")
    if hasattr(y, "astype") and not isinstance(getattr(y, "dtype", None), np.dtype):
        y = np.asarray(y.astype(object))  # pandas' own kinds and frames: scikit-learn makes floats of whole numbers
    elif not hasattr(y, "astype") and (listed := getattr(y, "to_list", getattr(y, "to_pylist", None))):
        y = listed()  # polars and pyarrow: numpy makes floats of whole numbers with gaps
    y = one_by_one(y)
    if isinstance(y, np.ndarray) and y.dtype.kind == "T":  # numpy's own text, which scikit-learn does not know
        y = y.astype(object)
    labels = column_or_1d(y, warn=True)
    known = ~np.array([_missing(value) for value in labels.tolist()], bool)
    if labels.dtype == object:
        labels = _of_one_kind(labels, known)
    found = labels[known]
    if found.dtype.kind == "f":
        assert_all_finite(found)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The number of unique classes")  # one label a class is no regression
        check_classification_targets(found)
    if found.dtype.kind == "U" and (odd := made_text(found)):
        raise ValueError(
            f"y: {odd[0]!r} stands among names as text; put '' or None where a label is not known, or give the "
            "class another name."
        )
    return Given(labels, known)


def _of_one_kind(labels: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Objects as numbers or as text, whichever the known ones are."""
    values = labels[known].tolist()
    try:
        found = np.array(values)
        if found.dtype.kind == "f" and all(isinstance(value, Integral) for value in values):
            found = np.array(values, np.uint64)  # from 2**63 on numpy makes floats of them, which would merge classes
    except (ValueError, OverflowError):  # sequences, of unequal length; whole numbers of more than 64 bits
        return labels
    if found.dtype.kind == "U":
        odd = next((value for value in values if not isinstance(value, str)), None)
        if odd is not None:
            raise ValueError(f"y: {odd!r} is among names; make all labels text, or all numbers.")
    if found.dtype == object or found.ndim != 1:
        return labels
    whole = np.zeros(len(labels), found.dtype)
    whole[known] = found
    return whole


def _missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas' own
        return True
    if isinstance(value, str | bytes):
        return not value.strip()
    # Real is also what numpy's scalars are, of which list(y) is full
    return isinstance(value, Real) and not isinstance(value, bool) and bool(value != value or value == -1)
