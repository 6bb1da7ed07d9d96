"""A CSV or parquet table of files and labels, as text; an empty label, a null, NaN or -1 means unlabelled."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from instant.errors import InputError

FILE = ("file", "filename", "file_name", "path", "filepath", "image", "name", "id")
LABEL = ("label", "class", "category", "target", "y")
# As programs write -1, NaN and pandas' gaps into text; None may be the name of a class
UNLABELLED = ("-1", "-1.0", "nan", "NaN", "<NA>", "NaT")
TABLES = (".csv", ".tsv", ".txt", ".parquet")
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
LONGEST = 2**31 - 1  # characters in a cell: columns of outlines pass the 131,072 that are usual


class FileTable(NamedTuple):
    """One entry a row; "" where a label is not known. A column that is not there is None."""

    files: list[str] | None
    labels: list[str] | None


def read_table(path: Path) -> FileTable:
    """The columns of files and of labels, by their usual names."""
    parquet = path.suffix.lower() == ".parquet"
    try:
        return _read_parquet(path) if parquet else _read_csv(path)
    except InputError:
        raise
    except (OSError, ValueError, UnicodeError, csv.Error) as error:  # pandas' and pyarrow's own errors are ValueErrors
        if parquet:
            what, remedy = "a parquet table", "Write it again."
        else:
            what, remedy = "a table of text", "A spreadsheet saves one as CSV UTF-8; its first line is file,label."
        why = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise InputError(f"{path} cannot be read as {what} ({why}). {remedy}") from error


def _places(path: Path, names: list[Any]) -> tuple[int | None, int | None]:
    """Where the columns of files and of labels are among all columns."""
    columns: defaultdict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        columns[str(name).strip().casefold()].append(place)
    file, label = (
        _place(path, names, next((columns[word] for word in words if word in columns), [])) for words in (FILE, LABEL)
    )
    if file is None and label is None:
        got = ", ".join(map(repr, names[:6]))
        raise InputError(
            f"{path}: expected the columns file and label, got {got}. Put a first line into it: file,label"
        )
    return file, label


def _place(path: Path, names: list[Any], places: list[int]) -> int | None:
    """The only one of these columns, which have one name."""
    if len(places) > 1:
        got = " and ".join(repr(names[place]) for place in places)
        raise InputError(f"{path}: expected one column {str(names[places[0]]).strip()}, got {got}. Rename all but one.")
    return places[0] if places else None


def _read_parquet(path: Path) -> FileTable:
    frame = pd.read_parquet(path)
    file, label = _places(path, list(frame.columns))
    files = None if file is None else ["" if pd.isna(value) else str(value) for value in frame.iloc[:, file]]
    return FileTable(files, None if label is None else as_names(frame.iloc[:, label].tolist()))


def _read_csv(path: Path) -> FileTable:
    """All as text, so that a class may be called 007 or NA; of the columns only the two that are asked for are kept."""
    with open(path, encoding="utf-8-sig") as text:
        first = next((line for line in text if line.strip()), "")
    separator = next((mark for mark in SEPARATORS if mark in first), ",")
    files: list[str] = []
    labels: list[str] = []
    with open(path, encoding="utf-8-sig", newline="") as lines:
        rows = _rows(lines, separator)
        header = next((row for _, row in rows if not _blank(row)), None)
        if header is None:
            raise ValueError("it is empty")
        file, label = _places(path, header)
        for line, row in rows:
            if separator in first and _blank(row):  # in a single column an empty line is a row without label
                continue
            if any(cell.strip() for cell in row[len(header) :]):  # else empty ones, which spreadsheets leave behind
                got = ", ".join(map(repr, row[:6]))
                cells = f"{len(header)} cell{'s' if len(header) > 1 else ''}"
                raise InputError(
                    f"{path}, line {line}: expected {cells} as in the first line, got {len(row)} ({got}). "
                    f"Put quotes around a name with a {SEPARATORS[separator]}, and no space before them."
                )
            if file is not None:
                files.append(row[file] if file < len(row) else "")
            if label is not None:
                labels.append(as_name(row[label]) if label < len(row) else "")
    return FileTable(None if file is None else files, None if label is None else labels)


def _rows(lines: Iterable[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows, each with the number of the line it begins in; a quote left open would swallow all that follows."""
    over = False

    def watched() -> Iterator[str]:
        nonlocal over
        yield from lines
        over = True

    limit = csv.field_size_limit(LONGEST)
    try:
        reader = csv.reader(watched(), delimiter=separator)
        line = 1
        for row in reader:
            if over:  # the reader asked for one more line to end this row
                raise ValueError(f"a quote is left open in line {line}")
            yield line, row
            line = reader.line_num + 1
    finally:
        csv.field_size_limit(limit)


def _blank(row: list[str]) -> bool:
    return not row or (len(row) == 1 and row[0].isspace())


def as_names(values: list[Any]) -> list[str]:
    """Labels as text: "" for unlabelled, whole numbers without a point.

    >>> as_names(["cat", None, float("nan"), -1, 3.0, " dog ", "-1.0", "NaN", ""])
    ['cat', '', '', '', '3', 'dog', '', '', '']
    """
    return [as_name(value) for value in values]


def as_name(value: Any) -> str:
    """A label as text; empty where it says that there is none."""
    if value is None or value is pd.NA or value is pd.NaT or value != value:
        return ""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = str(value).strip()
    return "" if name in UNLABELLED else name
