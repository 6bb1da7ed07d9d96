"""What people hand in as y, to labels and gaps: numbers with -1, names with nothing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from runs import blobs
from sklearn.model_selection import cross_val_score

from instant import InstanTClassifier, SemiSupervisedKFold
from instant.estimator_labels import read_given

QUICK = {"steps": 60, "random_state": 0}


@pytest.mark.parametrize(
    "labels",
    [
        lambda names: [name if row < 12 else np.nan for row, name in enumerate(names)],
        lambda names: [name if row < 12 else -1 for row, name in enumerate(names)],
        lambda names: pd.Series(np.where(np.arange(60) < 12, names, None)).astype("string"),
        lambda names: pd.Series(np.where(np.arange(60) < 12, names, None)).astype("category"),
    ],
    ids=["list with NaN", "list with -1", "pandas text", "pandas category"],
)
def test_names_with_gaps_as_people_have_them(labels: Any) -> None:
    names = np.array(["ant", "bee"], object)[np.arange(60) % 2]
    x = np.random.default_rng(0).normal(size=(60, 2)) + 4 * (names == "bee")[:, None]
    model = InstanTClassifier(**QUICK).fit(x, labels(names))
    assert model.classes_.tolist() == ["ant", "bee"]
    assert (model.transduction_ == names).mean() > 0.95


@pytest.mark.parametrize(
    "labels",
    [
        list,
        tuple,
        lambda y: np.array(list(y), object),
        lambda y: list(y.astype(np.float32)),
        lambda y: pd.Series(list(y), dtype=object),
        lambda y: [None if k < 0 else k for k in y],
        lambda y: pd.array(np.where(y < 0, None, y), dtype="Int64"),
        lambda y: list(torch.from_numpy(y)),
        lambda y: [np.array(k) for k in y],
        lambda y: np.ma.masked_array(y.clip(0), y < 0),
    ],
    ids=[
        "list",
        "tuple",
        "objects",
        "list of float32",
        "pandas objects",
        "list with None",
        "pandas Int64",
        "list of tensors",
        "list of arrays",
        "masked",
    ],
)
def test_numbers_with_gaps_as_people_have_them(labels: Any) -> None:
    """list(y) holds numpy's numbers, which are no int: their -1 is no class either."""
    y = np.array([0, -1, 2, -1, 0])
    given = read_given(labels(y))
    assert given.known.tolist() == [True, False, True, False, True]
    assert given.labels[given.known].tolist() == [0, 2, 0]


@pytest.mark.parametrize("kind", ["Int64", "UInt64", "int64[pyarrow]"])
@pytest.mark.parametrize("as_given", [pd.Series, pd.array, pd.DataFrame], ids=["series", "array", "frame"])
@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_whole_numbers_with_gaps_stay_exact(kind: str, as_given: Any) -> None:
    """As floats, which pandas' gaps make of them elsewhere, numbers this large would be one class."""
    if "pyarrow" in kind:
        pytest.importorskip("pyarrow")
    ids = [2**60 + 1, 2**60 + 2, 2**60 + 900]
    given = read_given(as_given([ids[0], pd.NA, ids[2], ids[1]], dtype=kind))
    assert given.known.tolist() == [True, False, True, True]
    assert given.labels.dtype == np.int64
    assert given.labels[given.known].tolist() == [ids[0], ids[2], ids[1]]


@pytest.mark.parametrize("as_given", [pa.array, lambda y: pa.chunked_array([y])], ids=["array", "chunked"])
def test_whole_numbers_with_gaps_of_arrow_stay_exact(as_given: Any) -> None:
    """polars' series go the same way."""
    given = read_given(as_given([2**60 + 1, None, 2**60 + 2]))
    assert given.known.tolist() == [True, False, True]
    assert given.labels[given.known].tolist() == [2**60 + 1, 2**60 + 2]
    assert read_given(as_given([True, None, False])).labels.dtype == bool
    assert read_given(as_given(["cat", None, "dog"])).known.tolist() == [True, False, True]


def test_whole_numbers_beyond_int64_stay_exact() -> None:
    ids = [1, 2**63 + 1, 2**63 + 2]
    given = read_given([*ids, None])
    assert given.labels[given.known].tolist() == ids
    with pytest.raises(ValueError, match="Unknown label type"):
        read_given([-5, 2**63 + 1])


@pytest.mark.parametrize(
    ("kind", "classes"), [("Int64", [2**60 + 1, 2**60 + 2, 2**60 + 900]), ("boolean", [False, True])]
)
def test_classes_are_of_the_kind_of_the_labels(kind: str, classes: list[Any]) -> None:
    truth = np.arange(90) % len(classes)
    x = np.random.default_rng(0).normal(size=(90, 3)) + 4 * np.eye(3)[truth]
    y = pd.Series([classes[k] if row < 30 else pd.NA for row, k in enumerate(truth)], dtype=kind)
    model = InstanTClassifier(**QUICK).fit(x, y)
    assert model.classes_.tolist() == classes
    assert model.predict(x).dtype == model.transduction_.dtype == model.classes_.dtype == np.array(classes).dtype
    assert model.score(x, y) > 0.9


@pytest.mark.parametrize("mark", ["-1", "-1.0", "nan", "NaN", "NaT", "None", "<NA>", " nan"])
def test_a_gap_that_became_text_is_no_class(mark: str) -> None:
    with pytest.raises(ValueError, match=f"y: '{mark}' stands among names as text; put '' or None"):
        read_given(np.array(["cat", mark, "dog"]))


def test_a_cell_of_spaces_is_empty() -> None:
    assert read_given(["cat", " ", "dog", "\t"]).known.tolist() == [True, False, True, False]


def test_one_label_a_class_is_no_regression() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_given(np.concatenate([np.arange(30), np.full(70, -1)])).known.sum() == 30


def test_names_and_numbers_do_not_mix() -> None:
    with pytest.raises(ValueError, match="y: 1 is among names"):
        InstanTClassifier(**QUICK).fit(np.zeros((3, 2)), ["a", 1, None])


@pytest.mark.parametrize("missing", [-1, None, np.nan, ""], ids=["-1", "None", "NaN", "empty"])
def test_what_unlabelled_looks_like(missing: Any) -> None:
    x, truth, y = blobs()
    names = np.array(["ant", "bee", "cat"], object)
    labels = (
        y
        if missing == -1
        else np.where(y < 0, missing, names[y])
        if missing != missing
        else np.array([missing if k < 0 else names[k] for k in y], object)
    )
    model = InstanTClassifier(**QUICK).fit(x, labels)
    expected = truth if missing == -1 else names[truth].astype(str)
    assert model.classes_.tolist() == sorted(set(expected.tolist()))
    assert (model.predict(x) == expected).mean() > 0.95
    assert (model.transduction_ == expected).mean() > 0.95
    assert (model.transduction_[y >= 0] == expected[y >= 0]).all()


def test_only_labelled_rows_are_scored() -> None:
    x, truth, y = blobs()
    model = InstanTClassifier(**QUICK).fit(x, y)
    wrong = np.where(np.arange(150) < 3, truth, -1)
    wrong[0] = (truth[0] + 1) % 3
    right = model.predict(x)[:3] == wrong[:3]
    assert model.score(x, wrong) == right.mean() == 2 / 3
    assert model.score(x, wrong, np.arange(150)) == 1  # 0 for the wrong row, 1 and 2 for the right ones
    with pytest.raises(ValueError, match="nothing to score"):
        model.score(x, np.full(150, -1))
    gaps = np.array([None if k < 0 else k for k in y], object)  # which scikit-learn's accuracy_score does not take
    assert cross_val_score(InstanTClassifier(**QUICK), x, gaps, cv=SemiSupervisedKFold(2, random_state=0)).mean() > 0.9
