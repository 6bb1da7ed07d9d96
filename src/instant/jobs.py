"""What commands that train share: which data the first word names, and one run with what a person sees of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from instant.config import Recipe
from instant.data.files import exists
from instant.data.sources import SOURCES
from instant.data.split import Split
from instant.engine.fit import Callback, Trained, fit
from instant.errors import InputError
from instant.progress import Announcement, ProgressBar
from instant.report.warnings import Watch
from instant.run import Run


def names_own_files(source: str, labels: Path | None) -> bool:
    """Does the word name files of the user's own? Labels beside a source that has its own are refused."""
    if source not in SOURCES and (exists(Path(source)) or labels is not None):
        return True
    if labels is not None:
        raise InputError(f"--labels goes with files of your own; {source} has its labels. Say labels=N for N of them.")
    return False


def method_names(words: str) -> list[str]:
    """The names in --methods a,b."""
    names = [name.strip() for name in words.split(",")]
    if not all(names):
        raise InputError(f"--methods {words!r} has an empty name; write them as in instant,adamatch.")
    return names


def folder_name(*words: object) -> str:
    """What a run is of, as the name of its folder; package.module:function loses its colon."""
    return "-".join(map(str, words)).replace(":", "-")


def train_run(
    run: Run,
    recipe: Recipe,
    split: Split,
    *,
    console: Console,
    title: str | None = None,
    resume: bool = False,
    force: bool = False,
    callbacks: Sequence[Callback] = (),
    mates: Sequence[Run] = (),
) -> tuple[Trained, set[str]]:
    """Train into a folder, said and shown on the console; also returns the kinds of warnings that were told."""
    with ProgressBar(title or recipe.method, console) as bar:
        watch = Watch(lambda sentence: bar.note(f"Warning: {sentence}"))
        watching = [*callbacks, Announcement(run, console), bar, watch]
        trained = fit(recipe, split, run=run, resume=resume, force=force, callbacks=watching, mates=mates)
    return trained, watch.told
