"""Arrays in memory: every shape and kind of label people have, and the sentence for those we cannot take."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch

from instant.data.sources import arrays
from instant.errors import InputError

VECTORS = np.array([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0]])
COLOUR = np.random.default_rng(0).integers(0, 256, (4, 3, 5, 6), dtype=np.uint8)
NUMBERS = [0, 1, -1]


# --- samples ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64, np.uint8, np.int8, bool])
def test_vectors_of_any_kind_of_number(dtype):
    source = arrays(VECTORS.astype(dtype), NUMBERS)
    assert source.train.samples.dtype == np.float32
    np.testing.assert_array_equal(source.train.samples, VECTORS.astype(dtype).astype(np.float32))


def test_many_features_of_one_unit_share_a_deviation():
    """Pixels do: by its own deviation, one that is nearly always black would be the loudest."""
    pixels = np.zeros((4, 60))
    pixels[:, :30] = [[0], [2], [0], [2]]  # deviation 1
    pixels[0, 30:59] = 4  # deviation sqrt(3), span 4; the last feature is constant
    shared = np.sqrt((30 * 1 + 29 * 3) / 59)
    assert arrays(pixels, [0, 1, 0, 1]).std == pytest.approx([shared] * 60)
    units = pixels * np.logspace(0, 3, 60)  # from metres to millimetres: each by its own
    own = [*[1.0] * 30, *[np.sqrt(3)] * 29] * np.logspace(0, 3, 60)[:59]
    assert arrays(units, [0, 1, 0, 1]).std == pytest.approx([*own, 1.0], rel=1e-5)
    assert arrays(pixels[:, 11:], [0, 1, 0, 1]).std[0] == pytest.approx(1)  # 49 features are too few to tell


def test_features_that_float32_rounds_away_are_named():
    """Between 2**30 and 2**31 numbers of float32 are 128 apart."""
    far = np.stack([np.arange(64.0), 1.7e9 + 20 * np.arange(64), np.full(64, 1.7e9 + 1)], axis=1)
    y = np.arange(64) % 2
    for x in (far, far.astype(np.int64), far.tolist(), torch.from_numpy(far)):
        with pytest.raises(InputError, match=r"x: column 1 lies around 1700000630 and deviates by 369,.*Subtract its"):
            arrays(x, y)
    with pytest.raises(InputError, match=r"x: column 0 \(and 1 more\) lies around 1700000630"):
        arrays(far[:, [1, 1]], y)
    near = far - [0, far[:, 1].mean(), 0]
    np.testing.assert_array_equal(arrays(near, y).train.samples, near.astype(np.float32))


@pytest.mark.parametrize(
    "x",
    [
        np.full((64, 1), 1.7e9 + 1),  # constant
        np.where(np.arange(64) < 32, 0.3, 0.1 + 0.2)[:, None],  # varies by rounding alone
        1.7e9 + 1e5 * np.arange(64.0)[:, None],  # 128 is little of what it varies by
        1.7e9 + 128 * np.arange(64.0)[:, None],  # 128 divides all of them
        np.where(np.arange(64) < 1, 0, 1.7e9 + 20 * np.arange(64))[:, None],  # so far apart that 20 is nothing
        np.c_[1e-50 * np.arange(64.0), np.arange(64.0)],  # one is too near to 0, and the other is not
        (1.7e9 + 20 * np.arange(64.0)[:, None]).astype(np.float32),  # rounded before it came here
    ],
)
def test_features_that_float32_holds_well_enough(x):
    y = np.arange(64) % 2
    np.testing.assert_array_equal(arrays(x, y).train.samples, x.astype(np.float32))


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (1e-40 * np.arange(8.0)[:, None], "x: all columns vary by less than 1e-36, .* Multiply them by a power of ten"),
        (1e39 * np.arange(8.0)[:, None], r"x: row 1, column 0 is 1e\+39, more than float32 holds. Divide that column"),
        (np.ma.masked_array(np.eye(8), np.eye(8) == 1), "x: 8 values are masked; fill them in first"),
    ],
)
def test_features_that_float32_does_not_hold_or_that_are_hidden(x: np.ndarray, sentence: str):
    with pytest.raises(InputError, match=sentence):
        arrays(x, np.arange(8) % 2)


@pytest.mark.parametrize("gap", ["-1.0", "NaN", "NaT", " nan "])
def test_gaps_made_text_are_no_class(gap: str):
    with pytest.raises(InputError, match=f"y: '{gap}' stands among names as text"):
        arrays(np.eye(4), ["a", "b", gap, "a"])
    assert arrays(np.eye(4), ["a", "b", " ", "a"]).targets.tolist() == [0, 1, -1, 0]


def test_test_samples_may_be_closer_together_than_float32_tells():
    """A minute of a training part that spans years."""
    train, test = 1.7e9 + 1e6 * np.arange(64.0)[:, None], 1.7e9 + np.arange(60.0)[:, None]
    assert len(arrays(train, np.arange(64) % 2, test).test) == 60


def test_statistics_of_vectors_and_constant_features():
    source = arrays(VECTORS, NUMBERS)
    assert source.mean == (2.0, 5.0)
    assert source.std == (pytest.approx(np.sqrt(8 / 3)), 1.0)
    constant = np.full((1001, 1), 0.1)
    assert constant.std() != 0, "rounding alone: to divide by this would make noise of a constant"
    assert arrays(constant, [0] * 1001).std == (1.0,)
    faint = arrays([[0.0, 1.0], [1e-40, 3.0]], [0, 1])  # the reciprocal of its deviation is more than float32 holds
    assert faint.std == (1.0, 1.0)


@pytest.mark.parametrize(
    "x",
    [
        COLOUR,
        COLOUR.transpose(0, 2, 3, 1),
        list(COLOUR),
        torch.from_numpy(COLOUR),
        COLOUR / 255,
        (COLOUR / 255).astype("f4"),
    ],
)
def test_colour_images(x):
    source = arrays(x, [0, 1, 1, 0])
    np.testing.assert_array_equal(source.train.samples, COLOUR)
    assert source.train.samples.flags.c_contiguous
    assert source.mean == pytest.approx((COLOUR / 255).mean(axis=(0, 2, 3)))
    assert source.std == pytest.approx((COLOUR / 255).std(axis=(0, 2, 3)))


def test_floats_are_rounded_not_cut():
    assert arrays(np.full((2, 4, 4), 0.999), [0, 1]).train.samples.min() == 255


@pytest.mark.parametrize("x", [COLOUR[:, 0], COLOUR[:, :1], COLOUR[:, 0, :, :, None]])
def test_grey_images(x):
    np.testing.assert_array_equal(arrays(x, [0, 1, 1, 0]).train.samples, COLOUR[:, :1])


def test_channels_decide_where_both_axes_could_be_colours():
    x = np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3)
    with pytest.raises(InputError, match="both the second and the last axis may be the channels"):
        arrays(x, [0, 1])
    np.testing.assert_array_equal(arrays(x, [0, 1], channels="first").train.samples, x)
    np.testing.assert_array_equal(arrays(x, [0, 1], channels="last").train.samples, x.transpose(0, 3, 1, 2))


def test_one_channel_takes_one_number() -> None:
    source = arrays(COLOUR[:, :1], [0, 1, 1, 0], mean=0.5, std=0.25)
    assert (source.mean, source.std) == ((0.5,), (0.25,))
    with pytest.raises(InputError, match="mean: expected 3 finite numbers, one a channel or feature"):
        arrays(COLOUR, [0, 1, 1, 0], mean=0.5)


def test_given_statistics_mirror_and_name():
    source = arrays(COLOUR, [0, 1, 1, 0], mean=[0.5] * 3, std=[0.25] * 3, mirror=False, name="mine")
    assert (source.mean, source.std, source.mirror, source.name) == ((0.5,) * 3, (0.25,) * 3, False, "mine")


def test_without_a_test_part_it_is_empty():
    source = arrays(VECTORS, NUMBERS)
    assert source.test.samples.shape == (0, 2)
    assert source.test_targets.shape == (0,)
    assert arrays(VECTORS, NUMBERS, VECTORS).test_targets.tolist() == [-1, -1, -1]


# --- labels ----------------------------------------------------------------------------------------------------

NAN = float("nan")


class NAType:
    """Stands for pandas.NA, which refuses to be compared."""

    def __eq__(self, other):
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None


@pytest.mark.parametrize(
    ("y", "classes", "targets"),
    [
        ([0, 1, -1], ("0", "1"), [0, 1, -1]),
        (np.array([0, 1, -1], np.int8), ("0", "1"), [0, 1, -1]),
        (torch.tensor([0, 1, -1]), ("0", "1"), [0, 1, -1]),
        (np.array([0.0, 1.0, NAN]), ("0", "1"), [0, 1, -1]),
        ([0, 1, None], ("0", "1"), [0, 1, -1]),
        (list(torch.tensor([0, 1, -1])), ("0", "1"), [0, 1, -1]),
        ([np.array(0), np.array(1), np.ma.masked], ("0", "1"), [0, 1, -1]),
        (np.ma.masked_array([0, 1, 1], [False, False, True]), ("0", "1"), [0, 1, -1]),
        (np.ma.masked_array(["b", "a", "a"], [False, False, True]), ("a", "b"), [1, 0, -1]),
        ([True, False, None], ("0", "1"), [1, 0, -1]),
        ([10, 9, -1], ("9", "10"), [1, 0, -1]),
        (["b", "a", None], ("a", "b"), [1, 0, -1]),
        (["b", "a", NAN], ("a", "b"), [1, 0, -1]),
        (["b", "a", ""], ("a", "b"), [1, 0, -1]),
        (np.array(["b", "a", ""]), ("a", "b"), [1, 0, -1]),
        (np.array([b"b", b"a", b""]), ("a", "b"), [1, 0, -1]),
        (np.array(["b", "a", NAType()], object), ("a", "b"), [1, 0, -1]),
        (torch.tensor([3.0, 1.0, math.nan], requires_grad=True), ("1", "3"), [1, 0, -1]),
    ],
)
def test_labels(y, classes, targets):
    source = arrays(VECTORS, y)
    assert source.classes == classes
    assert all(type(name) is str for name in source.classes)
    assert source.targets.tolist() == targets
    assert source.targets.dtype == np.int64


def test_a_class_may_be_called_none_when_the_caller_says_so():
    found = arrays(VECTORS, ["a", "None", "nan"], classes=["a", "None", "nan"])
    assert found.targets.tolist() == [0, 1, 2]


def test_named_classes():
    assert arrays(VECTORS, [2, 0, -1], classes=["a", "b", "c"]).targets.tolist() == [2, 0, -1]
    assert arrays(VECTORS, ["c", "a", None], classes=["c", "b", "a"]).targets.tolist() == [0, 2, -1]
    assert arrays(VECTORS, [None] * 3, classes=["a", "b"]).targets.tolist() == [-1, -1, -1]
    mixed = arrays(VECTORS, ["b", "a", None], VECTORS, [0, 1, -1], classes=["a", "b"])
    assert mixed.test_targets.tolist() == [0, 1, -1]


def test_test_labels_are_numbered_like_those_of_y():
    source = arrays(VECTORS, ["dog", "cat", None], VECTORS[:2], ["dog", "cat"])
    assert source.targets.tolist() == [1, 0, -1]
    assert source.test_targets.tolist() == [1, 0]
    assert arrays(VECTORS, [5, 7, -1], VECTORS[:2], [7, 5]).test_targets.tolist() == [1, 0]


# --- what we cannot take ---------------------------------------------------------------------------------------


def holed(value: float) -> np.ndarray:
    x = VECTORS.copy()
    x[1, 1] = value
    return x


RAGGED = [np.zeros((5, 6), np.uint8), np.zeros((5, 6), np.uint8), np.zeros((5, 7), np.uint8)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"x": holed(NAN)}, "x: row 1, column 1 is nan, expected a finite number"),
        ({"x": holed(1e300)}, r"x: row 1, column 1 is 1e\+300, more than float32 holds"),
        ({"x": VECTORS.astype(complex)}, "x: expected vectors of real numbers, got complex128"),
        ({"x": np.array([["a", 1], ["b", 2], ["c", 3]], object)}, "x: expected numbers only"),
        ({"x": RAGGED}, r"x: row 2 has shape \(5, 7\), expected \(5, 6\) as in row 0"),
        ({"x": [[1, 2], [3], [4, 5]]}, r"x: row 1 has shape \(1,\), expected \(2,\) as in row 0"),
        ({"x": np.zeros(3)}, r"x: expected images of shape .* got shape \(3,\)"),
        ({"x": np.zeros((3, 1, 1, 1, 1))}, r"got shape \(3, 1, 1, 1, 1\)"),
        ({"x": np.zeros((3, 0))}, r"none of them empty, got shape \(3, 0\)"),
        ({"x": np.zeros((3, 4, 5, 2), np.uint8)}, r"x: expected 1 or 3 channels in the second or last axis, got shape"),
        ({"x": np.zeros((3, 4, 5, 3), np.uint8), "channels": "first"}, "1 or 3 channels in the second axis"),
        ({"x": np.zeros((3, 3, 5, 4), np.uint8), "channels": "last"}, "1 or 3 channels in the last axis"),
        ({"x": np.zeros((3, 4, 5, 3), np.uint8), "channels": "top"}, "channels: expected 'first' or 'last', got 'top'"),
        ({"x": np.full((3, 4, 4), 255.0)}, r"x: expected images of uint8, .* got float64 from 255\.0 to 255\.0"),
        ({"x": np.full((3, 4, 4), NAN)}, "got float64 from nan to nan"),
        ({"x": np.full((3, 4, 4), -0.1)}, "floats from 0 to 1"),
        ({"x": np.zeros((3, 4, 4), np.int64)}, "got int64 from 0 to 0"),
        ({"y": [0, 1]}, "y: expected 3 labels, one for each row of x, got 2"),
        ({"y": [[0], [1], [1]]}, r"y: expected one label a row, got an array of shape \(3, 1\)"),
        ({"y": [0, 1, -2]}, "y: row 2 is -2.*, expected a whole number from 0, or -1"),
        ({"y": [0, 1.5, 1]}, r"y: row 1 is 1\.5"),
        ({"y": [0, 1, float("inf")]}, "y: row 2 is inf"),
        ({"y": ["a", 1, "b"]}, "y: row 1 is 1, expected a name like the others"),
        ({"y": np.array(["2020"] * 3, "datetime64[Y]")}, "y: expected whole numbers or names, got datetime64"),
        ({"y": [-1, -1, -1]}, "y: no row is labelled"),
        ({"y": np.array(["a", "b", None]).astype(str)}, "y: 'None' stands among names as text; put '' or None where"),
        ({"y": np.array(["a", "b", -1])}, "y: '-1' stands among names as text"),
        (
            {"y": ["a", "bee", "c"], "classes": ["a", "bees", "c"]},
            "row 1 is 'bee', which is none .* did you mean 'bees'",
        ),
        ({"y": [0, 1, 2], "classes": ["a", "b"]}, "row 2 is 2, which is none of the 2 classes.* they are 0, 1"),
        ({"classes": ["a", "a"]}, "classes: expected different, non-empty names"),
        ({"y_test": [0, 1, 1]}, "y_test: expected it together with x_test"),
        ({"x_test": VECTORS[:, :1]}, r"x_test: expected samples of shape \(2,\) as in x, got \(1,\)"),
        ({"x_test": holed(NAN)}, "x_test: row 1, column 1 is nan"),
        ({"x_test": VECTORS, "y_test": [0]}, "y_test: expected 3 labels, one for each row of x_test, got 1"),
        ({"x_test": VECTORS, "y_test": [0, 5, 1]}, "y_test: row 1 is 5, which is none of the 2 classes"),
        ({"x_test": VECTORS, "y_test": ["0", "1", "1"]}, "y_test: expected class numbers as in y, got class names"),
        ({"mean": [0.0]}, "mean: expected 2 finite numbers"),
        ({"std": [1.0, 0.0]}, "std: expected 2 finite numbers above 0"),
    ],
)
def test_one_sentence_says_what_is_wrong(arguments, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        arrays(**({"x": VECTORS, "y": NUMBERS} | arguments))
    assert re.search(r"[a-z_]+: .*(expected|got|is|has|no row)", str(caught.value))


def test_sparse_matrices_are_named():
    from scipy.sparse import csr_matrix

    with pytest.raises(InputError, match=r"x: expected a dense array.*x\.toarray\(\)"):
        arrays(csr_matrix(VECTORS), NUMBERS)
