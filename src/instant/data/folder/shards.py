"""A few hundred images decoded into one file: what a worker process does. It must not need torch."""

from __future__ import annotations

import json
import signal
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from instant.data.files import atomic
from instant.data.folder.decode import Unreadable, decode


class Shard(NamedTuple):
    """A run of files, and the stem of what they become: STEM.npy with the good ones, STEM.json with the others."""

    root: Path
    names: list[str]
    stem: Path
    side: int
    channels: int

    @property
    def done(self) -> bool:
        return self.stem.with_suffix(".npy").exists()


def ignore_interrupt() -> None:
    """Ctrl-C reaches the whole group of processes; the first one decides and tells the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def decode_shard(shard: Shard) -> int:
    """Write the shard, its array last; return how many files that were."""
    images = np.empty((len(shard.names), shard.channels, shard.side, shard.side), np.uint8)
    bad: dict[str, str] = {}
    good = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's remarks on metadata; what matters is raised
        for name in shard.names:
            try:
                images[good] = decode(shard.root / name, shard.side, shard.channels)
                good += 1
            except Unreadable as reason:
                bad[name] = str(reason)
    with atomic(shard.stem.with_suffix(".json"), "w") as file:
        json.dump(bad, file)
    with atomic(shard.stem.with_suffix(".npy")) as file:
        np.save(file, images[:good])
    return len(shard.names)
