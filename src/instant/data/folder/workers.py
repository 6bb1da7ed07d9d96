"""Processes that decode for this one.

Not forked: this process may have torch's threads, which a fork would leave with locked locks. Nor spawned by
`multiprocessing`: that runs the caller's script again, which without a guard comes here and waits for our own lock.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, NoReturn

# what a worker runs: it finds modules where this process does, and -P: none in the folder it happens to start in
WORKER = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from instant.data.folder.workers import serve; serve()"
)


class WorkerEnded(Exception):
    """A process that should answer is no more."""


class Pool:
    """Worker processes, each asked by one thread at a time."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.threads = threads
        self.idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()

    def submit(self, work: Callable[[Any], int], what: Any) -> Future[int]:
        return self.threads.submit(self._ask, pickle.dumps((work, what)))

    def _ask(self, call: bytes) -> int:
        process = self.idle.get()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(call)
            process.stdin.flush()
            found, error = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as ended:
            raise WorkerEnded from ended
        finally:
            self.idle.put(process)
        if error is not None:
            raise error
        return found


@contextmanager
def pool(workers: int) -> Iterator[Pool]:
    """So many, for the length of a block."""
    command = [sys.executable, *subprocess._args_from_interpreter_flags(), "-P", "-c", WORKER]  # type: ignore[attr-defined]
    threads = ThreadPoolExecutor(workers)
    ready = Pool(threads)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(workers):
            with _deaf():
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                processes.append(process)
            assert process.stdin is not None
            process.stdin.write(pickle.dumps(sys.path))  # sent with the first call
            ready.idle.put(process)
        yield ready
    finally:  # at the end all have answered; at Ctrl-C nobody waits for a hundred images; a shard is whole or not there
        for process in processes:
            process.kill()
        threads.shutdown(cancel_futures=True)
        for process in processes:
            process.communicate()


@contextmanager
def _deaf() -> Iterator[None]:
    """A process started in here never hears Ctrl-C, also not before it could ignore it; this one hears it after."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve() -> NoReturn:
    """A worker's life: it answers calls until the process ends that it works for, however that ends.

    Ctrl-C reaches the whole group of processes; the first one decides and ends the others.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed is no reply
    calls: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(calls,), daemon=True).start()
    while True:
        work, what = calls.get()
        found, failed = None, None
        try:
            found = work(what)
        except Exception as error:
            error.add_note(traceback.format_exc())
            failed = error
        replies.write(pickle.dumps((found, failed)))
        replies.flush()


def _listen(calls: SimpleQueue[Any]) -> None:
    """Also while a call is worked on: the pipe ends with the process at its other end."""
    try:
        while True:
            calls.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(1)
