"""Signs that a run goes wrong, each a sentence with a remedy: pure functions of records, labels and decisions.

The same functions speak during training (`Watch`, once a kind) and in the report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import chdtrc
from torch import nn

from instant.alignment import Alignment
from instant.config import Recipe
from instant.data.split import Split
from instant.engine.build import SEEDING
from instant.engine.fit import Callback
from instant.match import Match
from instant.methods import build_method, method_options
from instant.types import Problem

LASTING = 3  # records in a row: one may be chance
SETTLED = 0.25  # share of the steps after which a run is expected to have found its feet
FEW, NEARLY_ALL = 0.005, 0.995  # of the unlabelled samples
RIGHT = 0.98  # share of right pseudo-labels at which taking them all is no mistake
FLOOD_ODDS, FLOOD_SHARE = 6.0, 0.2  # of a class among the calls, against its odds among the labels
UNEQUAL_CHANCE, UNEQUAL_RATIO = 0.01, 1.5  # of label counts drawn from equal shares; largest count to smallest


class Warn(NamedTuple):
    """One thing that goes wrong, and what to do about it."""

    kind: str
    sentence: str


def from_records(records: Sequence[dict[str, Any]], recipe: Recipe) -> list[Warn]:
    """What the latest records say about the share of accepted samples and the thresholds."""
    seen = [r for r in records if "utilisation" in r][-LASTING:]
    if len(seen) < LASTING or seen[0]["step"] < SETTLED * recipe.steps:
        return []
    lower, upper = _threshold_remedies(recipe)
    used = [r["utilisation"] for r in seen]
    found = []
    if all(r["threshold_quantiles"][2] >= NEARLY_ALL for r in seen):
        found.append(
            Warn(
                "threshold",
                f"Thresholds are stuck at 1: since step {seen[0]['step']} half of the samples or more are asked for "
                f"certainty, which nobody reaches. {lower}.",
            )
        )
    elif max(used) <= FEW:
        found.append(
            Warn(
                "none",
                f"Almost no unlabelled sample is accepted: {100 * used[-1]:.1f} % at step {seen[-1]['step']}. The run "
                f"learns from its labels alone. {lower}.",
            )
        )
    right = min((r["pseudo_label_accuracy"] for r in seen if "pseudo_label_accuracy" in r), default=0.0)
    if min(used) >= NEARLY_ALL and seen[-1]["threshold"] > 0 and right < RIGHT:
        found.append(
            Warn(
                "all",
                f"Nearly every unlabelled sample is accepted: {100 * used[-1]:.1f} % at step {seen[-1]['step']}. The "
                f"threshold refuses nobody, so wrong labels are learnt too. {upper}, or check a sample of the labels "
                "with instant certify.",
            )
        )
    return found


def lagging(records: Sequence[dict[str, Any]], recipe: Recipe, accepted: int) -> list[Warn]:
    """Nobody is accepted in the end, though the network in training accepted some: the averaged one is behind it."""
    used = next((r["utilisation"] for r in reversed(records) if "utilisation" in r), 0.0)
    if accepted or used <= FEW or not recipe.ema:
        return []
    return [
        Warn(
            "lag",
            f"No sample is accepted in the end, though training used {100 * used:.0f} %: it is the averaged weights "
            f"that decide, and in {recipe.steps} steps they may not have followed. Train for more steps, or with a "
            f"lower ema than {recipe.ema:g}.",
        )
    ]


def flooding(called: Sequence[float], what: str, recipe: Recipe, split: Split) -> list[Warn]:
    """A class that takes far more of the calls, counts or shares, than it has of the labels."""
    calls, labels = np.asarray(called, float), np.bincount(split.targets, minlength=len(split.classes))
    if calls.sum() == 0 or labels.sum() == 0 or len(calls) < 2:
        return []
    share, expected = calls / calls.sum(), labels / labels.sum()
    k = int(share.argmax())
    odds = share[k] * (1 - expected[k]) >= FLOOD_ODDS * expected[k] * (1 - share[k])
    if not odds or share[k] < FLOOD_SHARE:
        return []
    other = ""
    if _alignment(recipe, split) is None:
        able = "align" in method_options(recipe.method)
        other = ", or add method.align=true" if able else ", or use a method that aligns classes, as adamatch does"
    return [
        Warn(
            "flood",
            f"One class floods the others: {100 * share[k]:.0f} % of {what} are called {split.classes[k]!r}, which has "
            f"{100 * expected[k]:.0f} % of the labels. Label a few more samples of the classes it swallows, or train "
            f"for longer{other}; if the class is that common, ignore this.",
        )
    ]


def unequal(recipe: Recipe, split: Split) -> list[Warn]:
    """Alignment with equal shares although the labels say clearly otherwise."""
    counts = np.bincount(split.targets, minlength=len(split.classes))
    # Counts of equal shares would differ this much by chance less than once in a hundred times
    chisquare = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    chance = chdtrc(len(counts) - 1, chisquare)
    if counts.max() < UNEQUAL_RATIO * counts.min() or chance >= UNEQUAL_CHANCE:
        return []
    align = _alignment(recipe, split)
    if align is None or align.learn_target:
        return []
    many, few = split.classes[int(counts.argmax())], split.classes[int(counts.argmin())]
    options = method_options(recipe.method)
    remedy = "Set method.align_target=labelled" if "align_target" in options else "Use method=adamatch"
    return [
        Warn(
            "unequal",
            f"The method makes classes equally common, but the labels are not: {counts.max()} of {many!r} against "
            f"{counts.min()} of {few!r}. {remedy}, unless only the labels are unequal and the data is not.",
        )
    ]


class Watch(Callback):
    """Says during training what goes wrong, each kind once, by `tell`."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    def start(self, recipe: Recipe, split: Split, step: int) -> None:
        self.recipe, self.split = recipe, split
        self._records: list[dict[str, Any]] = []
        self.told: set[str] = set()  # kinds
        self._say(unequal(recipe, split))

    def record(self, record: dict[str, Any]) -> None:
        self._records.append(record)
        self._say(from_records(self._records, self.recipe))
        self._say(flooding_records(self._records, self.recipe, self.split))

    def _say(self, warnings: list[Warn]) -> None:
        for warning in warnings:
            if warning.kind not in self.told:
                self.told.add(warning.kind)
                self.tell(warning.sentence)


def flooding_records(records: Sequence[dict[str, Any]], recipe: Recipe, split: Split) -> list[Warn]:
    """The same class floods at the last two evaluations, once the run has found its feet."""
    seen = [r for r in records if "called" in r][-2:]
    if len(seen) < 2 or seen[0]["step"] < SETTLED * recipe.steps or "utilisation" not in seen[-1]:
        return []
    before, now = (flooding(r["called"], "the unlabelled samples", recipe, split) for r in seen)
    same = np.argmax(seen[0]["called"]) == np.argmax(seen[1]["called"])
    return now if before and same else []


def _threshold_remedies(recipe: Recipe) -> tuple[str, str]:
    """What lowers and what raises the thresholds of a method."""
    options = method_options(recipe.method)
    for name in ("base", "threshold"):
        value = recipe.method_options.get(name, options.get(name))
        if isinstance(value, int | float):
            now = f"method.{name} (now {value:g})"
            return f"Lower {now}, label more samples, or train for longer", f"Raise {now}"
    return "Label more samples, or train for longer", "Use a method with a threshold you can raise, such as instant"


def _alignment(recipe: Recipe, split: Split) -> Alignment | None:
    """Asked of the method itself; what it would make a network of is not looked at."""
    problem = Problem(
        classes=len(split.classes),
        features=1,
        unlabelled=len(split.pool),
        steps=recipe.steps,
        network=lambda outputs: nn.Linear(1, outputs),
    )
    with SEEDING, torch.random.fork_rng(devices=[]):  # others may be seeding in their threads
        method = build_method(recipe.method, problem, **recipe.method_options)
    return method.align if isinstance(method, Match) else None
