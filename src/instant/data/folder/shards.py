"""A hundred images decoded into one file: what a worker process does. It must not need torch.

A shard is a line of JSON (files without an image and why, whether that may pass, counts of grey levels, a checksum) and
then the pixels. It is renamed into place when it is whole, but not synced to the disk, for which a worker would wait
longer than it should; the checksum tells when a power cut came in between, and then the shard is made again.
"""

from __future__ import annotations

import json
import warnings
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from instant.data.files import replace
from instant.data.folder.decode import Unreadable, decode
from instant.data.levels import count_levels


class Shard(NamedTuple):
    """A run of files and the file they become."""

    root: Path
    names: list[str]
    path: Path
    side: int
    channels: int


class Content(NamedTuple):
    bad: dict[str, str]
    passing: bool  # some of them may be readable the next time
    levels: np.ndarray
    pixels: bytes


def decode_shard(shard: Shard) -> int:
    """Write the shard; return how many files that were."""
    images = np.empty((len(shard.names), shard.channels, shard.side, shard.side), np.uint8)
    bad: dict[str, str] = {}
    passing, good = False, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's remarks on metadata; what matters is raised
        for name in shard.names:
            try:
                images[good] = decode(shard.root / name, shard.side, shard.channels)
                good += 1
            except Unreadable as reason:
                bad[name] = str(reason)
                passing = passing or reason.passing
    pixels = images[:good]
    levels, checksum = count_levels(pixels).tolist(), zlib.crc32(pixels.tobytes())
    header = {"bad": bad, "passing": passing, "levels": levels, "checksum": checksum}
    temporary = shard.path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        file.write(pixels.tobytes())
    replace(temporary, shard.path)
    return len(shard.names)


def read_shard(shard: Shard) -> Content:
    """What a shard holds; one that a power cut has spoilt is decoded again."""
    content = _read(shard.path)
    if content is None:
        decode_shard(shard)
        content = _read(shard.path)
    assert content is not None
    return content


def _read(path: Path) -> Content | None:
    line, _, pixels = path.read_bytes().partition(b"\n")
    try:
        header = json.loads(line)
    except ValueError:
        return None
    if zlib.crc32(pixels) != header["checksum"]:
        return None
    return Content(header["bad"], header["passing"], np.array(header["levels"], np.int64), pixels)
