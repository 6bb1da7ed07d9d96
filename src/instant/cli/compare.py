"""`instant compare`: methods against each other over seeds, and whether the difference is more than luck."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from instant.cli.shared import AsJson, Settings, key_values
from instant.cli.train import print_choices
from instant.console import complain, console, say
from instant.engine.interrupt import Interrupted
from instant.errors import InputError

if TYPE_CHECKING:
    from instant.compare import Comparison, Failure
    from instant.compare.statistics import Mean


def compare(
    source: Annotated[str, typer.Argument(help="what to train on, as instant train takes it")],
    methods: Annotated[str, typer.Option(help="such as instant,adamatch; all are compared with the first")],
    out: Annotated[Path, typer.Option(help="folder for the runs, one each: METHOD-SEED")],
    settings: Settings = None,
    seeds: Annotated[str, typer.Option(help="such as 0,1,2: labelled samples and initial weights of each")] = "0,1,2",
    labels: Annotated[Path | None, typer.Option(help="labels of your own files, as instant train takes them")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="write a row a run, with its command")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare methods on the same labels: instant compare digits labels=10 --methods instant,adamatch --out compared.

    Trains every method with every seed; the same command again goes on where it was stopped. Prints accuracies of the
    last weights, the paired difference to the first method, and whether it is more than the seeds explain.
    """
    from instant.compare.page import write_page
    from instant.compare.plan import make_plan
    from instant.compare.results import gather, require_csv, write_csv
    from instant.compare.train import train_plan
    from instant.jobs import method_names

    shown = Console(stderr=True, emoji=False) if as_json else console
    given = key_values(settings or [])
    plan = make_plan(source, given, methods=method_names(methods), seeds=_numbers(seeds), out=out, labels=labels)
    if csv is not None:
        require_csv(csv, plan)
    if plan.choices:
        print_choices(list(plan.choices), shown)
    failures: list[Failure] = []
    stopped: str | None = None
    try:
        train_plan(plan, failures, console=shown)
    except Interrupted as stop:
        stopped = f"{stop} of {stop.run.path.name}" if stop.run else str(stop)
    except KeyboardInterrupt:
        stopped = "stopped"
    found = gather(plan, failures)
    if as_json:
        typer.echo(json.dumps(found.to_json()))
    else:
        print_comparison(found)
    try:
        if csv is not None:
            write_csv(csv, found.results)
        if found.results:
            write_page(plan, found)
            say(f"curves: {plan.page}", shown)
    finally:  # also where a file cannot be written
        for failure in found.failures:
            why = failure.reason.rstrip(".;")
            complain(f"{failure.method}, seed {failure.seed} failed: {why}; alone: {failure.command}")
        if stopped is not None:
            complain(f"{stopped}. What is done is kept: the same command goes on from there.")
    if stopped is not None:
        raise typer.Exit(130)
    if gone := found.unfinished - len(found.failures):
        complain(f"{gone:,} of the runs {'is' if gone == 1 else 'are'} gone from {out}; the same command trains anew.")
        raise typer.Exit(1)
    if found.failures:
        raise typer.Exit(1)


def _numbers(seeds: str) -> list[int]:
    found = []
    for word in seeds.split(","):
        if not word.strip().isdecimal() or len(word) > 100:  # no seed has so many digits, and int() would not read more
            raise InputError(f"--seeds {seeds!r}: {word.strip()!r} is no seed; write whole numbers, as in 0,1,2.")
        found.append(int(word))
    return found


def print_comparison(found: Comparison) -> None:
    """Accuracies by seed, then differences and what else was measured, then the sentences."""
    first = found.methods[0]
    failed = {(failure.method, failure.seed) for failure in found.failures}
    if found.results:
        place = f" on {found.measured_on}" if found.measured_on else ""
        table = Table(title=f"{escape(found.source)}: accuracy{place}, %")
        table.add_column("method", overflow="fold")
        for seed in found.seeds:
            table.add_column(f"seed {seed}", justify="right")
        table.add_column("mean ± error", justify="right")
        for method in found.methods:
            known = found.accuracies[method]
            cells = [
                f"{100 * known[seed]:.2f}" if seed in known else "failed" if (method, seed) in failed else "-"
                for seed in found.seeds
            ]
            table.add_row(escape(method), *cells, _shown(found.mean(method, lambda r: r.accuracy)))
        console.print(table)
        table = Table(title="means over the seeds")
        table.add_column("method", overflow="fold")
        for name in (f"to {escape(first)} ± error", "used, %", "of these right, %", "seconds"):
            table.add_column(name, justify="right")
        for method in found.methods:
            means = (
                found.mean(method, lambda r: r.utilisation),
                found.mean(method, lambda r: r.pseudo_label_accuracy),
            )
            seconds = found.mean(method, lambda r: r.seconds)
            table.add_row(
                escape(method),
                "" if method == first else _shown(found.difference(method), sign="+"),
                *("-" if mean is None else f"{100 * mean.value:.1f}" for mean in means),
                "-" if seconds is None else f"{seconds.value:,.1f}",
            )
        console.print(table)
    for sentence in found.sentences():
        say(sentence)


def _shown(mean: Mean | None, sign: str = "") -> str:
    """In per cent, with the standard error where there is one."""
    if mean is None:
        return "-"
    error = "" if mean.error is None else f" ± {100 * mean.error:.2f}"
    return f"{100 * mean.value:{sign}.2f}{error}"
