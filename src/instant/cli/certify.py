"""`instant certify`: how many accepted labels are right, at least, by a sample that a person checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from instant.cli.shared import AsJson, OwnBackbone, OwnMethod, RunFolder
from instant.console import command_line
from instant.errors import InputError


def certify(
    folder: RunFolder,
    draw: Annotated[int | None, typer.Option(help="draw so many accepted samples to check; needs --out")] = None,
    out: Annotated[Path | None, typer.Option(help="csv to fill in: id, label")] = None,
    labels: Annotated[Path | None, typer.Option(help="the csv, filled in")] = None,
    target: Annotated[float, typer.Option(help="the precision that is wanted")] = 0.95,
    confidence: Annotated[float, typer.Option(help="of the bound")] = 0.95,
    candidates: Annotated[int, typer.Option(help="runs or thresholds this one was chosen among by their checks")] = 1,
    looks: Annotated[int | None, typer.Option(help="looks planned at a growing sample (default: 1)")] = None,
    seed: Annotated[int | None, typer.Option(help="of the draw (default: 0)")] = None,
    show: Annotated[bool, typer.Option("--show", help="put predicted labels into the csv; they sway people")] = False,
    method: OwnMethod = None,
    backbone: OwnBackbone = None,
    force: Annotated[bool, typer.Option("--force", help="replace the csv")] = False,
    as_json: AsJson = False,
) -> None:
    """How many of the accepted labels are right, at least: draw a sample, check it, certify. Exit code 1: refused."""
    from instant.data.files import require_free
    from instant.engine.build import source_for, split_for
    from instant.labelling.audit import Audit, certify_run, draw_sample
    from instant.labelling.certificate import checks_needed
    from instant.run import Run

    run = Run(folder)
    if (draw is None) != (out is None) or (draw is not None and labels is not None):
        raise InputError(
            "give --draw N and --out todo.csv to draw a sample, or --labels todo.csv once it is filled in, "
            "or none of them to see how many checks are needed."
        )
    for_drawing = {"--seed": seed is not None, "--show": show, "--method": method is not None}
    for_drawing |= {"--backbone": backbone is not None, "--force": force}
    if labels is not None:
        for_drawing["--looks"] = looks is not None
    if draw is None and any(for_drawing.values()):
        raise InputError(f"{next(name for name in for_drawing if for_drawing[name])} goes with --draw; leave it out.")
    if labels is None and as_json:
        raise InputError("--json prints the certificate, and needs --labels; leave it out.")
    if not 0 < target < 1:
        raise InputError(
            f"--target {target:g} must be above 0 and below 1, for example 0.95; no sample certifies that all are "
            "right."
        )
    recipe, audit = run.recipe(), Audit.of(run)
    run.summary()  # or a sentence: the run is not finished
    planned = looks if looks is not None else audit.planned if audit is not None else 1
    if planned < 1:
        raise InputError(f"--looks {planned} must be 1 or more.")
    there = None if audit is None else sum(audit.population.values())
    needed = [
        checks_needed(target, errors, confidence, candidates=candidates * planned, population=there)
        for errors in range(4)
    ]
    if draw is not None and out is not None:
        require_free(out, force=force)
        run.require_not_its_own(out)
        run.require_named(method, backbone)
        split = split_for(recipe.named(method, backbone), source_for(recipe))
        audit = draw_sample(
            run, split, draw, seed=seed, planned=looks, method=method, backbone=backbone, sheet=out, show=show
        )
        options = (("target", target, 0.95), ("confidence", confidence, 0.95), ("candidates", candidates, 1))
        words = [word for name, value, usual in options if value != usual for word in (f"--{name}", f"{value}")]
        typer.echo(
            f"{draw:,} of {sum(audit.population.values()):,} accepted samples that nobody labelled are drawn. Write "
            f"the class of each into {out} (? where nobody can tell: it counts as wrong), then: "
            f"{command_line(['instant', 'certify', str(run), '--labels', str(out), *words])}\n"
            f"{audit.outlook(target, confidence, candidates)}"
        )
    elif labels is not None:
        found = certify_run(run, labels, confidence=confidence, target=target, candidates=candidates)
        typer.echo(json.dumps(found.to_json()) if as_json else str(found))
        if found.confidence < confidence:
            typer.echo(f"{100 * confidence:g} % confidence is spent: there were more looks than planned.", err=True)
        raise typer.Exit(0 if found.certified and found.confidence >= confidence else 1)
    else:
        for errors, checks in enumerate(needed):
            if there is not None and checks > there:
                typer.echo(
                    f"With {errors} wrong not even checking all {there:,} certifies {100 * target:g} % precision."
                )
                break
            typer.echo(f"{checks:,} random checks with {errors} wrong certify {100 * target:g} % precision.")
