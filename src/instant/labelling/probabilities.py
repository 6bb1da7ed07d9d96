"""Probabilities as people have them, numpy or torch, of any size: checked, and read a block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from instant.data.sources.arrays import refuse_masked
from instant.errors import InputError

ENTRIES = 2**22  # of a block of rows: what bounds the memory
TOLERANCE = 1e-3  # of a row's sum

Array = Any  # numpy in, numpy out; torch in, torch out, on the same device


def as_array(values: Array, name: str) -> np.ndarray:
    """Whatever holds values, as a numpy array on the host."""
    refuse_masked(values, name)
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values  # numpy has no such type
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: expected an array, its rows of one length, got {values!r:.60} ({error}).") from error


def as_table(values: Array, name: str) -> Array:
    """A tensor as it is, anything else as a numpy array; two dimensions, at least two columns, at least one row."""
    table = values.detach() if isinstance(values, Tensor) else as_array(values, name)
    shape = tuple(table.shape)
    numeric = table.is_floating_point() if isinstance(table, Tensor) else table.dtype.kind in "fiu"
    if not numeric or len(shape) != 2 or shape[1] < 2 or shape[0] < 1:
        raise InputError(
            f"{name}: expected probabilities of shape (rows, classes) with two classes or more, got {table.dtype} of "
            f"shape {shape}. Give one row a sample and one column a class."
        )
    return table


def as_tensor(part: Array) -> Tensor:
    """float64 stays, everything else is worked on as float32."""
    if isinstance(part, Tensor):
        return part if part.dtype == torch.float64 else part.float()
    dtype = np.float64 if part.dtype == np.float64 else np.float32
    return torch.from_numpy(np.require(part, dtype, ["C", "W"]))  # torch warns of arrays that refuse writes


def blocks(table: Array, name: str, *, entries: int | None = None) -> Iterator[tuple[int, Tensor]]:
    """The rows, some at a time, each checked to be probabilities."""
    size = max(1, ENTRIES // (entries or table.shape[1]))
    tolerance = max(TOLERANCE, torch.finfo(table.dtype).eps) if isinstance(table, Tensor) else TOLERANCE
    for start in range(0, len(table), size):
        block = as_tensor(table[start : start + size])
        sums = block.sum(1)
        fine = (sums - 1).abs() <= tolerance  # NaN is not
        if not (bool(fine.all()) and float(block.amin()) >= 0):
            row = int((~fine | (block.amin(1) < 0)).int().argmax())
            what = f"sums to {float(sums[row]):.4g}" if not bool(fine[row]) else "has a negative entry"
            raise InputError(
                f"{name}: row {start + row} {what}, expected probabilities from 0 to 1 that sum to 1. Apply a softmax "
                "to logits, and drop rows with NaN."
            )
        yield start, block


def class_numbers(y: Array, rows: int, classes: int) -> Tensor:
    """Known classes, one a row."""
    given = as_array(y, "y_labelled")
    if given.shape != (rows,) or given.dtype.kind not in "iu":
        raise InputError(
            f"y_labelled: expected {rows} whole numbers, one a row of probs_labelled, got {given.dtype} of shape "
            f"{given.shape}. Number the classes from 0."
        )
    wrong = np.flatnonzero((given < 0) | (given >= classes))
    if wrong.size:
        raise InputError(
            f"y_labelled: row {wrong[0]} is {given[wrong[0]]}, expected a class from 0 to {classes - 1}. Leave out "
            "samples whose class is not known."
        )
    return torch.from_numpy(given.astype(np.int64))
