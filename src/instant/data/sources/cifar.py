"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): 50,000 + 10,000 colour images of 32 x 32.

A binary record is one label byte (CIFAR-100: coarse, then fine) and 3 x 32 x 32 pixels, channel by channel, row by
row. The python batches hold the same pixels as the rows of an array.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from instant.data.source import Source
from instant.data.sources.base import Form, Place, RemoteFile, broken, check_labels, locate, read_exact
from instant.data.sources.unpickle import read_batch
from instant.data.store import Store

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What differs between the two sets."""

    name: str
    classes: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    binary: Form  # training files in order, the test file last, in both forms
    python: Form
    label_key: str  # of the python batches
    label_bytes: int  # in front of a binary record; the last one counts
    train_records: int  # in each training file
    test_records: int
    remote: RemoteFile


CIFAR10 = Layout(
    name="cifar10",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    binary=Form(
        archive="cifar-10-binary.tar.gz",
        folder="cifar-10-batches-bin",
        files=(*(f"data_batch_{part}.bin" for part in range(1, 6)), "test_batch.bin"),
    ),
    python=Form(
        archive="cifar-10-python.tar.gz",
        folder="cifar-10-batches-py",
        files=(*(f"data_batch_{part}" for part in range(1, 6)), "test_batch"),
    ),
    label_key="labels",
    label_bytes=1,
    train_records=10_000,
    test_records=10_000,
    remote=RemoteFile(
        base_url="https://www.cs.toronto.edu/~kriz",
        name="cifar-10-binary.tar.gz",
        size=170_052_171,
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
)

CIFAR100 = Layout(
    name="cifar100",
    classes=tuple(
        """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
        castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
        elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
        man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
        pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
        skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
        tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm""".split()  # noqa: SIM905 -- a hundred quotes are harder to read
    ),
    mean=(0.5071, 0.4866, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    binary=Form(archive="cifar-100-binary.tar.gz", folder="cifar-100-binary", files=("train.bin", "test.bin")),
    python=Form(archive="cifar-100-python.tar.gz", folder="cifar-100-python", files=("train", "test")),
    label_key="fine_labels",
    label_bytes=2,
    train_records=50_000,
    test_records=10_000,
    remote=RemoteFile(
        base_url="https://www.cs.toronto.edu/~kriz",
        name="cifar-100-binary.tar.gz",
        size=168_513_733,
        sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
)


def read(place: Place, layout: Layout) -> Source:
    """The set in whichever form is at hand."""
    form, folder = locate(place, (layout.binary, layout.python), layout.remote)
    read_file = _read_binary if form is layout.binary else _read_python
    *train, test = [
        read_file(folder / file, layout, layout.test_records if file == form.files[-1] else layout.train_records)
        for file in form.files
    ]
    images, targets = (np.concatenate(parts) for parts in zip(*train))
    return Source(
        name=layout.name,
        train=Store(images, f"{layout.name} train"),
        targets=targets,
        test=Store(test[0], f"{layout.name} test"),
        test_targets=test[1],
        classes=layout.classes,
        mean=layout.mean,
        std=layout.std,
    )


def _read_binary(path: Path, layout: Layout, records: int) -> tuple[np.ndarray, np.ndarray]:
    rows = read_exact(path, (records, layout.label_bytes + _PIXELS))
    labels = check_labels(path, rows[:, layout.label_bytes - 1], 0, len(layout.classes) - 1)
    return np.ascontiguousarray(rows[:, layout.label_bytes :]).reshape(-1, 3, 32, 32), labels


def _read_python(path: Path, layout: Layout, records: int) -> tuple[np.ndarray, np.ndarray]:
    batch = read_batch(path)
    data, labels = batch.get("data"), batch.get(layout.label_key)
    if not isinstance(data, np.ndarray) or data.shape != (records, _PIXELS):
        got = data.shape if isinstance(data, np.ndarray) else type(data).__name__
        raise broken(path, f"expected 'data' of shape ({records}, {_PIXELS}), got {got}")
    if not isinstance(labels, list) or len(labels) != records or not all(type(label) is int for label in labels):
        raise broken(path, f"expected {layout.label_key!r} to be a list of {records} whole numbers")
    return data.reshape(-1, 3, 32, 32), check_labels(path, np.array(labels), 0, len(layout.classes) - 1)
