"""`instant train`: a run, new or resumed, on a named source or on files of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from instant.cli.report import show_report, worth_a_baseline
from instant.cli.shared import Settings, key_values
from instant.console import complain, console, say, say_problems
from instant.engine.interrupt import Interrupted
from instant.errors import InputError

if TYPE_CHECKING:
    from instant.choose import Choice
    from instant.config import Recipe
    from instant.data.folder.problems import Flaw
    from instant.data.source import Source
    from instant.run import Run


def train(
    source: Annotated[
        str | None,
        typer.Argument(
            help="digits, cifar10, cifar100, stl10, fashion_mnist; or files of your own: a folder of images, a .csv or "
            ".parquet of their paths, a .npy or .npz"
        ),
    ] = None,
    settings: Settings = None,
    labels: Annotated[
        Path | None, typer.Option(help="labels of your own files: .csv or .parquet with the columns file, label; .npy")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="run folder (default: runs/SOURCE-LABELS-METHOD-SEED)")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace what the run folder holds")] = False,
    resume: Annotated[
        Path | None, typer.Option(help="go on with this run folder; on another machine add data=FOLDER")
    ] = None,
    baseline: Annotated[bool, typer.Option("--baseline", help="also train on the labels alone, to compare")] = False,
) -> None:
    """Train a method on a source: instant train cifar10 labels=40 method=freematch optim.lr=0.01.

    Or on your own images: instant train photos/ --labels labels.csv --out run
    """
    from instant.engine.build import split_for
    from instant.jobs import names_own_files, train_run
    from instant.progress import AtStart
    from instant.run import Run

    words = settings or []
    if resume is not None:
        if (source is not None and "=" not in source) or out is not None or force:
            raise InputError("--resume takes everything from the run folder; give it alone.")
        given = key_values([*([] if source is None else [source]), *words])
        if Run(resume).finished:
            _moved(Run(resume), given, labels)
            return
        job = _resumed(Run(resume), given, labels)
    elif source is None:
        raise InputError("name a source to train on, for example: instant train digits labels=10")
    elif names_own_files(source, labels):
        job = _on_own_files(Path(source), labels, key_values(words), out, force=force)
    else:
        job = _on_named_source(source, key_values(words), out, force=force)

    run, recipe = job.run, job.recipe
    split = split_for(recipe, job.source)
    baseline = baseline and worth_a_baseline(recipe, split)
    first = [] if (problems := job.problems) is None else [AtStart(lambda: _tell(run, problems))]
    trained, told = train_run(
        run, recipe, split, console=console, resume=resume is not None, force=force, callbacks=first
    )
    _print_summary(trained.summary, run)
    try:
        method, backbone = recipe.method, recipe.backbone
        show_report(run, split, with_baseline=baseline, method=method, backbone=backbone, told=told)
    except Interrupted:
        raise
    except (Exception, KeyboardInterrupt) as error:  # whatever it is, the run is finished and kept
        why = "stopped" if isinstance(error, KeyboardInterrupt) else error
        complain(f"the run is kept, but its report is not written ({why}); try again with: {run.report_command}")
        if isinstance(error, KeyboardInterrupt):
            raise


class Job(NamedTuple):
    """What to train on what, and the folder it goes to."""

    run: Run
    recipe: Recipe
    source: Source
    problems: list[Flaw] | None = None  # of files of the user's own, still to be told


def _resumed(run: Run, settings: dict[str, str], labels: Path | None) -> Job:
    """An unfinished run, as its folder has it; `settings` and `labels` say where things are on this machine."""
    from instant.engine.build import source_for
    from instant.own_code import require_unopened

    method, backbone = settings.pop("method", None), settings.pop("backbone", None)
    recipe = run.moved(settings, labels)
    run.require_named(method, backbone)
    for setting, began, named in (("method", recipe.method, method), ("backbone", recipe.backbone, backbone)):
        if named not in (None, began):
            raise InputError(
                f"{run} was begun with {setting}={began}, not {named}; name that one, or train anew. If it has moved, "
                "let a module of the old name import it."
            )
    if not run.has_checkpoint:  # which has what the weights became
        require_unopened(recipe.backbone, recipe.backbone_options)
    return Job(run, recipe, source_for(recipe))


def _moved(run: Run, settings: dict[str, str], labels: Path | None) -> None:
    """A finished run can still be told where its data is now."""
    from instant.engine.build import source_for, split_for

    if "data" not in settings and labels is None:
        raise InputError(f"{run} is finished; there is nothing to resume. See it with: {run.report_command}")
    method, backbone = settings.pop("method", None), settings.pop("backbone", None)
    recipe = run.moved(settings, labels)
    run.require_named(method, backbone)
    split = split_for(recipe.named(method, backbone), source_for(recipe))
    run.require_same(split)
    run.require_same_test(split)
    run.keep(recipe, run.code())
    say(f"{run} is finished; from now on its data is looked for in {recipe.data}.")


def _on_own_files(path: Path, labels: Path | None, settings: dict[str, str], out: Path | None, *, force: bool) -> Job:
    """Files of the user's own, with settings chosen for them; says which, and what is wrong with the files."""
    from instant.choose import prepare

    method = settings.get("method", "instant")
    whole = path.resolve()
    name = whole.name if whole.is_dir() else whole.stem
    run = _new_run(out, name, settings.get("labels", "all"), method, settings.get("seed", 0))
    run.require_free(force=force)
    problems: list[Flaw] = []
    there = run.exists  # then the list in it is that run's, until it is certain that this one replaces it
    try:
        recipe, source, choices = prepare(path, labels, settings, problems)
    finally:
        if not there:
            _tell(run, problems)
    if there and problems:
        run.require_problems_free()
    print_choices(choices)
    return Job(run, recipe, source, problems if there else None)


def _tell(run: Run, problems: list[Flaw]) -> None:
    say_problems(run.save_problems(problems), len(set(problems)))


def _on_named_source(name: str, settings: dict[str, str], out: Path | None, *, force: bool) -> Job:
    """A data set that is known by name, with the recipe that fits it."""
    from instant.engine.build import source_for
    from instant.recipes import resolve

    recipe = resolve(name, settings)
    run = _new_run(out, name, recipe.labels or "all", recipe.method, recipe.seed)
    run.require_free(force=force)
    return Job(run, recipe, source_for(recipe))


def _new_run(out: Path | None, *words: object) -> Run:
    """The folder that was asked for, or runs/ and what the run is of."""
    from instant.jobs import folder_name
    from instant.run import Run

    return Run(out or Path("runs") / folder_name(*words))


def print_choices(choices: list[Choice], console: Console = console) -> None:
    table = Table()
    for name in ("setting", "chosen", "why"):
        table.add_column(name, overflow="fold")  # a setting cut short cannot be given
    for row in choices:
        table.add_row(*map(escape, row))
    console.print(table)


def _print_summary(summary: dict[str, Any], run: object) -> None:
    def percent(value: float | None) -> str:
        return "not known" if value is None else f"{100 * value:.2f} %"

    measured = []
    if summary["accuracy_last"] is not None:
        measured += [
            (f"test accuracy, last ({summary['accuracy_of']})", percent(summary["accuracy_last"])),
            ("  median of the last 20 evaluations", percent(summary["accuracy_median20"])),
            ("  best over evaluations", percent(summary["accuracy_best"])),
        ]
    if summary["validation_accuracy"] is not None:
        held = summary["label_budget"]["validation"]  # of few samples a percentage says little
        measured.append(("validation accuracy, last", f"{percent(summary['validation_accuracy'])} of {held} samples"))
    table = Table(show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in (
        *(measured or [("accuracy", "not known: no labels are held out")]),
        ("unlabelled data used", percent(summary["utilisation"])),
        ("pseudo-labels right", percent(summary["pseudo_label_accuracy"])),
        ("labels spent", str(summary["label_budget"]["total"])),
        ("time", f"{summary['seconds']:.1f} s, {summary['steps_per_second']:.1f} steps/s on {summary['device']}"),
        ("run folder", escape(str(run))),
    ):
        table.add_row(name, value)
    console.print(table)
