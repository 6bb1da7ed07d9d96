"""Checkpoints for exact resuming: one safetensors file, replaced whole or not at all."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from instant.data.files import atomic
from instant.errors import InputError


def write_tensors(path: Path, tensors: dict[str, Tensor], meta: dict[str, str]) -> None:
    """Write to a temporary name, sync, rename: a full disk or a kill leaves the previous file as it was."""
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with atomic(path) as file:
        file.write(save(plain, metadata=meta))


def save_tensors(path: Path, tensors: dict[str, Tensor], meta: dict[str, str]) -> None:
    """A file of a run folder; where it cannot be written, what a person who trains can do."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, tensors, meta)
    except OSError as error:
        raise InputError(
            f"{path} could not be written ({error.strerror or error}); what was saved before is intact. "
            "Free some space or choose another --out folder, then resume."
        ) from error


def load_tensors(path: Path, *, prefix: str = "") -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file written by `write_tensors`; nothing in it can run code.

    With a `prefix` only tensors of such names are read, and named without it.
    """
    try:
        with safe_open(path, framework="pt") as file:
            wanted = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
            # copies: a tensor that is a piece of the mapped file keeps Windows from replacing that
            tensors = {name.removeprefix(prefix): file.get_tensor(name).clone() for name in wanted}
            return tensors, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read as safetensors ({error}); is it a complete file?") from error
