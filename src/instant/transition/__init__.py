"""Estimators of how the classifier mislabels, one file each."""

from instant.transition.base import Transition, inflow
from instant.transition.head import TransitionHead
from instant.transition.matrix import TransitionMatrix
from instant.transition.network import TransitionNetwork

__all__ = ["Transition", "TransitionHead", "TransitionMatrix", "TransitionNetwork", "inflow"]
