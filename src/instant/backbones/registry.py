"""Backbones by name: `build("wrn_28_2", shape=(3, 32, 32), classes=10)`."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from instant.backbones.base import Backbone, linear_head
from instant.backbones.mlp import MLP
from instant.backbones.options import check_options
from instant.backbones.own import FORM, BackboneFunction, build_own, options_of
from instant.backbones.small_cnn import SmallCNN
from instant.backbones.vit import VisionTransformer
from instant.backbones.wrn import WideResNet
from instant.errors import InputError, nearest
from instant.own_code import OPENED, TIMM, import_own, is_own, own_name

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class BackboneInfo:
    """One line of the table: what it is, what it takes, how it is made."""

    summary: str
    make: Callable[..., Backbone]  # make(shape, classes, **options)
    network: type[Backbone]  # what is made, whose hints say of which kind an option is
    options: tuple[str, ...] = ()  # the arguments a user may give
    dims: int = 3  # of a sample: 3 for an image (C, H, W), 1 for a vector (D,)
    size: int | None = None  # the only image side it takes


def _wrn(summary: str, **fixed: int) -> BackboneInfo:
    def make(shape: Shape, classes: int, **options: Any) -> Backbone:
        return WideResNet(channels=shape[0], classes=classes, **fixed, **options)

    return BackboneInfo(summary=summary, make=make, network=WideResNet, options=("bn_momentum",))


def _vit(summary: str, *, image: int, **fixed: int) -> BackboneInfo:
    def make(shape: Shape, classes: int, **options: Any) -> Backbone:
        return VisionTransformer(channels=shape[0], classes=classes, image=image, **fixed, **options)

    return BackboneInfo(summary=summary, make=make, network=VisionTransformer, options=("drop_path",), size=image)


def _small_cnn(shape: Shape, classes: int, **options: Any) -> Backbone:
    channels, height, width = shape
    return SmallCNN(shape=(channels, height, width), classes=classes, **options)


def _mlp(shape: Shape, classes: int, **options: Any) -> Backbone:
    return MLP(inputs=shape[0], classes=classes, **options)


BACKBONES: dict[str, BackboneInfo] = {
    "wrn_28_2": _wrn("wide ResNet, 1.5 M parameters: CIFAR from scratch", width=2),
    "wrn_28_8": _wrn("wide ResNet, 23 M parameters: CIFAR-100 from scratch", width=8),
    # Half the resolution from the first group on, as TorchSSL and USB do for the 96 px of STL-10.
    "wrn_37_2": _wrn("wide ResNet, 5.9 M parameters: STL-10 from scratch", width=2, groups=4, first_stride=2),
    "vit_s_2_32": _vit("ViT-S, patch 2, 32 px, 21 M parameters", image=32, patch=2, width=384, depth=12, heads=6),
    "vit_b_16_96": _vit("ViT-B, patch 16, 96 px, 86 M parameters", image=96, patch=16, width=768, depth=12, heads=12),
    "vit_tiny_2_32": _vit("ViT-Ti, patch 2, 32 px, 5.4 M parameters", image=32, patch=2, width=192, depth=12, heads=3),
    "vit_micro_4_16": _vit(
        "ViT, patch 4, 16 px, 0.2 M parameters: digits and tests", image=16, patch=4, width=64, depth=4, heads=4
    ),
    "small_cnn": BackboneInfo(
        summary="six 3x3 convolutions, 0.3 M parameters: 8 to 32 px on a CPU",
        make=_small_cnn,
        network=SmallCNN,
        options=("bn_momentum", "width"),
    ),
    "mlp": BackboneInfo(
        summary="two hidden layers of 256: vectors", make=_mlp, network=MLP, options=("width", "depth"), dims=1
    ),
}


def find_backbone(name: str | BackboneFunction) -> BackboneInfo | BackboneFunction | None:
    """The line of our table, or the user's own function, `package.module:function`; None: that is timm's to say."""
    if not isinstance(name, str):
        return name
    if is_own(name):
        return import_own("backbone", name, FORM)
    if name.startswith(TIMM):
        return None
    if name not in BACKBONES:
        raise InputError(
            f"no backbone is called {name!r}: {nearest(name, [*BACKBONES, f'{TIMM}NAME'])} "
            "(a backbone of your own is given as package.module:function)"
        )
    return BACKBONES[name]


def backbone_name(name: str | BackboneFunction) -> str:
    """What a run folder calls it."""
    if isinstance(name, str):
        return name
    if not callable(name) or isinstance(name, nn.Module):
        raise InputError(
            f"backbone is a {type(name).__name__}, expected a name or the {FORM} that makes the network: it is built "
            "anew for every run, and for every loading"
        )
    return own_name(name)


def build(name: str | BackboneFunction, /, *, shape: Shape, classes: int, **args: Any) -> Backbone:
    """A new network for samples of `shape`, (C, H, W) or (D,); `timm:NAME` goes through the timm extra.

    `package.module:function`, or a function, is one of the user's own: whatever is wrong with it is an InputError.
    Weights of convolutions come channels-last, in which these are fastest, on a GPU and on a CPU.

    >>> build("mlp", shape=(64,), classes=10).num_features
    256
    """
    network = _build(name, shape=shape, classes=classes, args=args)
    for part in network.modules():
        if isinstance(part, nn.Conv2d):
            part.weight.data = part.weight.data.contiguous(memory_format=torch.channels_last)
    return network


def _build(name: str | BackboneFunction, *, shape: Shape, classes: int, args: dict[str, Any]) -> Backbone:
    found, shown = find_backbone(name), backbone_name(name)
    if found is None:
        return _build_timm(shown.removeprefix(TIMM), shape=shape, classes=classes, args=args)
    if not isinstance(found, BackboneInfo):
        return build_own(shown, found, shape=shape, classes=classes, args=args)
    _check_shape(shown, shape, found.dims)
    if found.size is not None and shape[1:] != (found.size, found.size):
        raise InputError(
            f"{shown} takes images of {found.size}x{found.size}, the samples are {shape[1]}x{shape[2]}: "
            f"resize them or choose another backbone"
        )
    hints = typing.get_type_hints(found.network.__init__)
    check_options(shown, args, {option: hints[option] for option in found.options})
    return found.make(shape, classes, **args)


def own_defaults(name: str | BackboneFunction) -> dict[str, Any]:
    """The options of a backbone of the user's own that have a default, which may be another tomorrow; of ours none."""
    found = find_backbone(name)
    if found is None or isinstance(found, BackboneInfo):
        return {}
    parameters = options_of(backbone_name(name), found)[0].values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def without_weights(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options that shape a network, without those by which timm fetches weights or opens a pickle.

    >>> without_weights("timm:resnet18", {"pretrained": True, "drop_rate": 0.1})
    {'drop_rate': 0.1}
    >>> without_weights("my_module:my_function", {"pretrained": True})  # whose word is its own
    {'pretrained': True}
    """
    drops = ("pretrained", *OPENED) if name.startswith(TIMM) else ()
    return {option: value for option, value in options.items() if option not in drops}


def _check_shape(name: str, shape: Shape, dims: int) -> None:
    if len(shape) != dims or min(shape) < 1:
        wanted = "images (C, H, W)" if dims == 3 else "vectors (D,)"
        others = sorted(other for other, info in BACKBONES.items() if info.dims == len(shape))
        hint = f"; for these samples use one of: {', '.join(others)}" if others else ""
        raise InputError(f"{name} takes {wanted}, the samples have shape {tuple(shape)}{hint}")


class TimmBackbone(Backbone):
    """A headless timm model under our linear head.

    Any dropout inside it draws from torch's global generator, so it is not a function of (seed, step).
    """

    def __init__(self, body: nn.Module, *, num_features: int, classes: int) -> None:
        super().__init__(num_features, classes)
        self.body: Any = body
        self.head = linear_head(num_features, classes)

    def features(self, x: Tensor) -> Tensor:
        return self.body.forward_head(self.body.forward_features(x), pre_logits=True)


def _build_timm(name: str, *, shape: Shape, classes: int, args: dict[str, Any]) -> Backbone:
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision that does not fit this torch
        raise InputError(
            f'the backbone {TIMM}{name} needs timm, which cannot be imported ({error}): pip install "instant-ssl[timm]"'
        ) from error
    _check_shape(f"{TIMM}{name}", shape, 3)
    try:
        body = timm.create_model(name, num_classes=0, in_chans=shape[0], **args)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"timm cannot make {name!r}: {error}") from error
    # Some families (MobileNetV3) widen the features inside the head; only this name gives that width.
    num_features = getattr(body, "head_hidden_size", None) or body.num_features
    return TimmBackbone(body, num_features=num_features, classes=classes)
