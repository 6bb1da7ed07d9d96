"""Before the labels: how the run differs in which the network learns features without them (`contrast`)."""

from __future__ import annotations

from dataclasses import replace

from instant.augment.contrast import Part
from instant.config import Recipe, no_suggestion
from instant.contrast import contrastive
from instant.data.feed import Policy
from instant.data.split import Split
from instant.engine.optim import Optim
from instant.errors import InputError
from instant.methods import name_of

PAIRS = 7  # of views, for every labelled sample of a step: as many as the paper has unlabelled ones


def features_recipe(recipe: Recipe, split: Split) -> Recipe:
    """The same for every method. The learning rate grows with the number of pairs."""
    if not split.train.is_images:
        raise InputError(f"contrast={recipe.contrast} is for images, and {split.source} has vectors; set it to 0.")
    ratio = max(1, min(PAIRS, len(split.pool) // recipe.batch))
    return replace(
        recipe,
        contrast=0,
        steps=recipe.contrast,
        ratio=ratio,
        labels=len(split.labelled),
        optim=Optim(lr=0.06 * recipe.batch * ratio / 128, cycles=0.5, warmup=recipe.contrast // 20),
        method=name_of(contrastive),
        method_options={},
        suggested={},
        suggest=no_suggestion,
        suits="",
        strong_labels=0.0,
    )


def features_policies(recipe: Recipe, split: Split) -> tuple[Policy, Policy]:
    part = Part(split.mirror if recipe.mirror is None else recipe.mirror)
    return part, part
