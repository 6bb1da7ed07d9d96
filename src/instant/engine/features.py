"""Before the labels: how the run differs in which the network learns features without them (`contrast`)."""

from __future__ import annotations

import math
from dataclasses import replace

from instant.config import Recipe, no_suggestion
from instant.contrast import contrastive
from instant.data.split import Split
from instant.engine.optim import Optim
from instant.errors import InputError
from instant.methods import name_of

FEWEST = 4  # pairs of views for every labelled sample of a step, where the method has fewer unlabelled ones


def features_recipe(recipe: Recipe, split: Split) -> Recipe:
    """As many pairs as the method has unlabelled samples, and a learning rate that grows with their number.

    With Muon where the run has it, which takes a third of SGD's steps for as much (docs/cifar10-trials.md). The
    averaged weights are kept, so in a short run the average must not reach back to its beginning.
    """
    if not split.train.is_images:
        raise InputError(f"contrast={recipe.contrast} is for images, and {split.source} has vectors; set it to 0.")
    ratio = min(max(recipe.ratio, FEWEST), max(1, len(split.pool) // recipe.batch))
    return replace(
        recipe,
        contrast=0,
        mix=0.0,
        mix_after=0.0,
        steps=recipe.contrast,
        ratio=ratio,
        labels=recipe.labels if len(split.labelled) == recipe.labels else None,
        ema=min(recipe.ema, max(0.0, 1 - 10 / recipe.contrast)),
        optim=_optim(recipe, recipe.batch * ratio),
        method=name_of(contrastive),
        method_options={},
        suggested={},
        suggest=no_suggestion,
        suits="",
    )


def _optim(recipe: Recipe, pairs: int) -> Optim:
    """SGD's steps are as long as the gradient, whose noise falls with the pairs; Muon's have a length of their own."""
    turned = recipe.optim.name == "muon"
    name, lr = ("muon", 0.5 * math.sqrt(pairs / 512)) if turned else ("sgd", 0.06 * pairs / 128)
    return Optim(name=name, lr=lr, cycles=0.5, warmup=recipe.contrast // 20)
