"""`instant bench step`: how fast a step is on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from instant.cli.shared import AsJson, Settings, key_values
from instant.console import console

bench = typer.Typer(help="How fast things are on this machine.", no_args_is_help=True)


@bench.command("step")
def bench_step(
    source: Annotated[
        str,
        typer.Argument(help="a source that instant list sources names, or synthetic: random images as of CIFAR-10"),
    ] = "synthetic",
    settings: Settings = None,
    methods: Annotated[str | None, typer.Option(help="several methods, as in fixmatch,instant")] = None,
    steps: Annotated[int | None, typer.Option(help="steps a repeat; 40 on a GPU, 3 on a CPU")] = None,
    repeats: Annotated[int | None, typer.Option(help="repeats, of which the median counts; 5")] = None,
    as_json: AsJson = False,
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
        source, key_values(words), methods, steps=steps, repeats=repeats, as_json=as_json, csv=csv, console=console
    )
    if failed:
        raise typer.Exit(1)
