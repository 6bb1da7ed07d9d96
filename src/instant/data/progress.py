"""How far a long piece of work has come, for people and for log files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.filesize import decimal

Report = Callable[[int], None]  # takes the bytes, or the things, so far


def reporting(what: str, where: str, total: int | None, wanted: bool = True) -> AbstractContextManager[Report]:
    """Of bytes, `total` of them if that is known."""
    size = f" ({decimal(total)})" if total is not None else ""
    return _shown(what, f"{what} {where}{size}", total, wanted=wanted, files=False)


def counting(what: str, total: int, done: int = 0, wanted: bool = True) -> AbstractContextManager[Report]:
    """Of files, of which `done` were finished by an earlier process."""
    before = f", {done:,} of them before" if done else ""
    return _shown(what, f"{what}: {total:,} files{before}", total, done, wanted=wanted, files=True)


@contextmanager
def _shown(what: str, first: str, total: int | None, done: int = 0, *, wanted: bool, files: bool) -> Iterator[Report]:
    """On standard error, a bar on a terminal, else one line at the start, `first`, and one at the end."""
    if wanted and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn() if files else DownloadColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True, emoji=False)) as bar:
            task = bar.add_task(what, total=total, completed=done)
            yield lambda now: bar.update(task, completed=now)
        return
    if wanted:
        print(first, file=sys.stderr, flush=True)
    yield lambda now: None
    if wanted:
        print(f"{what}: done", file=sys.stderr, flush=True)
