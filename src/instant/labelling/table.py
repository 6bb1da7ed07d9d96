"""Decisions as a table for other programs, one row a sample.

id                   file name or number of the sample; of the run's own pool, its position in the training data
label, confidence    the class it is called and its probability, aligned where the method aligns
tau, accepted        the threshold it is held against, and whether it passes
margin               m(x) = tau_runner_up + tau_others; tau = min(cut of the rule, tau_everyone + margin)
tau_everyone         the parts of tau: what everyone is asked, or everyone of this label,
tau_runner_up        what the runner-up asks more,
tau_others           and what other classes that are called this label ask more
mistaken             how often samples like this one are called this label when they are not
runner_up, reason    the second most probable class, and the decision in a sentence
given                of the run's own pool: the label that it was trained with (none: it was not labelled),
first_accepted       the step that first accepted it (none: never),
flips                and how often its pseudo-label changed while training
p_CLASS              the probability of each class
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from instant.data.split import Split
from instant.errors import InputError
from instant.labelling.decisions import Decisions
from instant.run import Run


class Past:
    """Given label, first acceptance and flips of the samples of a run's pool, by their place in it."""

    def __init__(self, run: Run, split: Split) -> None:
        found = run.sample_history()
        if not {"first", "flips"} <= found.keys():
            raise InputError(f"{run}: its checkpoint does not say when samples were accepted; train again.")
        self.first, self.flips = found["first"].numpy(), found["flips"].numpy()
        self.given = np.full(len(split.train), None, dtype=object)
        self.given[split.labelled] = np.array(split.classes, dtype=object)[split.targets]
        self.given = self.given[split.pool]

    def columns(self, places: slice) -> dict[str, pa.Array]:
        first = self.first[places]
        return {
            "given": pa.array(self.given[places], pa.string()),
            "first_accepted": pa.array(first, mask=first < 0),
            "flips": pa.array(self.flips[places]),
        }


def as_arrow(found: Decisions, ids: Sequence[str], past: dict[str, pa.Array] | None = None) -> pa.Table:
    """The table of some samples; every part of the same job has the same columns."""
    names = np.array(found.classes, dtype=object)
    columns = {
        "id": pa.array(ids, pa.string()),
        "label": pa.array(names[found.label], pa.string()),
        "confidence": pa.array(found.confidence),
        "tau": pa.array(found.tau),
        "margin": pa.array(found.stay + found.inflow),
        "accepted": pa.array(found.accepted),
        "tau_everyone": pa.array(found.kappa),
        "tau_runner_up": pa.array(found.stay),
        "tau_others": pa.array(found.inflow),
        "mistaken": pa.array(found.mistaken),
        "runner_up": pa.array(names[found.runner_up], pa.string()),
        "reason": pa.array([found.reason(row) for row in range(len(found))], pa.string()),
        **(past or {}),
        **{f"p_{name}": pa.array(np.ascontiguousarray(p)) for name, p in zip(found.classes, found.probs.T)},
    }
    return pa.table(columns)
