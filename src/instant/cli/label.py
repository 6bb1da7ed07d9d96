"""`instant label`: what a finished run calls each sample, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from instant.cli.shared import Device, OwnBackbone, OwnMethod, RunFolder
from instant.console import complain, say_problems


def label(
    folder: RunFolder,
    out: Annotated[Path, typer.Option(help="file to write: .parquet, .csv, or .json for Label Studio")],
    path: Annotated[
        Path | None,
        typer.Argument(help="folder of images, table of paths, .npy or .npz; none: the run's own pool"),
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help="parquet, csv, label-studio; none: by suffix")] = None,
    method: OwnMethod = None,
    backbone: OwnBackbone = None,
    device: Device = "auto",
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
) -> None:
    """Labels with confidence, threshold and reason, a row a sample; the same command again resumes what was stopped."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from instant.data.files import require_free
    from instant.engine.build import source_for, split_for
    from instant.labelling.formats import choose_format
    from instant.labelling.stream import label as write_labels
    from instant.labelling.stream import problems_of
    from instant.run import Run

    run = Run(folder)
    chosen = choose_format(out, form)
    require_free(out, force=True)  # a file that is there is looked at under a lock, below
    recipe = run.recipe().named(method, backbone)  # the folder's word for a module to import is not taken
    err = Console(stderr=True, emoji=False)
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
            backbone=backbone,
            device=device,
            report=show,
        )
    except KeyboardInterrupt:
        bar.stop()
        complain("stopped. What is done is kept: the same command goes on from there.")
        raise
    finally:
        bar.stop()
    if done.problems:
        say_problems(problems_of(out), done.problems)
    again = f" ({done.resumed:,} from an earlier call)" if done.resumed else ""
    typer.echo(f"{out}: {done.samples:,} samples{again}, {done.accepted:,} accepted")
    if done.held_out:
        were = "sample held out for validation is" if done.held_out == 1 else "samples held out for validation are"
        typer.echo(f"{done.held_out:,} {were} not among them.")
