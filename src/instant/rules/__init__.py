"""The threshold rules, one file each."""

from instant.rules.base import Rule
from instant.rules.curriculum import Curriculum
from instant.rules.decaying import Decaying
from instant.rules.fixed import Fixed
from instant.rules.gaussian import TruncatedGaussian
from instant.rules.instance import InstanceDependent, instance_margin
from instant.rules.relative import Relative
from instant.rules.self_adaptive import SelfAdaptive

__all__ = [
    "Curriculum",
    "Decaying",
    "Fixed",
    "InstanceDependent",
    "Relative",
    "Rule",
    "SelfAdaptive",
    "TruncatedGaussian",
    "instance_margin",
]
