"""Where and how to run, from what a recipe asks for and what the machine has."""

from __future__ import annotations

import shutil
import warnings
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import torch

from instant.backbones.able import settle
from instant.errors import InputError

if TYPE_CHECKING:
    from instant.engine.step import Way


def describe(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{device.type}, {threads} thread{'s' * (threads != 1)}"


def choose_device(name: str) -> torch.device:
    """The device of that name; `auto` is a GPU, if there is one that torch can use."""
    if name == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        if why := _useless(gpu := torch.device("cuda")):
            warnings.warn(f"the GPU cannot be used ({why}); the CPU computes instead, slower", stacklevel=2)
            return torch.device("cpu")
        return _settled(gpu)
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device={name!r} is not known; use auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device={name}: this machine has no CUDA GPU that torch can use; use device=cpu or auto.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device={name}: this machine has {torch.cuda.device_count()} GPU, counted from cuda:0.")
    if device.type == "cuda" and (why := _useless(device)):
        raise InputError(f"device={name}: that GPU cannot be used ({why}); use device=cpu.")
    return _settled(device) if device.type == "cuda" else device


def device_of(trained_on: str, asked: str = "auto") -> torch.device:
    """The device that was asked for; `auto` is the one that a run was trained on, if this machine has it."""
    if asked == "auto":
        with suppress(InputError):
            return choose_device(trained_on)
    return choose_device(asked)


def _settled(gpu: torch.device) -> torch.device:
    if why := settle(gpu):
        warnings.warn(f"Triton's kernels cannot run here ({why}); torch's own operations are slower", stacklevel=3)
    return gpu


@cache
def _useless(gpu: torch.device) -> str | None:
    """Why torch cannot compute there, as on a GPU that is older than what it was built for; None: it can."""
    try:
        torch.ones(1, device=gpu).add_(1).item()
    except torch.OutOfMemoryError:  # which may pass
        raise
    except RuntimeError as error:
        return str(error).strip().splitlines()[0]
    return None


def multiplies_bfloat16(device: torch.device) -> bool:
    """GPUs before Ampere only imitate bfloat16: slowly, and torch.compile does without."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    if precision == "auto":
        return torch.bfloat16 if multiplies_bfloat16(device) else torch.float32
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def choose_way(way: str, device: torch.device) -> Way:
    if way == "auto":
        return "captured" if device.type == "cuda" else "eager"
    if way == "captured" and device.type != "cuda":
        raise InputError(
            "step=captured records a CUDA graph and needs a GPU; use step=eager or step=compiled on a CPU."
        )
    if way == "compiled" and device.type == "cpu" and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        raise InputError("step=compiled needs a C++ compiler on a CPU, and none is on PATH; use step=eager.")
    return way  # type: ignore[return-value]
