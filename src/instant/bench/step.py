"""One training step, measured: time, work, share of the device's ceilings, start-up and memory."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch

from instant.backbones import set_step
from instant.bench.ceilings import Ceilings, measure_ceilings
from instant.bench.timing import Clock, clock_of, seconds_a_step
from instant.bench.work import Work, count
from instant.config import Recipe
from instant.data.source import Source
from instant.data.sources import arrays
from instant.data.split import Split
from instant.engine.build import build_program
from instant.engine.device import choose_device, choose_way, describe
from instant.engine.heap import kept_heap
from instant.engine.step import Program, convolutions
from instant.errors import InputError
from instant.types import Views

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows
    resource = None

Say = Callable[[str], None]


class Effort(NamedTuple):
    """How long to measure."""

    warm_up: int
    steps: int
    repeats: int

    @property
    def total(self) -> int:
        """Steps run, with the first one, which starts everything; warmed up before memory is read and before timing."""
        return 1 + 2 * self.warm_up + self.steps * self.repeats


ON_GPU, ON_CPU = Effort(10, 40, 5), Effort(2, 3, 5)


class Parts(NamedTuple):
    """Where an eager step's time goes, in milliseconds."""

    views: float  # sampling, augmentation, normalisation
    network: float  # forward and backward pass, the method's losses
    update: float  # all the rest: optimizer, averaged weights, metrics


class Subject(NamedTuple):
    """What is measured, and on what."""

    method: str
    backbone: str
    way: str
    hardware: str
    torch: str


class Failure(NamedTuple):
    """A method that could not be measured, and why."""

    subject: Subject
    error: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was measured of one method."""

    subject: Subject
    precision: str
    images: int  # a step: labelled, weak and second views
    milliseconds: float
    start_seconds: float  # building, compiling, capturing, up to the end of the first step
    peak_mib: float | None  # None: not measured here
    peak_of: str
    work: Work
    ceilings: Ceilings
    parts: Parts | None  # None: not eager, where parts run into each other

    @property
    def images_per_second(self) -> float:
        return self.images / self.milliseconds * 1000

    @property
    def tflops(self) -> float:
        return self.work.flop / self.milliseconds / 1e9

    @property
    def gbs(self) -> float:
        return self.work.bytes / self.milliseconds / 1e6

    @property
    def flop_floor(self) -> float:
        """Milliseconds a step would take if matrix products ran at their ceiling and all else were free."""
        return self.work.flop / self.ceilings.tflops / 1e9

    @property
    def byte_floor(self) -> float:
        """Milliseconds it takes to move the operands of the matrix products once."""
        return self.work.bytes / self.ceilings.gbs / 1e6


def synthetic(count: int = 50_000) -> Source:
    """Random images in the format of CIFAR-10: speed does not depend on what they show."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, 3, 32, 32), np.uint8)
    return arrays(images, np.arange(count) % 10, channels="first", name="synthetic")


def measure(
    recipe: Recipe,
    split: Split,
    effort: Effort | None = None,
    say: Say = lambda text: None,
    alone: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Result | Failure:
    """Time steps of `recipe` as `instant train` would run them; a failure while running is a result too.

    What must not be disturbed happens inside `alone()`, once all is compiled.
    """
    device = choose_device(recipe.device)
    way = choose_way(recipe.step, device)
    effort = effort or (ON_GPU if device.type == "cuda" else ON_CPU)
    # The schedule shall cover what is run here.
    recipe = dataclasses.replace(recipe, steps=max(recipe.steps, effort.total))
    subject = Subject(recipe.method, recipe.backbone, way, describe(device), torch.__version__)
    try:
        return _measure(recipe, split, effort, subject, device, say, alone)
    except InputError:
        raise
    except Exception as error:  # out of memory, a kernel that does not compile
        return Failure(subject, (str(error).strip() or type(error).__name__).splitlines()[0])
    finally:
        if way != "eager":
            torch._dynamo.reset()
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


@kept_heap
def _measure(
    recipe: Recipe,
    split: Split,
    effort: Effort,
    subject: Subject,
    device: torch.device,
    say: Say,
    alone: Callable[[], AbstractContextManager[None]],
) -> Result:
    clock = clock_of(device)
    say(f"{recipe.method}: building")
    before = _peak(device, reset=True)
    started = time.perf_counter()
    program = build_program(recipe, split)
    program.announce = lambda text: say(f"{recipe.method}: {text}")
    clock(partial(program, 0))
    start = time.perf_counter() - started
    for step in range(1, 1 + effort.warm_up):
        program(step)
    after = _peak(device)
    peak = None if before is None or after is None else (after - before) / 2**20
    dtype, exact = program.learner.dtype, program.learner.method.exact
    subject = subject._replace(way=program.way)  # slower than was asked for, where that could not be had

    say(f"{recipe.method}: counting its work")
    eager = build_program(dataclasses.replace(recipe, step="eager"), split)
    work = count(partial(eager, 0))
    with torch.no_grad():
        views = eager.feed(eager.clock)
    del eager
    with alone():
        say(f"{recipe.method}: {effort.repeats} x {effort.steps} steps")
        seconds = seconds_a_step(
            program,
            clock,
            first=1 + effort.warm_up,
            warm_up=effort.warm_up,
            steps=effort.steps,
            repeats=effort.repeats,
        )
        parts = _parts(program, clock, effort) if subject.way == "eager" else None
        say("measuring what the device can do")
        ceilings = measure_ceilings(device, dtype, tf32=torch.backends.cudnn.allow_tf32 and not exact)
    return Result(
        subject=subject,
        precision=str(dtype).removeprefix("torch."),
        images=len(views.x_l) + len(views.x_w) + len(views.x_s),
        milliseconds=1000 * seconds,
        start_seconds=start,
        peak_mib=peak,
        peak_of="device memory" if device.type == "cuda" else "growth of the process",
        work=work,
        ceilings=ceilings,
        parts=parts,
    )


def _parts(program: Program, clock: Clock, effort: Effort) -> Parts:
    """Views and network timed alone, by the functions that an eager step calls, in turn with whole steps."""
    feed, learner = program.feed, program.learner
    steps, drawn, learned = [], [], []
    for step in range(effort.total, effort.total + effort.repeats):
        steps.append(clock(partial(program, step)))
        feed.prepare(step + 1)
        with torch.no_grad():
            drawn.append(clock(partial(feed, program.clock)))
            views = feed(program.clock)
        set_step(learner, program.clock)
        learner.zero_grad(set_to_none=True)
        learned.append(clock(partial(_learn, program, views)))
    whole, views_ms, network_ms = (1000 * statistics.median(times) for times in (steps, drawn, learned))
    return Parts(views_ms, network_ms, max(0.0, whole - views_ms - network_ms))


def _learn(program: Program, views: Views) -> None:
    with convolutions(exact=program.learner.method.exact):
        program.learner(views).loss.backward()


def _peak(device: torch.device, *, reset: bool = False) -> int | None:
    """Bytes: the most the device has held since the last reset, or the process ever; None where no one counts."""
    if device.type != "cuda":
        if resource is None:
            return None
        # Kilobytes, but bytes on macOS; it never falls, so that a second method may grow it by nothing.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if reset:
        torch.cuda.reset_peak_memory_stats(device)
        return 0
    return torch.cuda.max_memory_allocated(device)
