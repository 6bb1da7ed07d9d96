"""Samples that stay in host memory or on disk: the same views, one thread that comes and goes, bounded memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import ENVIRONMENT, StopAt, assert_equal, assert_same_run, points, small

from instant.augment import for_images, for_vectors
from instant.data import sampler, store
from instant.data.feed import Feed
from instant.data.samples import AHEAD, Streamed
from instant.data.source import Source
from instant.data.sources import arrays, load
from instant.data.split import Split, make_split
from instant.data.store import Store
from instant.engine.build import build_program, why_streamed
from instant.engine.fit import Callback, Interrupted, fit
from instant.engine.metrics import predict
from instant.errors import InputError
from instant.run import Run
from instant.types import Prediction, Views, Wants

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
CPU = torch.device("cpu")


def mapped(path: Path, samples: np.ndarray) -> np.ndarray:
    """The same samples in a file that is mapped for reading only."""
    np.save(path, samples)
    return np.load(path, mmap_mode="r")


def make_feed(split: Split, *, streamed: bool, wants: Wants | None = None) -> Feed:
    weak, strong = for_images(1, mirror=False) if split.train.is_images else for_vectors()
    return Feed(
        split, batch=8, ratio=4, wants=wants or Wants(), weak=weak, strong=strong, seed=3, streamed=streamed
    )  # fmt: skip


def digits_split() -> Split:
    return make_split(load("digits"), labels=10, validation=10)


def vector_split() -> Split:
    x = np.random.default_rng(0).normal(size=(90, 5))
    return make_split(arrays(x, np.arange(90) % 3), labels=3)


def at(feed: Feed, step: int) -> Views:
    feed.prepare(step)
    return feed(torch.tensor(step, device=feed.key.device))


def assert_equal_views(found: Views, expected: Views) -> None:
    for name, one, other in zip(Views._fields, found, expected, strict=True):
        assert torch.equal(one, other), name


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("instant-samples")]


# --- the same views -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_split", [digits_split, vector_split])
@pytest.mark.parametrize("wants", [Wants(), Wants(weak=False, second="none")])
def test_streamed_views_are_the_resident_ones(
    make_split: object, wants: Wants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "WINDOW", 1)  # two epochs of the pool and fewer: renewed every few steps
    split = make_split()  # type: ignore[operator]
    resident, streamed = (make_feed(split, streamed=streamed, wants=wants) for streamed in (False, True))
    # 8 of 10 or 3 labels and 32 of 1427 or 90 samples a step: epochs end within and between the steps
    for step in [*range(100), 7, 7, 8, 9, 60, 12345, 12346, 0]:
        assert_equal_views(at(streamed, step), at(resident, step))


def test_the_batch_holds_the_rows_in_the_order_of_the_views() -> None:
    images = np.broadcast_to(np.arange(60, dtype=np.uint8)[:, None, None], (60, 4, 4))
    split = make_split(arrays(images, np.arange(60) % 3), labels=6, validation=3)
    feed = make_feed(split, streamed=True)
    assert isinstance(feed.samples, Streamed)
    address = feed.samples.batch.data_ptr()
    for step in (0, 1, 30):
        index = at(feed, step).index
        rows = feed.samples.batch[:, 0, 0, 0].long()
        assert set(rows[:8].tolist()) <= set(split.labelled.tolist())
        assert torch.equal(rows[8:], torch.from_numpy(split.pool)[index])
    assert feed.samples.batch.data_ptr() == address


def test_compiled_streamed_views_are_the_resident_ones() -> None:
    """Traced whole, as for a compiled step, and run by torch's own kernels: building others takes a minute."""
    split = vector_split()
    feeds = [make_feed(split, streamed=streamed) for streamed in (False, True)]
    drawing = [torch.compile(feed.forward, dynamic=False, fullgraph=True, backend="aot_eager") for feed in feeds]
    for step in (0, 1, 50):
        for feed in feeds:
            feed.prepare(step)
        resident, streamed = (draw(torch.tensor(step)) for draw in drawing)
        assert_equal_views(streamed, resident)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_file_that_may_only_be_read_stays_mapped(streamed: bool, tmp_path: Path) -> None:
    whole = load("digits")
    samples = mapped(tmp_path / "digits.npy", whole.train.samples)
    source = Source(**vars(whole) | {"train": Store(samples)})
    feed = make_feed(make_split(source, labels=10), streamed=streamed)
    held = feed.samples._gather.source if isinstance(feed.samples, Streamed) else feed.samples.data
    assert np.shares_memory(held.numpy(), samples)
    expected = make_feed(make_split(whole, labels=10), streamed=False)
    for step in (0, 1, 40):
        assert_equal_views(at(feed, step), at(expected, step))


# --- training -------------------------------------------------------------------------------------------------


class Notes(Callback):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize("method", ["instant", "flexmatch"])
def test_a_streamed_run_stopped_and_resumed_is_the_resident_one(
    method: str, whole: dict[str, Run], tmp_path: Path
) -> None:
    recipe, split = small(method, memory="0")
    run, notes = Run(tmp_path / "run"), Notes()
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[notes, StopAt(9)])
    assert not threads()
    fit(run.recipe(), split, run=run, resume=True)
    assert_same_run(run, whole[method])
    assert not threads()
    # 1,437 images of 16 x 16 bytes
    assert notes.said == [
        "samples stay in host memory (0.4 MiB, more than the 0.0 MiB of device memory they may take): batches are "
        "fetched ahead"
    ]


def test_resident_or_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros((64, 1, 128, 128), np.uint8)  # 1 MiB
    split = make_split(arrays(x, [0, 1] * 32), labels=2)
    assert why_streamed(None, split, CPU) is None
    assert why_streamed(1.0, split, CPU) is None
    assert why_streamed(0.99, split, CPU) is not None
    free = 2 * 2**20
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 100 * free))
    assert why_streamed(None, split, gpu) is None
    assert why_streamed(0.5, split, gpu) is not None
    free -= 1
    assert "(1.0 MiB, more than the 1.0 MiB" in str(why_streamed(None, split, gpu))
    assert why_streamed(2.0, split, gpu) is None


# --- the thread -----------------------------------------------------------------------------------------------


def test_an_error_of_the_thread_is_raised_at_its_step_and_is_not_kept() -> None:
    split = vector_split()
    feed, expected = make_feed(split, streamed=True), make_feed(split, streamed=False)
    assert isinstance(feed.samples, Streamed)
    gather, failing = feed.samples._gather, [5]

    def reading(step: int, out: torch.Tensor) -> None:
        if step in failing:
            raise OSError("the disk is gone")
        gather(step, out)

    feed.samples._gather = reading  # type: ignore[assignment]
    for step in range(5):
        assert_equal_views(at(feed, step), at(expected, step))
    with pytest.raises(OSError, match="the disk is gone"):
        feed.prepare(5)
    failing[:] = [9]
    for step in range(5, 9):
        assert_equal_views(at(feed, step), at(expected, step))
    with pytest.raises(OSError, match="the disk is gone"):
        feed.prepare(9)
    assert_equal_views(at(feed, 10), at(expected, 10))


def test_the_thread_gathers_ahead_while_the_step_runs() -> None:
    feed = make_feed(vector_split(), streamed=True)
    assert isinstance(feed.samples, Streamed)
    gather, seen = feed.samples._gather, []
    reached = threading.Event()

    def noted(step: int, out: torch.Tensor) -> None:
        seen.append(step)
        gather(step, out)
        if step == 10 + AHEAD:
            reached.set()

    feed.samples._gather = noted  # type: ignore[assignment]
    feed.prepare(10)
    assert reached.wait(timeout=60)  # without anybody asking for steps 11 to 14
    assert seen == list(range(10, 11 + AHEAD))


def test_the_thread_ends_with_its_feed() -> None:
    def used() -> None:
        at(make_feed(vector_split(), streamed=True), 0)

    used()
    left = threads()
    gc.collect()
    for thread in left:
        thread.join(timeout=60)
    assert not threads()

    feed = make_feed(vector_split(), streamed=True)
    first = at(feed, 0)
    assert threads()
    feed.close()
    assert not threads()
    assert_equal_views(at(feed, 0), first)
    feed.close()


def test_the_thread_keeps_no_process_from_ending() -> None:
    program = """
import numpy as np
from instant import recipes
from instant.data.sources import arrays
from instant.engine.build import build_program, split_for
recipe = recipes.vectors(labels=4).override({"batch": "4", "memory": "0"})
program = build_program(recipe, split_for(recipe, arrays(np.random.normal(size=(40, 4)), [0, 1] * 20)))
program(0)
raise SystemExit(3)
"""
    done = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, timeout=120, capture_output=True)
    assert done.returncode == 3, done.stderr


# --- bounded memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_a_mapped_file_is_never_read_whole(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BLOCK", 1 << 16)
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (1000, 3, 64, 64), np.uint8) if kind == "images" else random.normal(size=(1000, 3072))
    samples = mapped(tmp_path / "x.npy", x.astype(np.uint8 if kind == "images" else np.float32))
    y, size = np.arange(1000) % 2, samples.nbytes  # 12.3 MB
    x = None  # type: ignore[assignment]

    def network(rows: torch.Tensor) -> Prediction:
        return Prediction(rows.flatten(1)[:, :2], rows)

    tracemalloc.start()
    try:
        source = arrays(samples, y, samples, y)
        split = make_split(source, labels=2)
        assert split.hash
        for streamed in (False, True):
            feed = Feed(
                split, batch=2, ratio=2, wants=Wants(), weak=lambda x, _: x, strong=lambda x, _: x, seed=0,
                streamed=streamed,
            )  # fmt: skip
            at(feed, 0)
            predict(_Module(network), source.test, feed.normalise, device=CPU)
            feed.close()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size / 8, peak


class _Module(torch.nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Prediction:
        return self.function(x)  # type: ignore[operator]


def test_statistics_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (50, 3, 4, 4), np.uint8)
    vectors = (100 + 10 * random.normal(size=(50, 3))).astype(np.float32)
    vectors[:, 1] = 0.1
    y = [0, 1] * 25
    whole = [arrays(x, y) for x in (images, vectors)]
    monkeypatch.setattr(store, "BLOCK", 7 * 48)  # 7 images, or 28 vectors of 12 bytes: the last block is shorter
    parts = [arrays(x, y) for x in (images, vectors)]
    assert (parts[0].mean, parts[0].std) == (whole[0].mean, whole[0].std)
    np.testing.assert_allclose(parts[1].mean, vectors.mean(axis=0, dtype=np.float64), rtol=1e-14)
    deviation = vectors.std(axis=0, dtype=np.float64)
    np.testing.assert_allclose(parts[1].std, [deviation[0], 1.0, deviation[2]], rtol=1e-14)


def test_a_number_that_is_not_finite_is_found_in_a_later_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BLOCK", 8 * 4)  # 4 rows
    vectors = np.zeros((11, 2), np.float32)
    Store(vectors)
    vectors[9, 1] = vectors[10, 0] = np.inf
    with pytest.raises(InputError, match=r"^mine: row 9, column 1 is inf; every feature must be a finite number"):
        Store(vectors, "mine")
    with pytest.raises(InputError, match=r"^x: row 9, column 1 is inf, expected a finite number"):
        arrays(vectors, [0] * 11)


# --- on a GPU -------------------------------------------------------------------------------------------------


@on_a_gpu
def test_on_a_gpu_streamed_views_are_the_resident_ones() -> None:
    split = digits_split()
    resident, streamed = (make_feed(split, streamed=streamed).to("cuda") for streamed in (False, True))
    load = torch.randn(4096, 4096, device="cuda")
    expected, found = [], []
    steps = [*range(60), 7, 7, 8, 9, 60, 12345, 12346, 0]
    for feed, views in ((resident, expected), (streamed, found)):
        for step in steps:
            views.append(at(feed, step))
            load = (load @ load).clamp(-1, 1)  # the device falls behind the host, as in training
    for one, other in zip(found, expected):
        assert_equal_views(one, other)
    assert streamed.samples._slots[0].host.is_pinned()  # type: ignore[union-attr]


@on_a_gpu
@pytest.mark.parametrize("way", ["eager", "compiled", "captured"])
def test_on_a_gpu_a_streamed_step_sees_what_a_resident_one_sees(way: str) -> None:
    programs = [build_program(*points("instant", device="cuda", step=way, memory=memory)) for memory in ("1", "0")]
    for step in (0, 1, 2, 3, 4, 5):
        for program in programs:
            program(step)
    assert isinstance(programs[1].feed.samples, Streamed)
    assert not isinstance(programs[0].feed.samples, Streamed)
    batch = programs[1].feed.samples.batch
    torch.cuda.synchronize()
    held = 6 if way == "captured" else 5  # a captured step draws the views of the next one
    rows = programs[0].feed.draw(torch.tensor(held, device="cuda")).rows
    assert torch.equal(batch, programs[0].feed.samples(rows))
    if way == "eager":  # compiled kernels may round otherwise where the samples come from another place
        assert_equal(programs[1].tensors(), programs[0].tensors())
    else:
        for name, value in programs[0].tensors().items():
            torch.testing.assert_close(programs[1].tensors()[name], value, rtol=1e-3, atol=1e-4, msg=name)
