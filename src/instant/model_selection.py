"""Cross-validation with few labels: labelled rows are split, unlabelled rows are always trained on and never scored.

scikit-learn's own splitters take -1 for a class of its own and score predictions against it
(scikit-learn/scikit-learn#2593). Train scores (`return_train_score=True`) are of the training part, unlabelled rows and
all: there only the estimator's own `score`, the default, leaves them out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import (
    BaseCrossValidator,
    BaseShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
)
from sklearn.utils import check_consistent_length

from instant.errors import InputError
from instant.estimator_labels import read_given


class SemiSupervisedKFold(BaseCrossValidator):
    """K folds of the labelled rows, with every class in every fold; all unlabelled rows are in every training part.

    `y` is -1 (None, NaN or "" among names) where a label is not known. Each class needs at least `n_splits` labels.

    >>> y = np.array([0, 0, 1, 1, -1, -1, -1])
    >>> for train, test in SemiSupervisedKFold(2, shuffle=False).split(y, y):
    ...     print(train.tolist(), test.tolist())
    [1, 3, 4, 5, 6] [0, 2]
    [0, 2, 4, 5, 6] [1, 3]
    """

    def __init__(self, n_splits: int = 5, *, shuffle: bool = True, random_state: Any = None) -> None:
        if isinstance(n_splits, bool) or not isinstance(n_splits, int | np.integer) or n_splits < 2:
            raise InputError(f"n_splits={n_splits!r} must be a whole number of at least 2.")
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        _say_ignored(groups)
        values, labelled, unlabelled = _parts(
            X, y, self.n_splits, f"{self.n_splits} folds", "Use fewer folds, or label more."
        )
        folds = StratifiedKFold(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        return _beside(folds.split(values, values), labelled, unlabelled)


TEST_SIZE = 0.25  # of the labelled rows, where nothing is said: four labels a class are enough for it


class SemiSupervisedShuffleSplit(BaseShuffleSplit):
    """Random parts of the labelled rows, class by class; all unlabelled rows are in every training part.

    `test_size` and `train_size` are shares, or numbers, of the labelled rows; without them, a quarter is the test part.

    >>> y = np.array([0] * 4 + [1] * 4 + [-1] * 3)
    >>> train, test = next(SemiSupervisedShuffleSplit(1, test_size=0.5, random_state=0).split(y, y))
    >>> y[test].tolist().count(0), y[test].tolist().count(1), set(range(8, 11)) <= set(train)
    (2, 2, True)
    """

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        _say_ignored(groups)
        values, labelled, unlabelled = _parts(X, y, 2, "a training and a test part", "Label more.")
        shuffled = StratifiedShuffleSplit(
            self.n_splits,
            test_size=TEST_SIZE if self.test_size is None and self.train_size is None else self.test_size,
            train_size=self.train_size,
            random_state=self.random_state,
        )
        return _beside(shuffled.split(values, values), labelled, unlabelled)


def _say_ignored(groups: Any) -> None:
    if groups is not None:
        warnings.warn("groups is ignored: rows of one group may be in both parts.", UserWarning, stacklevel=3)


def _parts(X: Any, y: Any, least: int, what: str, remedy: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The known labels, where they are, and where the others are."""
    labels, known = read_given(y)  # as the estimator reads them
    check_consistent_length(X, labels)
    values = labels[known]
    if not len(values):
        raise InputError("y: no row is labelled; there is nothing to score.")
    names, counts = np.unique(values, return_counts=True)
    if counts.min() < least:
        rare = names[counts.argmin()]
        raise InputError(
            f"y: class {rare!s} has {_count(counts.min())}, and {what} need at least {least} of every class. {remedy}"
        )
    return values, np.flatnonzero(known), np.flatnonzero(~known)


def _count(number: int) -> str:
    return f"{number} label" if number == 1 else f"{number} labels"


def _beside(
    folds: Iterator[tuple[np.ndarray, np.ndarray]], labelled: np.ndarray, unlabelled: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for train, test in folds:
        yield np.sort(np.concatenate([labelled[train], unlabelled])), labelled[test]
