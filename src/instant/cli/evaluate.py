"""`instant evaluate`: how right a finished run is."""

from __future__ import annotations

import json

import typer
from rich.markup import escape
from rich.table import Table

from instant.cli.shared import AsJson, Device, OwnBackbone, RunFolder
from instant.console import console, say


def evaluate(
    folder: RunFolder,
    backbone: OwnBackbone = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Accuracy of a run's saved model on its test data, over all and per class."""
    from instant.engine.build import source_for
    from instant.engine.evaluate import evaluate_run
    from instant.run import Run

    run = Run(folder)
    result = evaluate_run(run, source_for(run.recipe()), backbone=backbone, device=device)
    if as_json:
        typer.echo(json.dumps(result))
        return
    say(f"{run}: {100 * result['accuracy']:.2f} % of {result['samples']} {result['part']} samples")
    table = Table()
    table.add_column("class")
    table.add_column("accuracy", justify="right")
    for name, value in result["per_class"].items():
        table.add_row(escape(name), f"{100 * value:.1f} %")
    console.print(table)
