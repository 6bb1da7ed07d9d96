"""Taking time: CUDA events on a GPU, the host's clock elsewhere."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

Clock = Callable[[Callable[[], object]], float]
"""Runs something and returns the seconds it took."""


def clock_of(device: torch.device) -> Clock:
    """Work on a GPU goes on after the call has returned: only events on its stream see when it ends."""

    def events(run: Callable[[], object]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(torch.cuda.current_stream(device))
        run()
        end.record(torch.cuda.current_stream(device))
        end.synchronize()
        return begin.elapsed_time(end) / 1000

    def host(run: Callable[[], object]) -> float:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    return events if device.type == "cuda" else host


def seconds_a_step(
    run: Callable[[int], object], clock: Clock, *, warm_up: int, steps: int, repeats: int, first: int = 0
) -> float:
    """The median over repeats of the mean over `steps` steps, numbered from `first`; warm-up steps do not count.

    >>> ticks = iter([9.0, 3.0, 2.0])  # a step in each of three repeats; the disturbed first one does not matter
    >>> seconds_a_step(lambda step: None, lambda run: next(ticks), warm_up=0, steps=1, repeats=3)
    3.0
    """

    def several(begin: int, count: int) -> None:
        for step in range(begin, begin + count):
            run(step)

    several(first, warm_up)
    first += warm_up
    return statistics.median(
        clock(lambda begin=first + turn * steps: several(begin, steps)) / steps  # type: ignore[misc]
        for turn in range(repeats)
    )
