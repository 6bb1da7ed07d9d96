"""What people hand in as X, to an array of vectors or images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from instant.data.sources.arrays import lost_in_float32, refuse_masked


def read_samples(X: Any, owner: Any, *, reset: bool) -> np.ndarray:
    """Checked as scikit-learn does, in the name of the estimator `owner`; its n_features_in_ is set, or held to."""
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu()
        X = (X.float() if X.dtype == torch.bfloat16 else X).numpy()
    refuse_masked(X, "X")
    least = 2 if reset else 1
    try:
        seen = None if hasattr(X, "toarray") else np.asarray(X)
    except ValueError:
        raise ValueError("X: its rows differ in shape; bring all samples to one size first.") from None
    dimensions = 2 if seen is None else seen.ndim
    if seen is not None and seen.dtype.kind in "mM" and np.isnat(seen).any():
        raise ValueError("X contains NaT, a time that is not known; fill it in first, or drop its row.")
    if dimensions not in (3, 4):
        return validate_data(owner, X, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=least)
    images = check_array(X, allow_nd=True, ensure_min_samples=least, estimator=owner, input_name="X")
    size = math.prod(images.shape[1:])
    if reset:
        owner.n_features_in_ = size
        vars(owner).pop("feature_names_in_", None)  # of an earlier fit, on a table
    if size != owner.n_features_in_:
        raise ValueError(
            f"X has {size} features, but {type(owner).__name__} is expecting {owner.n_features_in_} features as input."
        )
    return images


@np.errstate(over="ignore", invalid="ignore")  # `arrays` says what is too large for float32
def origin_of(samples: np.ndarray) -> np.ndarray | None:
    """Where to count features from that vary so little, so far from 0, that float32 would lose them: a time, say.

    >>> origin_of(np.array([[1.7e9, 5.0], [1.7e9 + 60, 8.0]])).tolist()
    [1700000000.0, 0.0]
    """
    if samples.ndim != 2:
        return None
    low, high = samples.min(0), samples.max(0)
    span = high - low
    size = np.maximum(-low, high)
    far = (size > 1e4 * span) & (span > 1e-13 * size)  # below that it is rounding that varies
    far |= lost_in_float32(samples)  # which `arrays` refuses: a few rows apart from all others make the span long
    return np.where(far, low, 0) if far.any() else None


def seen_from(origin: np.ndarray | None, samples: np.ndarray) -> np.ndarray:
    """Counted from there; images, which have no origin, are left for others to refuse."""
    return samples if origin is None or samples.ndim != 2 else samples - origin
