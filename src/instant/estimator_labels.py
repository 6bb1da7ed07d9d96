"""What people hand in as y: numbers with -1, or names with gaps, to one label a row and which of them are known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets


class Given(NamedTuple):
    """The labels of n rows; what stands where none is known has no meaning."""

    labels: np.ndarray
    known: np.ndarray


def read_given(y: Any, owner: str) -> Given:
    """Labels as scikit-learn would check them, in the name of the estimator `owner`.

    >>> read_given(["cat", None, "dog", float("nan")], "InstanTClassifier").known.tolist()
    [True, False, True, False]
    """
    if y is None:
        raise ValueError(f"This {owner} estimator requires y to be passed, but the target y is None.")
    if isinstance(y, torch.Tensor):
        y = y.detach().cpu().numpy()
    if isinstance(y, list | tuple):  # as objects: numpy would make the text "nan" of a NaN between names
        y = np.array(y, dtype=object)
    labels = column_or_1d(y, warn=True)
    known = ~np.array([_missing(value) for value in labels.tolist()], bool)
    if not known.any():
        raise ValueError(f"y: no row is labelled; {owner} needs at least one label of each class.")
    if labels.dtype == object:
        labels = _of_one_kind(labels, known)
    found = labels[known]
    if found.dtype.kind == "f":
        assert_all_finite(found)
    check_classification_targets(found)
    if len(np.unique(found)) < 2:
        raise ValueError(f"y: the labelled rows are all of one class, {found[0]!r}; {owner} needs two classes or more.")
    return Given(labels, known)


def _of_one_kind(labels: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Objects as numbers or as text, whichever the known ones are."""
    values = labels[known].tolist()
    found = np.array(values)
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
    if value is None or type(value).__name__ == "NAType":  # pandas' own, which compares with nothing
        return True
    if isinstance(value, str | bytes):
        return not value
    return isinstance(value, int | float) and not isinstance(value, bool) and (value != value or value == -1)
