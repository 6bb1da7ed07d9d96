"""What is wrong with single files and labels: listed, so that the run can go on without them."""

from __future__ import annotations

import csv
from codecs import BOM_UTF8
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from instant.data.files import atomic
from instant.errors import InputError


class Flaw(NamedTuple):
    """A file, a row or a class, and what was done about it."""

    file: str
    reason: str


def shown(name: str) -> str:
    """A name that any file and terminal can hold: bytes that are no UTF-8 are spelt out."""
    return name.encode("utf-8", "backslashreplace").decode()


def write_problems(path: Path, problems: Iterable[Flaw]) -> None:
    """The table `file,reason`, in the order of the names, in place of an earlier one; none where nothing is wrong."""
    rows = sorted({Flaw(shown(name), shown(reason)) for name, reason in problems})
    if not rows:
        if _is_list(path):
            path.unlink()
        return
    require_list(path)
    with atomic(path, "w") as file:
        if not all(text.isascii() for row in rows for text in row):
            file.write("\ufeff")  # or Excel takes it for one in the encoding of its country
        table = csv.writer(file, lineterminator="\n")
        table.writerow(Flaw._fields)
        table.writerows(rows)


def require_list(path: Path) -> None:
    """Refuse to take the place of another file of that name."""
    if path.exists() and not _is_list(path):
        raise InputError(f"{path} is there, and is no list of problems, which would take its place; move it away.")


def _is_list(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return file.readline(64).removeprefix(BOM_UTF8).strip() == ",".join(Flaw._fields).encode()
    except OSError:  # a folder, say
        return False
