"""Splitting with few labels: who is trained on, who is scored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.semi_supervised import LabelSpreading

from instant.errors import InputError
from instant.model_selection import SemiSupervisedKFold, SemiSupervisedShuffleSplit

SPLITTERS = [SemiSupervisedKFold(3, random_state=0), SemiSupervisedShuffleSplit(4, test_size=1 / 3, random_state=0)]


def labels(kind: str) -> np.ndarray:
    """Nine labels of class 0, six of class 1, in between twenty that are not known."""
    y = np.full(35, -1)
    y[np.arange(0, 18, 2)] = 0
    y[np.arange(18, 30, 2)] = 1
    if kind == "numbers":
        return y
    missing: dict[str, Any] = {"none": None, "nan": np.nan, "empty": ""}
    names = np.array(["cat", "dog", missing[kind]], object)
    return names[y]


@pytest.mark.parametrize("kind", ["numbers", "none", "nan", "empty"])
@pytest.mark.parametrize("splitter", SPLITTERS, ids=lambda s: type(s).__name__)
def test_unlabelled_rows_are_trained_on_and_never_scored(splitter: Any, kind: str) -> None:
    known = labels("numbers") >= 0
    found = list(splitter.split(np.zeros((35, 2)), labels(kind)))
    assert len(found) == splitter.get_n_splits()
    for train, test in found:
        assert set(np.flatnonzero(~known)) <= set(train)
        assert known[test].all()
        assert not set(train) & set(test)
        assert set(train) | set(test) == set(range(35))
        assert np.bincount(labels("numbers")[test]).tolist() == [3, 2]  # a third of nine and of six


def test_every_label_is_scored_once_in_k_folds() -> None:
    scored = np.concatenate([test for _, test in SPLITTERS[0].split(None, labels("numbers"))])
    assert sorted(scored) == np.flatnonzero(labels("numbers") >= 0).tolist()


@pytest.mark.parametrize("splitter", SPLITTERS, ids=lambda s: type(s).__name__)
def test_the_same_seed_gives_the_same_parts_and_another_seed_others(splitter: Any) -> None:
    other = type(splitter)(splitter.n_splits, random_state=1)
    first, again, different = (
        [t.tolist() for _, t in s.split(None, labels("numbers"))] for s in (splitter, splitter, other)
    )
    assert first == again
    assert first != different


@pytest.mark.parametrize(
    "given",
    [
        lambda y: [k if k < 0 else "cat" if k else "dog" for k in y],
        lambda y: np.where(y < 0, -1, -2 - y),
        lambda y: list(y),
    ],
    ids=["names with -1", "classes below -1", "list of numpy's"],
)
def test_what_the_estimator_reads_can_be_split(given: Any) -> None:
    scored = np.concatenate([test for _, test in SPLITTERS[0].split(None, given(labels("numbers")))])
    assert sorted(scored) == np.flatnonzero(labels("numbers") >= 0).tolist()


def test_rows_that_do_not_fit_together() -> None:
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        list(SPLITTERS[0].split(np.zeros((34, 2)), labels("numbers")))


def test_a_seed_without_shuffling_is_no_silent_wish() -> None:
    with pytest.raises(ValueError, match="random_state"):
        list(SemiSupervisedKFold(2, shuffle=False, random_state=0).split(None, labels("numbers")))


def test_scikit_learn_takes_them() -> None:
    x, truth = make_blobs(200, centers=3, cluster_std=1.0, random_state=0)
    y = np.where(np.arange(200) < 30, truth, -1)
    folds = SemiSupervisedKFold(3, random_state=0)
    assert cross_val_score(LabelSpreading(), x, y, cv=folds).mean() > 0.8
    search = GridSearchCV(LabelSpreading(), {"gamma": [0.01, 20]}, cv=folds).fit(x, y)
    assert search.best_params_["gamma"] in (0.01, 20)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (None, "requires y to be passed"),
        ([-1, -1, -1], "no row is labelled"),
        ([0, 0, 0, 1, 1, -1], "class 1 has 2 labels, and 3 folds need at least 3 of every class. Use fewer folds"),
        ([[0, 1]], "y should be a 1d array"),
    ],
)
def test_what_cannot_be_split(y: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        list(SemiSupervisedKFold(3).split(None, y))


@pytest.mark.parametrize("n_splits", [1, 0, 2.5, True, "3"])
def test_how_many_folds(n_splits: Any) -> None:
    with pytest.raises(InputError, match=r"n_splits=.* must be a whole number of at least 2"):
        SemiSupervisedKFold(n_splits)


def test_four_labels_a_class_are_enough_where_no_size_is_given() -> None:
    y = np.concatenate([np.arange(40) % 10, np.full(20, -1)])
    for train, test in SemiSupervisedShuffleSplit(2, random_state=0).split(y, y):
        assert sorted(y[test]) == list(range(10))
        assert len(train) == 50


def test_one_label_of_a_class_cannot_be_split_in_two() -> None:
    with pytest.raises(
        InputError, match=r"class dog has 1 label, and a .* part need at least 2 of every class\. Label more\."
    ):
        list(SemiSupervisedShuffleSplit(2).split(None, ["cat", "cat", "dog", None]))


@pytest.mark.parametrize("splitter", [SemiSupervisedKFold(2), SemiSupervisedShuffleSplit(2, test_size=0.5)])
def test_groups_are_not_kept_together_and_that_is_said(splitter: Any) -> None:
    y = np.array([0, 0, 1, 1, -1, -1])
    with pytest.warns(UserWarning, match="groups is ignored: rows of one group may be in both parts"):
        list(splitter.split(y, y, groups=np.arange(6) // 2))
