"""`instant report`: the page of a finished run, with which `instant train` ends too."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from instant.cli.shared import OwnBackbone, OwnMethod, RunFolder
from instant.console import console, say
from instant.engine.interrupt import Interrupted

if TYPE_CHECKING:
    from instant.config import Recipe
    from instant.data.split import Split
    from instant.run import Run


def report(
    folder: RunFolder,
    out: Annotated[Path | None, typer.Option(help="html file to write (default: RUN/report.html)")] = None,
    with_baseline: Annotated[
        bool,
        typer.Option("--with-baseline", help="train on the labels alone first, unless RUN/baseline has it"),
    ] = False,
    method: OwnMethod = None,
    backbone: OwnBackbone = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file of --out")] = False,
) -> None:
    """One page that shows a run: accuracy against the baseline, curves, thresholds, T, a gallery, warnings."""
    from instant.data.files import require_free
    from instant.engine.build import source_for, split_for
    from instant.run import Run

    run = Run(folder)
    recipe = run.recipe()
    run.summary()  # or a sentence: the run is not finished
    run.require_named(method, backbone)
    if out is not None:
        run.require_not_its_own(out)
        if out.resolve() != (run.path / "report.html").resolve():
            require_free(out, force=force)
    split = split_for(recipe.named(method, backbone), source_for(recipe))
    run.require_same(split)  # a page, or a baseline, of other data would replace the right one
    with_baseline = with_baseline and worth_a_baseline(recipe, split)
    show_report(run, split, with_baseline=with_baseline, out=out, method=method, backbone=backbone)


def worth_a_baseline(recipe: Recipe, split: Split) -> bool:
    """Or a sentence: nothing could be said of it, so the time is better kept."""
    from instant.report.baseline import comparable, require_other

    require_other(recipe)
    if not comparable(split):
        say("No baseline is trained: no labels are held out to compare accuracies on. Train with validation=N.")
        return False
    return True


def show_report(
    run: Run,
    split: Split,
    *,
    with_baseline: bool,
    out: Path | None = None,
    method: str | None = None,
    backbone: str | None = None,
    told: Collection[str] = (),
) -> None:
    """Write it and say the verdict, and those warnings that were not told during training."""
    from instant.progress import ProgressBar
    from instant.report.baseline import train_baseline
    from instant.report.page import write_report

    if with_baseline:
        # The run has its page, whatever becomes of the baseline
        write_report(run, split, out, method=method, backbone=backbone)
        try:
            with ProgressBar("baseline", console) as bar:
                train_baseline(run, split, callbacks=[bar], backbone=backbone)
        except Interrupted:
            again = f"{run.report_command} --with-baseline"
            say(f"{run} is finished, and its report is written without a baseline; for one: {again}")
            raise
    path, facts = write_report(run, split, out, method=method, backbone=backbone)
    say(facts.accuracy.verdict + (f" Train one with: {facts.baseline_command}" if facts.baseline_command else ""))
    if facts.why_no_decisions and not facts.accuracy.is_baseline:  # of labels alone nobody expects any
        say(f"The report shows no accepted labels: {facts.why_no_decisions}")
    for warning in facts.warnings:
        if warning.kind not in told:
            say(f"Warning: {warning.sentence}")
    say(f"report: {path}")
