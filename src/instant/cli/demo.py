"""`instant demo`: the first minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from instant.console import console


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
