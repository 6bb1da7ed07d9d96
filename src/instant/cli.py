"""The command: train, report, evaluate, label, certify, export, list, demo, bench."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Collection
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from instant.errors import InputError

if TYPE_CHECKING:
    from instant.choose import Choice
    from instant.data.split import Split
    from instant.run import Run

app = typer.Typer(
    help="Semi-supervised learning with instance-dependent thresholds.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
WrongUse: Any = typer.BadParameter.__mro__[2]  # ClickException, which typer does not name in public


def _settings(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise InputError(f"{word!r} is not a setting; write key=value, for example labels=40 or optim.lr=0.01")
        if not value.strip():
            raise InputError(f"{word!r} has no value; write key=value, or {key}=none where there shall be none.")
        if key in found:
            raise InputError(f"{key} is given twice, as {found[key]!r} and as {value!r}; give it once.")
        if key == "source":
            raise InputError("the source is the first word, not a setting: instant train SOURCE key=value ...")
        found[key] = value
    return found


@app.command()
def train(
    source: Annotated[
        str | None,
        typer.Argument(
            help="digits, cifar10, cifar100, stl10, fashion_mnist; or files of your own: a folder of images, a .csv or "
            ".parquet of their paths, a .npy or .npz"
        ),
    ] = None,
    settings: Annotated[list[str] | None, typer.Argument(help="key=value ...", show_default=False)] = None,
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
    from instant.choose import prepare
    from instant.data.folder.problems import Flaw
    from instant.data.sources import SOURCES
    from instant.engine.build import source_for, split_for
    from instant.engine.fit import Interrupted, fit
    from instant.progress import Announcement, ProgressBar
    from instant.recipes import resolve
    from instant.report.warnings import Watch
    from instant.run import Run

    problems: list[Flaw] = []
    data = None
    if resume is not None:
        if (source is not None and "=" not in source) or out is not None or force:
            raise InputError("--resume takes everything from the run folder; give it alone.")
        run = Run(resume)
        recipe = run.moved(_settings([*([] if source is None else [source]), *(settings or [])]), labels)
        if run.finished:
            raise InputError(f"{run} is finished; there is nothing to resume. See it with: instant evaluate {run}")
    elif source is None:
        raise InputError("name a source to train on, for example: instant train digits labels=10")
    elif source not in SOURCES and (Path(source).exists() or labels is not None):
        given = _settings(settings or [])
        words = (Path(source).resolve().stem, given.get("labels", "all"), given.get("method", "instant"))
        run = Run(out or Path("runs") / f"{'-'.join(words).replace(':', '-')}-{given.get('seed', 0)}")
        run.require_free(force=force)
        try:
            recipe, data, choices = prepare(Path(source), labels, given, problems)
        finally:
            _print_problems(run.save_problems(problems), len(set(problems)))
        _print_choices(choices)
    else:
        if labels is not None:
            raise InputError(
                f"--labels goes with files of your own; {source} has its labels. Say labels=N for N of them."
            )
        recipe = resolve(source, _settings(settings or []))
        method = recipe.method.replace(":", "-")  # of a method of your own: package.module:function
        run = Run(out or Path("runs") / f"{source}-{recipe.labels or 'all'}-{method}-{recipe.seed}")
        run.require_free(force=force)

    if data is None:
        data = source_for(recipe)
    split = split_for(recipe, data)
    if resume is not None:
        run.go_on(recipe, split)
    with ProgressBar(recipe.method, console) as bar:
        watch = Watch(bar.note)
        watching = [Announcement(run, console), bar, watch]
        trained = fit(recipe, split, run=run, resume=resume is not None, force=force, callbacks=watching)
    _print_summary(trained.summary, run)
    try:
        _write_report(run, split, with_baseline=baseline, told=watch.told)
    except Interrupted:
        raise
    except Exception as error:  # whatever it is, the run is finished and kept
        _complain(f"the run is kept, but its report is not written ({error}); try again with: instant report {run}")


def _write_report(
    run: Run, split: Split, *, with_baseline: bool, out: Path | None = None, told: Collection[str] = ()
) -> None:
    """Write it and say the verdict, and those warnings that were not told during training."""
    from instant.progress import ProgressBar
    from instant.report.baseline import train_baseline
    from instant.report.page import write_report

    if with_baseline:
        with ProgressBar("baseline", console) as bar:
            train_baseline(run, split, callbacks=[bar])
    path, facts = write_report(run, split, out)
    console.print(facts.accuracy.verdict, markup=False, highlight=False, soft_wrap=True)
    for warning in facts.warnings:
        if warning.kind not in told:
            console.print(f"Warning: {warning.sentence}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"report: {path}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="a finished run folder")],
    out: Annotated[Path | None, typer.Option(help="html file to write (default: RUN/report.html)")] = None,
    with_baseline: Annotated[
        bool, typer.Option("--with-baseline", help="train on the labels alone first, unless RUN/baseline is there")
    ] = False,
) -> None:
    """One page that shows a run: accuracy against the baseline, curves, thresholds, T, a gallery, warnings."""
    from instant.engine.build import source_for, split_for
    from instant.run import Run

    run = Run(folder)
    recipe = run.recipe()
    run.summary()  # or a sentence: the run is not finished
    _write_report(run, split_for(recipe, source_for(recipe)), with_baseline=with_baseline, out=out)


def _print_problems(path: Path | None, count: int) -> None:
    if path is not None:
        things = "file or label" if count == 1 else "files or labels"
        console.print(
            f"{count:,} {things} with a problem, listed in {path}", highlight=False, markup=False, soft_wrap=True
        )


def _print_choices(choices: list[Choice]) -> None:
    table = Table("setting", "chosen", "why")
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
        measured.append(("validation accuracy, last", percent(summary["validation_accuracy"])))
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


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="a finished run folder")],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Accuracy of a run's saved model on its test data, over all and per class."""
    from instant.engine.build import source_for
    from instant.engine.evaluate import evaluate_run
    from instant.run import Run

    run = Run(folder)
    result = evaluate_run(run, source_for(run.recipe()))
    if as_json:
        typer.echo(json.dumps(result))
        return
    table = Table(
        title=f"{escape(str(run))}: {100 * result['accuracy']:.2f} % of {result['samples']} {result['part']} samples"
    )
    table.add_column("class")
    table.add_column("accuracy", justify="right")
    for name, value in result["per_class"].items():
        table.add_row(escape(name), f"{100 * value:.1f} %")
    console.print(table)


@app.command()
def label(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="a finished run folder")],
    out: Annotated[Path, typer.Option(help="file to write: .parquet, .csv, or .json for Label Studio")],
    path: Annotated[
        Path | None,
        typer.Argument(help="folder of images, table of paths, .npy or .npz; none: the run's own pool"),
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help="parquet, csv, label-studio; none: by suffix")] = None,
    method: Annotated[str | None, typer.Option(help="package.module:function, of a run of your own method")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
) -> None:
    """Labels with confidence, threshold and reason, a row a sample; the same command again resumes what was stopped."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from instant.engine.build import source_for, split_for
    from instant.labelling.formats import choose_format
    from instant.labelling.stream import label as write_labels
    from instant.labelling.stream import problems_of
    from instant.run import Run

    run = Run(folder)
    chosen = choose_format(out, form)
    recipe = run.recipe()
    if method is not None:  # the folder's word for a module to import is not taken
        recipe = dataclasses.replace(recipe, method=method)
    err = Console(stderr=True)
    columns = (TextColumn("labelling"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=err, disable=not err.is_terminal)
    task = bar.add_task("", total=None)

    def show(rows: int, total: int) -> None:
        bar.start()  # not before: decoding has a bar of its own
        bar.update(task, completed=rows, total=total)

    try:
        done = write_labels(
            run,
            out,
            path=path,
            pool=lambda: split_for(recipe, source_for(recipe)),
            form=chosen,
            force=force,
            method=method,
            report=show,
        )
    finally:
        bar.stop()
    if done.problems:
        _print_problems(problems_of(out), done.problems)
    again = f" ({done.resumed:,} from an earlier call)" if done.resumed else ""
    typer.echo(f"{out}: {done.samples:,} samples{again}, {done.accepted:,} accepted")


@app.command()
def certify(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="a finished run folder")],
    draw: Annotated[int | None, typer.Option(help="draw so many accepted samples to check; needs --out")] = None,
    out: Annotated[Path | None, typer.Option(help="csv to fill in: id, label")] = None,
    labels: Annotated[Path | None, typer.Option(help="the csv, filled in")] = None,
    target: Annotated[float, typer.Option(help="the precision that is wanted")] = 0.95,
    confidence: Annotated[float, typer.Option(help="of the bound")] = 0.95,
    candidates: Annotated[int, typer.Option(help="runs or thresholds this one was chosen among by their checks")] = 1,
    looks: Annotated[int | None, typer.Option(help="looks planned at a growing sample (default: 1)")] = None,
    seed: Annotated[int | None, typer.Option(help="of the draw (default: 0)")] = None,
    show: Annotated[bool, typer.Option("--show", help="put predicted labels into the csv; they sway people")] = False,
    force: Annotated[bool, typer.Option("--force", help="replace the csv")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """How many of the accepted labels are right, at least: draw a sample, check it, certify. Exit code 1: refused."""
    from instant.engine.build import source_for, split_for
    from instant.labelling.audit import certify_run, draw_sample
    from instant.labelling.certificate import checks_needed
    from instant.labelling.sheet import require_free, write_sheet
    from instant.run import Run

    run = Run(folder)
    needed = [checks_needed(target, errors, confidence, candidates=candidates * (looks or 1)) for errors in range(4)]
    if (draw is None) != (out is None) or (draw is not None and labels is not None):
        raise InputError(
            "give --draw N and --out todo.csv to draw a sample, or --labels todo.csv once it is filled in, "
            "or none of them to see how many checks are needed."
        )
    if draw is not None and out is not None:
        require_free(out, force=force)
        recipe = run.recipe()
        audit = draw_sample(run, split_for(recipe, source_for(recipe)), draw, seed=seed, planned=looks)
        write_sheet(out, audit.drawn, audit.labels, audit.predicted if show else None)
        typer.echo(
            f"{draw:,} of {sum(audit.population.values()):,} accepted samples are drawn. Write the class of each into "
            f"{out} (? where nobody can tell: it counts as wrong), then: instant certify {run} --labels {out}\n"
            f"{audit.outlook(target, confidence)}"
        )
    elif labels is not None:
        found = certify_run(run, labels, confidence=confidence, target=target, candidates=candidates)
        typer.echo(json.dumps(found.to_json()) if as_json else str(found))
        if found.confidence < confidence:
            typer.echo(f"{100 * confidence:g} % confidence is spent: there were more looks than planned.", err=True)
        raise typer.Exit(0 if found.certified and found.confidence >= confidence else 1)
    else:
        for errors, checks in enumerate(needed):
            typer.echo(f"{checks:,} random checks with {errors} wrong certify {100 * target:g} % precision.")


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="a finished run folder")],
    onnx: Annotated[Path | None, typer.Option(metavar="FILE", help="graph that decides by itself; extra: onnx")] = None,
    safetensors: Annotated[Path | None, typer.Option(metavar="FILE", help="weights, their card as metadata")] = None,
    method: Annotated[str | None, typer.Option(help="package.module:function, of a run of your own method")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
) -> None:
    """Take a run's model away: instant export RUN --onnx model.onnx."""
    from instant.export import export_onnx, export_safetensors
    from instant.run import Run

    if onnx is None and safetensors is None:
        raise InputError("say what to write: --onnx FILE, --safetensors FILE, or both.")
    run = Run(folder)
    if safetensors is not None:
        export_safetensors(run, safetensors, force=force)
        typer.echo(f"{safetensors}: the weights, with backbone, shape, classes and normalisation as metadata")
    if onnx is not None:
        outputs = export_onnx(run, onnx, force=force, method=method)
        note = "" if "tau" in outputs else f"; {run.recipe().method} has no threshold, so nobody is accepted or refused"
        typer.echo(f"{onnx}: samples, any number of them -> {', '.join(outputs)}{note}")


class Listing(StrEnum):
    methods = "methods"
    recipes = "recipes"
    backbones = "backbones"
    sources = "sources"


@app.command("list")
def list_(
    what: Annotated[Listing, typer.Argument(help="what to list")],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """What can be trained: methods, recipes, backbones or sources."""
    from instant.listing import LISTINGS

    rows = LISTINGS[what.value]()
    if as_json:
        typer.echo(json.dumps(rows))
        return
    table = Table()
    for place, name in enumerate(rows[0]):
        table.add_column(name, overflow="fold", no_wrap=place == 0)  # the name is what people copy
    for row in rows:
        table.add_row(*(escape(", ".join(map(str, v)) if isinstance(v, list) else str(v)) for v in row.values()))
    console.print(table)


@app.command()
def demo(
    out: Annotated[
        Path | None, typer.Option(help="folder for the runs (default: runs/demo-N, the next free N)")
    ] = None,
    seed: Annotated[int, typer.Option(help="which split")] = 0,
    labels: Annotated[int, typer.Option(help="labelled images in all")] = 10,
    force: Annotated[bool, typer.Option("--force", help="replace what the folder holds")] = False,
) -> None:
    """Ten labels, a minute: InstanT against the supervised baseline and LabelSpreading on digits."""
    from instant.demo import run_demo

    if out is None:
        number = 1
        while (Path("runs") / f"demo-{number}").exists():
            number += 1
        out = Path("runs") / f"demo-{number}"
    run_demo(out, seed=seed, labels=labels, force=force, console=console)


bench = typer.Typer(help="How fast things are on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command("step")
def bench_step(
    source: Annotated[
        str, typer.Argument(help="a source of instant train, or synthetic: random images as of CIFAR-10")
    ] = "synthetic",
    settings: Annotated[list[str] | None, typer.Argument(help="key=value ...", show_default=False)] = None,
    methods: Annotated[str | None, typer.Option(help="several methods, as in fixmatch,instant")] = None,
    steps: Annotated[int | None, typer.Option(help="steps a repeat; 40 on a GPU, 3 on a CPU")] = None,
    repeats: Annotated[int | None, typer.Option(help="repeats, of which the median counts; 5")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    csv: Annotated[Path | None, typer.Option(help="add a row a method to this file")] = None,
) -> None:
    """Measure a training step: instant bench step method=fixmatch, instant bench step digits --methods uda,instant.

    Prints milliseconds a step, images a second, TFLOP/s and GB/s as shares of what this device reaches in the same
    run, the time before the first step has ended, and peak memory. Warm-up does not count.
    """
    from instant.bench.command import run_steps

    words = settings or []
    if "=" in source:  # no source is named
        source, words = "synthetic", [source, *words]
    failed = run_steps(
        source, _settings(words), methods, steps=steps, repeats=repeats, as_json=as_json, csv=csv, console=console
    )
    if failed:
        raise typer.Exit(1)


def main(arguments: list[str] | None = None) -> int:
    """Entry point: a user's mistake is one sentence and exit code 2."""
    from instant.engine.fit import Interrupted

    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a terminal that lacks a character shows a question mark
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    words = sys.argv[1:] if arguments is None else arguments
    try:
        return app(args=words or ["--help"], standalone_mode=False) or 0
    except SystemExit as done:  # a pipe that nobody reads any more
        return done.code if isinstance(done.code, int) else 1
    except InputError as error:
        _complain(str(error))
        return 2
    except WrongUse as error:
        _complain(error.format_message())
        return 2
    except Interrupted as stop:
        where = f" The checkpoint is saved; go on with: {stop.run.resume_command}" if stop.run else ""
        _complain(f"stopped after step {stop.step}.{where}")
        return 130
    except (KeyboardInterrupt, typer.Abort):
        return 130


def _complain(sentence: str) -> None:
    print(f"instant: {' '.join(sentence.split())}", file=sys.stderr)
