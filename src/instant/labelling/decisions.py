"""What a finished run says about samples, as a table: label, confidence, threshold, its parts, accepted or not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from instant.backbones import BackboneFunction
from instant.data.progress import Report, counting
from instant.data.split import Split
from instant.data.store import Store, batches
from instant.engine.device import device_of
from instant.errors import InputError
from instant.labelling.judge import Judge, Verdict, load_judge, require_rule
from instant.labelling.thresholds import Thresholds
from instant.run import Run
from instant.types import MethodFunction

MANY = 1000  # samples, from which on a person would rather see how far it is


@dataclass(frozen=True, eq=False)
class Decisions(Thresholds):
    """A table with one entry a sample, in numpy; for a rule without T the whole threshold is `kappa`, maybe by class.

    `accepted` means full weight in the loss: of a rule that weighs samples, those at or above its mean.
    """

    ids: np.ndarray  # positions in the training part, or in the store that was given
    probs: np.ndarray  # (N, K) aligned where the method aligns
    classes: tuple[str, ...]
    by_class: bool

    def reason(self, row: int, classes: Sequence[str] | None = None) -> str:
        return super().reason(row, classes or self.classes)


def decide(
    run: Run,
    split: Split,
    store: Store | None = None,
    *,
    method: str | MethodFunction | None = None,
    backbone: str | BackboneFunction | None = None,
    device: str = "auto",
    batch: int | None = None,
) -> Decisions:
    """Decide about every sample of a store; without one, of the run's own unlabelled pool, which `split` holds.

    `method` and `backbone` name the code of a run that is your own. Samples go through the network in batches, and the
    table is all that grows with their number.
    """
    run.require_same(split)
    judge, classes, shape = load_judge(run, method, backbone)
    require_rule(judge, run)
    if store is not None and store.shape != shape:
        raise InputError(f"{store.name}: expected samples of shape {shape} as {run} was trained on, got {store.shape}.")
    judge.to(device_of(run.recipe().device, device))
    rows, in_pool = (split.pool, np.arange(len(split.pool))) if store is None else (np.arange(len(store)), None)
    with counting("deciding", len(rows), wanted=sys.stderr.isatty() and len(rows) >= MANY) as report:
        return decide_rows(
            judge, split.train if store is None else store, rows, classes, in_pool, batch=batch, report=report
        )


@torch.no_grad()
def decide_rows(
    judge: Judge,
    store: Store,
    rows: np.ndarray,
    classes: tuple[str, ...],
    in_pool: np.ndarray | None = None,
    *,
    batch: int | None = None,
    report: Report = lambda done: None,
) -> Decisions:
    """Decisions about some samples of a store; each is its own, whatever the others are.

    `in_pool` are their positions in the run's pool; none: they are other samples.
    """
    if in_pool is None:
        judge.require_stranger()
    parts, done = [], 0
    for block in batches(store, judge.step.device, rows, batch=batch):
        index = None if in_pool is None else torch.from_numpy(in_pool[done : done + len(block)]).to(block.device)
        parts.append([part.cpu() for part in judge(block, index)])
        done += len(block)
        report(done)
    columns = {name: torch.cat(column).contiguous().numpy() for name, column in zip(Verdict._fields, zip(*parts))}
    return Decisions(**columns, ids=rows, classes=classes, by_class=judge.by_class)


@torch.no_grad()
def mean_transition(judge: Judge, store: Store, rows: np.ndarray) -> np.ndarray | None:
    """(K, K): the mean of T(x) over some samples of a store; None where the method has no T."""
    if judge.estimator is None:
        return None
    device = judge.step.device
    total = torch.zeros((), device=device)
    for block in batches(store, device, rows, batch=128):
        matrix = judge.transition(block)
        total = total + (matrix.sum(0) if matrix.ndim == 3 else len(block) * matrix)
    return (total / len(rows)).cpu().numpy()
