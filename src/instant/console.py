"""Sentences for a person: on the console as they are, or as a complaint on standard error."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

console = Console(emoji=False)


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
