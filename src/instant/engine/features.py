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

FEWEST = 4  # pairs of views for every labelled sample of a step, where the method has fewer unlabelled ones


def features_recipe(recipe: Recipe, split: Split) -> Recipe:
    """As many pairs as the method has unlabelled samples. The learning rate grows with their number."""
    if not split.train.is_images:
        raise InputError(f"contrast={recipe.contrast} is for images, and {split.source} has vectors; set it to 0.")
    ratio = min(max(recipe.ratio, FEWEST), max(1, len(split.pool) // recipe.batch))
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
    )


def features_policies(recipe: Recipe, split: Split) -> tuple[Policy, Policy]:
    part = Part(split.mirror if recipe.mirror is None else recipe.mirror)
    return part, part
