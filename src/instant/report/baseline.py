"""The supervised baseline: the same recipe on the labelled samples alone, trained once and kept in RUN/baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from instant.algorithms import REFERENCES
from instant.config import Recipe
from instant.data.split import Split
from instant.engine.fit import Callback, fit
from instant.errors import InputError
from instant.own_code import is_own, require_named, require_unopened
from instant.run import Run


def baseline_recipe(recipe: Recipe) -> Recipe:
    """What the labels alone are worth: of the others not even the pictures are looked at."""
    return dataclasses.replace(recipe, method="supervised", method_options={}, contrast=0, mix=0.0, mix_after=0.0)


def require_other(recipe: Recipe) -> None:
    if recipe.method in REFERENCES:
        raise InputError(f"method={recipe.method} is a baseline itself and needs none beside it; leave it out.")
    require_unopened(recipe.backbone, recipe.backbone_options)  # it is trained on the word of the folder


def comparable(split: Split) -> bool:
    """Is a label held out, of a test or a validation sample, by which a run and its baseline could be compared?"""
    return bool((split.test_targets >= 0).any() or (split.validation_targets >= 0).any())


def find_baseline(run: Run, split: Split) -> Run | None:
    """The finished baseline of a run, if it is of the same recipe and the same labels; one left by another is not."""
    return run.baseline if run.baseline.finished and _belongs(run, split) else None


def _belongs(run: Run, split: Split) -> bool:
    """Is what lies in RUN/baseline, finished or not, of this run?"""
    kept = run.baseline
    if not kept.exists:
        return False
    recipe, theirs = baseline_recipe(run.recipe()), kept.recipe().backbone
    if is_own(recipe.backbone) and is_own(theirs):  # code may have moved
        recipe = dataclasses.replace(recipe, backbone=theirs)
    return kept.differs(recipe) is None and kept.is_of(split)


def train_baseline(run: Run, split: Split, *, callbacks: Sequence[Callback] = (), backbone: str | None = None) -> Run:
    """The baseline of a run, trained now unless it is there; one that was stopped goes on, another run is put aside.

    `backbone` names the run's network where that is code of your own.
    """
    recipe = run.recipe()
    require_named(run, "backbone", recipe.backbone, backbone)
    require_other(recipe)
    if (kept := find_baseline(run, split)) is not None:
        return kept
    if whose := run.code().views:
        raise InputError(
            f"{run} was trained with policies of its own ({', '.join(whose)}), which its baseline should have too; "
            "train that in Python: instant.fit(recipe with method='supervised', split, policies=...)."
        )
    wanted = baseline_recipe(recipe.named(None, backbone))
    unfinished = _belongs(run, split) and run.baseline.recipe().backbone == wanted.backbone  # else it has moved
    if run.baseline.finished:
        aside = _put_aside(run.baseline)
        for callback in callbacks:
            callback.note(f"{run.baseline} held a run of other settings or data; it is {aside} now.")
    fit(wanted, split, run=run.baseline, resume=unfinished, force=not unfinished, callbacks=callbacks)
    return run.baseline


def _put_aside(kept: Run) -> Path:
    free = next(path for number in count(1) if not (path := Path(f"{kept.path}-{number}")).exists())
    kept.path.rename(free)
    return free
