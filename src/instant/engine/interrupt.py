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

    def __init__(self, step: int, run: Run | None = None, earlier: str | None = None) -> None:
        super().__init__(step, run, earlier)  # as they are, so that it can be pickled: from a worker, say
        self.step = step
        self.run = run
        self.earlier = earlier

    def __str__(self) -> str:
        return f"stopped after step {self.earlier or self.step}"


def _handle(signum: int, frame: object) -> None:
    if _FLAGS[-1].is_set():
        raise KeyboardInterrupt
    for flag in _FLAGS:
        flag.set()


@contextmanager
def interrupt_flag(*, terminate: bool = False) -> Iterator[threading.Event]:
    """Ctrl-C sets a flag that the loop reads between steps; a second Ctrl-C stops at once.

    With `terminate` the same goes for what batch systems send, SIGTERM. A signal that the caller deals with, or
    ignores, is left to the caller.
    """
    flag = threading.Event()
    if any(each.is_set() for each in _FLAGS):  # said while a run was on its way to this one
        flag.set()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    asked = [signal.SIGINT, signal.SIGTERM] if terminate else [signal.SIGINT]
    ours = [number for number in asked if signal.getsignal(number) in (usual[number], _handle)]
    previous = {number: signal.signal(number, _handle) for number in ours}
    _FLAGS.append(flag)
    try:
        yield flag
    finally:
        _FLAGS.remove(flag)
        for number, before in previous.items():
            signal.signal(number, before)
