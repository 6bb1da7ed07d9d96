"""`instant bench step`: from words to results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from instant.bench.report import append_csv, as_row, check_csv, print_table
from instant.bench.step import ON_CPU, ON_GPU, Effort, Failure, Result, Say, measure, synthetic
from instant.console import command_line, say
from instant.data.sources import load
from instant.engine.build import split_for
from instant.engine.device import choose_device, choose_way
from instant.errors import InputError
from instant.jobs import method_names
from instant.methods import find_method
from instant.recipes import DEFAULTS, resolve


def run_steps(
    source: str,
    settings: dict[str, str],
    methods: str | None,
    *,
    steps: int | None,
    repeats: int | None,
    as_json: bool,
    csv: Path | None,
    console: Console,
) -> bool:
    """Measure every method, one after another, print and keep the results; True when one failed."""
    for option, value in (("--steps", steps), ("--repeats", repeats)):
        if value is not None and value < 1:
            raise InputError(f"{option} {value} must be at least 1.")
    names = _names(methods, settings)
    if csv is not None:
        check_csv(csv)
    made = source == "synthetic"
    if made and "data" in settings:
        raise InputError("synthetic makes its own images: leave data= out, or name the source that the folder holds.")
    if not made and source not in DEFAULTS and Path(source).exists():
        raise InputError(
            f"bench step takes a named source, not files of your own as {source}; choose one of: "
            f"{', '.join(sorted([*DEFAULTS, 'synthetic']))}"
        )
    if settings.get("contrast", "0") != "0":
        raise InputError(f"contrast={settings['contrast']}: a step of the method is measured; leave it out.")
    recipes = []
    for name in names:
        find_method(name)
        recipes.append(resolve("cifar10" if made else source, settings | {"method": name}))
    device = choose_device(recipes[0].device)
    choose_way(recipes[0].step, device)
    usual = ON_GPU if device.type == "cuda" else ON_CPU
    effort = Effort(usual.warm_up, steps or usual.steps, repeats or usual.repeats)
    data = synthetic() if made else load(source, recipes[0].data)
    splits = [split_for(recipe, data) for recipe in recipes]  # whatever cannot be built is said before it is measured
    command = _command(source, settings, methods, steps, repeats)
    results: list[Result | Failure] = []
    try:
        with _saying() as say:
            for recipe, split in zip(recipes, splits):
                results.append(measure(recipe, split, effort, say))
                if csv is not None and isinstance(results[-1], Result):
                    append_csv(csv, [as_row(results[-1], command)])
    finally:  # what was measured is shown, also where it could not be kept
        if as_json:
            print(json.dumps([as_row(result, command) for result in results]))
        else:
            print_table(results, console)
    return any(isinstance(result, Failure) for result in results)


def _names(methods: str | None, settings: dict[str, str]) -> list[str]:
    if methods is None:
        return [settings.get("method", "instant")]
    if "method" in settings:
        raise InputError(f"--methods {methods} and method={settings['method']} both name methods; give one of them.")
    return method_names(methods)


def _command(source: str, settings: dict[str, str], methods: str | None, steps: int | None, repeats: int | None) -> str:
    """The words that measure this again."""
    words = ["instant", "bench", "step", source, *(f"{key}={value}" for key, value in settings.items())]
    for option, value in (("--methods", methods), ("--steps", steps), ("--repeats", repeats)):
        words += [] if value is None else [option, str(value)]
    return command_line(words)


@contextmanager
def _saying() -> Iterator[Say]:
    """What is going on, on stderr: one line that changes on a terminal, a line each elsewhere."""
    console = Console(stderr=True, emoji=False)
    if not console.is_terminal:
        yield lambda text: say(text, console)
        return
    with console.status("starting") as status:
        yield lambda text: status.update(text.replace("[", "\\["))
