"""Conformance checks for rules and methods, ours and yours: the `check_estimator` of this package.

from instant.testing import check_rule, check_method
check_rule(MyRule())
check_method(my_method)                      # a function of algorithms.py's form, or its name
"""

from __future__ import annotations

from instant.testing.method import check_method, make_learner, make_views, trivial_accuracy
from instant.testing.rule import check_rule, make_evidence
from instant.testing.shared import no_waiting

__all__ = [
    "check_method",
    "check_rule",
    "make_evidence",
    "make_learner",
    "make_views",
    "no_waiting",
    "trivial_accuracy",
]
