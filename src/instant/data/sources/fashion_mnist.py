"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017): 60,000 + 10,000 grey images of 28 x 28, in four idx files.

An idx file is a magic number (two zero bytes, the type 8 for bytes, the rank), one big-endian 32-bit length for each
axis, then the values.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from instant.data.source import Source
from instant.data.sources.base import Place, RemoteFile, broken, check_labels, check_length
from instant.data.store import Store

_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_BASE = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"


def _published(name: str, size: int, sha256: str) -> RemoteFile:
    return RemoteFile(base_url=_BASE, name=name, size=size, sha256=sha256)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many images the parts have, and their files: images and labels to train, images and labels to test."""

    train: int
    test: int
    files: tuple[RemoteFile, RemoteFile, RemoteFile, RemoteFile]


FASHION_MNIST = Layout(
    train=60_000,
    test=10_000,
    files=(
        _published(
            "train-images-idx3-ubyte.gz",
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        _published(
            "train-labels-idx1-ubyte.gz",
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        _published(
            "t10k-images-idx3-ubyte.gz",
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        _published(
            "t10k-labels-idx1-ubyte.gz",
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
)


def read(place: Place, layout: Layout = FASHION_MNIST) -> Source:
    """The set from its four files, packed or not."""
    train_x, train_y, test_x, test_y = _locate(place, layout)
    return Source(
        name="fashion_mnist",
        train=Store(_images(train_x, layout.train), "fashion_mnist train"),
        targets=_labels(train_y, layout.train),
        test=Store(_images(test_x, layout.test), "fashion_mnist test"),
        test_targets=_labels(test_y, layout.test),
        classes=_CLASSES,
        mean=(0.2860,),
        std=(0.3530,),
    )


def _locate(place: Place, layout: Layout) -> list[Path]:
    names = [file.name for file in layout.files]
    for folder in place.folders:
        below = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
        for candidate in (folder, *below):
            found = [_packed_or_not(candidate, name) for name in names]
            if all(found):
                return [path for path in found if path is not None]
    if not place.download:
        raise place.missing(f"{', '.join(names)}, packed or not, in one folder")
    return [_packed_or_not(place.home, file.name) or place.fetch(file) for file in layout.files]


def _packed_or_not(folder: Path, name: str) -> Path | None:
    paths = (folder / name, folder / name.removesuffix(".gz"))
    return next((path for path in paths if os.path.isfile(path)), None)


def _images(path: Path, count: int) -> np.ndarray:
    return read_idx(path, (count, 28, 28))[:, None]


def _labels(path: Path, count: int) -> np.ndarray:
    return check_labels(path, read_idx(path, (count,)), 0, len(_CLASSES) - 1)


def read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The bytes of an idx file, which must have exactly this shape."""
    header = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
    expected = len(header) + math.prod(shape)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(expected + 1)  # one more, to notice a longer file without unpacking all of it
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        size = path.stat().st_size
        raise broken(path, f"{size:,} bytes that do not unpack to the expected {expected:,}: {error}") from error
    if content and content[:4] != header[:4]:
        raise broken(path, f"expected an idx file that begins with {header[:4].hex()}, got {content[:4].hex()}")
    if len(content) >= len(header) and content[: len(header)] != header:
        got = struct.unpack(f">{len(shape)}I", content[4 : len(header)])
        raise broken(path, f"expected shape {shape}, got {got}")
    check_length(path, len(content), expected)
    return np.frombuffer(bytearray(content), np.uint8, offset=len(header)).reshape(shape)
