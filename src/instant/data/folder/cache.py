"""Decode once: a folder's images as one memory-mapped array, built by all cores, resumed where it stopped.

The key is a hash of every file's name, size and times of change (`Listing.key`), not of the bytes: a second run could
not start at once if it had to read them all. A file written anew, also with its old date put back, gets another time of
change from the system, so it is seen. The array lies in the cache folder, not beside the images.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from instant.data.files import atomic, locked
from instant.data.folder.listing import Listing
from instant.data.folder.shards import Shard, decode_shard, read_shard
from instant.data.levels import level_statistics
from instant.data.progress import counting
from instant.data.sources.base import map_exact
from instant.errors import InputError

VERSION = 4  # of what `decode` makes of a file, and of the card beside it
SHARD = 128  # images
AHEAD = 8  # shards that wait for each worker, so that none is idle while a slow one is waited for
# what a worker runs: it finds modules where this process does, and -P: none in the folder it happens to start in
WORKER = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from instant.data.folder.shards import serve; serve()"
)


class Decoded(NamedTuple):
    images: np.ndarray  # uint8 (N, C, side, side), mapped; the readable files in the order of the listing
    bad: dict[str, str]  # the others, with the reason
    mean: tuple[float, ...]
    std: tuple[float, ...]


def decoded(listing: Listing, home: Path, *, side: int, channels: int, progress: bool = True) -> Decoded:
    """The images of a listing, from the cache below `home` or decoded now.

    Files that cannot be read for now, as the disk or the memory fails, are left out, and tried again the next time.
    """
    folder = home / listing.key / f"v{VERSION}-{side}x{channels}"
    pixels, card = folder / "pixels.u8", folder / "card.json"
    try:
        found = _kept(pixels, card)  # also of a cache that may only be read
        if found is None:
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder):
                found = _kept(pixels, card) or _build(listing, folder, pixels, card, side, channels, progress)
        shape = (len(listing.names) - len(found["bad"]), channels, side, side)
        images = map_exact(pixels, shape) if shape[0] else np.empty(shape, np.uint8)
    except WorkerEnded as error:
        raise InputError(
            f"a process that decodes {listing.root} ended abruptly, perhaps for want of memory. Start again: it goes "
            "on where it stopped."
        ) from error
    except KeyboardInterrupt:
        if progress:
            print("decoding stopped; what is done is kept: start again to go on", file=sys.stderr)
        raise
    return Decoded(images, found["bad"], tuple(found["mean"]), tuple(found["std"]))


def _kept(pixels: Path, card: Path) -> dict[str, Any] | None:
    """What the card says about the array beside it; None where one of the two is not there, or not whole."""
    try:
        found = json.loads(card.read_text(encoding="utf-8"))
        return found if pixels.stat().st_size == found["bytes"] else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _build(
    listing: Listing, folder: Path, pixels: Path, card: Path, side: int, channels: int, progress: bool
) -> dict[str, Any]:
    starts = range(0, len(listing.names), SHARD)
    parts = folder / "parts"
    parts.mkdir(exist_ok=True)

    def shard(at: int) -> Shard:
        return Shard(listing.root, listing.names[at : at + SHARD], parts / f"{at // SHARD:06d}", side, channels)

    waiting = [at for at in starts if not shard(at).path.exists()]
    done = len(listing.names) - sum(len(shard(at).names) for at in waiting)
    with counting(f"decoding {listing.root.resolve().name}", len(listing.names), done, progress) as report:
        for files in _decode_all(map(shard, waiting), len(waiting)):
            done += files
            report(done)
    bad: dict[str, str] = {}
    again = []
    levels = np.zeros((channels, 256), np.int64)
    with atomic(pixels) as file:
        for at in starts:
            content = read_shard(shard(at))
            bad |= content.bad
            levels += content.levels
            file.write(content.pixels)
            if content.passing:
                again.append(shard(at).path)
    mean, std = level_statistics(levels) if len(bad) < len(listing.names) else ((), ())
    found = {"bad": bad, "mean": mean, "std": std, "bytes": pixels.stat().st_size}
    if again:  # the next one decodes these shards once more, and joins all of them
        card.unlink(missing_ok=True)
        for path in again:
            path.unlink()
        return found
    with atomic(card, "w") as file:  # last: it means that the array is whole
        json.dump(found, file)
    shutil.rmtree(parts)
    return found


def cores() -> int:
    """How many this process may use; macOS and Windows only say how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _decode_all(shards: Iterator[Shard], count: int) -> Iterator[int]:
    """The number of files of every shard once it is on disk; each is asked for when its turn is near."""
    workers = min(cores(), count)
    if workers <= 1 or getattr(sys, "frozen", False) or not sys.executable:  # then there is no interpreter to start
        yield from map(decode_shard, shards)
        return
    with _pool(workers) as pool:
        ahead: deque[Future[int]] = deque()
        for shard in shards:
            ahead.append(pool.submit(decode_shard, shard))
            if len(ahead) == AHEAD * workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


class WorkerEnded(Exception):
    """A process that should answer is no more."""


class _Pool:
    """Worker processes, each asked by one thread at a time."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.threads = threads
        self.idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()

    def submit(self, work: Callable[[Shard], int], shard: Shard) -> Future[int]:
        return self.threads.submit(self._ask, pickle.dumps((work, shard)))

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
def _pool(workers: int) -> Iterator[_Pool]:
    # Not forked: this process may have torch's threads, which a fork would leave with locked locks. Nor spawned by
    # multiprocessing: that runs the caller's script again, which without a guard comes here and waits for our lock.
    command = [sys.executable, *subprocess._args_from_interpreter_flags(), "-P", "-c", WORKER]  # type: ignore[attr-defined]
    threads = ThreadPoolExecutor(workers)
    pool = _Pool(threads)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(workers):
            with _deaf():
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                processes.append(process)
            assert process.stdin is not None
            process.stdin.write(pickle.dumps(sys.path))  # sent with the first call
            pool.idle.put(process)
        yield pool
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
