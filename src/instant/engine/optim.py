"""Optimizer, parameter groups and learning-rate schedule, with the learning rate as a tensor on the device.

A captured CUDA graph replays the same kernels on the same memory, so a Python number would freeze at its
first value: each group owns a 0-d tensor instead, which `set_lr` overwrites in place. `fused=True` is the
implementation of SGD and AdamW that reads it on the device without a synchronisation; `muon.py` does so too.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from instant.backbones.base import Backbone
from instant.engine.muon import Muon
from instant.errors import InputError, nearest


@dataclass(frozen=True, kw_only=True)
class Optim:
    """How to optimise; the defaults are those of training a wide ResNet from scratch."""

    name: Annotated[str, "sgd, muon or adamw"] = "sgd"
    lr: Annotated[float, "learning rate"] = 0.03
    momentum: Annotated[float, "of SGD and Muon; AdamW: the first beta"] = 0.9
    nesterov: Annotated[bool, "Nesterov's momentum; not AdamW"] = True
    weight_decay: Annotated[float, "not on biases and other 1-D weights; AdamW: decoupled"] = 5e-4
    layer_decay: Annotated[float, "factor of the learning rate from one ViT block to the one below it"] = 1.0
    warmup: Annotated[int, "steps in which the learning rate grows from 0"] = 0
    cycles: Annotated[float, "half-turns of the cosine over the run: 0.5 ends at zero, 0 is constant"] = 7 / 16
    hold: Annotated[float, "share of the steps after the warm-up at the full rate, before the cosine begins"] = 0.0
    power: Annotated[float, "of the cosine; with 2 and cycles=0.5 it nears zero slowly, as (1 + cos) / 2 does"] = 1.0

    def __post_init__(self) -> None:
        if self.name not in _MAKERS:
            raise InputError(f"optim.name {self.name!r} is not known: {nearest(self.name, _MAKERS)}")
        for field, fine, must in (
            ("lr", 0 < self.lr < math.inf, "be positive"),
            ("momentum", 0 <= self.momentum < 1, "lie in [0, 1)"),
            ("weight_decay", 0 <= self.weight_decay < math.inf, "be 0 or more"),
            ("layer_decay", 0 < self.layer_decay <= 1, "lie in (0, 1]"),
            ("warmup", self.warmup >= 0, "be 0 or more"),
            ("cycles", 0 <= self.cycles <= 1, "lie in [0, 1]"),
            ("hold", 0 <= self.hold < 1, "lie in [0, 1)"),
            ("power", 0 < self.power < math.inf, "be positive"),
        ):
            if not fine:
                raise InputError(f"optim.{field} must {must}, got {getattr(self, field)}")
        if self.name != "adamw" and self.nesterov and self.momentum == 0:
            raise InputError("optim.nesterov needs a momentum above 0: set optim.nesterov=false or a momentum")


def parameter_groups(
    model: nn.Module,
    *,
    weight_decay: float,
    layer_decay: float = 1.0,
    lr: float,
    turned: Collection[Tensor] = frozenset(),
) -> list[dict[str, Any]]:
    """Every trainable parameter once, by layer scale, weight decay and whether it is among the `turned`.

    No weight decay on 1-D parameters, biases and what a backbone spares (class token, position embeddings).
    Inside a ViT the scale is layer_decay ** (last - layer): embeddings are layer 0, norm and head the last.
    Parameters outside of it have scale 1.
    """
    scales, spared = _backbone_rules(model, layer_decay)
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            spare = parameter.ndim <= 1 or name.endswith("bias") or parameter in spared
            key = (scales.get(parameter, 1.0), 0.0 if spare else weight_decay, parameter in turned)
            groups.setdefault(key, []).append(parameter)
    if not groups:
        raise InputError("the model has no trainable parameter")
    return [
        {
            "params": parameters,
            "lr": torch.tensor(lr * scale, dtype=torch.float32, device=parameters[0].device),
            "lr_scale": scale,
            "weight_decay": decay,
            "turned": inner,
        }
        for (scale, decay, inner), parameters in groups.items()
    ]


def _backbone_rules(model: nn.Module, layer_decay: float) -> tuple[dict[nn.Parameter, float], set[nn.Parameter]]:
    scales: dict[nn.Parameter, float] = {}
    spared: set[nn.Parameter] = set()
    for module in model.modules():
        if isinstance(module, Backbone):
            layers = module.layer_numbers()
            for name, parameter in module.named_parameters():
                if name in module.no_weight_decay:
                    spared.add(parameter)
                if name in layers:
                    scales[parameter] = layer_decay ** (max(layers.values()) - layers[name])
    if layer_decay != 1 and not scales:
        raise InputError(f"optim.layer_decay={layer_decay} needs a ViT backbone; leave it at 1 for this one")
    return scales, spared


def _sgd(groups: list[dict[str, Any]], settings: Optim) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, momentum=settings.momentum, nesterov=settings.nesterov, fused=True)


def _adamw(groups: list[dict[str, Any]], settings: Optim) -> torch.optim.Optimizer:
    on_cuda = groups[0]["lr"].is_cuda
    return torch.optim.AdamW(groups, betas=(settings.momentum, 0.999), fused=True, capturable=on_cuda)


def _muon(groups: list[dict[str, Any]], settings: Optim) -> torch.optim.Optimizer:
    return Muon(groups, momentum=settings.momentum, nesterov=settings.nesterov)


_MAKERS = {"sgd": _sgd, "muon": _muon, "adamw": _adamw}


def build_optimizer(model: nn.Module, settings: Optim) -> torch.optim.Optimizer:
    """SGD, Muon or AdamW over `parameter_groups(model)`; move the model to its device first."""
    groups = parameter_groups(
        model,
        weight_decay=settings.weight_decay,
        layer_decay=settings.layer_decay,
        lr=settings.lr,
        turned=_inner_weights(model) if settings.name == "muon" else frozenset(),
    )
    return _MAKERS[settings.name](groups, settings)


def _inner_weights(model: nn.Module) -> set[Tensor]:
    """Of all linear layers and convolutions but the first, which sees the input, and the head, or else the last.

    In the order in which a module has them. A convolution of many groups is many small matrices, not one: it stays as
    it is.
    """
    modules = list(model.modules())
    heads = [head for module in modules if isinstance(head := getattr(module, "head", None), nn.Module)]
    of_heads = {parameter for head in heads for parameter in head.parameters()}
    kinds = (nn.Linear, nn.modules.conv._ConvNd)
    layers = [module for module in modules if isinstance(module, kinds) and module.weight not in of_heads]
    inner = layers if heads else layers[:-1]
    return {module.weight for module in inner if getattr(module, "groups", 1) == 1} - {m.weight for m in layers[:1]}


def schedule(
    step: Tensor, *, steps: int, warmup: int = 0, cycles: float = 7 / 16, hold: float = 0.0, power: float = 1.0
) -> Tensor:
    """Factor on the learning rate at a 0-d step: linear for `warmup`, 1 for `hold`, then cos(cycles pi t / T)^power.

    >>> [round(float(schedule(torch.tensor(t), steps=16)), 4) for t in (0, 8, 16)]
    [1.0, 0.773, 0.1951]
    """
    if not 0 <= warmup < steps:
        raise InputError(f"optim.warmup must be at least 0 and below the {steps} steps of the run, got {warmup}")
    t = step.to(torch.float32)
    start = warmup + hold * (steps - warmup)
    cosine = torch.cos((t - start).clamp(min=0) * (math.pi * cycles / (steps - start))).clamp(min=0)
    return torch.where(t < warmup, t / max(1, warmup), cosine**power)


def set_lr(optimizer: torch.optim.Optimizer, base: Tensor) -> None:
    """Write base * lr_scale into every group's learning-rate tensor, in place; base = lr * schedule(step)."""
    for group in optimizer.param_groups:
        group["lr"].copy_(base * group["lr_scale"])
