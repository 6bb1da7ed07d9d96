"""Arrays that are already in memory, as a source: images or vectors, class numbers or class names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from instant.data.source import Source
from instant.data.sources.base import image_statistics
from instant.data.sources.labels import find_classes, number, read_labels
from instant.data.store import Store, as_bytes, blocks, not_finite
from instant.errors import InputError

Channels = Literal["first", "last"]
TINY = 1e-36  # smaller spans have deviations near float32's smallest number, 1.2e-38, below which it counts as 0
MANY = 50  # features, from which on they may be pixels or embeddings, all of one unit


def arrays(
    x: Any,
    y: Any,
    x_test: Any = None,
    y_test: Any = None,
    *,
    classes: Sequence[str] | None = None,
    name: str = "arrays",
    channels: Channels | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    mirror: bool = True,
) -> Source:
    """A source from images (n, h, w), (n, h, w, c) or (n, c, h, w), uint8 or floats in [0, 1], or vectors (n, d).

    `y` holds class numbers with -1 for unlabelled, or class names with None, NaN or "" for unlabelled. Without
    `classes`, the classes are the values in `y`, sorted; with it, numbers count from 0 along it. `channels` is
    needed only where both the second and the last axis could be colours. Without `mean` and `std` those of `x`
    are used, with 1 for a deviation of 0; 50 or more features with spans that are mostly within a factor of ten of
    each other, as pixels have, share one deviation. Without `x_test` the test part is empty.

    >>> source = arrays([[0.0, 1.0], [4.0, 1.0], [2.0, 1.0]], ["cat", "dog", None])
    >>> source.classes, source.targets.tolist(), source.mean
    (('cat', 'dog'), [0, 1, -1], (2.0, 1.0))
    """
    x = _as_array(x, "x")
    train, labels = _samples(x, "x", channels), read_labels(y, "y")
    if train.ndim == 2:
        _check_rounding(x)
    _check_rows("x", train, "y", labels.values)
    table = find_classes(labels, "y", classes)
    test, test_targets = train[:0], np.empty(0, np.int64)
    if x_test is not None:
        test = _samples(x_test, "x_test", channels)
        if test.shape[1:] != train.shape[1:]:
            raise InputError(
                f"x_test: expected samples of shape {train.shape[1:]} as in x, got {test.shape[1:]}. Bring both to "
                f"the same size."
            )
        test_targets = np.full(len(test), -1, np.int64)
    if y_test is not None:
        if x_test is None:
            raise InputError("y_test: expected it together with x_test, got it alone. Pass the test samples too.")
        test_labels = read_labels(y_test, "y_test")
        _check_rows("x_test", test, "y_test", test_labels.values)
        test_table = table if classes is None else find_classes(test_labels, "y_test", classes)
        test_targets = number(test_labels, test_table, "y_test")
    found_mean, found_std = image_statistics(train) if train.ndim == 4 else _vector_statistics(train)
    return Source(
        name=name,
        train=Store(train, f"{name} train"),
        targets=number(labels, table, "y"),
        test=Store(test, f"{name} test"),
        test_targets=test_targets,
        classes=table.names,
        mean=_given(mean, "mean", found_mean),
        std=_given(std, "std", found_std),
        mirror=mirror,
    )


def _samples(x: Any, what: str, channels: Channels | None) -> np.ndarray:
    """uint8 (N, C, H, W) or float32 (N, D)."""
    array = _as_array(x, what)
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        raise InputError(
            f"{what}: expected images of shape (n, h, w), (n, h, w, c) or (n, c, h, w), or vectors of shape (n, d), "
            f"none of them empty, got shape {array.shape}. Reshape it first."
        )
    if array.ndim == 2:
        return _vectors(array, what)
    images = array[:, None] if array.ndim == 3 else _channels_first(array, what, channels)
    return np.ascontiguousarray(images) if images.dtype == np.uint8 else as_bytes(images, what)


def refuse_masked(x: Any, what: str) -> None:
    """What is masked is not known, and numpy would go on with what lies below."""
    if isinstance(x, np.ma.MaskedArray) and (hidden := int(np.ma.getmaskarray(x).sum())):
        raise InputError(f"{what}: {hidden:,} values are masked; fill them in first, or drop their rows.")


def _as_array(x: Any, what: str) -> np.ndarray:
    if hasattr(x, "toarray"):
        raise InputError(f"{what}: expected a dense array, got a sparse one. Pass {what}.toarray() instead.")
    refuse_masked(x, what)
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = x.float() if x.is_floating_point() and x.element_size() == 2 else x  # numpy does not know bfloat16
    try:
        array = np.asarray(x)
    except ValueError:  # rows of unequal shape
        array = np.empty(len(x), object)
        for row, sample in enumerate(x):
            array[row] = sample
    if array.dtype != object:
        return array
    if array.ndim == 1 and len(array):
        shapes = [np.shape(row) for row in array]
        odd = next((row for row, shape in enumerate(shapes) if shape != shapes[0]), None)
        if odd is not None:
            raise InputError(
                f"{what}: row {odd} has shape {shapes[odd]}, expected {shapes[0]} as in row 0. Bring all samples to "
                f"one size first."
            )
        array = np.array(array.tolist())
    try:
        return array.astype(np.float64) if array.dtype == object else array
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: expected numbers only ({error}). Encode or drop the other columns.") from error


def _vectors(array: np.ndarray, what: str) -> np.ndarray:
    if array.dtype.kind not in "biuf":
        raise InputError(f"{what}: expected vectors of real numbers, got {array.dtype}. Convert them first.")
    with np.errstate(over="ignore"):
        vectors = np.ascontiguousarray(array, dtype=np.float32)
    if (place := not_finite(vectors)) is not None:
        row, column = place
        if np.isfinite(array[row, column]):
            raise InputError(
                f"{what}: row {row}, column {column} is {array[row, column]:g}, more than float32 holds. Divide that "
                "column by a power of ten, here and in all samples to come."
            )
        raise InputError(
            f"{what}: row {row}, column {column} is {array[row, column]}, expected a finite number within float32. "
            f"Drop those rows or fill them in first."
        )
    return vectors


def lost_in_float32(vectors: np.ndarray) -> np.ndarray:
    """Which features vary so little, so far from 0, that more than 1 % of their deviation is rounded away.

    >>> lost_in_float32(np.array([[1.7e9, 5.0, 0.1], [1.7e9 + 20, 8.0, 0.1]])).tolist()
    [True, False, False]
    """
    if np.can_cast(vectors.dtype, np.float32):
        return np.zeros(vectors.shape[1], bool)
    first = vectors[0].astype(np.float64)  # counted from there, a constant feature deviates by exactly 0
    total, squares = np.zeros((2, len(first)))
    for part in blocks(vectors):
        offset = np.subtract(part, first, dtype=np.float64)
        total += offset.sum(axis=0)
        squares += np.square(offset, out=offset).sum(axis=0)
    mean = total / len(vectors)
    std = np.sqrt(np.maximum(squares / len(vectors) - mean**2, 0))
    size = np.abs(first + mean)
    lost = (size > 1e5 * std) & (std > 1e-13 * size)  # nearer to 0 float32 is exact enough; below, rounding varies
    far = vectors[:, lost].astype(np.float64)
    lost[lost] = (far - far.astype(np.float32)).std(axis=0) > 0.01 * std[lost]
    return lost


def _spans(vectors: np.ndarray) -> np.ndarray:
    """Largest less smallest value of every feature."""
    low, high = vectors[0].copy(), vectors[0].copy()
    for part in blocks(vectors):
        np.minimum(low, part.min(axis=0), out=low)
        np.maximum(high, part.max(axis=0), out=high)
    return np.subtract(high, low, dtype=np.float64)


def _check_rounding(x: np.ndarray) -> None:
    """Refuse what would be lost: a run has no place for an origin to count new samples from."""
    if 0 < _spans(x).max() < TINY:
        raise InputError(
            f"x: all columns vary by less than {TINY:g}, which float32 does not tell from a constant. Multiply them by "
            "a power of ten, here and in all samples to come."
        )
    if not (lost := np.flatnonzero(lost_in_float32(x))).size:
        return
    column = x[:, lost[0]].astype(np.float64)
    more = f" (and {len(lost) - 1:,} more)" if len(lost) > 1 else ""
    raise InputError(
        f"x: column {lost[0]}{more} lies around {column.mean():.10g} and deviates by {column.std():.3g}, which float32 "
        f"rounds away. Subtract its mean first, the same number from test samples and from those to be labelled later."
    )


def _channels_first(array: np.ndarray, what: str, channels: Channels | None) -> np.ndarray:
    first, last = (array.shape[axis] in (1, 3) for axis in (1, 3))
    if channels not in (None, "first", "last"):
        raise InputError(f"channels: expected 'first' or 'last', got {channels!r}.")
    if channels is None and first and last:
        raise InputError(
            f"{what}: in shape {array.shape} both the second and the last axis may be the channels. Say which with "
            f"channels='first' or channels='last' where arrays() is called; an estimator needs images of another width."
        )
    if not (first or last) or (channels == "first" and not first) or (channels == "last" and not last):
        side = f"{channels} axis" if channels == "last" else "second axis" if channels else "second or last axis"
        raise InputError(
            f"{what}: expected 1 or 3 channels in the {side}, got shape {array.shape}. Convert the images to grey or "
            f"colour first."
        )
    return array if channels == "first" or not last else array.transpose(0, 3, 1, 2)


def _vector_statistics(vectors: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean of every feature and what it is divided by: one number for all where they share a unit."""
    # In float64 the sum of equal float32 numbers is exact, so a constant feature deviates by exactly 0.
    mean = sum(part.sum(axis=0, dtype=np.float64) for part in blocks(vectors)) / len(vectors)
    std = np.sqrt(sum(np.square(part - mean).sum(axis=0) for part in blocks(vectors)) / len(vectors))
    if _share_a_unit(vectors):
        std = np.full_like(std, np.sqrt(np.square(std[std > 0]).mean()))
    return tuple(mean.tolist()), tuple(np.where(std < np.finfo(np.float32).tiny, 1.0, std).tolist())


def _share_a_unit(vectors: np.ndarray) -> bool:
    """Whether the spans of most features are alike, as those of pixels are and those of ages and incomes are not.

    Dividing each pixel by its own deviation would make those that are nearly always black the loudest.
    """
    spans = _spans(vectors)
    spans = spans[spans > 0]
    if len(spans) < MANY:
        return False
    short, long = np.quantile(spans, [0.1, 0.9])
    return bool(long < 10 * short)


def _given(values: float | Sequence[float] | None, what: str, found: tuple[float, ...]) -> tuple[float, ...]:
    if values is None:
        return found
    result = tuple(float(value) for value in np.atleast_1d(values))  # one number is that of the one channel
    if len(result) != len(found) or not np.isfinite(result).all() or (what == "std" and min(result) <= 0):
        sign = " above 0" if what == "std" else ""
        raise InputError(f"{what}: expected {len(found)} finite numbers{sign}, one a channel or feature, got {values}.")
    return result


def _check_rows(what: str, samples: np.ndarray, other: str, labels: np.ndarray) -> None:
    if len(samples) != len(labels):
        raise InputError(
            f"{other}: expected {len(samples):,} labels, one for each row of {what}, got {len(labels):,}. Mark rows "
            f"without label with -1 or None."
        )
