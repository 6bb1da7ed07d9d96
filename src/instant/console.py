"""Sentences for a person: on the console as they are, or as a complaint on standard error."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
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


def command_line(words: Sequence[str], *, windows: bool = os.name == "nt") -> str:
    """Words as they are typed: a Windows prompt knows no single quotes, and a backslash there needs none.

    >>> command_line(["instant", "report", r"runs\\my photos"], windows=True)
    'instant report "runs\\\\my photos"'
    """
    return subprocess.list2cmdline(words) if windows else shlex.join(words)


def complain(sentence: str) -> None:
    """One line on standard error."""
    print(f"instant: {' '.join(sentence.split())}", file=sys.stderr)
