"""Ctrl-C: a run stops between two steps, where it can be gone on with. Imports no torch, so that the command may."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instant.run import Run


_FLAGS: list[threading.Event] = []  # of the runs that are going on: one may contain another


class Interrupted(Exception):
    """Ctrl-C: the run stopped between two steps, with its checkpoint saved."""

    def __init__(self, step: int, run: Run | None, earlier: str | None = None) -> None:
        super().__init__(f"stopped after step {earlier or step}")
        self.step = step
        self.run = run


@contextmanager
def interrupt_flag(*, terminate: bool = False) -> Iterator[threading.Event]:
    """Ctrl-C sets a flag that the loop reads between steps; a second Ctrl-C stops at once.

    With `terminate` the same goes for what batch systems send, SIGTERM, unless the caller deals with it.
    """
    flag = threading.Event()
    if any(each.is_set() for each in _FLAGS):  # said while a run was on its way to this one
        flag.set()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def handle(signum: int, frame: object) -> None:
        if flag.is_set():
            raise KeyboardInterrupt
        for each in _FLAGS:
            each.set()

    asked = [signal.SIGINT]
    if terminate and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        asked.append(signal.SIGTERM)
    previous = {number: signal.signal(number, handle) for number in asked}
    _FLAGS.append(flag)
    try:
        yield flag
    finally:
        _FLAGS.remove(flag)
        for number, before in previous.items():
            signal.signal(number, before)
