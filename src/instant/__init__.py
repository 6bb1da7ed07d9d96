"""instant: semi-supervised learning with instance-dependent thresholds.

>>> import numpy as np
>>> from instant import arrays, fit, make_split
>>> from instant.recipes import vectors
>>> rng = np.random.default_rng(0)
>>> truth = np.arange(300) % 3
>>> x = rng.normal(size=(3, 5))[truth] * 4 + rng.normal(size=(300, 5))
>>> y = np.where(np.arange(300) < 6, truth, -1)  # six labels, the rest is not known
>>> split = make_split(arrays(x[:200], y[:200], x[200:], truth[200:]), labels=None)
>>> trained = fit(vectors().override({"steps": "100"}), split)
>>> trained.summary["accuracy_last"] > 0.9
True
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from instant.compare import compare_methods
    from instant.config import Recipe
    from instant.data.sources import arrays
    from instant.data.split import make_split
    from instant.engine.fit import fit
    from instant.errors import InputError
    from instant.estimator import InstanTClassifier, SemiSupervisedClassifier
    from instant.labelling.certificate import certify
    from instant.labelling.model import load
    from instant.labelling.thresholds import instance_thresholds
    from instant.match import Match
    from instant.model_selection import SemiSupervisedKFold, SemiSupervisedShuffleSplit
    from instant.rules import Rule
    from instant.theory import identifiability

__version__ = "0.1.0"

__all__ = [
    "InputError",
    "InstanTClassifier",
    "Match",
    "Recipe",
    "Rule",
    "SemiSupervisedClassifier",
    "SemiSupervisedKFold",
    "SemiSupervisedShuffleSplit",
    "arrays",
    "certify",
    "compare_methods",
    "fit",
    "identifiability",
    "instance_thresholds",
    "load",
    "make_split",
]

# By libgomp's default, threads of torch that wait for each other spin for milliseconds, in which a busy machine might
# do what they wait for (benchmarks/cpu_step.txt). This is read when torch is loaded; what the user says stands.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")

_HOMES = {
    "InputError": "instant.errors",
    "InstanTClassifier": "instant.estimator",
    "Match": "instant.match",
    "Recipe": "instant.config",
    "Rule": "instant.rules",
    "SemiSupervisedClassifier": "instant.estimator",
    "SemiSupervisedKFold": "instant.model_selection",
    "SemiSupervisedShuffleSplit": "instant.model_selection",
    "arrays": "instant.data.sources",
    "certify": "instant.labelling.certificate",
    "compare_methods": "instant.compare",
    "fit": "instant.engine.fit",
    "identifiability": "instant.theory",
    "instance_thresholds": "instant.labelling.thresholds",
    "load": "instant.labelling.model",
    "make_split": "instant.data.split",
}


def __getattr__(name: str) -> Any:
    """Public names are imported on first use: `instant --help` need not wait for torch."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'instant' has no attribute {name!r}")


def __dir__() -> list[str]:
    """For completion: what is imported on first use is there before it too."""
    return sorted({*globals(), *__all__})
