"""What the checks need: sentences, comparisons, and a way to see that nobody waits for the device."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.overrides import TorchFunctionMode

from instant.errors import InputError

CLASSES, FEATURES, LABELLED, ROWS, POOL, STEPS = 4, 8, 16, 32, 100, 400
SAVED = "its state does not survive state_dict; keep it in buffers that are saved (register_buffer)"


@contextmanager
def in_one_sentence(name: str) -> Iterator[None]:
    """Whatever stops what is checked is an AssertionError that names it; the traceback stays its cause."""
    try:
        yield
    except AssertionError:
        raise
    except InputError as error:
        sentence = str(error)
        raise AssertionError(
            sentence if sentence.startswith((f"{name}.", f"{name}:", f"{name} ")) else f"{name}: {sentence}"
        ) from error
    except Exception as error:
        first = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise AssertionError(f"{name}: it stopped with {type(error).__name__}: {first}") from error


def kind_of(value: Any) -> str:
    """What was returned instead, in words.

    >>> kind_of((0.5, None))
    '(float, NoneType)'
    """
    if type(value) is tuple:
        return f"({', '.join(map(kind_of, value))})"
    return type(value).__name__


def tensors_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """A copy of its parameters and of all its buffers, saved in checkpoints or not."""
    held = [*module.named_parameters(), *module.named_buffers()]
    return {name: value.detach().clone() for name, value in held}


def state_fits(module: torch.nn.Module, state: dict[str, Tensor], name: str) -> None:
    buffers = dict(module.named_buffers())
    for key, value in state.items():
        assert key in buffers, f"{name}: state {key!r} is not a registered buffer"
        assert isinstance(value, Tensor), f"{name}: state {key!r} must be a tensor, got {kind_of(value)}"
        shape, dtype = buffers[key].shape, buffers[key].dtype
        assert value.shape == shape, f"{name}: state {key!r} must have shape {tuple(shape)}, got {tuple(value.shape)}"
        assert value.dtype == dtype, f"{name}: state {key!r} must have dtype {dtype}, got {value.dtype}"
        assert not value.requires_grad, f"{name}: state {key!r} must be detached"
        assert bool(torch.isfinite(value).all()), f"{name}: state {key!r} is not finite"


def same(found: dict[str, Any], expected: dict[str, Any], sentence: str) -> None:
    close(found, expected, sentence, rtol=0.0, atol=0.0)


def close(found: dict[str, Any], expected: dict[str, Any], sentence: str, *, rtol: float, atol: float) -> None:
    assert found.keys() == expected.keys(), f"{sentence} ({sorted(found.keys() ^ expected.keys())})"
    for key, value in expected.items():
        if value is None or found[key] is None:
            assert value is found[key], f"{sentence} ({key})"
            continue
        one, other = found[key].detach().double(), value.detach().double()
        assert one.shape == other.shape, f"{sentence} ({key}, in shape {tuple(one.shape)} and {tuple(other.shape)})"
        near = torch.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True)
        assert near, f"{sentence} ({key}, by up to {(one - other).abs().max():.2g})"


def backend() -> str:
    """The default compiler where a C++ compiler is at hand; else its first half, where the trap of state lies."""
    return "inductor" if any(map(shutil.which, ("c++", "g++", "clang++"))) else "aot_eager"


@contextmanager
def no_waiting(name: str) -> Iterator[None]:
    """Run tensors without data: whatever would make the host wait for the device is an error here.

    That is `.item()`, `if tensor`, boolean indexing, `nonzero`: all that needs values instead of shapes. And `.cpu()`,
    `.to("cpu")` and `.numpy()`, which are nothing on a CPU; `.to(x.device)` is no such copy.
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), _NoCopies():
            yield
    except (DataDependentOutputException, DynamicOutputShapeException, _CopyError) as error:
        raise AssertionError(f"{name}: the step waits for the device ({error})") from error


class _CopyError(Exception):
    """A copy to the host."""


def moves_whole(name: str, module: torch.nn.Module, ask: Callable[[Any], Iterable[Tensor]]) -> None:
    """Ask a copy on a device without data, which stands for a GPU: nothing may stay behind on the CPU."""
    sentence = (
        f"{name}: a tensor stays on the CPU where all else is on a GPU; make what is constant a buffer "
        "(register_buffer), and what is new with device=x.device"
    )
    try:
        answers = list(ask(copy.deepcopy(module).to("meta")))
    except Exception as error:
        if isinstance(error, NotImplementedError) or "device" not in str(error):
            return  # an operation that this device lacks, and others do not: the step was done before
        raise AssertionError(sentence) from error
    assert all(answer.is_meta for answer in answers), sentence


class _NoCopies(TorchFunctionMode):
    """Sees a copy to the host by the name it is called by: with all tensors on a CPU there is nothing else to see."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        to_cpu = func is Tensor.to and any(
            isinstance(word, str) and word == "cpu" for word in (*args, *kwargs.values())
        )
        if to_cpu or func in (Tensor.cpu, Tensor.numpy, Tensor.__array__):
            raise _CopyError(f"Tensor.{func.__name__}")
        return func(*args, **kwargs)
