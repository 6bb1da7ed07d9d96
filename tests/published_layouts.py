"""Sets of a few images in their published layouts, written byte by byte."""

from __future__ import annotations

import gzip
import pickle
import struct
import tarfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from instant.data.source import Source
from instant.data.sources import cifar, fashion_mnist, stl10
from instant.data.sources.base import Place

TINY = {
    "cifar10": replace(cifar.CIFAR10, train_records=4, test_records=3),
    "cifar100": replace(cifar.CIFAR100, train_records=7, test_records=3),
    "stl10": replace(stl10.STL10, train=3, test=2, unlabelled=4),
    "fashion_mnist": replace(fashion_mnist.FASHION_MNIST, train=5, test=3),
}
READ = {"cifar10": cifar.read, "cifar100": cifar.read, "stl10": stl10.read, "fashion_mnist": fashion_mnist.read}


def read(name: str, root: Path) -> Source:
    """A small set by its reader, without the registry."""
    place = Place(name=name, folders=(root, root / name), home=root, download=False, progress=False)
    return READ[name](place, layout=TINY[name])


def pixels(rng, *shape):
    return rng.integers(0, 256, shape, dtype=np.uint8)


def cifar_batches(name: str) -> list[tuple[np.ndarray, list[int]]]:
    layout, rng = TINY[name], np.random.default_rng(0)
    counts = [layout.train_records] * (len(layout.binary.files) - 1) + [layout.test_records]
    return [(pixels(rng, n, 3, 32, 32), rng.integers(0, len(layout.classes), n).tolist()) for n in counts]


def write_cifar_binary(root: Path, name: str) -> None:
    layout = TINY[name]
    folder = root / layout.binary.folder
    folder.mkdir(parents=True)
    for file, (images, labels) in zip(layout.binary.files, cifar_batches(name)):
        coarse = b"" if name == "cifar10" else b"\x13"
        records = [coarse + bytes([label]) + image.tobytes() for image, label in zip(images, labels)]
        (folder / file).write_bytes(b"".join(records))


def python2_batch(key: str, images: np.ndarray, labels: list[int]) -> bytes:
    """The opcodes that Python 2's cPickle wrote for the published batches."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<I", len(value)) + value

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = (
        b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN" + integer(-1) * 2 + b"K\x00tb"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    shape = integer(len(images)) + integer(3072) + b"\x86"
    array += b"(K\x01" + shape + dtype + b"\x89" + text(images.tobytes()) + b"tb"
    numbers = b"](" + b"".join(integer(label) for label in labels) + b"e"
    label = text(b"batch_label") + text(b"training batch 1 of 5")
    return b"\x80\x02}(" + label + text(key.encode()) + numbers + text(b"data") + array + b"u."


def write_cifar_python(root: Path, name: str, form: str = "python2") -> None:
    layout = TINY[name]
    folder = root / layout.python.folder
    folder.mkdir(parents=True)
    for file, (images, labels) in zip(layout.python.files, cifar_batches(name)):
        content = python2_batch(layout.label_key, images, labels)
        if form != "python2":
            batch = {layout.label_key: labels, "data": images.reshape(-1, 3072)}
            content = pickle.dumps(batch, protocol=int(form))
        (folder / file).write_bytes(content)


def write_stl10(root: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    folder = root / "stl10_binary"
    folder.mkdir(parents=True)
    images = {
        "train": pixels(rng, 3, 3, 96, 96),
        "test": pixels(rng, 2, 3, 96, 96),
        "unlabeled": pixels(rng, 4, 3, 96, 96),
    }
    for part, block in images.items():
        columns = [bytes(image[c, :, column]) for image in block for c in range(3) for column in range(96)]
        (folder / f"{part}_X.bin").write_bytes(b"".join(columns))
    (folder / "train_y.bin").write_bytes(bytes([1, 10, 5]))
    (folder / "test_y.bin").write_bytes(bytes([2, 9]))
    return images


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def fashion_files() -> tuple[dict[str, bytes], list[np.ndarray]]:
    rng = np.random.default_rng(0)
    arrays = [
        pixels(rng, 5, 28, 28),
        np.array([9, 0, 3, 3, 1], np.uint8),
        pixels(rng, 3, 28, 28),
        np.array([2, 8, 0], np.uint8),
    ]
    return {file.name: idx(array) for file, array in zip(TINY["fashion_mnist"].files, arrays)}, arrays


def write_fashion(root: Path, packed: bool = True) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, content in fashion_files()[0].items():
        path = root / (name if packed else name.removesuffix(".gz"))
        path.write_bytes(gzip.compress(content) if packed else content)


def pack(root: Path, folder: str, archive: str) -> Path:
    with tarfile.open(root / archive, "w:gz") as tar:
        tar.add(root / folder, folder)
    for file in (root / folder).iterdir():
        file.unlink()
    (root / folder).rmdir()
    return root / archive


def write(name: str, root: Path) -> None:
    {"stl10": write_stl10, "fashion_mnist": partial(write_fashion, packed=False)}.get(
        name, partial(write_cifar_binary, name=name)
    )(root)


def check_cifar(source, name):
    *train, test = cifar_batches(name)
    np.testing.assert_array_equal(source.train.samples, np.concatenate([images for images, _ in train]))
    np.testing.assert_array_equal(source.targets, np.concatenate([labels for _, labels in train]))
    np.testing.assert_array_equal(source.test.samples, test[0])
    np.testing.assert_array_equal(source.test_targets, test[1])
    assert source.targets.dtype == source.test_targets.dtype == np.int64
    assert source.train.samples.flags.writeable
    assert source.test.samples.flags.writeable, "torch warns about arrays that refuse writes"
    assert source.name == name
