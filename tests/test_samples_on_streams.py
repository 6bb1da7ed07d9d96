"""Samples on their way to a GPU, without one: two imagined streams run what they are given in random interleavings."""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from instant import random
from instant.data import samples
from instant.data.sampler import Draw
from instant.data.samples import AHEAD, Streamed


class Event:
    def __init__(self) -> None:
        self.recorded = self.reached = 0

    def record(self, stream: Stream) -> None:
        self.recorded += 1
        number = self.recorded
        stream.add(lambda: setattr(self, "reached", number))

    def synchronize(self) -> None:
        while self.reached < self.recorded:
            assert Stream.run_one()


class Stream:
    """Work in its order, each piece once the events before it are reached, whenever chance says so."""

    every: ClassVar[list[Stream]] = []
    current: ClassVar[Stream]

    def __init__(self, device: object = None) -> None:
        self.queue: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        Stream.every.append(self)

    def add(self, work: Callable[[], None], ready: Callable[[], bool] = lambda: True) -> None:
        self.queue.append((ready, work))

    def wait_event(self, event: Event) -> None:
        number = event.recorded
        self.add(lambda: None, lambda: event.reached >= number)

    @staticmethod
    def run_one() -> bool:
        able = [stream for stream in Stream.every if stream.queue and stream.queue[0][0]()]
        if able:
            chance.choice(able).queue.pop(0)[1]()
        return bool(able)

    @contextmanager
    def use(self) -> Iterator[None]:
        before, Stream.current = Stream.current, self
        yield
        Stream.current = before


class OnDevice:
    """A tensor that is written when its stream comes to it."""

    is_cuda, device = True, None

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.shape, self.dtype = values.shape, values.dtype

    def copy_(self, other: OnDevice | Tensor, non_blocking: bool = False) -> None:
        source = other.values if isinstance(other, OnDevice) else other
        Stream.current.add(lambda: self.values.copy_(source))  # type: ignore[arg-type, return-value]

    def record_stream(self, stream: Stream) -> None: ...


def imagined_torch(compute: Stream) -> SimpleNamespace:
    cuda = SimpleNamespace(Event=Event, Stream=Stream, stream=Stream.use, current_stream=lambda device: compute)
    return SimpleNamespace(
        cuda=cuda,
        tensor=torch.tensor,
        index_select=torch.index_select,
        empty=lambda shape, dtype, pin_memory: torch.empty(shape, dtype=dtype),
        empty_like=lambda like: OnDevice(torch.full(like.shape, -1.0)),
    )


@pytest.mark.parametrize("seed", range(3))
def test_every_step_sees_its_own_samples_however_the_streams_interleave(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance.seed(seed)
    monkeypatch.setattr(Stream, "every", [])
    compute = Stream.current = Stream()
    monkeypatch.setattr(samples, "torch", imagined_torch(compute))
    data = np.arange(4 * 97, dtype=np.float32).reshape(97, 4)
    keys = random.root(0), random.root(1)
    draw, twin = (Draw(np.arange(5), np.arange(97), batch=3, unlabelled=20, keys=keys) for _ in range(2))
    streamed = Streamed(data, twin)
    batch = OnDevice(streamed._buffers.pop("batch"))  # type: ignore[arg-type]
    object.__setattr__(streamed, "batch", batch)
    asked: list[int] = []
    seen: list[Tensor] = []
    step = 0
    for _ in range(400):
        streamed.prepare(step)
        compute.add(lambda: seen.append(batch.values.clone()))
        asked.append(step)
        for _ in range(chance.choice([0, 0, 0, 1, 2, 8])):
            Stream.run_one()
        assert len(asked) - len(seen) <= AHEAD + 1  # the host does not run away from the device
        step = step + 1 if chance.random() < 0.95 else chance.randrange(10_000)
    while Stream.run_one():
        pass
    streamed.close()
    assert len(seen) == 400
    for step, found in zip(asked, seen):
        draw.prepare(step)
        assert torch.equal(found, torch.from_numpy(data)[draw(torch.tensor(step)).rows]), step
