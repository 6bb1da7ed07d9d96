"""Networks that return logits and features."""

from instant.backbones.base import Backbone, DropPath, Prediction, set_seed, set_step
from instant.backbones.pretrained import LoadReport, load_pretrained
from instant.backbones.registry import BACKBONES, BackboneInfo, build

__all__ = [
    "BACKBONES",
    "Backbone",
    "BackboneInfo",
    "DropPath",
    "LoadReport",
    "Prediction",
    "build",
    "load_pretrained",
    "set_seed",
    "set_step",
]
