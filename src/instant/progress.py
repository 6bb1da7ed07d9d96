"""What a person sees while a run is going: a live bar on a terminal, a line per evaluation elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from instant.config import Recipe
from instant.console import say
from instant.data.split import Split
from instant.engine.fit import Callback
from instant.run import Run


def describe(record: dict[str, Any]) -> str:
    """The figures of a record that people watch.

    >>> describe({"accuracy": 0.912, "utilisation": 0.5, "threshold": 0.87})
    'accuracy 91.2 % · used 50 % · threshold 0.870'
    """
    parts = []
    if "accuracy" in record:
        parts.append(f"accuracy {100 * record['accuracy']:.1f} %")
    elif "validation_accuracy" in record:
        parts.append(f"validation accuracy {100 * record['validation_accuracy']:.1f} %")
    if "utilisation" in record:
        parts.append(f"used {100 * record['utilisation']:.0f} %")
        parts.append(f"threshold {record['threshold']:.3f}")
    elif "loss" in record:
        parts.append(f"loss {record['loss']:.3f}")
    return " · ".join(parts)


class Announcement(Callback):
    """Says what is about to run, once it is certain that it can: data, labels, method, folder."""

    def __init__(self, run: Run, console: Console) -> None:
        self.run = run
        self.console = console

    def start(self, recipe: Recipe, split: Split, step: int) -> None:
        budget = split.budget
        things = "images" if split.train.is_images else "samples"
        words = f"{split.source}: {len(split.pool)} {things}, {budget['training']} of them labelled"
        if recipe.labels not in (None, budget["training"]):
            words += f" (all: {recipe.method} takes every label, not labels={recipe.labels})"
        if budget["validation"]:
            words += f", {budget['validation']} more for validation: {budget['total']} labels in all"
        words += f"; {recipe.method} with {recipe.backbone}, {recipe.steps} steps"
        if recipe.contrast:
            words += f" after {recipe.contrast} without labels"
        if options := [f"{key}={value}" for key, value in recipe.suggested.items() if key.startswith("method.")]:
            words += f", by the recipe {' '.join(options)}"
        words += f" from step {step} on; run folder {self.run}" if step else f"; run folder {self.run}"
        say(words, self.console)


class AtStart(Callback):
    """Does something once the run has begun."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action

    def start(self, recipe: Recipe, split: Split, step: int) -> None:
        self.action()


class ProgressBar(Callback):
    """Steps done, accuracy, share of unlabelled data used and mean threshold; a context manager."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self.title = title
        self.console = console or Console(emoji=False)
        self._latest: dict[str, Any] = {}
        self._earlier = 0
        whole = Column(no_wrap=True)  # on a narrow terminal the bar becomes shorter, and the figures take more lines
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(table_column=whole),
            TextColumn("{task.fields[seen]}", table_column=Column(overflow="fold")),
            TimeRemainingColumn(table_column=whole),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=None, seen="")

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def start(self, recipe: Recipe, split: Split, step: int) -> None:
        self._earlier = recipe.contrast
        done = recipe.contrast + step if step else 0
        self._bar.update(self._task, total=recipe.contrast + recipe.steps, completed=done)

    def note(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=not self.console.is_terminal)

    def step(self, step: int) -> None:
        self._bar.update(self._task, completed=self._earlier + step)

    def record(self, record: dict[str, Any]) -> None:
        self._latest |= record
        self._bar.update(self._task, seen=describe(self._latest))
        if not self.console.is_terminal and ("accuracy" in record or "seconds_evaluating" in record):
            line = f"{self.title.strip()}: step {record['step']}: {describe(record)}"
            say(line, self.console)
