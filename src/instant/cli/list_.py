"""`instant list`: what can be trained, and with which settings."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from instant.cli.shared import AsJson
from instant.console import console

NARROW = 120  # columns, also of a pipe, in which the longest word of a command may not fit into its share


class Listing(StrEnum):
    methods = "methods"
    recipes = "recipes"
    backbones = "backbones"
    sources = "sources"
    settings = "settings"


def list_(
    what: Annotated[Listing, typer.Argument(help="what to list")],
    as_json: AsJson = False,
) -> None:
    """What can be trained: methods, recipes, backbones or sources; and with which settings."""
    from instant.listing import LISTINGS

    rows = LISTINGS[what.value]()
    if as_json:
        typer.echo(json.dumps(rows))
        return
    table = Table()
    for place, name in enumerate(rows[0]):
        width = None
        if name == "command" and console.width < NARROW:  # its words stay whole, the other columns give way
            width = max(len(word) for row in rows for word in row[name].split())
        table.add_column(name, overflow="fold", no_wrap=place == 0, width=width)  # the name is what people copy
    for row in rows:
        table.add_row(*(escape(", ".join(map(str, v)) if isinstance(v, list) else str(v)) for v in row.values()))
    console.print(table)
