"""One training step, run three ways from one piece of code: eager, compiled, or captured as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from instant.backbones import LoadReport, set_step
from instant.data.feed import Feed
from instant.engine.metrics import Meter
from instant.engine.optim import set_lr
from instant.learner import Learner, commit

Way = Literal["eager", "compiled", "captured"]


class Program(nn.Module):
    """Everything a step reads and writes: feed, learner, optimizers, meter and the clock, all on one device.

    A step does, in this order: sample and augment; forward; backward; commit the method's state; clip; update;
    average the teacher; measure; advance the clock. It never waits for the host. `feed.prepare` is the host's part.
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
        self._draw: Callable = feed.forward
        self._forward: Callable = learner.forward
        self._replay: Callable[[], None] = self._once
        self._captured = False
        for optimizer in optimizers:
            _materialise(optimizer)
        if way != "eager":  # the functions, not the modules: a compiled module would be a second child of this one
            self._draw = torch.compile(feed.forward, dynamic=False)
            self._forward = torch.compile(learner.forward, dynamic=False)
        self._wants_capture = way == "captured"

    def forward(self, step: int) -> None:
        """Run step number `step`, which must be where the clock stands."""
        self.feed.prepare(step)
        if self._wants_capture and not self._captured:
            self._capture()
        self._replay()

    def _once(self) -> None:
        with full_float32() if self.learner.method.exact else nullcontext():
            self._step()

    def _step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        set_step(self.learner, self.clock)
        with torch.no_grad():
            views = self._draw(self.clock)
        output = self._forward(views)
        output.loss.backward()
        with torch.no_grad():
            commit(self.learner.method, output.state)
            if self.clip:
                nn.utils.clip_grad_norm_(self.learner.parameters(), self.clip)
            set_lr(self.optimizers[0], self.learning_rate(self.clock))
            for optimizer in self.optimizers:
                optimizer.step()
            self.learner.average()
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
        for name, value in self.tensors().items():
            value.copy_(saved[name])

    def _capture(self) -> None:
        """Record the step as a CUDA graph; the warm-up steps it takes leave no trace."""
        saved = {name: value.clone() for name, value in self.tensors().items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._once()
        torch.cuda.current_stream().wait_stream(side)
        self.restore(saved)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._once()
        self.restore(saved)
        self._replay = graph.replay
        self._captured = True


@contextmanager
def full_float32() -> Iterator[None]:
    """Convolutions without TF32, whose ten bits would swallow a small perturbation of the input."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


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
