"""A lower bound on the precision of accepted labels, from a random sample that a person checked.

Clopper and Pearson (1934): n checks with e errors certify at confidence 1 - a the precision p that solves
P(at most e errors | n, p) = a. The bound is exact for samples with replacement; without, it errs on the safe side, the
more so the larger the share that was checked. Where all that was accepted is known (`complete`), as in the audit of a
run, it is the hypergeometric one instead: the largest number of wrong labels under which so few errors are more likely
than a. Who checked them all then knows the precision.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.stats import beta, hypergeom

from instant.data.folder.labels import class_alike
from instant.data.sources.labels import Labels, made_text, read_labels
from instant.errors import InputError
from instant.labelling.probabilities import as_array

ASSUMPTION = (
    "the checked samples were drawn at random from the accepted ones, all that were drawn were checked, their number "
    "was settled before anybody looked, and the person who checked is right"
)


@dataclass(frozen=True, kw_only=True)
class ClassBound:
    """The bound of the samples that were given one label; all classes' bounds hold together."""

    name: str
    accepted: int
    checked: int
    errors: int
    lower: float


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What an audit showed; `print` it, or keep `to_json()`."""

    accepted: int
    checked: int
    errors: int
    lower: float  # precision is at least this, at the confidence below
    confidence: float
    candidates: int  # thresholds, or looks, this one was chosen among
    target: float | None
    complete: bool  # `accepted` are all there are, and the sample was drawn from them without replacement
    classes: tuple[ClassBound, ...]  # at the same confidence for all of them together
    budget: dict[str, int]  # labels a person gave: to train, to check, in all

    @property
    def certified(self) -> bool:
        """Whether the target is certified; without a target there is nothing to refuse."""
        return self.target is None or self.lower >= self.target

    @property
    def refusal(self) -> str | None:
        """Why the target is not certified, in numbers."""
        if self.target is None or self.certified:
            return None
        all_there_are = self.accepted if self.complete else None
        needed = checks_needed(
            self.target, self.errors, self.confidence, candidates=self.candidates, population=all_there_are
        )
        errors = _count(self.errors, "error")
        return (
            f"{_count(self.checked, 'check')} with {errors} support at most {rounded_down(self.lower)}; "
            f"{_plain(self.target)} needs {needed:,} with {errors}"
            + (f", more than the {self.accepted:,} there are" if needed > self.accepted else "")
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "certified": self.certified, "refusal": self.refusal, "assumption": ASSUMPTION}

    def __str__(self) -> str:
        chosen = f", corrected for a choice among {self.candidates}" if self.candidates > 1 else ""
        lines = [
            f"Of {self.accepted:,} accepted labels at least {rounded_down(self.lower)} are right, with "
            f"{_plain(self.confidence)} confidence{chosen}: {self.checked:,} checked, {self.errors:,} wrong.",
        ]
        if self.target is not None:
            verdict = "certified" if self.certified else f"NOT certified: {self.refusal}"
            lines.append(f"{_plain(self.target)} precision: {verdict}.")
        if len(self.classes) > 1:
            lines.append(f"By label, all {len(self.classes)} together with {_plain(self.confidence)} confidence:")
            width = max(len(bound.name) for bound in self.classes)
            lines += [
                f"  {bound.name:{width}}  at least {rounded_down(bound.lower):>7}  ({bound.accepted:,} accepted, "
                f"{bound.checked:,} checked, {bound.errors:,} wrong)"
                for bound in self.classes
            ]
        spent = self.budget
        lines.append(
            f"Labels spent: {spent['training']:,} to train + {spent['checks']:,} to check = {spent['total']:,}."
        )
        lines.append(f"This holds if {ASSUMPTION}.")
        return "\n".join(lines)


def certify(
    accepted: Any,
    checked_labels: Any,
    confidence: float = 0.95,
    *,
    target: float | None = None,
    candidates: int = 1,
    labels_spent: int = 0,
    complete: bool = False,
) -> Certificate:
    """The precision that a checked random sample certifies, overall and for every label.

    accepted        the label given to each accepted sample: class numbers or names
    checked_labels  what a person says, one entry for each of `accepted`; -1 (None, NaN, "") where nobody looked
    target          the precision that is wanted; where the sample cannot support it, `refusal` says so in numbers
    candidates      how many thresholds were tried on checked samples before this one was chosen, or how often one
                    looked before stopping: each gets its share of the error
    labels_spent    labels given for training, to be counted with the checks
    complete        True: `accepted` holds every accepted sample, not only those that were drawn, and each was drawn
                    once at most; the bound is then that of so many labels, and exact where all were checked

    The overall bound holds with the confidence stated, and so do the bounds by label, all of them together.

    >>> checked = [-1] * 940 + [0] * 59 + [1]
    >>> certificate = certify([0] * 1000, checked, target=0.95)
    >>> certificate.certified, round(certificate.lower, 4)
    (False, 0.9234)
    >>> certificate.refusal
    '60 checks with 1 error support at most 92.3 %; 95 % needs 93 with 1 error'
    """
    _check_numbers(confidence, candidates)
    if target is not None:
        _check_precision("target", target)
    _check_count("labels_spent", labels_spent)
    given, truth = _read(accepted, checked_labels)
    seen = truth.known
    wrong = seen & (given.values != truth.values)
    names, member = np.unique(given.values, return_inverse=True)
    counts = [np.bincount(member[chosen], minlength=len(names)).tolist() for chosen in (slice(None), seen, wrong)]
    share = (1 - confidence) / candidates

    def lower(accepted: int, checked: int, errors: int, share: float) -> float:
        return _lower(checked, errors, share, accepted if complete else None)

    bounds = tuple(
        ClassBound(name=str(name), accepted=n, checked=c, errors=e, lower=lower(n, c, e, share / len(names)))
        for name, n, c, e in zip(names, *counts)
    )
    checks, errors = int(seen.sum()), int(wrong.sum())
    return Certificate(
        accepted=len(given.values),
        checked=checks,
        errors=errors,
        lower=lower(len(given.values), checks, errors, share),
        confidence=float(confidence),
        candidates=int(candidates),
        target=None if target is None else float(target),
        complete=complete,
        classes=bounds,
        budget={"training": int(labels_spent), "checks": checks, "total": int(labels_spent) + checks},
    )


def checks_needed(
    precision: float,
    errors: int = 0,
    confidence: float = 0.95,
    *,
    candidates: int = 1,
    population: int | None = None,
) -> int:
    """How many random checks certify this precision when `errors` of them are wrong.

    For a bound on each of K classes, `candidates=K` is the number of checks in every class. `population` is how many
    accepted labels there are in all; one more than that is the answer where not even checking them all would do.

    >>> [checks_needed(p) for p in (0.90, 0.95, 0.98, 0.99)]
    [29, 59, 149, 299]
    >>> [checks_needed(p, errors=1) for p in (0.90, 0.95, 0.98, 0.99)]
    [46, 93, 236, 473]
    """
    _check_numbers(confidence, candidates, population)
    _check_precision("precision", precision)
    _check_count("errors", errors)
    share = (1 - confidence) / candidates
    most = None if population is None else population + 1

    def enough_are(checks: int) -> bool:
        return checks == most or _lower(checks, errors, share, population) >= precision

    below, enough = errors, max(1, 2 * errors)  # the bound grows with the checks: double, then halve the interval
    while not enough_are(enough := enough if most is None else min(enough, most)):
        below, enough = enough, 2 * enough
    while enough - below > 1:
        middle = (below + enough) // 2
        below, enough = (below, middle) if enough_are(middle) else (middle, enough)
    return enough


def lower_bound(
    checked: int, errors: int = 0, confidence: float = 0.95, *, candidates: int = 1, population: int | None = None
) -> float:
    """The precision that so many random checks with so many errors certify; `population` as above.

    >>> round(lower_bound(59), 4), round(lower_bound(59, candidates=2), 4)
    (0.9505, 0.9394)
    """
    _check_numbers(confidence, candidates, population)
    _check_count("checked", checked)
    _check_count("errors", errors)
    if errors > checked:
        raise InputError(f"errors={errors} cannot be more than checked={checked}.")
    if population is not None and checked > population:
        raise InputError(f"checked={checked} cannot be more than population={population}.")
    return _lower(checked, errors, (1 - confidence) / candidates, population)


def _lower(checked: int, errors: int, share: float, population: int | None = None) -> float:
    """One-sided Clopper-Pearson: the precision under which so few errors have probability `share`; or of so many."""
    if population is None:
        return float(beta.ppf(share, checked - errors, errors + 1)) if checked > errors else 0.0
    wrong, most = errors, population - (checked - errors)  # more wrong ones make so few errors less probable
    while wrong < most:
        middle = (wrong + most + 1) // 2
        if hypergeom.cdf(errors, population, middle, checked) > share:
            wrong = middle
        else:
            most = middle - 1
    return (population - wrong) / population


def _read(accepted: Any, checked_labels: Any) -> tuple[Labels, Labels]:
    accepted, checked_labels = (y.detach().cpu() if hasattr(y, "detach") else y for y in (accepted, checked_labels))
    if as_array(accepted, "accepted").dtype.kind == "b":
        raise InputError(
            "accepted: expected the label given to each accepted sample, got true and false. Pass label[accepted]."
        )
    given, truth = read_labels(accepted, "accepted"), read_labels(checked_labels, "checked_labels")
    if len(given.values) != len(truth.values):
        raise InputError(
            f"checked_labels: expected {len(given.values)} entries, one for each of accepted, got {len(truth.values)}; "
            "put -1 (or None) where nobody looked."
        )
    if not given.known.all():
        row = int((~given.known).argmax())
        raise InputError(f"accepted: row {row} has no label. Pass the samples that were accepted, and only those.")
    if not truth.known.any():
        raise InputError("checked_labels: nobody has looked at a sample yet. Draw some at random and check them.")
    if given.are_names != truth.are_names:
        kinds = ("numbers", "names")
        raise InputError(
            f"checked_labels: expected class {kinds[given.are_names]} as in accepted, got class "
            f"{kinds[truth.are_names]}. Use the same for both."
        )
    if given.are_names:
        accepted_names = sorted(set(given.values.tolist()))
        new = sorted(set(truth.values[truth.known].tolist()).difference(accepted_names))
        if odd := made_text(new):
            raise InputError(
                f"checked_labels: {odd[0]!r} stands among names as text; put '' or None where nobody looked."
            )
        for name in new:
            if alike := [one for one in accepted_names if class_alike(one) == class_alike(name)]:
                raise InputError(
                    f"checked_labels: {name!r} would count as another class than {alike[0]!r} in accepted; spell it "
                    "the same."
                )
    return given, truth


def _check_numbers(confidence: float, candidates: int, population: int | None = None) -> None:
    if not (isinstance(confidence, Real) and 0.5 <= confidence < 1):
        raise InputError(f"confidence={confidence!r} must be from 0.5 to below 1, for example 0.95.")
    if isinstance(candidates, bool) or not isinstance(candidates, Integral) or candidates < 1:
        raise InputError(
            f"candidates={candidates!r} must be a whole number from 1: how many were there to choose from?"
        )
    if population is not None:
        _check_count("population", population, least=1)


def _check_count(name: str, value: int, *, least: int = 0) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name}={value!r} must be a whole number from {least}.")


def _check_precision(name: str, value: float) -> None:
    if not (isinstance(value, Real) and 0 < value < 1):
        raise InputError(
            f"{name}={value!r} must be above 0 and below 1, for example 0.95; no sample certifies that all are right."
        )


def rounded_down(share: float) -> str:
    """A bound is rounded down, never up."""
    return f"{np.floor(share * 1000) / 10:.1f} %"


def _plain(share: float) -> str:
    return f"{100 * share:.10g} %"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
