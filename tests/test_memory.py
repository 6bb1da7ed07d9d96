"""What is kept for every file: its name, in few bytes. Decoding, matching labels and labelling keep nothing more."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from runs import points

from instant.data import store as stores
from instant.data.folder import cache
from instant.data.folder.labels import match_labels
from instant.data.folder.listing import list_unlabelled
from instant.data.folder.names import Names
from instant.data.folder.shards import Shard
from instant.data.store import Store, batches, let_go
from instant.engine.fit import fit
from instant.labelling.formats import FORMATS
from instant.labelling.stream import label
from instant.run import Run


def peak(work: Callable[[], object]) -> int:
    """Bytes that Python and numpy had at most beyond those before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def resident(path: Path) -> int:
    """Bytes of a mapped file that count as memory of this process."""
    found, here = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            here = line.endswith(str(path))
        elif here and line.startswith("Rss:"):
            found += 1024 * int(line.split()[1])
    return found


def test_names_are_those_that_were_given() -> None:
    given = ["a.png", "", "ä/日本.png", "not\udcffutf8.png", "a.png"]
    names = Names(given)
    assert list(names) == given
    assert [names[at] for at in (0, 2, -1, -5)] == ["a.png", "ä/日本.png", "a.png", "a.png"]
    assert (names[1:4], names[::2], names[9:]) == (given[1:4], given[::2], [])
    assert (len(names), bool(names), bool(Names())) == (5, True, False)
    with pytest.raises(IndexError):
        names[5]


def test_a_name_takes_its_length_and_eight_bytes() -> None:
    """10,000 names of 20 letters: 28 bytes each, an eighth more as blocks grow; as strings they take 77."""
    assert peak(lambda: Names(f"{number:020d}" for number in range(10_000))) < 10_000 * 28 * 1.2


def test_a_listing_keeps_names_alone(tmp_path: Path) -> None:
    """The names of one folder are sorted as strings, of 60 bytes and a pointer; then they take 11 bytes and 8."""

    for number in range(2000):
        (tmp_path / f"{number:07d}.png").touch()
    list_unlabelled(tmp_path, [])  # Python keeps up to 2,000 tuples for the next who needs one
    assert peak(lambda: list_unlabelled(tmp_path, [])) / 2000 < 68 + 19 + 20  # lists grow ahead of need


def test_matching_keeps_what_is_asked_for() -> None:
    names = Names(f"deep/{number:06d}.png" for number in range(5000))
    files = ["deep/000007.png", "000008.png", "gone.png"]
    found: dict[str, str] = {}
    assert peak(lambda: found.update(match_labels(files, ["a", "b", "c"], names, Path("p"), []))) < 5000 * 8
    assert found == {"deep/000007.png": "a", "deep/000008.png": "b"}


def test_shards_are_asked_for_when_their_turn_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pool:
        def submit(self, work: Callable[[Shard], int], shard: Shard) -> Future[int]:
            done: Future[int] = Future()
            done.set_result(len(shard.names))
            return done

    @contextmanager
    def pool(workers: int) -> Iterator[Pool]:
        yield Pool()

    asked = 0

    def shards() -> Iterator[Shard]:
        nonlocal asked
        for asked in range(1, 101):
            yield Shard(Path(), ["x"] * asked, Path(), 8, 3)

    monkeypatch.setattr(cache, "pool", pool)
    monkeypatch.setattr(cache.os, "sched_getaffinity", lambda _: {0, 1})
    for finished, files in enumerate(cache._decode_all(shards(), 100), start=1):
        assert files == finished
        assert asked == min(100, finished + 2 * cache.AHEAD - 1)
    assert finished == 100


@pytest.mark.parametrize("form", FORMATS)
def test_labelling_takes_as_much_for_many_as_for_few(tmp_path: Path, form: str) -> None:
    """Ten times the rows: eight bytes for the number of each, and a shard at a time of all else."""
    recipe, split = points("instant", steps="2")
    run = Run(tmp_path / "run")
    fit(recipe, split, run=run)
    usual, arrow, python = pa.default_memory_pool(), [], []
    for count in (200, 400, 4000):  # the first loads what is loaded once
        path = tmp_path / f"{count}.npy"
        np.save(path, np.random.default_rng(0).normal(size=(count, 5)).astype(np.float32))
        pool = pa.proxy_memory_pool(usual)
        pa.set_memory_pool(pool)
        try:
            outs = [
                path.with_suffix(f".{again}") for again in (1, 2)
            ]  # the less of two: other threads may allocate too
            python.append(min(peak(lambda p=path, o=o: label(run, o, path=p, form=form, block=100)) for o in outs))  # type: ignore[misc]
        finally:
            pa.set_memory_pool(usual)
        arrow.append(pool.max_memory())
    assert 0 < arrow[2] < 1.5 * arrow[1]
    assert python[2] - python[1] < 3600 * 40


def test_pages_of_a_file_are_given_back(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(range(256)) * 1024)
    read = np.memmap(path, np.uint8, "r", shape=(16, 1, 128, 128))
    assert int(read.max()) == 255
    assert resident(path) == 2**18
    let_go(Store(read).samples)
    assert resident(path) == 0
    assert int(read[0, 0, 0, 7]) == 7
    changed = np.memmap(path, np.uint8, "c", shape=(2**18,))
    changed[3] = 99
    let_go(changed)
    assert changed[3] == 99  # it is in no file
    let_go(np.zeros(3))


def test_labelled_samples_are_given_back(tmp_path: Path) -> None:
    recipe, split = points("instant", steps="2")
    run = Run(tmp_path / "run")
    fit(recipe, split, run=run)
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((2000, 5), np.float32))
    left: list[int] = []
    label(run, tmp_path / "x.csv", path=path, form="csv", block=500, report=lambda *_: left.append(resident(path)))
    assert left[1:] == [0] * 4  # the first is before any block


def test_a_cpu_is_given_few_rows_at_once() -> None:
    store = Store(np.arange(600, dtype=np.float32).reshape(300, 2))
    for rows in (None, np.arange(300)[::-1]):
        found = list(batches(store, torch.device("cpu"), rows))
        assert [len(block) for block in found] == [128, 128, 44]
        expected = store.samples if rows is None else store.samples[rows]
        assert torch.equal(torch.cat(found), torch.tensor(expected))


def test_large_samples_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "BLOCK", 3 * 8 * 8 + 1)
    store = Store(np.zeros((5, 3, 8, 8), np.uint8))
    assert [len(block) for block in batches(store, torch.device("cpu"))] == [1] * 5


@pytest.mark.parametrize(("side", "most"), [(8, 1024), (32, 1024), (64, 256), (96, 113), (512, 16)])
def test_a_gpu_is_given_fewer_images_the_larger_they_are(side: int, most: int) -> None:
    store = Store(np.broadcast_to(np.zeros((1, 3, 1, 1), np.uint8), (most + 1, 3, side, side)))
    assert [len(block) for block in batches(store, torch.device("meta"))] == [most, 1]
