"""The report of a run: facts and charts put into one self-contained page, without scripts or anything from afar."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from instant.data.files import atomic
from instant.data.split import Split
from instant.errors import InputError
from instant.report.charts import Band, Series, heat_map, line_chart, pair_bars, range_chart, strips
from instant.report.facts import Facts, collect
from instant.run import Run

TIMES = 30  # columns of a chart of classes over time


def write_report(
    run: Run, split: Split, out: Path | None = None, *, method: str | None = None, backbone: str | None = None
) -> tuple[Path, Facts]:
    """Write the report of a finished run, by default into its folder."""
    facts = collect(run, split, method, backbone)
    path = out or run.report_path
    save(path, render(facts), "report")
    return path, facts


def save(path: Path, text: str, what: str) -> None:
    """Write a page, whole or not at all."""
    try:
        with atomic(path) as file:
            file.write(text.encode("utf-8", "replace"))  # a path may hold what is no character
    except OSError as error:
        raise InputError(f"the {what} cannot be written to {path} ({error.strerror or error}).") from error


def render(facts: Facts) -> str:
    """The page. Names of classes and folders are anybody's text: all that is not a chart of ours is escaped."""
    return template("page.html").render(
        facts=facts,
        summary=facts.summary,
        curves=curves(facts),
        thresholds=threshold_curve(facts),
        class_thresholds=class_thresholds(facts),
        per_class=None if facts.decisions is None else thresholds_per_class(facts),
        balance=class_balance(facts),
        heat=None
        if facts.transition is None
        else heat_map("Estimated transition matrix T", facts.classes, facts.transition),
        settings=settings(facts),
    )


def template(name: str) -> Template:
    """A page of ours to fill in; whatever goes into it is escaped."""
    environment = Environment(
        loader=PackageLoader("instant.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["percent"] = percent
    return environment.get_template(name)


def percent(value: float | None, digits: int = 2) -> str:
    """With a space that no line breaks at."""
    return "not known" if value is None else f"{100 * value:.{digits}f}\N{NO-BREAK SPACE}%"


class Curve(NamedTuple):
    """A chart over the steps of training, with its words."""

    name: str
    title: str
    words: str
    series: list[Series]
    last: float
    chart: Markup


def measures(measured_on: str | None) -> list[tuple[str, str, str]]:
    """What the paper's figure 3 shows over the steps: how records call it, its title, its words."""
    accuracy = "validation_accuracy" if measured_on == "validation samples" else "accuracy"
    return [
        (accuracy, "Accuracy", f"on {measured_on}"),
        ("utilisation", "Utilisation", "share of the unlabelled samples that count"),
        ("pseudo_label_accuracy", "Pseudo-label accuracy", "share of accepted labels that are right"),
    ]


def curves(facts: Facts) -> list[Curve]:
    """Those of figure 3, as far as they are known, with the baseline's accuracy."""
    found = []
    for name, title, words in measures(facts.accuracy.measured_on):
        series = _series(facts, name)
        if title == "Accuracy" and (other := points_of(name, facts.baseline_records)):
            series.append(Series("supervised", other, 2))
        found.append(_curve(facts, name, title, words, series))
    return [curve for curve in found if curve is not None]


def threshold_curve(facts: Facts) -> Curve | None:
    """The mean threshold and its spread."""
    spread = [(r["step"], r["threshold_quantiles"]) for r in facts.records if "threshold_quantiles" in r]
    bands = [
        Band("5-95 %", [(step, q[0], q[4]) for step, q in spread]),
        Band("25-75 %", [(step, q[1], q[3]) for step, q in spread]),
    ]
    words = "mean over all samples; shaded: 5-95 % and 25-75 % of them"
    return _curve(facts, "threshold", "Threshold over time", words, _series(facts, "threshold"), bands)


def class_thresholds(facts: Facts) -> Markup | None:
    """The mean threshold of those called each class, over time; None where there are no thresholds."""
    seen = [r["threshold_by_class"] for r in facts.records if "threshold_by_class" in r]
    if not seen:
        return None
    table = np.array(seen, float).T  # (K, records); None becomes NaN
    parts = np.array_split(table, min(TIMES, table.shape[1]), axis=1)
    means = [np.nansum(part, 1) / np.maximum(1, np.isfinite(part).sum(1)) for part in parts]
    there = [np.isfinite(part).any(1) for part in parts]
    values = np.where(np.stack(there, 1), np.stack(means, 1), np.nan)
    return strips("Mean threshold per class over time", facts.classes, values, steps=facts.recipe.steps)


def points_of(name: str, records: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """A measure over the steps, where it was taken."""
    return [(record["step"], record[name]) for record in records if record.get(name) is not None]


def _series(facts: Facts, name: str) -> list[Series]:
    """The run's own line, where there is anything to draw."""
    return [Series(facts.recipe.method, points)] if (points := points_of(name, facts.records)) else []


def _curve(
    facts: Facts, name: str, title: str, words: str, series: list[Series], bands: Sequence[Band] = ()
) -> Curve | None:
    if not series:
        return None
    chart = line_chart(f"{title}, over the steps of training", series, bands=bands, steps=facts.recipe.steps)
    return Curve(name, title, words, series, series[0].points[-1][1], chart)


def thresholds_per_class(facts: Facts) -> Markup:
    """The lowest, mean and highest threshold of those called each class; most are near the lowest."""
    table = facts.decisions
    assert table is not None
    by_class = [table.tau[table.label == k] for k in range(len(facts.classes))]
    ranges = [(float(t.min()), float(t.mean()), float(t.max())) if len(t) else None for t in by_class]
    return range_chart("Thresholds per class at the end", facts.classes, ranges)


def class_balance(facts: Facts) -> Markup | None:
    """Shares of the classes among accepted labels and among given ones."""
    accepted = facts.accepted
    if accepted is None or accepted.sum() == 0:
        return None
    shares = (accepted / accepted.sum()).tolist(), (facts.labelled / facts.labelled.sum()).tolist()
    return pair_bars("Class balance of accepted labels against the labelled samples", facts.classes, *shares)


def settings(facts: Facts) -> list[tuple[str, str]]:
    """Every setting of the recipe, options of method and network one by one."""
    leaves = facts.recipe.leaves().items()
    return [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in leaves]
