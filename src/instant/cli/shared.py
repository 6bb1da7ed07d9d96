"""What several commands share: arguments of one meaning, key=value words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from instant.errors import InputError

Settings = Annotated[
    list[str] | None, typer.Argument(help="key=value ...: instant list settings names the keys", show_default=False)
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="a finished run folder")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
OwnMethod = Annotated[str | None, typer.Option(help="package.module:function, of a run of your own method")]
OwnBackbone = Annotated[str | None, typer.Option(help="package.module:function, of a run of your own backbone")]
Device = Annotated[str, typer.Option(help="auto, the one it was trained on if there is such; cpu, cuda, cuda:1")]


def key_values(words: list[str]) -> dict[str, str]:
    """Settings as they were written, each once."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        file = value if key == "labels" else word
        if file.lower().endswith((".csv", ".tsv", ".txt", ".parquet", ".npy")) and (key == "labels" or not equals):
            raise InputError(f"{word!r} is no setting; a file of labels is given as --labels {file}")
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
