"""All that a report says of a run, as plain values: collected once, from the run folder and its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from instant.algorithms import REFERENCES
from instant.config import Recipe
from instant.data.split import Split
from instant.engine.device import device_of
from instant.errors import InputError
from instant.labelling.decisions import Decisions, decide, mean_transition
from instant.labelling.judge import load_judge, require_rule
from instant.report.baseline import find_baseline
from instant.report.gallery import Group, gallery
from instant.report.warnings import Warn, flooding, flooding_records, from_records, lagging, unequal
from instant.run import Run


@dataclass(frozen=True, eq=False, kw_only=True)
class Accuracy:
    """What a run reached, and where that was measured."""

    measured_on: str | None  # None: there is no sample to measure on
    value: float | None
    baseline: float | None  # of the supervised baseline, where there is one
    is_baseline: bool  # the run itself uses labelled samples alone
    held_out: int | None  # the number of validation samples, where it was measured on them; they may be few

    @property
    def verdict(self) -> str:
        """The comparison in a sentence."""
        if self.value is None:
            return (
                "There are no test or validation labels, so accuracy is not known. Hold some labels out with "
                "validation=N, or check a sample of the accepted labels with instant certify."
            )
        if self.is_baseline:
            return "This run uses labelled samples alone: it is a baseline itself."
        if self.baseline is None:
            return "There is no supervised baseline to compare with yet."
        difference = 100 * (self.value - self.baseline)
        if difference > 0:
            found = f"{difference:.2f} points above the same network trained on the labelled samples alone."
        else:
            more = f"{100 * self.baseline:.2f} %, {-difference:.2f} points more" if difference else "the same accuracy"
            found = f"Semi-supervised learning did not help here: labelled samples alone reach {more}."
        if self.held_out is None:
            return found
        return f"{found} Each of the {self.held_out} validation samples counts {100 / self.held_out:.2f} points."


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """A finished run, ready to be shown."""

    run: str
    source: str  # what the data is called; of files of one's own, their folder
    recipe: Recipe
    summary: dict[str, Any]
    classes: tuple[str, ...]
    records: list[dict[str, Any]]
    baseline_records: list[dict[str, Any]]
    accuracy: Accuracy
    warnings: list[Warn]
    labelled: np.ndarray  # (K,) labels a class
    decisions: Decisions | None
    why_no_decisions: str
    transition: np.ndarray | None  # (K, K) mean of T(x) over the pool
    gallery: tuple[Group, ...]

    @property
    def baseline_command(self) -> str | None:
        """What would train the baseline that the verdict misses."""
        known = self.accuracy
        if known.value is None or known.baseline is not None or known.is_baseline:
            return None
        return f"{Run(self.run).report_command} --with-baseline"

    @property
    def accepted(self) -> np.ndarray | None:
        """(K,) accepted pseudo-labels a class."""
        if self.decisions is None:
            return None
        return np.bincount(self.decisions.label[self.decisions.accepted], minlength=len(self.classes))


def collect(run: Run, split: Split, method: str | None = None, backbone: str | None = None) -> Facts:
    """The facts of a finished run; `split` is the run's, `method` and `backbone` name code that is your own."""
    run.require_named(method, backbone)
    summary, recipe, records = run.summary(), run.recipe(), run.history()
    recipe = recipe.named(method, backbone)
    decisions, transition, why = None, None, ""
    judge = load_judge(run, method, backbone)[0]  # or a sentence: a damaged run gets no page, and keeps the one it has
    try:
        require_rule(judge, run)
    except InputError as error:  # a method without thresholds: the rest is shown
        why = str(error)
    else:
        decisions = decide(run, split, method=method, backbone=backbone)
        transition = mean_transition(judge.to(device_of(recipe.device)), split.train, split.spread)
    labelled = np.bincount(split.targets, minlength=len(split.classes))
    facts = Facts(
        run=str(run),
        source=split.source,
        recipe=recipe,
        summary=summary,
        classes=split.classes,
        records=records,
        baseline_records=[] if (other := find_baseline(run, split)) is None else other.history(),
        accuracy=compare(summary, None if other is None else other.summary()),
        warnings=from_records(records, recipe) + unequal(recipe, split),
        labelled=labelled,
        decisions=decisions,
        why_no_decisions=why,
        transition=transition,
        gallery=() if decisions is None else gallery(decisions, split),
    )
    floods = flooding_records(records, recipe, split)
    if not floods and facts.accepted is not None:
        floods = flooding(facts.accepted.tolist(), "the accepted samples", recipe, split)
    facts.warnings.extend(floods)
    if decisions is not None and not facts.warnings:
        facts.warnings.extend(lagging(records, recipe, int(decisions.accepted.sum())))
    return facts


def compare(summary: dict[str, Any], baseline: dict[str, Any] | None) -> Accuracy:
    """The last accuracy of both, on the test part or, where nothing is known of it, on the validation part."""
    places = {"accuracy_last": "test samples", "validation_accuracy": "validation samples"}
    name = next((name for name in places if summary.get(name) is not None), "")
    return Accuracy(
        measured_on=places.get(name),
        value=summary.get(name),
        baseline=None if baseline is None else baseline.get(name),
        is_baseline=summary["method"] in REFERENCES,
        held_out=summary["label_budget"]["validation"] if name == "validation_accuracy" else None,
    )
