"""Arrays of your own in .npy or .npz files: images or vectors, with labels where empty, None, NaN or -1 is unlabelled.

x.npy with --labels y.npy (or a .csv or .parquet with a column label, one row a sample, or with the samples' numbers
from 0 beside it, in any order), or one .npz with x and y, and x_test and y_test if there are test samples
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import IO

import numpy as np

from instant.data.folder.labels import class_order, merge_spellings, note_gaps, note_single, spelt_alike
from instant.data.folder.objects import read_objects
from instant.data.folder.problems import Flaw
from instant.data.folder.table import FileTable, as_names, read_table
from instant.data.source import Source
from instant.data.sources.arrays import arrays
from instant.data.sources.labels import MADE_TEXT
from instant.errors import InputError

ARRAYS = (".npy", ".npz")
SAMPLES = ("x", "X", "images", "data", "features")
LABELS = ("y", "labels", "label", "targets")
NUMBER = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")  # whole, also as pandas writes a column that was once of floats


def read_arrays(path: Path, label_file: Path | None, problems: list[Flaw]) -> Source:
    """The source in the files; a .npy of bytes stays mapped."""
    found = _load(path)
    x = _one(found, SAMPLES, path) if isinstance(found, dict) else found
    if x is None:
        raise InputError(f"{path}: expected an array called x, it holds {', '.join(found) or 'none'}.")
    if x.ndim == 0:
        raise InputError(f"{path}: expected samples, one a row, got a single value. Save all samples as one array.")
    parts = found if isinstance(found, dict) else {}
    y = _one(parts, LABELS, path) if label_file is None else _labels(label_file, len(x))
    if y is None:
        raise InputError(f"{path}: nothing says which samples are labelled. Add --labels FILE, or an array y.")
    names = _names(np.asarray(y), f"{label_file or path}, labels")
    labels = merge_spellings({f"row {row}": name for row, name in enumerate(names) if name}, problems)
    note_single(labels, problems)
    note_gaps(sorted(set(labels.values())), problems)
    if (number := len(set(labels.values()))) < 2:
        raise InputError(
            f"{label_file or path}: expected labels of two classes or more, got {number} (empty, NaN and -1 are "
            "unlabelled). Label a few samples of each class."
        )
    known = [labels.get(f"row {row}", "") for row in range(len(names))]
    y_test = parts.get("y_test")
    return arrays(
        x,
        known,
        parts.get("x_test"),
        None if y_test is None else spelt_alike(_names(y_test, f"{path}, y_test"), labels.values()),
        classes=sorted(set(labels.values()), key=class_order),
        name=path.stem,
    )


def _names(y: np.ndarray, what: str) -> list[str]:
    if y.ndim != 1:
        raise InputError(f"{what}: expected one label a row, got an array of shape {y.shape}. Flatten it first.")
    values = y.tolist()
    if (row := next((row for row, value in enumerate(values) if _below(value)), None)) is not None:
        raise InputError(
            f"{what}: row {row} is {values[row]:g}, expected a whole number from 0, or -1 for unlabelled. Number the "
            "classes, or give their names as text."
        )
    names = as_names(values)
    if y.dtype.kind in "US":  # which numpy and pandas make of None and the like between names
        names = ["" if name in MADE_TEXT else name for name in names]
    return names


def _below(value: object) -> bool:
    """Whether it is a number below -1, as other programs have for samples they are to ignore."""
    return isinstance(value, (int, float)) and value < -1


def _labels(path: Path, samples: int) -> np.ndarray:
    if path.suffix.lower() not in ARRAYS:
        table = read_table(path)
        if table.labels is None:
            raise InputError(f"{path}: expected a column label with one row a sample.")
        if (numbered := _by_number(path, table, samples)) is not None:
            return numbered
        rest = table.labels[samples:]  # empty lines at the end are an editor's, those between are samples
        return np.array(table.labels if any(rest) else table.labels[:samples], object)
    found = _load(path)
    labels = _one(found, LABELS, path) if isinstance(found, dict) else found
    if labels is None:
        raise InputError(f"{path}: expected an array called y, it holds {', '.join(found) or 'none'}.")
    return labels


def _by_number(path: Path, table: FileTable, samples: int) -> np.ndarray | None:
    """The labels where the table numbers its samples, as `instant label` does; None where it does not."""
    rows = [(NUMBER.fullmatch(file.strip()), file, label) for file, label in zip(table.files or [], table.labels or [])]
    if not any(match for match, _, _ in rows) or any(not match and file.strip() for match, file, _ in rows):
        return None
    labels = np.full(samples, "", object)
    seen = set()
    for match, _, label in rows:
        if match is None:
            if label:
                raise InputError(f"{path}: a row has the label {label!r} but no number; write that of its sample.")
            continue  # an empty row, which spreadsheets leave behind
        number = int(match[1])
        if not 0 <= number < samples:
            raise InputError(
                f"{path}: there is no sample {number}, the {samples:,} samples have the numbers from 0 to "
                f"{samples - 1}; number them so, or leave the column of numbers out to give the labels row by row."
            )
        if number in seen:
            raise InputError(
                f"{path}: there are two rows for sample {number}; leave one, or leave the column of numbers out to "
                "give the labels row by row."
            )
        seen.add(number)
        labels[number] = label
    return labels


def _one(parts: dict[str, np.ndarray], names: tuple[str, ...], path: Path) -> np.ndarray | None:
    name = which(parts, names, path)
    return None if name is None else parts[name]


def which(parts: Collection[str], names: tuple[str, ...], path: Path) -> str | None:
    """Of the arrays in a file the one that is called by one of these names."""
    there = [name for name in names if name in parts]
    if len(there) > 1:
        raise InputError(f"{path}: expected one of {', '.join(there)}, it holds all of them; leave one.")
    return there[0] if there else None


def _load(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    """What the file holds; a pickle is a program, and is not run."""
    try:
        if path.suffix.lower() == ".npy":
            with open(path, "rb") as file:
                if _holds_objects(file):
                    return read_objects(file)
            return np.load(path, mmap_mode="r", allow_pickle=False)
        found = {}
        with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as arrays_:
            for name in arrays_.files:
                with archive.open(f"{name}.npy") as member:
                    found[name] = read_objects(member) if _holds_objects(member) else arrays_[name]
        return found
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read as an array ({' '.join(str(error).split())}).") from error


def _holds_objects(file: IO[bytes]) -> bool:
    """Whether an open .npy is of Python objects; the file is back at its start afterwards."""
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    dtype = header(file)[2]
    file.seek(0)
    return dtype.hasobject
