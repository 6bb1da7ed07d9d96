"""How far a long piece of work on bytes has come, for people and for log files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.filesize import decimal

Report = Callable[[int], None]  # takes the bytes so far


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
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)
        return
    if wanted:
        size = f" ({decimal(total)})" if total is not None else ""
        print(f"{what} {where}{size}", file=sys.stderr, flush=True)
    yield lambda done: None
    if wanted:
        print(f"{what}: done", file=sys.stderr, flush=True)
