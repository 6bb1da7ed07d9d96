"""The sheet a person fills in: one row a drawn sample, its id and its label, as csv."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from instant.data.files import atomic
from instant.data.folder.labels import class_alike
from instant.data.folder.table import text_rows
from instant.errors import InputError, nearest

UNSURE = "?"  # nobody can tell: counted as wrong


def write_sheet(
    path: Path, drawn: Sequence[str], known: Mapping[str, str], predicted: Iterable[str] | None = None
) -> None:
    """An id and a label a row, empty where none is known; predicted labels only on request: they sway who checks.

    Excel takes a file for one in the encoding of its country unless a mark in front says UTF-8.
    """
    columns = [drawn, [known.get(i, "") for i in drawn]]
    names = ["id", "label"]
    if predicted is not None:
        columns.insert(1, list(predicted))
        names.insert(1, "predicted")
    mark = "" if all(text.isascii() for column in columns for text in column) else "\ufeff"
    try:
        with atomic(path, "w") as file:
            file.write(mark)
            csv.writer(file, lineterminator="\n").writerows([names, *zip(*columns)])
    except OSError as error:
        raise InputError(f"--out {path} cannot be written ({error.strerror or error}).") from error


def read_sheet(path: Path, drawn: Sequence[str], classes: Sequence[str]) -> dict[str, str]:
    """The label of every id that was drawn; all of them, and nothing else."""
    given: dict[str, str] = {}
    empty = []
    ids = set(drawn)
    for line, id_, text in _rows(path):
        i, label = _meant(id_, ids), _class_meant(text, classes)
        if i in given:
            raise InputError(f"{path}, line {line}: id {i} is there twice; keep one of them.")
        if i not in ids:
            raise InputError(
                f"{path}, line {line}: id {i} is not one of the {len(drawn)} that were drawn from this run; a "
                "certificate needs the random sample and nothing else. Draw more with --draw."
            )
        if label and label not in classes and label != UNSURE:
            raise InputError(
                f"{path}, line {line}: {label!r} is no class of this run; {nearest(label, classes)} "
                f"({UNSURE} where nobody can tell: it counts as wrong)"
            )
        given[i] = label
        if not label:
            empty.append(line)
    if empty:
        raise InputError(
            f"{path}: {len(empty)} of {len(given)} rows have no label, the first in line {empty[0]}; leaving out what "
            f"is hard would void the certificate. Write {UNSURE} where nobody can tell: it counts as wrong."
        )
    if missing := len(drawn) - len(given):
        raise InputError(f"{path}: {missing} of the {len(drawn)} rows that were drawn are missing; check them all.")
    return given


def _meant(text: str, known: Collection[str]) -> str:
    """What was written, without spaces around it unless they belong there."""
    return text if text in known else text.strip()


def _class_meant(text: str, classes: Sequence[str]) -> str:
    """The class, also in other capitals if only one is alike, as in the labels that a run is trained on."""
    meant = _meant(text, classes)
    close = [name for name in classes if class_alike(name) == class_alike(meant)]
    return close[0] if meant not in classes and len(close) == 1 else meant


def _rows(path: Path) -> list[tuple[int, str, str]]:
    """The line, the id and the label of every row that has one of these."""
    try:
        rows = list(text_rows(path))
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"--labels {path} cannot be read ({error}).") from error
    except (ValueError, csv.Error) as error:
        raise InputError(
            f"--labels {path} cannot be read ({error}); save it as csv in UTF-8, and close every quote."
        ) from error
    names = rows.pop(0)[1] if rows else []
    names = [*names[:-1], *(name.rstrip(";") for name in names[-1:])]
    plain = [name.strip().casefold() for name in names]
    if not {"id", "label"} <= set(plain):
        got = ", ".join(map(repr, names[:6])) or "nothing"
        raise InputError(
            f"{path}: expected a first line with the columns id and label, separated by commas, semicolons or tabs, "
            f"got {got}."
        )
    i, label = ((names if word in names else plain).index(word) for word in ("id", "label"))  # id comes before ID
    # An Excel that parts by semicolons shows a whole line in one cell, and writes what is filled in behind a semicolon
    return [(line, row[i], row[label].lstrip(";")) for line, row in rows if (row[i] + row[label]).strip()]
