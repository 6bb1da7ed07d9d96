"""One training step, run three ways from one piece of code: eager, compiled, or captured as a CUDA graph."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from instant.backbones import LoadReport, set_step
from instant.data.feed import Feed
from instant.data.sampler import WARM_UP
from instant.engine.metrics import Meter
from instant.engine.muon import Muon, directions
from instant.engine.optim import set_lr
from instant.errors import InputError
from instant.learner import Learner, commit
from instant.types import Output, Views

Way = Literal["eager", "compiled", "captured"]


class Program(nn.Module):
    """Everything a step reads and writes: feed, learner, optimizers, meter and the clock, all on one device.

    A step does, in this order: sample and augment; forward; backward; clip; commit the method's state; measure;
    advance the clock; update; average the teacher. It never waits for the host. `feed.prepare` is the host's part.
    A captured step finds its views laid out and draws those of the next one beside the rest, where they cost little.
    """

    clock: Tensor

    def __init__(
        self,
        learner: Learner,
        feed: Feed,
        meter: Meter,
        optimizers: list[torch.optim.Optimizer],
        *,
        learning_rate: Callable[[Tensor], Tensor],
        clip: float = 0.0,
        way: Way = "eager",
        pretrained: LoadReport | None = None,
    ) -> None:
        super().__init__()
        self.learner = learner
        self.feed = feed
        self.meter = meter
        self.optimizers = optimizers
        self.learning_rate = learning_rate
        self.clip = clip
        self.pretrained = pretrained
        self.register_buffer("clock", torch.zeros_like(meter.broken))
        self._draw: Callable
        self._forward: Callable
        self._account: Callable
        self._lay: Callable
        self._run_plain()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._views: Views | None = None  # of the next step, where a captured one looks for them
        self._laid: int | None = None  # the step they belong to
        self._started = False
        self.way = way
        self.announce: Callable[[str], object] = lambda text: None  # `fit` hands it to its callbacks
        for optimizer in optimizers:
            _materialise(optimizer)
        if way != "eager":
            keep_compiled()
            # the functions, not the modules: a compiled module would be a second child of this one
            options: dict[str, Any] = (
                {"combo_kernels": True} if self.clock.is_cuda else {}
            )  # many small ones in one launch
            self._draw, self._forward, self._account, self._lay, turned = (
                torch.compile(_with_code_of_its_own(part), dynamic=False, options=options)
                for part in (feed.forward, learner.forward, Program._record, Program._copy, directions)
            )
            self._turn_with(turned)

    def forward(self, step: int) -> None:
        """Run step number `step`, which must be where the clock stands."""
        if self._laid != step:
            self.feed.prepare(step)
            if not self._started:
                with torch.cuda.device_of(self.clock):  # streams and recordings are of the current GPU
                    self._start()
            if self._graph is not None:
                self._lay(self, self._views_of(self.clock))
        if self._graph is None:
            self._once()
        else:
            self.feed.prepare(step + 1)
            self._graph.replay()
            self._laid = step + 1

    def _start(self) -> None:
        """Before the first step: compile, and record the CUDA graph. Neither this nor its failure leaves a trace."""
        self._started = True
        if self.way == "eager":
            return
        self.announce("compiling the step: about a minute the first time, seconds once it is in the cache")
        saved = {name: value.clone() for name, value in self.tensors().items()}
        try:
            with _quiet_compiler():
                self._attempt("compiled", self._warm_up, "eager")
                if self.way == "captured":
                    self.restore(saved)
                    self._attempt("recorded as a CUDA graph", self._capture, "compiled")
        finally:
            self.restore(saved)
            gc.collect()  # what the compiler leaves behind still holds this program

    def _attempt(self, what: str, action: Callable[[], None], instead: Way) -> None:
        """Do it, or say in one sentence why not and go on in a slower way."""
        try:
            action()
        except (InputError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a compiler may stumble over anything; what is wrong in the step itself, eager says
            cause = getattr(error, "inner_exception", error)
            reason = (str(cause).strip().splitlines() or ["no reason given"])[0]
            self.announce(f"the step cannot be {what} ({type(cause).__name__}: {reason}); it runs {instead}, slower")
            self.way = instead
            if instead == "eager":
                self._run_plain()

    def _run_plain(self) -> None:
        # the last two are not bound to this program, which would never be freed for holding itself
        self._draw, self._forward = self.feed.forward, self.learner.forward
        self._account, self._lay = Program._record, Program._copy
        self._turn_with(directions)

    def _turn_with(self, function: Callable[[list[Tensor], bool], list[Tensor]]) -> None:
        for optimizer in self.optimizers:
            if isinstance(optimizer, Muon):
                optimizer.directions = function

    def _warm_up(self) -> None:
        """A few steps, aside where there is a GPU, as recording wants it."""
        if not self.clock.is_cuda:
            self._once()
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._once()
        torch.cuda.current_stream().wait_stream(side)

    def _capture(self) -> None:
        drawn = self._views_of(self.clock)
        self._views = Views(*(torch.empty_like(part) for part in drawn))
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        self._lay(self, drawn)
        self._ahead(side)
        # on a stream of its own, as torch's is of the first GPU that recorded; and blind to what other threads do
        pool = torch.cuda.graph_pool_handle()
        recording = torch.cuda.graph(graph, pool, torch.cuda.Stream(), capture_error_mode="thread_local")
        with _as_before(self.clock.device, pool), recording:
            self._ahead(side)
        self._graph = graph

    def _once(self) -> None:
        self._learn(self._views_of(self.clock))

    @torch.no_grad()
    def _views_of(self, step: Tensor) -> Views:
        return self._draw(step)

    def _ahead(self, side: torch.cuda.Stream) -> None:
        """A step on the views that are laid out, while those of the next one are drawn on a stream beside it."""
        coming, here = self.clock + 1, torch.cuda.current_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            following = self._views_of(coming)
        assert self._views is not None
        self._learn(self._views)
        here.wait_stream(side)
        self._lay(self, following)

    def _copy(self, drawn: Views) -> None:
        assert self._views is not None
        for place, part in zip(self._views, drawn):
            place.copy_(part)

    def _learn(self, views: Views) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        set_step(self.learner, self.clock)
        with convolutions(exact=self.learner.method.exact):
            output = self._forward(views)
            output.loss.backward()
        with torch.no_grad():
            if self.clip:  # apart: the method's own parameters have a loss of their own
                for part in (self.learner.model, self.learner.method):
                    nn.utils.clip_grad_norm_(part.parameters(), self.clip)
            self._account(self, output)
            for optimizer in self.optimizers:
                optimizer.step()
            self.learner.average()

    def _record(self, output: Output) -> None:
        """The small things that follow a backward pass, in one piece so that they fuse."""
        commit(self.learner.method, output.state)
        set_lr(self.optimizers[0], self.learning_rate(self.clock))
        self.meter.add(output, self.clock)
        self.clock += 1

    def tensors(self) -> dict[str, Tensor]:
        """All that a step changes, by name: what a checkpoint holds."""
        named = {name: value for name, value in self.state_dict().items() if not name.startswith("feed.")}
        for number, optimizer in enumerate(self.optimizers):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            for place, parameter in enumerate(parameters):
                for name, value in optimizer.state[parameter].items():
                    named[f"optimizer.{number}.{place}.{name}"] = value
        return named

    @torch.no_grad()
    def restore(self, saved: dict[str, Tensor]) -> None:
        """Write saved tensors back in place."""
        self._laid = None
        for name, value in self.tensors().items():
            value.copy_(saved[name])


@contextmanager
def _quiet_compiler() -> Iterator[None]:
    """Without what torch.compile has to say to those who write it; TORCH_LOGS=graph_breaks,perf_hints still asks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch\._(dynamo|inductor)\b")
        yield


@contextmanager
def _as_before(device: torch.device, pool: tuple[int, int]) -> Iterator[None]:
    """Leave torch usable after a recording that broke off: it goes on waiting for the end, which does not come.

    Till then it refuses random numbers, stays on the recording's stream and keeps memory for its pool.
    """
    stream = torch.cuda.current_stream()
    try:
        yield
    except Exception:
        torch.cuda.set_stream(stream)
        generator = torch.cuda.default_generators[device.index]
        generator.graphsafe_set_state(generator.clone_state())
        with suppress(Exception):  # later versions of torch have done so by themselves
            torch._C._cuda_endAllocateToPool(device.index, pool)
            torch._C._cuda_releasePool(device.index, pool)
        raise


@contextmanager
def convolutions(*, exact: bool) -> Iterator[None]:
    """The fastest algorithms, found by trying them; `exact` without TF32, whose ten bits swallow a small change."""
    settings = torch.backends.cudnn
    before = settings.benchmark
    settings.benchmark = True
    try:
        with _without_tf32() if exact else nullcontext():
            yield
    finally:
        settings.benchmark = before


@contextmanager
def _without_tf32() -> Iterator[None]:
    owner: Any = torch.backends.cudnn
    off: Any
    try:
        name, off, before = "allow_tf32", False, owner.allow_tf32
    except RuntimeError:  # somebody has set it by operation, as torch 2.9 began to allow: then there is no one answer
        owner = owner.conv
        name, off, before = "fp32_precision", "ieee", owner.fp32_precision
    setattr(owner, name, off)
    try:
        yield
    finally:
        setattr(owner, name, before)


def keep_compiled() -> None:
    """Let torch.compile keep what it compiles among the user's caches, where it outlives a restart."""
    with suppress(OSError, RuntimeError):  # without a home it stays where torch puts it
        folder = Path("~/.cache/instant/compiled").expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))


def _with_code_of_its_own(part: Callable) -> Callable:
    """torch keeps what it compiles beside the code, where the next program would look through it all, and stumble.

    The versions of a process are counted too, and a ninth would run uncompiled; with its program, its code goes.
    """
    given = getattr(part, "__func__", part)
    code, closure = given.__code__.replace(), given.__closure__
    own = FunctionType(code, given.__globals__, given.__name__, given.__defaults__, closure)
    own.__kwdefaults__ = given.__kwdefaults__
    return MethodType(own, part.__self__) if isinstance(part, MethodType) else own


def _materialise(optimizer: torch.optim.Optimizer) -> None:
    """Make an optimizer's state exist, at zero, before the first step: to save, restore and capture it in place."""
    rates = [group["lr"].clone() for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"].zero_()
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for state in optimizer.state.values():
        for value in state.values():
            value.zero_()
    for group, rate in zip(optimizer.param_groups, rates):
        group["lr"].copy_(rate)
    optimizer.zero_grad(set_to_none=True)
