"""`instant export`: a run's model as ONNX or as safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from instant.cli.shared import OwnBackbone, OwnMethod, RunFolder
from instant.errors import InputError


def export(
    folder: RunFolder,
    onnx: Annotated[Path | None, typer.Option(metavar="FILE", help="graph that decides by itself; extra: onnx")] = None,
    safetensors: Annotated[Path | None, typer.Option(metavar="FILE", help="weights, their card as metadata")] = None,
    method: OwnMethod = None,
    backbone: OwnBackbone = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
) -> None:
    """Take a run's model away: instant export RUN --onnx model.onnx."""
    from instant.export import export_onnx, export_safetensors
    from instant.run import Run

    if onnx is None and safetensors is None:
        raise InputError("say what to write: --onnx FILE, --safetensors FILE, or both.")
    if onnx is not None and safetensors is not None and onnx.resolve() == safetensors.resolve():
        raise InputError(f"--onnx {onnx} and --safetensors {safetensors} are one file; name two.")
    run = Run(folder)
    if safetensors is not None:
        export_safetensors(run, safetensors, force=force, backbone=backbone)
        typer.echo(f"{safetensors}: the weights, with backbone, shape, classes and normalisation as metadata")
    if onnx is not None:
        outputs = export_onnx(run, onnx, force=force, method=method, backbone=backbone)
        note = "" if "tau" in outputs else f"; {run.recipe().method} has no threshold, so nobody is accepted or refused"
        typer.echo(f"{onnx}: samples, any number of them -> {', '.join(outputs)}{note}")
