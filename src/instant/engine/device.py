"""Where and how to run, from what a recipe asks for and what the machine has."""

from __future__ import annotations

import shutil

import torch

from instant.engine.step import Way
from instant.errors import InputError


def describe(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{device.type}, {threads} thread{'s' * (threads != 1)}"


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
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
    return device


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
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
