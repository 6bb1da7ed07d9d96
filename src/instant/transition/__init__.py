"""Estimators of how the classifier mislabels, one file each."""

from instant.transition.anchor import AnchorPoints
from instant.transition.base import Sight, Transition, inflow
from instant.transition.dual_t import DualT
from instant.transition.head import TransitionHead
from instant.transition.identity import Identity
from instant.transition.matrix import TransitionMatrix
from instant.transition.network import TransitionNetwork
from instant.transition.parts import PartDependent
from instant.transition.use import Transitions
from instant.transition.volmin import VolumeMinimal

__all__ = [
    "AnchorPoints",
    "DualT",
    "Identity",
    "PartDependent",
    "Sight",
    "Transition",
    "TransitionHead",
    "TransitionMatrix",
    "TransitionNetwork",
    "Transitions",
    "VolumeMinimal",
    "inflow",
]
