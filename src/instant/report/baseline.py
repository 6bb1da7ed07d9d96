"""The supervised baseline: the same recipe on the labelled samples alone, trained once and kept in RUN/baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from instant.config import Recipe
from instant.data.split import Split
from instant.engine.fit import Callback, fit
from instant.errors import InputError
from instant.run import Run

ITSELF = ("supervised", "fully_supervised")  # methods that use labelled samples alone


def baseline_recipe(recipe: Recipe) -> Recipe:
    return dataclasses.replace(recipe, method="supervised", method_options={})


def require_other(recipe: Recipe) -> None:
    if recipe.method in ITSELF:
        raise InputError(f"method={recipe.method} is a baseline itself and needs none beside it; leave it out.")


def comparable(split: Split) -> bool:
    """Is a label held out, of a test or a validation sample, by which a run and its baseline could be compared?"""
    return bool((split.test_targets >= 0).any() or (split.validation_targets >= 0).any())


def find_baseline(run: Run, split: Split) -> Run | None:
    """The finished baseline of a run, if it is of the same recipe and the same labels; one left by another is not."""
    kept = run.baseline
    if not kept.finished or kept.differs(baseline_recipe(run.recipe())) is not None:
        return None
    return kept if kept.is_of(split) else None


def train_baseline(run: Run, split: Split, *, callbacks: Sequence[Callback] = ()) -> Run:
    """The baseline of a run, trained now unless it is there."""
    recipe = run.recipe()
    require_other(recipe)
    if (kept := find_baseline(run, split)) is not None:
        return kept
    fit(baseline_recipe(recipe), split, run=run.baseline, force=True, callbacks=callbacks)
    return run.baseline
