"""Networks that return logits and features."""

from instant.backbones.base import Backbone, DropPath, Prediction, linear_head, set_seed, set_step
from instant.backbones.pretrained import LoadReport, load_pretrained
from instant.backbones.registry import BACKBONES, BackboneFunction, BackboneInfo, build

__all__ = [
    "BACKBONES",
    "Backbone",
    "BackboneFunction",
    "BackboneInfo",
    "DropPath",
    "LoadReport",
    "Prediction",
    "build",
    "linear_head",
    "load_pretrained",
    "set_seed",
    "set_step",
]
