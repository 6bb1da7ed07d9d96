"""A CSV or parquet table of files and labels, as text; an empty label, a null, NaN or -1 means unlabelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from instant.errors import InputError

FILE = ("file", "filename", "file_name", "path", "filepath", "image", "name", "id")
LABEL = ("label", "class", "category", "target", "y")
UNLABELLED = ("-1", "-1.0", "nan", "NaN")  # as programs write -1 and NaN into text; None may be the name of a class
TABLES = (".csv", ".tsv", ".txt", ".parquet")


class FileTable(NamedTuple):
    """One entry a row; "" where a label is not known. A column that is not there is None."""

    files: list[str] | None
    labels: list[str] | None


def read_table(path: Path) -> FileTable:
    """The columns of files and of labels, by their usual names."""
    try:
        frame = pd.read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    except (OSError, ValueError, UnicodeError) as error:  # pandas' and pyarrow's own errors are ValueErrors
        if path.suffix.lower() == ".parquet":
            what, remedy = "a parquet table", "Write it again."
        else:
            what, remedy = "a table of text", "A spreadsheet saves one as CSV UTF-8; its first line is file,label."
        why = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise InputError(f"{path} cannot be read as {what} ({why}). {remedy}") from error
    columns = {str(name).strip().casefold(): name for name in frame.columns}
    file, label = (next((columns[word] for word in words if word in columns), None) for words in (FILE, LABEL))
    if file is None and label is None:
        got = ", ".join(map(repr, list(frame.columns)[:6]))
        raise InputError(
            f"{path}: expected the columns file and label, got {got}. Put a first line into it: file,label"
        )
    files = None if file is None else ["" if pd.isna(value) else str(value) for value in frame[file]]
    return FileTable(files, None if label is None else as_names(frame[label].tolist()))


def _read_csv(path: Path) -> pd.DataFrame:
    with open(path, encoding="utf-8-sig") as file:
        header = file.readline()
    separator = next((mark for mark in (",", ";", "\t") if mark in header), ",")
    return pd.read_csv(
        path,
        sep=separator,
        dtype=str,  # as text, so that a class may be called 007 or NA
        keep_default_na=False,
        index_col=False,
        skip_blank_lines=separator in header,  # of a single column, one a row, an empty line is a row without label
        encoding="utf-8-sig",
    )


def as_names(values: list[Any]) -> list[str]:
    """Labels as text: "" for unlabelled, whole numbers without a point.

    >>> as_names(["cat", None, float("nan"), -1, 3.0, " dog ", "-1.0", "NaN", ""])
    ['cat', '', '', '', '3', 'dog', '', '', '']
    """
    return [_as_name(value) for value in values]


def _as_name(value: Any) -> str:
    if value is None or value is pd.NA or value is pd.NaT or value != value:
        return ""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = str(value).strip()
    return "" if name in UNLABELLED else name
