"""How far a long piece of work has come, for people and for log files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.filesize import decimal

Report = Callable[[int], None]  # takes the bytes, or the things, so far


@contextmanager
def reporting(what: str, where: str, total: int | None, wanted: bool = True) -> Iterator[Report]:
    """On standard error, a bar on a terminal, else one line at the start, which also says where, and one at the end."""
    if wanted and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True, emoji=False)) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)
        return
    if wanted:
        size = f" ({decimal(total)})" if total is not None else ""
        print(f"{what} {where}{size}", file=sys.stderr, flush=True)
    yield lambda done: None
    if wanted:
        print(f"{what}: done", file=sys.stderr, flush=True)


@contextmanager
def counting(what: str, total: int, done: int = 0, wanted: bool = True) -> Iterator[Report]:
    """As `reporting`, for things that are counted, of which `done` were finished by an earlier process."""
    if wanted and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True, emoji=False)) as bar:
            task = bar.add_task(what, total=total, completed=done)
            yield lambda now: bar.update(task, completed=now)
        return
    if wanted:
        before = f", {done:,} of them before" if done else ""
        print(f"{what}: {total:,} files{before}", file=sys.stderr, flush=True)
    yield lambda now: None
    if wanted:
        print(f"{what}: done", file=sys.stderr, flush=True)
