"""The data sets by name."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from instant.data.files import expanded
from instant.data.source import Source
from instant.data.sources import cifar, digits, fashion_mnist, stl10
from instant.data.sources.arrays import arrays
from instant.data.sources.base import Place, SourceInfo
from instant.errors import InputError, nearest

__all__ = ["SOURCES", "SourceInfo", "arrays", "default_root", "load"]

_ALL = (
    SourceInfo(
        name="digits",
        about="handwritten digits, 8 x 8 grey enlarged to 16 x 16, 1,437 to train and 360 to test; needs no download",
        classes=10,
        shape=(1, 16, 16),
        origin="https://archive.ics.uci.edu/dataset/80 (inside scikit-learn)",
        licence="CC BY 4.0",
        download_bytes=0,
        read=digits.read,
    ),
    SourceInfo(
        name="cifar10",
        about="photographs of 10 things, 32 x 32 colour, 50,000 to train and 10,000 to test",
        classes=10,
        shape=(3, 32, 32),
        origin="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="none stated; cite Krizhevsky (2009)",
        download_bytes=cifar.CIFAR10.remote.size,
        read=partial(cifar.read, layout=cifar.CIFAR10),
    ),
    SourceInfo(
        name="cifar100",
        about="photographs of 100 things, 32 x 32 colour, 50,000 to train and 10,000 to test",
        classes=100,
        shape=(3, 32, 32),
        origin="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="none stated; cite Krizhevsky (2009)",
        download_bytes=cifar.CIFAR100.remote.size,
        read=partial(cifar.read, layout=cifar.CIFAR100),
    ),
    SourceInfo(
        name="stl10",
        about="photographs of 10 things, 96 x 96 colour, 5,000 to train, 100,000 without label, 8,000 to test",
        classes=10,
        shape=(3, 96, 96),
        origin="https://ai.stanford.edu/~acoates/stl10/",
        licence="none stated; cite Coates, Ng and Lee (2011)",
        download_bytes=stl10.STL10.remote.size,
        read=stl10.read,
    ),
    SourceInfo(
        name="fashion_mnist",
        about="pictures of 10 pieces of clothing, 28 x 28 grey, 60,000 to train and 10,000 to test",
        classes=10,
        shape=(1, 28, 28),
        origin="https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
        download_bytes=sum(file.size for file in fashion_mnist.FASHION_MNIST.files),
        read=fashion_mnist.read,
    ),
)

SOURCES: dict[str, SourceInfo] = {info.name: info for info in _ALL}


def default_root() -> Path:
    """Where data is kept when nobody says: the folder in INSTANT_DATA, else ~/.cache/instant."""
    return expanded(os.environ.get("INSTANT_DATA") or "~/.cache/instant")


def refuse_data(source: str, data: str | None) -> None:
    """A folder that nobody would look into is a mistake."""
    if data is not None and source in SOURCES and not SOURCES[source].download_bytes:
        raise InputError(f"data={data}: {source} reads no files, it comes with a package; leave data= out.")


def load(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    progress: bool = True,
    base_url: str | None = None,
) -> Source:
    """Read a data set, from `root` or `root/<name>` where its files are there, else after a download.

    `base_url` names a mirror that has the same files.

    >>> source = load("digits")
    >>> len(source.train), len(source.test), source.train.shape
    (1437, 360, (1, 16, 16))
    """
    if name not in SOURCES:
        raise InputError(f"There is no data set {name!r}: {nearest(name, SOURCES)}")
    root = default_root() if root is None else expanded(root)
    if root.exists() and not root.is_dir():
        raise InputError(f"root: expected a folder, {root} is a file. Name the folder that holds the set.")
    home = root if root.name == name else root / name
    place = Place(
        name=name,
        folders=tuple(dict.fromkeys((root, root / name))),
        home=home,
        download=download,
        progress=progress,
        base_url=base_url,
    )
    try:
        return SOURCES[name].read(place)
    except OSError as error:
        raise InputError(f"Cannot read {name}: {error}. Check the folder and its permissions.") from error
