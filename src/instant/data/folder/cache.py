"""Decode once: a folder's images as one memory-mapped array, built by all cores, resumed where it stopped.

The key is a hash of every file's name, size and times of change (`Listing.key`), not of the bytes: a second run could
not start at once if it had to read them all. A file written anew, also with its old date put back, gets another time of
change from the system, so it is seen. The array lies in the cache folder, not beside the images.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from instant.data.files import atomic, locked
from instant.data.folder.listing import Listing
from instant.data.folder.shards import Shard, decode_shard, read_shard
from instant.data.folder.workers import WorkerEnded, pool
from instant.data.levels import level_statistics
from instant.data.progress import counting
from instant.data.sources.base import map_exact
from instant.errors import InputError

VERSION = 4  # of what `decode` makes of a file, and of the card beside it
SHARD = 128  # images
AHEAD = 8  # shards that wait for each worker, so that none is idle while a slow one is waited for


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
    with pool(workers) as ready:
        ahead: deque[Future[int]] = deque()
        for shard in shards:
            ahead.append(ready.submit(decode_shard, shard))
            if len(ahead) == AHEAD * workers:
                yield _result(ahead.popleft())
        while ahead:
            yield _result(ahead.popleft())


def _result(future: Future[int]) -> int:
    """Asked for again and again, as Windows hears Ctrl-C only in between."""
    while not wait([future], timeout=0.2).done:
        pass
    return future.result()
