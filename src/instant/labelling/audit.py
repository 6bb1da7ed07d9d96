"""An audit of a run: draw accepted samples at random, let a person label them, certify the rest.

The sample is the beginning of one random order of the accepted samples, fixed by the first draw: a later, larger draw
contains it. What was drawn, and how often it was looked at, is kept in the run folder, so that what the certificate
assumes is checked where it can be.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import get_type_hints

import numpy as np

from instant.backbones import BackboneFunction
from instant.data.split import Split
from instant.errors import InputError
from instant.kinds import misfit
from instant.labelling.certificate import Certificate, certify, checks_needed, lower_bound, rounded_down
from instant.labelling.decisions import decide
from instant.labelling.sheet import UNSURE, read_sheet, write_sheet
from instant.run import Run
from instant.types import MethodFunction


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What audit.json holds."""

    seed: int
    planned: int  # looks
    population: dict[str, int]  # accepted samples by the label they were given
    fingerprint: str  # of the accepted samples and their labels
    drawn: list[str]  # ids, in random order
    predicted: list[str]  # their labels
    looks: list[int]  # sample sizes that were certified so far
    labels: dict[str, str]  # what was said at the last look

    def spending(self, confidence: float) -> tuple[float, int]:
        """The confidence that can be stated after a look at this sample, and how many looks share the error.

        Each planned look gets its share. Looks beyond the plan have spent more than there was: what can be stated then
        is what is left for all of them together.
        """
        looks = len({*self.looks, len(self.drawn)})
        spent = max(1.0, looks / self.planned) * (1 - confidence)
        if spent > 0.5:
            raise InputError(
                f"this would be look {looks} at a sample planned for {self.planned}; too much of the error is spent to "
                "say anything. Train again, and plan with --looks."
            )
        return 1 - spent, max(self.planned, looks)

    def outlook(self, target: float, confidence: float, candidates: int = 1) -> str:
        """What the sample can show at best, and how many checks the target needs."""
        left, looks = self.spending(confidence)
        among, there = candidates * looks, sum(self.population.values())
        best = lower_bound(len(self.drawn), 0, left, candidates=among, population=there)
        needed = checks_needed(target, 0, left, candidates=among, population=there)
        short = "" if len(self.drawn) >= needed else f"; {100 * target:g} % needs {needed:,}"
        return f"If none is wrong they certify {rounded_down(best)} precision, with {100 * left:g} % confidence{short}."

    @classmethod
    def of(cls, run: Run) -> Audit | None:
        record = run.audit()
        if record is None:
            return None
        kinds = get_type_hints(cls)
        wrong = next((f"no {name!r}" for name in kinds if name not in record), None) or misfit(record, kinds)
        if wrong is None:
            found = cls(**{name: record[name] for name in kinds})
            drawn, there = Counter(found.predicted), Counter(found.population)
            if len(found.drawn) == len(found.predicted) and drawn <= there and found.planned >= 1:
                return found
            wrong = "numbers that contradict each other"
        raise InputError(f"{run}/audit.json has {wrong}; it is damaged. Remove it and draw again.")


def draw_sample(
    run: Run,
    split: Split,
    count: int,
    *,
    seed: int | None = None,
    planned: int | None = None,
    method: str | MethodFunction | None = None,
    backbone: str | BackboneFunction | None = None,
    device: str = "auto",
    sheet: Path | None = None,
    show: bool = False,
) -> Audit:
    """Draw `count` accepted samples that nobody has labelled; a sample drawn before becomes a part of this one.

    Where a `sheet` is asked for and cannot be written, nothing was drawn; `show`: with what was predicted.
    """
    before = Audit.of(run)
    if before is not None:
        for name, asked, fixed in (("seed", seed, before.seed), ("looks", planned, before.planned)):
            if asked not in (None, fixed):
                raise InputError(
                    f"{run}: its sample was drawn with --{name} {fixed}, and with another one could choose what looks "
                    f"best; leave --{name} out."
                )
        seed, planned = before.seed, before.planned
        if count < len(before.drawn):
            raise InputError(f"--draw {count}: {len(before.drawn)} were drawn before; draw as many or more.")
    seed, planned = seed or 0, 1 if planned is None else planned
    if planned < 1 or seed < 0:
        raise InputError(f"--looks {planned} must be 1 or more, and --seed {seed} 0 or more.")
    found = decide(run, split, method=method, backbone=backbone, device=device)
    unknown = ~np.isin(found.ids, split.labelled)
    rows = np.flatnonzero(found.accepted & unknown)
    if not unknown.any():
        raise InputError(f"{run} has no sample that nobody labelled, so there is nothing to certify.")
    if not len(rows):
        raise InputError(
            f"{run} accepts no sample that nobody labelled, so there is nothing to certify; its report says why "
            f"({run.report_command})."
        )
    if not 1 <= count <= len(rows):
        raise InputError(f"--draw {count}: expected from 1 to {len(rows)}, the accepted samples of {run}.")
    fingerprint = hashlib.sha256(repr([(found.ids[rows]).tolist(), found.label[rows].tolist()]).encode()).hexdigest()
    if before is not None and before.fingerprint != fingerprint:
        raise InputError(
            f"{run}: other samples are accepted now than when the sample was drawn; use the machine and the version "
            "that drew it, or remove audit.json and check anew."
        )
    chosen = np.random.default_rng([seed, 0xA0D17]).permutation(rows)[:count]
    audit = Audit(
        seed=seed,
        planned=planned,
        population={name: int((found.label[rows] == k).sum()) for k, name in enumerate(found.classes)},
        fingerprint=fingerprint,
        drawn=[split.files[i] if split.files else str(i) for i in found.ids[chosen]],
        predicted=[found.classes[k] for k in found.label[chosen]],
        looks=before.looks if before else [],
        labels=before.labels if before else {},
    )
    run.save_audit(asdict(audit))
    if sheet is not None:
        try:
            write_sheet(sheet, audit.drawn, audit.labels, audit.predicted if show else None)
        except InputError:
            run.save_audit(None if before is None else asdict(before))
            raise
    return audit


def certify_run(
    run: Run, path: Path, *, confidence: float = 0.95, target: float | None = None, candidates: int = 1
) -> Certificate:
    """The certificate of a run from its filled-in sheet; after more looks than planned it states less confidence."""
    audit = Audit.of(run)
    if audit is None:
        raise InputError(
            f"no sample was drawn from {run}; a certificate needs a random one. Draw it first: "
            f"instant certify {run.quoted} --draw 59 --out todo.csv"
        )
    record = run.split_record()
    if unknown := audit.population.keys() - set(record["classes"]):
        raise InputError(f"{run}/audit.json is of other classes ({min(unknown)}); remove it and draw again.")
    given = read_sheet(path, audit.drawn, record["classes"])
    left, looks = audit.spending(confidence)
    rest = dict(audit.population)
    for k in audit.predicted:
        rest[k] -= 1
    unseen = [k for k, number in rest.items() for _ in range(number)]
    classes = record["classes"]
    place = {name: k for k, name in enumerate(classes)}  # a class may be called "None", or "?"
    said = place | {UNSURE: len(classes)}
    found = certify(
        [place[name] for name in (*audit.predicted, *unseen)],
        [*(said[given[i]] for i in audit.drawn), *([-1] * len(unseen))],
        left,
        target=target,
        candidates=candidates * looks,
        labels_spent=record["budget"]["total"],
        complete=True,
    )
    run.save_audit(asdict(replace(audit, looks=sorted({*audit.looks, len(audit.drawn)}), labels=given)))
    return replace(found, classes=tuple(replace(bound, name=classes[int(bound.name)]) for bound in found.classes))
