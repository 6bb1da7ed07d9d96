"""The page of a comparison: the sentences, a table, and a curve a run with a colour a method."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from instant.compare.plan import Plan
from instant.compare.results import Comparison, Result
from instant.report.charts import Series, line_chart
from instant.report.page import measures, points_of, save, template

GOLDEN = 137.5  # degrees between the hues of two methods: none of the first dozen come near another
DASHES = ("none", "6 3", "2 3", "8 3 2 3")


class Look(NamedTuple):
    """How the lines of a method are drawn, of which `number` is the class in the page."""

    number: int
    name: str
    hue: float
    dashes: str


class Chart(NamedTuple):
    title: str
    words: str
    picture: Markup


class Link(NamedTuple):
    """A finished run and, where it has one, its own page."""

    result: Result
    page: str | None


def write_page(plan: Plan, found: Comparison) -> None:
    """Write the page of the runs that are finished into the folder of the comparison."""
    save(plan.page, render(plan, found), "page")


def render(plan: Plan, found: Comparison) -> str:
    """Names of methods and folders are anybody's text: all that is not a chart of ours is escaped."""
    looks = [
        Look(place, method, (205 + GOLDEN * (place - 1)) % 360, DASHES[(place - 1) % len(DASHES)])
        for place, method in enumerate(plan.methods, start=1)
    ]
    return template("comparison.html").render(
        found=found, looks=looks, charts=charts(plan, found), links=links(plan, found)
    )


def charts(plan: Plan, found: Comparison) -> list[Chart]:
    """Accuracy, utilisation and pseudo-label accuracy over the steps, as far as they are known."""
    histories = [(entry, entry.run.history()) for entry in plan.entries if entry.run.finished]
    steps = max(entry.recipe.steps for entry, _ in histories)
    drawn = []
    for name, title, words in measures(found.measured_on):
        lines = [
            Series(f"{entry.method}, seed {entry.seed}", points, plan.methods.index(entry.method) + 1)
            for entry, records in histories
            if (points := points_of(name, records))
        ]
        if lines:
            picture = line_chart(f"{title} of every run, over the steps of training", lines, steps=steps)
            drawn.append(Chart(title, words, picture))
    return drawn


def links(plan: Plan, found: Comparison) -> list[Link]:
    runs = {(entry.method, entry.seed): entry.run for entry in plan.entries}
    linked = []
    for result in found.results:
        run = runs[result.method, result.seed]
        there = run.report_path.exists()
        linked.append(Link(result, f"{quote(run.path.name)}/{run.report_path.name}" if there else None))
    return linked
