"""The estimators of T by name."""

from __future__ import annotations

from instant.errors import InputError, nearest
from instant.transition.anchor import AnchorPoints
from instant.transition.base import Transition
from instant.transition.dual_t import DualT
from instant.transition.head import TransitionHead
from instant.transition.identity import Identity
from instant.transition.matrix import TransitionMatrix
from instant.transition.network import TransitionNetwork
from instant.transition.parts import PartDependent
from instant.transition.volmin import VolumeMinimal
from instant.types import Problem

LARGEST = 10**8  # weights of a map from features to K x K numbers: 600 classes with 256 features


def _head(p: Problem) -> Transition:
    _require_few_classes("head", p)
    return TransitionHead(p.features, p.classes)


def _network(p: Problem) -> Transition:
    if p.network is None:
        raise InputError("method.transition=network needs a backbone of its own, but none can be made here; use head.")
    _require_few_classes("network", p)
    return TransitionNetwork(p.network(p.classes**2), p.classes)


TRANSITIONS = {
    "head": _head,
    "network": _network,
    "parts": lambda p: PartDependent(p.features, p.classes),
    "matrix": lambda p: TransitionMatrix(p.classes),
    "volmin": lambda p: VolumeMinimal(p.classes),
    "dual_t": lambda p: DualT(p.classes),
    "anchor": lambda p: AnchorPoints(p.classes),
    "identity": lambda p: Identity(p.classes),
}


def build_transition(name: str, p: Problem) -> Transition:
    """The estimator called `name`, sized for a problem."""
    if name not in TRANSITIONS:
        raise InputError(f"method.transition={name!r} is not known; {nearest(name, TRANSITIONS)}")
    return TRANSITIONS[name](p)


def _require_few_classes(name: str, p: Problem) -> None:
    weights = p.features * p.classes**2
    if weights > LARGEST:
        raise InputError(
            f"method.transition={name} needs {weights:,} weights for {p.classes} classes and {p.features} features, "
            f"more than {LARGEST:,}; use method.transition=matrix, which is one T for all samples."
        )
