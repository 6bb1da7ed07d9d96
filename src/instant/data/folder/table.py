"""A CSV or parquet table of files and labels, as text; an empty label, null, NaN, #N/A or -1 means unlabelled."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from instant.data.sources.labels import MADE_TEXT
from instant.errors import InputError

FILE = ("file", "filename", "file_name", "path", "filepath", "image", "name", "id")
LABEL = ("label", "class", "category", "target", "y")
# As programs write -1, NaN, pandas' gaps and what a lookup did not find into text; None may be the name of a class
UNLABELLED = (*(text for text in MADE_TEXT if text != "None"), "#N/A")
TABLES = (".csv", ".tsv", ".txt", ".parquet")
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
SAID = re.compile(r'"?sep=([^\w"\r\n])"?\s*', re.IGNORECASE)  # as a first line tells Excel
LONGEST = 2**31 - 1  # characters in a cell: columns of outlines pass the 131,072 that are usual
SHORT = 2**16  # characters of a header in which the separator is looked for


class FileTable(NamedTuple):
    """One entry a row; "" where a label is not known. A column that is not there is None."""

    files: list[str] | None
    labels: list[str] | None


def read_table(path: Path) -> FileTable:
    """The columns of files and of labels, by their usual names."""
    parquet = _is_parquet(path)
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


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


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
        remedy = "Put a first line into it: file,label; columns are separated by commas, semicolons or tabs."
        if _is_parquet(path):
            remedy = "Rename its columns."
        raise InputError(f"{path}: expected the columns file and label, got {got}. {remedy}")
    return file, label


def _place(path: Path, names: list[Any], places: list[int]) -> int | None:
    """The only one of these columns, which have one name."""
    if len(places) > 1:
        got = " and ".join(repr(names[place]) for place in places)
        raise InputError(f"{path}: expected one column {str(names[places[0]]).strip()}, got {got}. Rename all but one.")
    return places[0] if places else None


def _read_parquet(path: Path) -> FileTable:
    import pandas as pd  # here, because every command imports this file and few read a parquet

    frame = pd.read_parquet(path)

    def column(place: int) -> list[Any]:
        values = frame.iloc[:, place]
        return [None if gap else value for gap, value in zip(values.isna(), values.tolist())]

    file, label = _places(path, list(frame.columns))
    files = None if file is None else ["" if value is None else str(value) for value in column(file)]
    return FileTable(files, None if label is None else as_names(column(label)))


def _read_csv(path: Path) -> FileTable:
    """All as text, so that a class may be called 007 or NA; of the columns only the two that are asked for are kept."""
    rows = text_rows(path)
    _, header = next(rows, (0, []))
    if not header:
        raise ValueError("it is empty")
    file, label = _places(path, header)
    files: list[str] = []
    labels: list[str] = []
    for _, row in rows:
        if file is not None:
            files.append(row[file])
        if label is not None:
            labels.append(as_name(row[label]))
    return FileTable(None if file is None else files, None if label is None else labels)


def text_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The header, which a line for Excel may precede, then rows of as many cells; each with the line it begins in."""
    with open(path, encoding="utf-8-sig", newline="") as lines:
        separator, above, first = "", 0, ""
        for first in lines:
            if not separator and (said := SAID.fullmatch(first)):
                separator = said[1]
            elif first.strip():
                break
            above += 1
        else:
            return
        separator = separator or _separator(first)
        rows = _rows(chain([first], lines), separator, above + 1)
        line, header = next(rows)
        yield line, header
        for line, row in rows:
            if len(header) > 1 and _blank(row):  # in a single column an empty line is a row without label
                continue
            if any(cell.strip() for cell in row[len(header) :]):  # else empty ones, which spreadsheets leave behind
                got = ", ".join(map(repr, row[:6]))
                cells = f"{len(header)} cell{'s' if len(header) > 1 else ''}"
                raise InputError(
                    f"{path}, line {line}: expected {cells} as in the first line, got {len(row)} ({got}). "
                    f"Put quotes around a name with a {SEPARATORS.get(separator, repr(separator))}, and no space "
                    "before them."
                )
            yield line, (row + [""] * len(header))[: len(header)]


def _separator(header: str) -> str:
    """What splits the header into the most known names of columns; of equals the most frequent one.

    >>> _separator("file;label;width, height"), _separator("label")
    (';', ',')
    """

    def fit(mark: str) -> tuple[int, int]:
        names = {name.strip().casefold() for name in next(csv.reader([header[:SHORT]], delimiter=mark))}
        return len(names.intersection(FILE + LABEL)), header.count(mark)

    return max(SEPARATORS, key=fit)


def _rows(lines: Iterable[str], separator: str, line: int) -> Iterator[tuple[int, list[str]]]:
    """The rows of lines from this one on, with where each begins; a quote left open would swallow all that follows."""
    over = False

    def watched() -> Iterator[str]:
        nonlocal over
        yield from lines
        over = True

    limit = csv.field_size_limit(LONGEST)
    try:
        above = line - 1
        reader = csv.reader(watched(), delimiter=separator)
        for row in reader:
            if over:  # the reader asked for one more line to end this row
                raise ValueError(f"a quote is left open in line {line}")
            yield line, row
            line = above + reader.line_num + 1
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
    if value is None or value != value:
        return ""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = str(value).strip()
    return "" if name in UNLABELLED else name
