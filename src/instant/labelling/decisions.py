"""What a finished run says about samples: label, confidence, threshold, its parts, accepted or not.

The judged network (averaged weights where the recipe has them) looks at images as they are, and the method decides by
its own rule with what it had learnt by the last step: T(x), alignment, running thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from instant.backbones.registry import build
from instant.data.feed import Normalise
from instant.data.split import Split
from instant.data.store import Store
from instant.engine.device import choose_device
from instant.errors import InputError
from instant.labelling.thresholds import MarginParts, Thresholds, margin_parts
from instant.match import Match
from instant.methods import build_method
from instant.rules import InstanceDependent
from instant.run import Run
from instant.transition import inflow
from instant.types import Evidence, Prediction, Problem


@dataclass(frozen=True, eq=False)
class Decisions(Thresholds):
    """A table with one entry a sample, in numpy; for a rule without T the whole threshold is `kappa`.

    `accepted` means full weight in the loss: of a rule that weighs samples, those at or above its mean.
    """

    ids: np.ndarray  # positions in the training part, or in the store that was given
    probs: np.ndarray  # (N, K) aligned where the method aligns
    classes: tuple[str, ...]

    def reason(self, row: int, classes: Sequence[str] | None = None) -> str:
        return super().reason(row, classes or self.classes)


@torch.no_grad()
def decide(run: Run, split: Split, store: Store | None = None, *, device: str = "auto", batch: int = 1024) -> Decisions:
    """Decide about every sample of a store; without one, of the run's own unlabelled pool.

    `split` is the run's: what it holds about labelled samples sets relative thresholds. Samples go through the network
    in batches, and the table is all that grows with their number.
    """
    _check_data(run, split, store)
    network, card = run.load_model()
    method = _method(run, split, network)
    where = choose_device(device)
    normalise = Normalise(card["mean"], card["std"], images=split.train.is_images)
    for part in (network, method, normalise):
        part.to(where)

    def outputs(samples: Store, rows: np.ndarray) -> Iterator[tuple[Tensor, Prediction]]:
        for start in range(0, len(rows), batch):
            block = np.require(samples.samples[rows[start : start + batch]], requirements=["C", "W"])
            x = normalise(torch.from_numpy(block).to(where))
            yield x, network(x)

    probs_l = torch.cat([F.softmax(out.logits.float(), 1) for _, out in outputs(split.train, split.labelled)])
    rows = split.pool if store is None else np.arange(len(store))
    probs = torch.empty(len(rows), len(split.classes))
    column = torch.empty_like(probs) if method.transitions is not None else None
    start = 0
    for x, out in outputs(split.train if store is None else store, rows):
        place = slice(start, start := start + len(x))
        p = F.softmax(out.logits.float(), dim=1)
        if method.align is not None:
            p, _ = method.align(p, probs_l)
        if method.transitions is not None and column is not None:
            column[place] = inflow(method.transitions.estimator(out.features.float(), x), p.argmax(1)).cpu()
        probs[place] = p.cpu()
    found = _held_against(method.cpu(), probs, probs_l.cpu(), column, run, split)
    return Decisions(**found, ids=rows, probs=probs.numpy(), classes=split.classes)


def _held_against(
    method: Match, probs: Tensor, probs_l: Tensor, column: Tensor | None, run: Run, split: Split
) -> dict[str, np.ndarray]:
    """All rows at once: what a rule takes from the batch it takes from all samples."""
    index = torch.arange(len(probs)) % len(split.pool)  # a rule may keep a state for every sample of its pool
    last = torch.tensor(run.recipe().steps - 1)
    seen = Evidence(probs, probs_l, torch.from_numpy(split.targets), index, last, column)
    selection, _ = method.rule(seen)
    tau, rule = selection.threshold, method.rule
    parts = _no_margin(probs)
    kappa = tau
    if isinstance(rule, InstanceDependent) and column is not None:
        posterior = probs if rule.resoftmax is None else F.softmax(probs / rule.resoftmax, dim=1)
        parts = margin_parts(posterior, column)
        kappa = rule.base.threshold(seen)[0].expand_as(tau)
    columns = {
        "label": parts.label,
        "runner_up": parts.runner_up,
        "confidence": probs.amax(1),
        "tau": tau,
        "kappa": kappa,
        "stay": parts.stay,
        "inflow": parts.inflow,
        "mistaken": parts.mistaken,
        "accepted": selection.weight >= 1,
    }
    return {name: value.contiguous().numpy() for name, value in columns.items()}


def _no_margin(probs: Tensor) -> MarginParts:
    """The parts of a rule that does not look at T."""
    return margin_parts(probs, torch.zeros(1, 1).expand_as(probs))


def _method(run: Run, split: Split, network: nn.Module) -> Match:
    """The run's method as it was at the end, its running means standing still."""
    recipe = run.recipe()

    def second(outputs: int) -> nn.Module:
        return build(recipe.backbone, shape=split.train.shape, classes=outputs, **recipe.backbone_options)

    problem = Problem(
        classes=len(split.classes),
        features=network.num_features,  # type: ignore[arg-type]
        unlabelled=len(split.pool),
        steps=recipe.steps,
        network=second,
    )
    method = build_method(recipe.method, problem, **recipe.method_options)
    if not isinstance(method, Match):
        raise InputError(
            f"{run} was trained with method={recipe.method}, which has no threshold and accepts nobody in particular; "
            "train with a method that has one, such as instant, or give its probabilities to instance_thresholds."
        )
    try:
        method.load_state_dict(run.method_state())
    except RuntimeError as error:
        raise InputError(
            f"{run}: its checkpoint does not fit method={recipe.method}; was another function trained? ({error})"
        ) from error
    for part in (method.align, method.rule):
        for module in part.modules() if part is not None else ():
            if hasattr(module, "momentum"):
                setattr(module, "momentum", 1.0)  # noqa: B010 (any module's, typed or not)
    return method.eval()


def _check_data(run: Run, split: Split, store: Store | None) -> None:
    if (before := run.split_record().get("hash")) != split.hash:
        raise InputError(
            f"the data of {run} has changed: its split had the hash {before}, now it is {split.hash}; put the same "
            "files back, or train again."
        )
    if store is not None and store.shape != split.train.shape:
        raise InputError(
            f"{store.name}: expected samples of shape {split.train.shape} as {run} was trained on, got {store.shape}."
        )
