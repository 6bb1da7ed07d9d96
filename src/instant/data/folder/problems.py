"""What is wrong with single files and labels: listed, so that the run can go on without them."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from instant.data.files import atomic


class Flaw(NamedTuple):
    """A file, a row or a class, and what was done about it."""

    file: str
    reason: str


def shown(name: str) -> str:
    """A name that any file and terminal can hold: bytes that are no UTF-8 are spelt out."""
    return name.encode("utf-8", "backslashreplace").decode()


def write_problems(path: Path, problems: Iterable[Flaw]) -> None:
    """The table `file,reason`, in the order of the names."""
    with atomic(path, "w") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(Flaw._fields)
        table.writerows(sorted({Flaw(shown(name), shown(reason)) for name, reason in problems}))
