"""The command: train, compare, report, evaluate, label, certify, export, list, demo, bench; each in its own file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from instant import __version__
from instant.cli import bench, certify, compare, demo, evaluate, export, label, list_, report, train
from instant.console import complain
from instant.engine.interrupt import Interrupted
from instant.errors import InputError

__all__ = ["app", "main"]

# Intel's Fortran, in Anaconda's numpy for Windows, would end the process at Ctrl-C, without a checkpoint
os.environ.setdefault("FOR_DISABLE_CONSOLE_CTRL_HANDLER", "1")

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"instant {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="which one this is")
    ] = False,
) -> None:
    """Semi-supervised learning with instance-dependent thresholds."""


app.command()(train.train)  # in the order of --help
app.command()(compare.compare)
app.command()(report.report)
app.command()(evaluate.evaluate)
app.command()(label.label)
app.command()(certify.certify)
app.command()(export.export)
app.command("list")(list_.list_)
app.command()(demo.demo)
app.add_typer(bench.bench, name="bench")

WrongUse: Any = typer.BadParameter.__mro__[2]  # ClickException, which typer does not name in public


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point: a user's mistake is one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a terminal that lacks a character shows a question mark
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if any(not word.strip() or (word.startswith("--") and word.strip().endswith("=")) for word in words):
            raise InputError(
                "a word of the command is empty, maybe a variable that is not set; name the file or folder."
            )
        return app(args=words or ["--help"], standalone_mode=False) or 0
    except SystemExit as done:  # a pipe that nobody reads any more
        return done.code if isinstance(done.code, int) else 1
    except InputError as error:
        complain(str(error))
        return 2
    except WrongUse as error:
        if message := error.format_message():  # none where the help is the answer, as to `instant bench`
            complain(message)
        return 2
    except Interrupted as stop:
        where = f" The checkpoint is saved; go on with: {stop.run.resume_command}" if stop.run else ""
        complain(f"{stop}.{where}")
        return 130
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's, which may not have been imported
            raise
        complain(
            f"the GPU's memory is full ({str(error).split('. ')[0]}). Lower batch or ratio, leave the samples in the "
            "machine's memory with memory=0, take smaller images or another network, or use device=cpu."
        )
        return 1
