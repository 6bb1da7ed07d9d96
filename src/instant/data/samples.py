"""Where the samples of a step come from: a block on the device, or host memory and disk, fetched a few steps ahead."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor, nn

from instant.data.sampler import Draw
from instant.data.store import as_tensor

AHEAD = 4  # steps whose samples are on their way


class Resident(nn.Module):
    """All samples on the device; a step's are one gather inside the step."""

    data: Tensor

    def __init__(self, samples: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("data", as_tensor(samples), persistent=False)

    def prepare(self, step: int) -> None: ...
    def close(self) -> None: ...

    def forward(self, rows: Tensor) -> Tensor:
        return self.data[rows]


class Streamed(nn.Module):
    """Samples that stay in host memory or in a mapped file; `prepare` puts those of a step into one buffer.

    The rows of a step are a function of its number, so a thread of the host gathers those of the next steps while
    the device works. The thread makes no CUDA call: those would spoil a graph that is being captured. `draw` stays
    on the CPU and tells the thread the rows.
    """

    batch: Tensor  # at an address that never changes, as a CUDA graph needs it

    def __init__(self, samples: np.ndarray, draw: Draw) -> None:
        super().__init__()
        source = as_tensor(samples)
        self._gather = _Gather(source, draw)
        self._slots: list[_Slot] = []
        self._thread: ThreadPoolExecutor | None = None
        self._next: int | None = None  # the step whose samples are first in line
        self.register_buffer("batch", source.new_zeros(draw.size, *source.shape[1:]), persistent=False)

    def prepare(self, step: int) -> None:
        """Bring the samples of `step`, which may be any; an error of the thread is raised here, as it was there."""
        if self._next == step + 1:  # they are there
            return
        if step != self._next:
            self._start(step)
        self._next = None  # should the thread have failed, the next call starts anew
        slot = self._slots[step % AHEAD]
        slot.gathered.result()
        slot.send()
        slot.deliver(self.batch)
        for later in range(step + 1, step + AHEAD):  # send what is ready, and do not wait for what is not
            following = self._slots[later % AHEAD]
            if not following.gathered.done() or following.gathered.exception() is not None:
                break
            following.send()
        self._fetch(step + AHEAD)
        self._next = step + 1

    def forward(self, rows: Tensor) -> Tensor:
        return self.batch

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._thread, self._slots, self._next = None, [], None

    def _start(self, step: int) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "instant-samples")  # one: what is asked last is written last
            side = torch.cuda.Stream(self.batch.device) if self.batch.is_cuda else None
            self._slots = [_CudaSlot(self.batch, side) if side else _Slot(self.batch) for _ in range(AHEAD)]
        for later in range(step, step + AHEAD):
            self._fetch(later)

    def _fetch(self, step: int) -> None:
        assert self._thread is not None
        slot = self._slots[step % AHEAD]
        slot.clear()
        slot.gathered = self._thread.submit(self._gather, step, slot.host)


class _Gather:
    """The thread's work. Not a module, so that moving the feed to a device leaves what it reads on the host."""

    def __init__(self, source: Tensor, draw: Draw) -> None:
        self.source = source
        self.draw = draw

    def __call__(self, step: int, out: Tensor) -> None:
        self.draw.prepare(step)
        torch.index_select(self.source, 0, self.draw(torch.tensor(step)).rows, out=out)


class _Slot:
    """One step's samples on their way: gathered by the thread, then sent, delivered and cleared by the main one."""

    def __init__(self, batch: Tensor) -> None:
        # pinned where there is a GPU to send it to: only then do copies run beside the step
        self.host = torch.empty(batch.shape, dtype=batch.dtype, pin_memory=batch.is_cuda)
        self.gathered: Future[None] = Future()

    def send(self) -> None:
        """Start the way to the device; nothing happens when it has been started before."""

    def deliver(self, batch: Tensor) -> None:
        """Write what arrives into the batch."""
        batch.copy_(self.host)

    def clear(self) -> None:
        """Wait until the thread may write to `host` again."""


class _CudaSlot(_Slot):
    """Pinned memory and its twin on the device, with the two events that keep the writers behind the readers."""

    def __init__(self, batch: Tensor, side: torch.cuda.Stream) -> None:
        super().__init__(batch)
        self.device = torch.empty_like(batch)
        self.device.record_stream(side)  # when this slot goes away, its memory waits for copies under way
        self.side = side
        self.sent = False
        self.arrived = torch.cuda.Event()  # host -> device is done: `host` may be written
        self.taken = torch.cuda.Event()  # device -> batch is done: `device` may be written
        self.taken.record(torch.cuda.current_stream(batch.device))  # as may memory that had another use before

    def send(self) -> None:
        if self.sent:
            return
        self.sent = True
        self.side.wait_event(self.taken)
        with torch.cuda.stream(self.side):
            self.device.copy_(self.host, non_blocking=True)
        self.arrived.record(self.side)

    def deliver(self, batch: Tensor) -> None:
        compute = torch.cuda.current_stream(batch.device)
        compute.wait_event(self.arrived)
        batch.copy_(self.device)
        self.taken.record(compute)

    def clear(self) -> None:
        self.arrived.synchronize()
        self.sent = False
