"""Archives and pickles from strangers: what is wanted gets out, nothing else happens."""

from __future__ import annotations

import _codecs
import io
import os
import pickle
import tarfile

import numpy as np
import pytest
from published_layouts import check_cifar, cifar_batches, pack, read, write_cifar_binary, write_cifar_python

from instant.data.sources import cifar
from instant.errors import InputError


class Call:
    """Pickles to a call of any function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_cannot_run_anything(protocol, tmp_path):
    write_cifar_python(tmp_path, "cifar10")
    mark = tmp_path / "it ran"
    command = f"touch '{mark}'"
    path = tmp_path / "cifar-10-batches-py" / "data_batch_2"
    path.write_bytes(pickle.dumps({"labels": [], "data": Call(os.system, command)}, protocol))
    with pytest.raises(
        InputError, match=r"data_batch_2: the pickle asks for (posix|nt)\.system, .* nothing in it was run"
    ):
        read("cifar10", tmp_path)
    assert not mark.exists()
    pickle.loads(path.read_bytes())
    assert mark.exists(), "the pickle does run where it is let"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (pickle.dumps({"data": Call(eval, "1+1")}), r"asks for builtins\.eval"),
        (pickle.dumps({"data": np.float64(1)}, 2), r"asks for numpy\.\w+\.multiarray\.scalar"),
        (pickle.dumps({"data": np.zeros((4, 3072), np.float32)}, 2), "'f4', expected uint8"),
        (pickle.dumps({"data": np.zeros((4, 3072), object)}, 2), "'O8', expected uint8"),
        (pickle.dumps([1, 2]), "a list, expected a dict"),
        (pickle.dumps({"data": 1}) + b"more", "4 bytes after its end"),
        (pickle.dumps({"data": np.zeros((4, 3072), np.uint8)}, 2)[:-100], "not a whole CIFAR python batch"),
        (pickle.dumps({"data": Call(_codecs.encode, "a", "rot13")}), "expected latin1"),
        (b"", r"\(0 bytes\) is not a whole CIFAR python batch"),
        (pickle.dumps({}), r"expected 'data' of shape \(4, 3072\), got NoneType"),
        (pickle.dumps({"data": np.zeros((4, 3071), np.uint8)}, 2), r"\(4, 3072\), got \(4, 3071\)"),
        (pickle.dumps({"data": np.zeros((4, 3072), np.uint8), "labels": [1, 2]}, 2), "a list of 4 whole numbers"),
        (
            pickle.dumps({"data": np.zeros((4, 3072), np.uint8), "labels": [1, 2, 3, "x"]}, 2),
            "a list of 4 whole numbers",
        ),
        (pickle.dumps({"data": np.zeros((4, 3072), np.uint8), "labels": [1, 2, 10, 3]}, 2), "record 2 has label 10"),
    ],
)
def test_other_pickles_are_refused(content, sentence, tmp_path):
    write_cifar_python(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read("cifar10", tmp_path)


def test_column_major_arrays_in_a_pickle(tmp_path):
    write_cifar_python(tmp_path, "cifar100")
    images, labels = cifar_batches("cifar100")[0]
    batch = {"fine_labels": labels, "data": np.asfortranarray(images.reshape(-1, 3072))}
    (tmp_path / "cifar-100-python" / "train").write_bytes(pickle.dumps(batch, 2))
    check_cifar(read("cifar100", tmp_path), "cifar100")


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "bad",
    [
        member("../escaped.bin"),
        member("cifar-10-batches-bin/../../escaped.bin"),
        member("/tmp/escaped.bin"),
        member("cifar-10-batches-bin/data_batch_1.bin", tarfile.SYMTYPE, "/etc/passwd"),
        member("cifar-10-batches-bin/data_batch_1.bin", tarfile.LNKTYPE, "../secret"),
        member("cifar-10-batches-bin", tarfile.SYMTYPE, "/tmp"),
        member("cifar-10-batches-bin/pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda bad: f"{bad.name} {bad.type.decode()}",
)
def test_an_archive_that_reaches_out_is_refused_whole(bad, tmp_path):
    root = tmp_path / "inner" / "root"
    write_cifar_binary(root, "cifar10")
    archive = root / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root / "cifar-10-batches-bin", "cifar-10-batches-bin")
        tar.addfile(bad, io.BytesIO())
    for file in (root / "cifar-10-batches-bin").iterdir():
        file.unlink()
    (root / "cifar-10-batches-bin").rmdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match="is a link, a device or leads out of the folder"):
        read("cifar10", root)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("cut", [0, 10, 2000, -1])
def test_a_cut_archive_leaves_nothing_behind(cut, tmp_path):
    write_cifar_binary(tmp_path, "cifar10")
    archive = pack(tmp_path, "cifar-10-batches-bin", "cifar-10-binary.tar.gz")
    content = archive.read_bytes()
    archive.write_bytes(content[: len(content) // 2 if cut == -1 else cut])
    with pytest.raises(InputError, match=r"is not a whole \.tar\.gz archive"):
        read("cifar10", tmp_path)
    assert os.listdir(tmp_path) == [archive.name]


def test_an_archive_without_the_files_is_named(tmp_path):
    write_cifar_binary(tmp_path, "cifar100")
    pack(tmp_path, "cifar-100-binary", "cifar-10-binary.tar.gz")
    with pytest.raises(InputError, match=r"does not hold cifar-10-batches-bin/data_batch_1\.bin, "):
        read("cifar10", tmp_path)


def test_only_what_is_missing_is_unpacked_and_nothing_else(tmp_path):
    write_cifar_binary(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-bin" / "readme.html").write_text("hello")
    pack(tmp_path, "cifar-10-batches-bin", "cifar-10-binary.tar.gz")
    read("cifar10", tmp_path)
    folder = tmp_path / "cifar-10-batches-bin"
    assert sorted(os.listdir(folder)) == sorted(cifar.CIFAR10.binary.files)
    kept = (folder / "data_batch_1.bin").stat().st_ino
    (folder / "data_batch_2.bin").unlink()
    check_cifar(read("cifar10", tmp_path), "cifar10")
    assert (folder / "data_batch_1.bin").stat().st_ino == kept
