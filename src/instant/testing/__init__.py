"""Conformance checks for rules, methods and backbones, ours and yours: the `check_estimator` of this package.

from instant.testing import check_backbone, check_method, check_rule
check_rule(MyRule())
check_method(my_method)                      # a function of algorithms.py's form, or its name
check_backbone(my_backbone, shape=(1, 8, 8)) # a function(shape, classes, **options), or its name
"""

from __future__ import annotations

from instant.testing.backbone import check_backbone
from instant.testing.method import check_method, make_learner, make_views, trivial_accuracy
from instant.testing.rule import check_rule, make_evidence
from instant.testing.shared import no_waiting

__all__ = [
    "check_backbone",
    "check_method",
    "check_rule",
    "make_evidence",
    "make_learner",
    "make_views",
    "no_waiting",
    "trivial_accuracy",
]
