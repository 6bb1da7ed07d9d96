"""The sheet a person fills in: one row a drawn sample, its id and its label, as csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from instant.data.files import atomic
from instant.data.folder.labels import class_alike
from instant.errors import InputError, nearest

UNSURE = "?"  # nobody can tell: counted as wrong


def write_sheet(
    path: Path, drawn: Sequence[str], known: Mapping[str, str], predicted: Iterable[str] | None = None
) -> None:
    """An id and a label a row, empty where none is known; predicted labels only on request: they sway who checks."""
    columns = [drawn, [known.get(i, "") for i in drawn]]
    names = ["id", "label"]
    if predicted is not None:
        columns.insert(1, list(predicted))
        names.insert(1, "predicted")
    try:
        with atomic(path, "w") as file:
            csv.writer(file, lineterminator="\n").writerows([names, *zip(*columns)])
    except OSError as error:
        raise InputError(f"--out {path} cannot be written ({error.strerror or error}).") from error


def read_sheet(path: Path, drawn: Sequence[str], classes: Sequence[str]) -> dict[str, str]:
    """The label of every id that was drawn; all of them, and nothing else."""
    given: dict[str, str] = {}
    empty = []
    ids = set(drawn)
    for line, row in _rows(path):
        i, label = _meant(row["id"], ids), _class_meant(row["label"], classes)
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


def _rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The rows with their line numbers; spreadsheets write commas, semicolons or tabs, and a mark in front."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"--labels {path} cannot be read ({error}).") from error
    except UnicodeDecodeError as error:
        raise InputError(f"--labels {path} cannot be read ({error}); save it as csv in UTF-8.") from error
    head = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count), restval="")
    try:
        names = list(reader.fieldnames or ())
        plain = [name.strip().casefold() for name in names]
        reader.fieldnames = [name if low in names else low for name, low in zip(names, plain)]  # id comes before ID
        if not {"id", "label"} <= set(reader.fieldnames):
            raise InputError(f"{path}: expected a first line with the columns id and label, got {head.strip()[:80]!r}.")
        rows: list[tuple[int, dict[Any, Any]]] = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise InputError(
            f"{path} cannot be read after line {reader.line_num} ({error}); is a quote left open?"
        ) from error
    for line, row in rows:
        if any(cell.strip() for cell in row.pop(None, ())):
            raise InputError(
                f"{path}, line {line} has more cells than the first line; put quotes around a name with a comma."
            )
    return [(line, row) for line, row in rows if (row["id"] + row["label"]).strip()]  # spreadsheets add empty rows
