"""Pretrained weights from a file of tensors: .safetensors, or a .pth/.pt/.bin that holds tensors only.

Names are timm's. Position embeddings of another grid are resized; a head of another class count is left out.
Nothing in the file is executed: safetensors cannot hold code, and torch unpickles in its tensors-only mode.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import interpolate

from instant.errors import InputError

_NESTS = ("state_dict", "model_state_dict", "model_state", "model", "ema_model", "teacher")
_PREFIXES = ("module.", "_orig_mod.", "model.", "backbone.", "encoder.", "net.")


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """What happened to every tensor of the model and of the file, by name."""

    source: str
    matched: tuple[str, ...]  # taken from the file, resized ones included
    missing: tuple[str, ...]  # not in the file: still at their fresh values
    unexpected: tuple[str, ...]  # in the file, of no use here
    resized: tuple[str, ...]  # position embeddings brought to this model's grid
    mismatched: tuple[str, ...]  # in the file with another shape: still at their fresh values
    head_replaced: bool  # the file's head has another shape: the model's fresh head stays

    def __str__(self) -> str:
        total = len(self.matched) + len(self.missing) + len(self.mismatched)
        lines = [f"{len(self.matched)} of {total} tensors from {self.source}"]
        if self.head_replaced:
            lines.append("the head has another shape there: a fresh one is trained")
        for title, names in (
            ("resized to this grid", self.resized),
            ("other shape, left fresh", tuple(n for n in self.mismatched if not n.startswith("head."))),
            ("not in the file, left fresh", self.missing),
            ("in the file, unused", self.unexpected),
        ):
            if names:
                more = f" and {len(names) - 4} more" if len(names) > 4 else ""
                lines.append(f"{title}: {', '.join(names[:4])}{more}")
        return "\n".join(lines)


def load_pretrained(model: nn.Module, path: str | Path) -> LoadReport:
    """Copy into the model every tensor of the file that fits, and say what did and what did not."""
    path = Path(path)
    own = model.state_dict()
    found, unexpected = _match_names(read_tensors(path), set(own))
    fitting: dict[str, Tensor] = {}
    resized, mismatched = [], []
    for name, value in found.items():
        if value.shape == own[name].shape:
            fitting[name] = value
        elif _is_position_table(name, value, own[name]):
            fitting[name] = resize_positions(value, own[name].shape[1])
            resized.append(name)
        else:
            mismatched.append(name)
    head_replaced = any(name.startswith("head.") for name in mismatched)
    if head_replaced:  # a weight without its bias is no head: keep or drop the two together
        mismatched += [name for name in fitting if name.startswith("head.")]
        fitting = {name: value for name, value in fitting.items() if not name.startswith("head.")}
    if all(name.startswith("head.") for name in fitting):
        raise InputError(
            f"{path} fits nothing of this model: it holds {_some(found | dict.fromkeys(unexpected))}, "
            f"the model expects {_some(own)}; choose the backbone these weights were made for"
        )
    with torch.no_grad():
        for name, value in fitting.items():
            own[name].copy_(value)
    return LoadReport(
        source=path.name,
        matched=tuple(fitting),
        missing=tuple(name for name in own if name not in found),
        unexpected=tuple(unexpected),
        resized=tuple(resized),
        mismatched=tuple(mismatched),
        head_replaced=head_replaced,
    )


def _read_torch(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


_READERS: dict[str, Callable[[Path], Any]] = {
    ".safetensors": load_file,
    ".pth": _read_torch,
    ".pt": _read_torch,
    ".bin": _read_torch,
}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The flat name-to-tensor table of a weights file, on the CPU."""
    if not path.is_file():
        raise InputError(f"no weights file at {path}")
    if path.suffix not in _READERS:
        raise InputError(f"weights must be a file in {', '.join(_READERS)}, got {path}")
    try:
        content = _READERS[path.suffix](path)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path} is refused: it is damaged, or holds Python objects beside tensors, which could run code "
            f"when read; nothing of it was run. Save the bare state_dict with safetensors.torch.save_file"
        ) from error
    except Exception as error:  # a damaged archive fails in a dozen ways: Unicode, key, index, end of file
        raise InputError(
            f"{path} cannot be read, it is truncated or of another format ({type(error).__name__})"
        ) from error
    while isinstance(content, Mapping):
        nest = next((key for key in _NESTS if isinstance(content.get(key), Mapping)), None)
        if nest is None:
            break
        content = content[nest]
    if not isinstance(content, Mapping):
        raise InputError(f"{path} must hold a table of named tensors, it holds a {type(content).__name__}")
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}


def _match_names(tensors: dict[str, Tensor], known: set[str]) -> tuple[dict[str, Tensor], list[str]]:
    """Tensors under the model's own names, and the file's names that correspond to none."""
    found, unexpected = {}, []
    for name in sorted(tensors, key=lambda name: name not in known):  # an exact name goes before a stripped one
        own = _own_name(name, known)
        if own is None or own in found:
            unexpected.append(name)
        else:
            found[own] = tensors[name]
    return found, unexpected


def _own_name(name: str, known: set[str]) -> str | None:
    while True:
        for candidate in (name, f"body.{name}"):  # body: what a timm model is called inside its wrapper
            if candidate in known:
                return candidate
        prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), None)
        if prefix is None:
            return None
        name = name.removeprefix(prefix)


def _is_position_table(name: str, value: Tensor, own: Tensor) -> bool:
    def square(tokens: int) -> bool:
        return tokens >= 1 and math.isqrt(tokens) ** 2 == tokens

    return (
        name.rpartition(".")[2] == "pos_embed"
        and value.ndim == own.ndim == 3
        and value.shape[::2] == own.shape[::2]
        and square(value.shape[1] - 1)
        and square(own.shape[1] - 1)
    )


def resize_positions(table: Tensor, tokens: int) -> Tensor:
    """(1, 1 + g*g, D) -> (1, tokens, D), bicubic over the square grid; the class token's row is kept."""
    side, new_side = math.isqrt(table.shape[1] - 1), math.isqrt(tokens - 1)
    grid = table[:, 1:].float().unflatten(1, (side, side)).permute(0, 3, 1, 2)
    grid = interpolate(grid, size=(new_side, new_side), mode="bicubic", align_corners=False)
    return torch.cat([table[:, :1].float(), grid.flatten(2).transpose(1, 2)], dim=1)


def _some(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)[:3]) + ", ..." if names else "no tensors"
