"""The data sets, read from small files in their published layouts."""

from __future__ import annotations

import gzip
import hashlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from local_server import serving
from published_layouts import (
    READ,
    TINY,
    check_cifar,
    fashion_files,
    pack,
    read,
    write,
    write_cifar_binary,
    write_cifar_python,
    write_fashion,
    write_stl10,
)

from instant.data.sources import SOURCES, default_root, digits, fashion_mnist, load
from instant.data.sources.base import image_statistics
from instant.errors import InputError


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    """Sets of a few images in place of the full ones, and a data folder of our own."""
    for name, layout in TINY.items():
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], read=partial(READ[name], layout=layout)))
    monkeypatch.setenv("INSTANT_DATA", str(tmp_path / "default"))


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_binary(name, tmp_path):
    write_cifar_binary(tmp_path, name)
    check_cifar(read(name, tmp_path), name)


@pytest.mark.parametrize("form", ["python2", "2", "3", "4"])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_python_equals_binary(name, form, tmp_path):
    write_cifar_python(tmp_path, name, form)
    check_cifar(read(name, tmp_path), name)


@pytest.mark.parametrize("form", ["binary", "python"])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_archives(name, form, tmp_path):
    (write_cifar_binary if form == "binary" else write_cifar_python)(tmp_path, name)
    published = getattr(TINY[name], form)
    pack(tmp_path, published.folder, published.archive)
    check_cifar(read(name, tmp_path), name)
    assert sorted(os.listdir(tmp_path)) == sorted([published.archive, published.folder])


def test_stl10_columns_become_rows_and_the_unlabelled_have_no_target(tmp_path):
    images = write_stl10(tmp_path)
    source = read("stl10", tmp_path)
    np.testing.assert_array_equal(source.train.samples, np.concatenate([images["train"], images["unlabeled"]]))
    np.testing.assert_array_equal(source.test.samples, images["test"])
    assert source.targets.tolist() == [0, 9, 4, -1, -1, -1, -1]
    assert source.test_targets.tolist() == [1, 8]
    assert isinstance(source.train.samples, np.memmap)
    assert len(source.classes) == 10


def test_stl10_pool_is_made_once_and_again_when_it_must(tmp_path):
    images = write_stl10(tmp_path)
    read("stl10", tmp_path)
    folder = tmp_path / "stl10_binary"
    pool = folder / "pool.npy"
    first = pool.stat().st_mtime_ns
    read("stl10", tmp_path)
    assert pool.stat().st_mtime_ns == first
    pool.write_bytes(pool.read_bytes()[:1000])
    assert read("stl10", tmp_path).train.samples.shape == (7, 3, 96, 96)
    (folder / "train_X.bin").write_bytes(bytes(3 * 27648))
    later = pool.stat().st_mtime_ns + 10**9
    os.utime(folder / "train_X.bin", ns=(later, later))
    samples = read("stl10", tmp_path).train.samples
    assert samples[:3].max() == 0
    np.testing.assert_array_equal(samples[3:], images["unlabeled"])


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("where", [".", "fashion", "fashion_mnist/raw"])
def test_fashion_mnist(packed, where, tmp_path):
    write_fashion(tmp_path / where, packed)
    source = read("fashion_mnist", tmp_path)
    train_x, train_y, test_x, test_y = fashion_files()[1]
    np.testing.assert_array_equal(source.train.samples, train_x[:, None])
    np.testing.assert_array_equal(source.targets, train_y)
    np.testing.assert_array_equal(source.test.samples, test_x[:, None])
    np.testing.assert_array_equal(source.test_targets, test_y)
    assert source.mirror
    assert source.train.samples.flags.writeable


def test_digits():
    source = load("digits")
    assert source.train.samples.shape == (1437, 1, 16, 16)
    assert source.test.samples.shape == (360, 1, 16, 16)
    assert not source.mirror
    assert (source.train.samples.min(), source.train.samples.max()) == (0, 255)
    share = 360 / 1797 * np.bincount(np.concatenate([source.targets, source.test_targets]))
    assert np.abs(np.bincount(source.test_targets) - share).max() < 1.5
    scaled = source.train.samples / 255
    assert source.mean == pytest.approx([scaled.mean()])
    assert source.std == pytest.approx([scaled.std()])


def test_digits_are_enlarged_smoothly():
    flat = digits.enlarged(np.full((1, 8, 8), 100.0))
    assert flat.shape == (1, 1, 16, 16)
    assert (flat == 100).all()
    ramp = digits.enlarged(np.tile(np.arange(8) * 32.0, (1, 8, 1)))[0, 0]
    # pixel i of the large image lies at (i + 1/2) / 2 - 1/2 of the small one; cubic interpolation of a ramp is close
    np.testing.assert_allclose(ramp[8, 4:12], (np.arange(4, 12) / 2 - 0.25) * 32, atol=3)


def test_digits_are_held_out_the_same_way_for_ever():
    from sklearn.datasets import load_digits

    held = np.flatnonzero(digits.held_out(load_digits().target))
    assert held[:8].tolist() == [1, 4, 6, 7, 13, 40, 44, 52]
    assert len(held) == 360


def test_statistics_by_hand():
    images = np.zeros((2, 2, 1, 2), np.uint8)
    images[:, 0] = [[0, 255]]
    images[:, 1] = 51
    assert image_statistics(images) == ((0.5, pytest.approx(0.2)), (0.5, 1.0))


FILES = {
    "cifar10": ("cifar-10-batches-bin/data_batch_3.bin", 4 * 3073),
    "cifar100": ("cifar-100-binary/train.bin", 7 * 3074),
    "stl10": ("stl10_binary/unlabeled_X.bin", 4 * 27648),
    "fashion_mnist": ("train-images-idx3-ubyte", 16 + 5 * 784),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", ["empty", "cut short", "too long"])
def test_a_wrong_length_is_one_sentence(name, change, tmp_path):
    write(name, tmp_path)
    path, expected = tmp_path / FILES[name][0], FILES[name][1]
    content = path.read_bytes()
    assert len(content) == expected
    content = {"empty": b"", "cut short": content[:-1], "too long": content + b"\0"}[change]
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(name, tmp_path)
    assert str(caught.value) == (
        f"{path}: the file is {change}: expected {expected:,} bytes, got {len(content):,}. "
        f"Delete it and load again to get a good copy."
    )


@pytest.mark.parametrize(
    ("name", "file", "at", "sentence"),
    [
        ("cifar10", "cifar-10-batches-bin/test_batch.bin", 3073, "record 1 has label 255, expected 0 to 9"),
        ("cifar100", "cifar-100-binary/test.bin", 2 * 3074 + 1, "record 2 has label 255, expected 0 to 99"),
        ("stl10", "stl10_binary/train_y.bin", 0, "record 0 has label 255, expected 1 to 10"),
        ("fashion_mnist", "t10k-labels-idx1-ubyte", 8, "record 0 has label 255, expected 0 to 9"),
        ("fashion_mnist", "t10k-labels-idx1-ubyte", 2, "begins with 00000801, got 0000ff01"),
        ("fashion_mnist", "t10k-images-idx3-ubyte", 11, r"expected shape \(3, 28, 28\), got \(3, 255, 28\)"),
    ],
)
def test_a_wrong_byte_is_one_sentence(name, file, at, sentence, tmp_path):
    write(name, tmp_path)
    content = bytearray((tmp_path / file).read_bytes())
    content[at] = 255
    (tmp_path / file).write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read(name, tmp_path)


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-9], lambda c: b"no gzip at all", lambda c: c[:30] + b"\xff" * 9 + c[39:]]
)
def test_a_damaged_gzip_is_one_sentence(damage, tmp_path):
    write_fashion(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        InputError, match=r"images-idx3-ubyte\.gz: [\d,]+ bytes that do not unpack to the expected 3,936"
    ):
        read("fashion_mnist", tmp_path)


@pytest.mark.parametrize("where", ["root", "root/cifar10", "default", "default/cifar10"])
def test_where_a_set_is_looked_for(where, tmp_path):
    write_cifar_binary(tmp_path / where, "cifar10")
    root = None if where.startswith("default") else str(tmp_path / "root")
    check_cifar(load("cifar10", root, download=False), "cifar10")


def test_the_inner_folder_itself_may_be_named(tmp_path):
    write_cifar_python(tmp_path, "cifar100")
    check_cifar(read("cifar100", tmp_path / "cifar-100-python"), "cifar100")


@pytest.mark.parametrize("name", TINY)
def test_a_set_that_is_not_there_is_a_sentence(name, tmp_path):
    with pytest.raises(InputError, match=rf"{name} was not found in .*/nowhere or .*/nowhere/{name}: expected .*root="):
        read(name, tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_missing_file_is_named(tmp_path):
    write_cifar_binary(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-bin" / "data_batch_4.bin").unlink()
    with pytest.raises(InputError, match=r"cifar-10-batches-bin lacks data_batch_4\.bin"):
        read("cifar10", tmp_path)


def test_an_unknown_name_and_a_root_that_is_a_file(tmp_path):
    with pytest.raises(InputError, match="'cifar-10': did you mean 'cifar10'"):
        load("cifar-10")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"expected a folder, .*/file is a file"):
        load("cifar10", tmp_path / "file")


def test_default_root(monkeypatch, tmp_path):
    assert default_root() == tmp_path / "default"
    monkeypatch.setenv("INSTANT_DATA", "")
    assert default_root() == Path.home() / ".cache" / "instant"


def test_the_registry_says_what_the_readers_give(tmp_path):
    for name in TINY:
        write(name, tmp_path)
    for name, info in SOURCES.items():
        source = load(name, tmp_path, download=False, progress=False)
        assert (info.name, source.name) == (name, name)
        assert (len(source.classes), source.train.shape) == (info.classes, info.shape)
        assert len(set(source.classes)) == info.classes
        assert len(source.mean) == len(source.std) == info.shape[0]
        assert info.about
        assert info.licence
        assert info.origin.startswith("https://")
        assert (info.download_bytes > 0) == (name != "digits")


def published(remote, content: bytes):
    return replace(remote, size=len(content), sha256=hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize("name", ["cifar10", "stl10"])
def test_an_archive_is_downloaded_checked_unpacked_and_found_again(name, tmp_path, monkeypatch):
    write(name, tmp_path)
    folder = TINY[name].binary.folder if name == "cifar10" else "stl10_binary"
    archive = pack(tmp_path, folder, TINY[name].remote.name)
    content = archive.read_bytes()
    archive.unlink()
    layout = replace(TINY[name], remote=published(TINY[name].remote, content))
    monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], read=partial(READ[name], layout=layout)))
    with serving(files={f"/mirror/{archive.name}": content}) as server:
        first = load(name, progress=False, base_url=f"{server.url}/mirror/")
    again = load(name, download=False)
    np.testing.assert_array_equal(first.train.samples, again.train.samples)
    assert sorted(os.listdir(tmp_path / "default" / name)) == sorted([archive.name, folder])
    with (
        serving(files={f"/{archive.name}": content[:-1] + b"?"}) as server,
        pytest.raises(InputError, match="wrong bytes"),
    ):
        load(name, tmp_path / "other", progress=False, base_url=server.url)
    assert os.listdir(tmp_path / "other" / name) == []


def test_fashion_mnist_downloads_what_is_missing(tmp_path, monkeypatch):
    packed = {name: gzip.compress(content) for name, content in fashion_files()[0].items()}
    files = tuple(published(file, packed[file.name]) for file in TINY["fashion_mnist"].files)
    layout = replace(TINY["fashion_mnist"], files=files)
    entry = replace(SOURCES["fashion_mnist"], read=partial(fashion_mnist.read, layout=layout))
    monkeypatch.setitem(SOURCES, "fashion_mnist", entry)
    home = tmp_path / "fashion_mnist"
    home.mkdir()
    (home / "train-labels-idx1-ubyte").write_bytes(fashion_files()[0]["train-labels-idx1-ubyte.gz"])
    with serving(files={f"/{name}": content for name, content in packed.items()}) as server:
        source = load("fashion_mnist", tmp_path, progress=False, base_url=server.url)
        assert len(server.seen) == 3
    np.testing.assert_array_equal(source.targets, fashion_files()[1][1])
    assert len(read("fashion_mnist", tmp_path / "fashion_mnist").test) == 3
