"""Model, teacher and method as one module: one thing to compile, to save and to resume."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from instant.errors import InputError
from instant.types import Method, Output, Prediction, State, Views


def commit(module: nn.Module, state: State) -> None:
    """Write the next state into the module's buffers: after the backward pass, the one place that does."""
    with torch.no_grad():
        for name, value in state.items():
            try:
                place = module.get_buffer(name)
            except AttributeError:
                raise InputError(
                    f"{type(module).__name__} got a next state {name!r} that is none of its buffers; make it one "
                    "with register_buffer, under that name."
                ) from None
            if place.shape != value.shape:
                raise InputError(
                    f"{type(module).__name__}: the next state {name!r} has shape {tuple(value.shape)}, its buffer "
                    f"{tuple(place.shape)}; they must agree."
                )
            place.copy_(value)


class Learner(nn.Module):
    """A step's forward pass: `forward(views) -> Output`.

    The teacher is the running average of the model's parameters; its buffers (batch-norm statistics) are copies.
    With ema = 0 there is none, and the model stands in for it. Rows that are only looked at share the batch
    statistics and, where the backbone can, stay out of the backward pass, in which the learning rows stand in for
    them (`backbones/rows.py`); `weak_gradient=True` takes them through it. Where a backbone has no batch statistics
    there is nothing to take through, and the choice is none.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        *,
        ema: float = 0.999,
        dtype: torch.dtype = torch.float32,
        weak_gradient: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.method = method
        self.teacher = copy.deepcopy(model).requires_grad_(False) if ema > 0 else None
        self.ema = ema
        self.dtype = torch.float32 if method.exact else dtype
        self.weak_gradient = weak_gradient and not getattr(model, "rows_are_independent", False)

    def student(self, x: Tensor, still: Tensor | None = None) -> Prediction:
        return self._predict(self.model, x, still)

    def averaged(self, x: Tensor, still: Tensor | None = None) -> Prediction:
        return self._predict(self.judged, x, still)

    def _predict(self, network: nn.Module, x: Tensor, still: Tensor | None) -> Prediction:
        if still is not None and self.weak_gradient:
            x, still = torch.cat([x, still]), None
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            logits, features = network(x) if still is None else network(x, still)
        return Prediction(logits.float(), features.float())

    def forward(self, views: Views) -> Output:
        out = self.method(self.student, self.averaged, views)
        if not isinstance(out, Output):
            raise InputError(
                f"{type(self.method).__name__}.forward returned a {type(out).__name__}, expected an "
                "instant.types.Output(loss, metrics, state, decision)."
            )
        return out

    @torch.no_grad()
    def average(self) -> None:
        """Move the teacher towards the model."""
        if self.teacher is None:
            return
        torch._foreach_lerp_(list(self.teacher.parameters()), list(self.model.parameters()), weight=1 - self.ema)
        for kind in {buffer.dtype for buffer in self.model.buffers()}:
            mine, theirs = ([b for b in net.buffers() if b.dtype == kind] for net in (self.teacher, self.model))
            if kind.is_floating_point:
                torch._foreach_lerp_(mine, theirs, weight=1.0)  # a copy in one kernel, where _foreach_copy_ takes many
            else:
                torch._foreach_copy_(mine, theirs)

    @property
    def judged(self) -> nn.Module:
        """The network that is evaluated and shared: the averaged one, or the model itself when ema is 0."""
        return self.model if self.teacher is None else self.teacher
