"""Settings for data of your own, chosen from what it is like, each with its reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch

from instant.algorithms import REFERENCES
from instant.backbones.registry import find_backbone
from instant.config import Recipe, refuse_ignored
from instant.data.folder.problems import Flaw
from instant.data.folder.read import OWN, read_own
from instant.data.folder.survey import Survey
from instant.data.source import Source
from instant.engine.device import choose_device, choose_dtype
from instant.engine.optim import Optim
from instant.errors import InputError
from instant.methods import find_method
from instant.recipes import AFTER_FEATURES, classic, quick_by_class, slow_by_class, small, vectors

ENOUGH = 10  # labels a class, from which on a fifth of them is better spent on knowing the accuracy
MANY = 2000  # samples, from which on a longer run is worth its time
KEPT = 64  # pixels a side up to which images of one size are not resized
BATCHES = 64, 32, 16, 8
# Of a GPU, for a pixel of a row of wrn_28_2 in bfloat16: 896 rows of 32 x 32 took 3.3 GiB, about half a GiB CUDA's own
BYTES = 3300
SHARE = 0.8  # of what is free


class Choice(NamedTuple):
    """A setting, what it became, and why."""

    setting: str
    value: str
    reason: str


class Prepared(NamedTuple):
    recipe: Recipe
    source: Source
    choices: list[Choice]


def prepare(path: Path, label_file: Path | None, settings: dict[str, str], problems: list[Flaw]) -> Prepared:
    """Read the data and choose a recipe for it; what `settings` say stands above every choice."""
    for key in ("recipe", "data"):
        if key in settings:
            raise InputError(
                f"{key}={settings[key]} goes with a named source; for files of your own the path is the first word, "
                "and every setting is chosen from the data or given by itself."
            )
    method = settings.get("method", "instant")
    find_method(method)  # what is misspelt, here or below, is found before anything is decoded
    wanted = small(OWN, None, method).override(settings)
    find_backbone(wanted.backbone)
    room = gpu_room(wanted)
    sides: list[Choice] = []

    def side_for(seen: Survey) -> int:
        side, reason = choose_side(seen, room=room)
        if wanted.side is not None:
            side, reason = wanted.side, "as given"
        colours = "all images are grey: one channel" if seen.grey else "three channels"
        whole = seen.equal and side == seen.median
        sides.append(Choice("side", str(side), f"{reason}; {'' if whole else 'the middle square of each; '}{colours}"))
        return side

    source = read_own(path, label_file, side_for, problems)
    refuse_ignored(settings, str(path), images=source.train.is_images)
    recipe, choices = choose(source, method=method, room=room, given=settings)
    if "backbone" in settings:  # options were chosen for another
        recipe = dataclasses.replace(recipe, backbone_options={})
        choices = [choice for choice in choices if not choice.setting.startswith("backbone.")]
    recipe = dataclasses.replace(
        recipe,
        data=str(path.resolve()),
        label_file=None if label_file is None else str(label_file.resolve()),
        side=int(sides[0].value) if sides else None,
    )
    recipe = recipe.override({key: text for key, text in settings.items() if key != "side"}).located()
    if not sides and "side" in settings:
        raise InputError(f"side={settings['side']} is for image files; arrays are taken in the size they have.")
    kept = [choice for choice in choices if choice.setting not in settings]
    given = [Choice(key, text, "as given") for key, text in settings.items() if key != "side"]
    return Prepared(recipe, source, sides + kept + given)


def gpu_room(recipe: Recipe) -> float:
    """Bytes that a GPU has for a run in bfloat16, which needs half of what float32 does; 0: there is no GPU."""
    device = choose_device(recipe.device)
    if device.type != "cuda":
        return 0.0
    free = SHARE * torch.cuda.mem_get_info(device)[0]
    return free if choose_dtype(recipe.precision, device) == torch.bfloat16 else free / 2


def choose_side(seen: Survey, *, room: float) -> tuple[int, str]:
    """The pixels a side and the reason.

    >>> choose_side(Survey(median=28, equal=True, grey=True), room=0)
    (28, 'all images are 28 x 28: they stay as they are')
    >>> choose_side(Survey(median=480, equal=False, grey=False), room=0)
    (64, 'the median image is 480 wide or high; without a GPU more pixels would take too long')
    """
    if seen.equal and 8 <= seen.median <= KEPT:
        return seen.median, f"all images are {seen.median} x {seen.median}: they stay as they are"
    if seen.median <= 48:
        return 32, f"the median image is {seen.median} wide or high"
    if seen.median > 80 and room >= needed(96, batch=32):
        return 96, f"the median image is {seen.median} wide or high, and there is a GPU"
    if room and room < needed(64, batch=BATCHES[-1]):
        return 32, f"the median image is {seen.median} wide or high; more pixels would not fit the GPU"
    why = "more pixels would not fit the GPU" if room else "without a GPU more pixels would take too long"
    return 64, f"the median image is {seen.median} wide or high{f'; {why}' if seen.median > 80 or not room else ''}"


def needed(side: int, *, batch: int, ratio: int = 7) -> int:
    """Bytes, for all rows of a step: labelled, weak and strong ones."""
    return batch * (1 + 2 * ratio) * side * side * BYTES


def choose(
    source: Source, *, method: str, room: float, given: Mapping[str, str] = MappingProxyType({})
) -> tuple[Recipe, list[Choice]]:
    """A recipe for the size and kind of the data, and for what is given of the settings it depends on.

    Where just some labels are asked for, none is held out.
    """
    fewer = "labels" in given
    samples, labels = len(source.train), np.bincount(source.targets[source.targets >= 0], minlength=len(source.classes))
    where = "there is a GPU" if room else "there is no GPU"
    changes: dict[str, Any] = {}
    features = 0
    if not source.train.is_images:
        recipe, why = vectors(None, method), f"vectors of {source.train.shape[0]} features"
    elif room:
        recipe, why = classic(OWN, None, method, draw="seeded"), f"images, and {where}"
        changes |= {"steps": 5_000, "log_every": 100, "evaluate_every": 1000, "checkpoint_every": 1000}
        if samples >= MANY:  # docs/cifar10-trials.md measures these, on CIFAR-10
            recipe, features = classic(OWN, None, method, slow_by_class, draw="seeded"), 10_000
            changes["steps"] = 20_000
            if given.get("optim.name", AFTER_FEATURES.name) == AFTER_FEATURES.name:
                changes["optim"] = AFTER_FEATURES
    else:
        recipe, why = small(OWN, None, method), f"images, and {where}"
        changes["steps"] = 600
        if samples >= MANY:  # docs/own-data.md measures these
            recipe, features = small(OWN, None, method, quick_by_class), 600
            changes |= {"steps": 1000, "optim": Optim(lr=0.05, cycles=0.5)}
            changes |= {"ema": 0.99, "backbone_options": {"width": 16}}
        if source.train.shape[1] > 40:
            changes["batch"] = 16
    features = features if samples >= MANY else 0
    changes["contrast"] = 0 if method in REFERENCES else features
    held = 0 if fewer or labels.min() < ENOUGH else int(labels.min()) // 5
    recipe = dataclasses.replace(recipe, source=OWN, validation=held * len(source.classes), **changes)
    recipe = recipe.override({key: given[key] for key in ("validation", "ratio", "steps") if key in given})
    if features:  # which a full rate at once would destroy; references are to differ in nothing else
        recipe = dataclasses.replace(recipe, optim=dataclasses.replace(recipe.optim, warmup=recipe.steps // 20))
    pool = max(1, samples - recipe.validation)
    if pool < recipe.ratio and "ratio" not in given:
        recipe = dataclasses.replace(recipe, ratio=pool)
    fits = max(1, pool // recipe.ratio)
    size = "for the size of the samples"
    if room and source.train.is_images:
        side = max(source.train.shape[1:])
        left = max(room - source.train.samples.nbytes, room / 2)  # too many samples stay in host memory
        batch = next((b for b in BATCHES if needed(side, batch=b, ratio=recipe.ratio) <= left), BATCHES[-1])
        if batch < recipe.batch:
            recipe = dataclasses.replace(recipe, batch=batch)
            size = f"more of {side} x {side} pixels would not fit the GPU's memory"
    if fits < recipe.batch:
        recipe = dataclasses.replace(recipe, batch=fits)
        size = f"a step's unlabelled samples are at most the {pool:,} there are"
    least = source.classes[int(labels.argmin())]
    whole = labels.sum() == samples and not fewer and method not in REFERENCES
    every = "; as none is without a label, there is nothing more to learn from" if whole else ""
    unknown = "" if (source.test_targets >= 0).any() else "; accuracy is not measured"
    choices = [
        Choice(
            "labels",
            str(labels.sum()),
            f"{len(source.classes)} classes, at least {labels.min()} each ({least!r}){every}",
        ),
        Choice(
            "validation",
            str(recipe.validation),
            f"{held} labels a class are held out to measure accuracy, of the {labels.sum()}"
            if held
            else f"none, unless validation=N is given beside labels=N{unknown}"
            if fewer
            else f"none: below {ENOUGH} labels a class all are better trained on{unknown}",
        ),
        Choice("backbone", recipe.backbone, why),
        *(
            Choice(f"backbone.{name}", str(value), "a third of the time that twice the width takes")
            for name, value in recipe.backbone_options.items()
        ),
        Choice("steps", f"{recipe.steps:,}", f"{samples:,} samples, and {where}; more may help, and takes longer"),
        Choice("optim.lr", f"{recipe.optim.lr:g}", f"goes with {recipe.backbone} and so many steps"),
        Choice("batch", f"{recipe.batch}, and {recipe.ratio} x unlabelled", size),
    ]
    if recipe.optim.name == AFTER_FEATURES.name:
        choices.insert(
            -2, Choice("optim.name", recipe.optim.name, "learnt more of CIFAR-10 than sgd, in as many steps")
        )
    if recipe.contrast:
        choices.append(Choice("contrast", f"{recipe.contrast:,}", "steps before the others: features, without labels"))
    if source.train.is_images:
        choices.append(Choice("mirror", "true", "right for photographs; say mirror=false for text or digits"))
    return recipe, choices
