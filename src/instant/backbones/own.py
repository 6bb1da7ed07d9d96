"""A backbone of the user's own: a function that is asked for one, and whatever is wrong with it in one sentence."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from instant.backbones.base import Backbone, Prediction
from instant.backbones.options import check_options
from instant.errors import InputError
from instant.own_code import mishap

Shape = tuple[int, ...]
BackboneFunction = Callable[..., Backbone]
"""`name(shape, classes, *, options...) -> Backbone`, called with these words."""
FORM = "function(shape, classes, **options)"


def options_of(name: str, function: BackboneFunction) -> tuple[dict[str, inspect.Parameter], bool]:
    """What the user's own function takes besides shape and classes, with hints that are types; and: anything else?"""
    try:
        found = inspect.signature(function, eval_str=True).parameters
    except Exception as error:  # hints are code too
        raise InputError(
            f"backbone={name}: its arguments cannot be read ({mishap(error)}); its hints may only name what is there "
            "when it runs"
        ) from error
    named = {p.name: p for p in found.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    anything = any(p.kind is p.VAR_KEYWORD for p in found.values())
    unnamed = [p.name for p in found.values() if p.kind is p.POSITIONAL_ONLY]
    if unnamed:
        raise InputError(
            f"backbone={name} takes {' and '.join(unnamed)} by place only, and is called with names, as in "
            "name(shape=(1, 8, 8), classes=10); take the / out of its arguments"
        )
    missing = [word for word in ("shape", "classes") if word not in named and not anything]
    if missing:
        raise InputError(
            f"backbone={name} takes ({', '.join(found)}) and no {' and no '.join(missing)}; expected a {FORM} that "
            "returns an instant.backbones.Backbone"
        )
    return {word: p for word, p in named.items() if word not in ("shape", "classes")}, anything


def build_own(name: str, function: BackboneFunction, *, shape: Shape, classes: int, args: dict[str, Any]) -> Backbone:
    """A network by the user's own function, tried once: a mistake in it is a sentence before anything is trained."""
    options, anything = options_of(name, function)
    kinds = {word: Any if p.annotation is p.empty else p.annotation for word, p in options.items()}
    if anything:
        kinds |= {word: Any for word in args if word not in kinds}
    # a default is right whatever its hint says, as in width: int = None
    given = {word: value for word, value in args.items() if word not in options or not _same(value, options[word])}
    check_options(name, given, kinds)
    missing = [word for word, p in options.items() if p.default is p.empty and word not in args]
    if missing:
        raise InputError(f"backbone={name} needs {missing[0]}, which has no default: add backbone.{missing[0]}=VALUE")
    try:
        network = function(shape=shape, classes=classes, **args)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            f"backbone={name} could not be built for samples of shape {tuple(shape)} and {classes} classes "
            f"({mishap(error)}); expected a {FORM} that returns an instant.backbones.Backbone. Its options are given "
            "as backbone.NAME=VALUE."
        ) from error
    if not isinstance(network, Backbone):
        kind = "class" if inspect.isclass(network) else type(network).__name__
        raise InputError(
            f"backbone={name} returned a {kind}, expected an instant.backbones.Backbone: a subclass that makes `head` "
            "and writes `features(x)`"
        )
    try_out(network, f"backbone={name}", shape=shape, classes=classes)
    return network


def _same(value: Any, parameter: inspect.Parameter) -> bool:
    return type(value) is type(parameter.default) and bool(value == parameter.default)


@torch.no_grad()
def try_out(network: Backbone, name: str, *, shape: tuple[int, ...], classes: int) -> None:
    """Or an InputError that begins with `name`: two rows, alone and beside two still ones, give no right Prediction.

    Copies are asked, in training and in evaluation, so neither the network nor torch's generator moves.
    """
    x = torch.zeros(2, *shape)
    width = getattr(network, "num_features", None)
    if not isinstance(width, int):
        raise InputError(f"{name} does not say its num_features; call super().__init__(num_features, classes)")
    kept = _state(network, name)
    for training in (True, False):
        for still in (x, None):
            how = f"{'in training' if training else 'in evaluation'}{' with still rows' if still is not None else ''}"
            try:
                with torch.random.fork_rng(devices=[]):
                    asked = copy.deepcopy(network).train(training)
                    found = asked(x, *([] if still is None else [still]))
            except (Exception, SystemExit) as error:
                raise InputError(
                    f"{name} cannot predict samples of shape {tuple(shape)} {how} ({mishap(error)}); mend its forward "
                    "pass: features(x) takes (B, *shape), and forward(x, still=None) returns an "
                    "instant.types.Prediction"
                ) from error
            if (after := _state(asked, name)) != kept:
                changed = min(part for part in kept.keys() | after.keys() if kept.get(part) != after.get(part))
                raise InputError(
                    f"{name}: {changed} has another shape or type after the network is used {how}, so no checkpoint "
                    "would fit; give it its size when it is made"
                )
            if not isinstance(found, Prediction):
                raise InputError(
                    f"{name}: forward returned a {type(found).__name__} {how}, expected an "
                    "instant.types.Prediction(logits, features); write features(x) and leave forward as it is"
                )
            rows = 2 if still is None else 4
            for part, wide, of in (("logits", classes, "classes"), ("features", width, "num_features")):
                value = getattr(found, part)
                if not isinstance(value, Tensor) or value.shape != (rows, wide) or not value.is_floating_point():
                    got = type(value).__name__
                    if isinstance(value, Tensor):
                        got = f"shape {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
                    raise InputError(
                        f"{name}: the {part} of {rows} samples {how} must be floats of shape ({rows}, {wide}), a row "
                        f"a sample and its {of}; got {got}"
                    )


def _state(network: Backbone, name: str) -> dict[str, tuple[Shape, torch.dtype]]:
    """The shape and type of all that a checkpoint keeps; what it cannot keep, or nobody can train, is refused."""
    found = {}
    for part, value in network.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise InputError(
                f"{name}: {part} of its state is a {type(value).__name__}, and a checkpoint holds tensors alone; keep "
                "it in a buffer, or make it anew from the options"
            )
        if is_lazy(value):
            raise InputError(
                f"{name}: {part} has no shape yet; give the sizes of its layers, or run it once before returning it"
            )
        if isinstance(value, nn.Parameter) and not value.is_floating_point():
            kind = str(value.dtype).removeprefix("torch.")
            raise InputError(f"{name}: the parameter {part} is {kind}, and only floats are trained; make it a float")
        found[part] = tuple(value.shape), value.dtype
    return found
