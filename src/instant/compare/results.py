"""The runs of a comparison that are finished, and what they say together: for people, for programs, as a file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from instant.bench.report import check_csv, writing_csv
from instant.compare.plan import Entry, Plan
from instant.compare.statistics import Mean, beyond_luck, mean_of, paired, verdict
from instant.data.files import atomic
from instant.errors import InputError
from instant.report.facts import compare as accuracy_of


class Result(NamedTuple):
    """A finished run: a row of the file."""

    method: str
    seed: int
    accuracy: float | None  # of the last weights
    accuracy_on: str | None  # test samples, or validation samples where those have no labels
    utilisation: float | None
    pseudo_label_accuracy: float | None
    threshold: float | None
    labels: int  # what a person had to give
    seconds: float
    hardware: str
    torch: str
    split: str
    command: str


class Failure(NamedTuple):
    """A run that did not come to its end."""

    method: str
    seed: int
    reason: str
    command: str  # which trains it alone


def result_of(entry: Entry) -> Result:
    try:
        found = entry.run.summary()
    except InputError as error:
        raise InputError(f"{error} To have this run trained anew, remove its folder.") from error
    accuracy = accuracy_of(found, None)
    return Result(
        method=entry.method,
        seed=entry.seed,
        accuracy=accuracy.value,
        accuracy_on=accuracy.measured_on,
        utilisation=found["utilisation"],
        pseudo_label_accuracy=found["pseudo_label_accuracy"],
        threshold=found.get("threshold_mean"),
        labels=found["label_budget"]["total"],
        seconds=round(found["seconds"], 3),
        hardware=found["device"],
        torch=found["versions"]["torch"],
        split=found["split_hash"],
        command=entry.command,
    )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the finished runs of a plan say; every method is compared with the first."""

    source: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    results: tuple[Result, ...]
    failures: tuple[Failure, ...] = ()

    @cached_property
    def accuracies(self) -> dict[str, dict[int, float]]:
        """By method and seed, of those that are finished and known."""
        found: dict[str, dict[int, float]] = {method: {} for method in self.methods}
        for result in self.results:
            if result.accuracy is not None:
                found[result.method][result.seed] = result.accuracy
        return found

    def mean(self, method: str, value: Callable[[Result], float | None]) -> Mean | None:
        """Over the seeds of a method; None where nothing is known."""
        known = [number for r in self.results if r.method == method and (number := value(r)) is not None]
        return mean_of(known) if known else None

    def difference(self, method: str) -> Mean | None:
        """Accuracy above the first method's, over the seeds that both have."""
        return paired(self.accuracies[method], self.accuracies[self.methods[0]])

    @property
    def measured_on(self) -> str | None:
        return next((result.accuracy_on for result in self.results if result.accuracy_on), None)

    @property
    def unfinished(self) -> int:
        return len(self.methods) * len(self.seeds) - len(self.results)

    def sentences(self) -> list[str]:
        """The comparison in plain words, a sentence for every method but the first, and what limits it."""
        if not self.results:
            return ["No run is finished yet."]
        if self.measured_on is None:
            return ["No labels are held out, so accuracy is not known. Hold some out with validation=N."]
        first, *others = self.methods
        if not others:
            return [f"There is one method, {first}, and none to compare it with."]
        said = [verdict(method, first, self.difference(method)) for method in others]
        if sum(beyond_luck(d) is not None for d in map(self.difference, others) if d is not None) > 1:
            said.append("Each interval is for one comparison: of many, one in twenty misses by chance.")
        spent = {result.method: result.labels for result in self.results}
        said += [
            f"{method} was trained with {spent[method]:,} labels and {first} with {spent[first]:,}: it is not the "
            "methods alone that are compared."
            for method in others
            if first in spent and method in spent and spent[method] != spent[first]
        ]
        return said

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values; differences are shares, as accuracies are."""
        return {
            "source": self.source,
            "reference": self.methods[0],
            "methods": [self._method_json(method) for method in self.methods],
            "sentences": self.sentences(),
            "runs": [result._asdict() for result in self.results],
            "failed": [failure._asdict() for failure in self.failures],
            "unfinished": self.unfinished,
        }

    def _method_json(self, method: str) -> dict[str, Any]:
        accuracy = self.mean(method, lambda r: r.accuracy)
        row: dict[str, Any] = {
            "method": method,
            "accuracies": {str(seed): value for seed, value in self.accuracies[method].items()},
            "mean": accuracy and accuracy.value,
            "standard_error": accuracy and accuracy.error,
        }
        difference = None if method == self.methods[0] else self.difference(method)
        interval = difference and difference.interval
        row["difference"] = difference and {
            "mean": difference.value,
            "standard_error": difference.error,
            "seeds": difference.seeds,
            "interval": interval and list(interval),
            "beyond_luck": beyond_luck(difference),
        }
        return row


def gather(plan: Plan, failures: Sequence[Failure] = ()) -> Comparison:
    """What is finished, read from the run folders; a run that failed here may have been finished by another process."""
    results = tuple(result_of(entry) for entry in plan.entries if entry.run.finished)
    require_same_labels(results)
    done = {(result.method, result.seed) for result in results}
    return Comparison(
        source=plan.source,
        methods=plan.methods,
        seeds=plan.seeds,
        results=results,
        failures=tuple(failure for failure in failures if (failure.method, failure.seed) not in done),
    )


def require_same_labels(results: Sequence[Result]) -> None:
    """As many labels for one seed are the same samples; a method that takes every label there is has more."""
    known: dict[tuple[int, int], Result] = {}
    for result in results:
        other = known.setdefault((result.seed, result.labels), result)
        if other.split != result.split:
            raise InputError(
                f"{other.method} and {result.method} were trained on other samples for seed {result.seed} (splits "
                f"{other.split} and {result.split}), so they cannot be compared; train one of them anew, in another "
                "--out."
            )


# --- the file -----------------------------------------------------------------------------------------------------


def require_csv(path: Path, plan: Plan) -> None:
    """Before anything is trained: the file is new, or holds rows of this comparison alone, which are written anew."""
    try:
        if path.resolve().parent == plan.out.resolve():
            if path.suffix != ".csv":  # any other name may be that of a run, and the folder would be refused next time
                raise InputError(f"--csv {path} is among the runs; end its name in .csv, or name another folder.")
            plan.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {plan.out} cannot be made ({error.strerror or error}).") from error
    check_csv(path, Result._fields)
    if not path.exists():
        return
    ours = {entry.command for entry in plan.entries}
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        for row in csv.DictReader(file):
            if row["command"] not in ours:
                raise InputError(
                    f"--csv {path} holds a run of another comparison ({row['command']}), which would be lost; name "
                    "another file."
                )


def write_csv(path: Path, results: Sequence[Result]) -> None:
    """A row a run; the file is whole at every moment."""
    with writing_csv(path), atomic(path, "w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Result._fields)
        writer.writerows(results)
