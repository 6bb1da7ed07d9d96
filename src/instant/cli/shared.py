"""What several commands share: the console, arguments of one meaning, key=value words, sentences."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from instant.errors import InputError

console = Console(emoji=False)

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="a finished run folder")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
OwnMethod = Annotated[str | None, typer.Option(help="package.module:function, of a run of your own method")]
OwnBackbone = Annotated[str | None, typer.Option(help="package.module:function, of a run of your own backbone")]


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


def say(sentence: str, console: Console = console) -> None:
    """Print it as it is: names in it are no markup, and nothing breaks a path."""
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def say_problems(path: Path | None, count: int, console: Console = console) -> None:
    """Where the files and labels that could not be used are listed; nothing where there is no list."""
    if path is not None:
        things = "file or label" if count == 1 else "files or labels"
        say(f"{count:,} {things} with a problem, listed in {path}", console)


def complain(sentence: str) -> None:
    """One line on standard error."""
    print(f"instant: {' '.join(sentence.split())}", file=sys.stderr)
