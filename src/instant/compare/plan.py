"""Which runs a comparison is made of: every method with every seed, one folder each, checked before any is trained."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from instant.choose import Choice, prepare
from instant.config import Recipe
from instant.console import command_line
from instant.data.folder.problems import Flaw
from instant.data.folder.read import OWN
from instant.data.source import Source
from instant.engine.fit import code_of
from instant.errors import InputError
from instant.jobs import folder_name, names_own_files
from instant.methods import find_method, method_options, takes_any_option
from instant.recipes import resolve
from instant.run import Run
from instant.run_files import Code

PAGE = "compare.html"


class Entry(NamedTuple):
    """One run of the comparison, and the command that trains it by itself."""

    method: str
    seed: int
    run: Run
    recipe: Recipe
    command: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The runs seed by seed, so that those finished when it is stopped can be compared."""

    source: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    out: Path
    entries: tuple[Entry, ...]
    data: Source | None = None  # of files of the user's own, which had to be read to choose settings
    choices: tuple[Choice, ...] = ()  # for the first method, and the others but for what is the method's own
    problems: tuple[Flaw, ...] = ()

    @property
    def page(self) -> Path:
        return self.out / PAGE


def make_plan(
    source: str,
    settings: Mapping[str, str],
    *,
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    labels: str | Path | None = None,
) -> Plan:
    """The runs of `instant train SOURCE key=value ...` with every method and seed; a sentence where one cannot be."""
    if isinstance(methods, str):
        raise InputError(f"methods={methods!r} must be a list of names, as in methods=['instant', 'uda'].")
    try:
        seeds = [operator.index(seed) for seed in seeds]
    except TypeError:
        raise InputError(f"seeds={seeds!r} must be a list of whole numbers, as in seeds=[0, 1, 2].") from None
    if not isinstance(settings, Mapping):
        raise InputError(f"settings={settings!r} must be a dict, as in {{'steps': '200'}}.")
    labels = None if labels is None else Path(labels)
    for setting, option in (("method", "--methods"), ("seed", "--seeds")):
        if setting in settings:
            raise InputError(f"{setting}={settings[setting]} is for compare to set; write {option} instead.")
    _require_once("method", "--methods", methods)
    _require_once("seed", "--seeds", seeds)
    for method in methods:
        find_method(method)  # or a sentence, before anything is read
    _require_options(settings, methods)
    recipes: dict[tuple[str, int], Recipe] = {}
    data: Source | None = None
    choices: list[Choice] = []
    problems: list[Flaw] = []
    if names_own_files(source, labels):
        for method in methods:
            found: list[Flaw] = []
            prepared = prepare(Path(source), labels, {**settings, "method": method, "seed": str(seeds[0])}, found)
            if data is None:
                data, choices, problems = prepared.source, prepared.choices, found
            recipes |= {(method, seed): prepared.recipe.override({"seed": seed}) for seed in seeds}
    else:
        for method in methods:
            for seed in seeds:
                recipes[method, seed] = resolve(source, {**settings, "method": method, "seed": str(seed)})
    given = ["instant", "train", source, *(f"{key}={value}" for key, value in settings.items())]
    beside = ["--labels", str(labels)] if labels is not None else []
    entries = tuple(
        Entry(
            method=method,
            seed=seed,
            run=Run(out / folder_name(method, seed)),
            recipe=recipes[method, seed],
            command=command_line([*given, f"method={method}", f"seed={seed}", *beside]),
        )
        for seed in seeds
        for method in methods
    )
    require_ours(out, entries)
    for entry in entries:
        require_same_settings(entry, settings)
    return Plan(
        source=source,
        methods=tuple(methods),
        seeds=tuple(seeds),
        out=out,
        entries=entries,
        data=data,
        choices=tuple(choice for choice in choices if choice.setting not in ("method", "seed")),
        problems=tuple(problems),
    )


def _require_options(settings: Mapping[str, str], methods: Sequence[str]) -> None:
    """An option that some methods have and others lack; one that none has is left to the recipe's own sentence."""
    for setting in settings:
        if not setting.startswith("method."):
            continue
        option = setting.removeprefix("method.")
        lacking = [m for m in methods if not takes_any_option(m) and option not in method_options(m)]
        if lacking and len(lacking) < len(methods):
            raise InputError(
                f"{setting} is not an option of {lacking[0]}, and settings go to every method; leave it out, or name "
                "a method of your own that sets it, as package.module:function."
            )


def _require_once(what: str, option: str, given: Sequence[object]) -> None:
    if not given:
        raise InputError(f"{option} names no {what}; name at least one.")
    for place, value in enumerate(given):
        if value in given[:place]:
            raise InputError(f"{option} names the {what} {value} twice; name it once.")


def require_ours(out: Path, entries: Sequence[Entry]) -> None:
    """Refuse a folder that holds anything but a comparison, of these methods and seeds or of others, and its tables."""
    try:
        there = sorted(os.scandir(out), key=lambda item: item.name)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise InputError(f"--out {out} is a file; name a folder for the runs.") from None
    except OSError as error:
        raise InputError(f"--out {out} cannot be looked into ({error.strerror or error}).") from error
    ours = {PAGE, *(entry.run.path.name for entry in entries)}
    for item in there:
        systems = item.name.startswith(".") or item.name.casefold() in ("thumbs.db", "desktop.ini")
        known = systems or item.name in ours or item.name.endswith(".csv")
        if not known and item.name not in _names_of(Run(item.path)):
            raise InputError(
                f"--out {out} holds {item.name}, which is no run of a comparison; name a folder that is new or empty, "
                "or that of the comparison to go on with."
            )


def _names_of(run: Run) -> Iterator[str]:
    """What a comparison would call the folder of a run; nothing where it is none."""
    if run.exists:
        recipe = run.recipe()
        yield folder_name(recipe.method, recipe.seed)


def require_same_settings(entry: Entry, settings: Mapping[str, str]) -> None:
    """A run that is there was begun with these settings, or it would be compared with others under their name."""
    run = entry.run
    if run.exists and (name := run.differs(entry.recipe)) is not None:
        began, now = (recipe.leaves().get(name) for recipe in (run.recipe(), entry.recipe))
        why = ""
        if entry.recipe.source == OWN and name not in settings:
            why = " (chosen from the data: its labels or files have changed since, or what is given with them)"
        raise InputError(f"{run} was begun with {name}={began}, not {now}{why}; give that again, or another --out.")
    if run.exists:
        given = entry.recipe.leaves()
        began, now = map(_defaults, (run.code(), code_of(entry.method, None, entry.recipe.backbone)))
        for name in began.keys() & now.keys() - given.keys():
            if began[name] != now[name]:
                raise InputError(
                    f"{run} was begun when {name} was {began[name]} by default, and now it is {now[name]}; undo that "
                    "edit, or give another --out."
                )


def _defaults(code: Code) -> dict[str, Any]:
    """Of the functions that a run's parts are made by, named as settings are."""
    parts = {"method": code.options, "backbone": code.backbone}
    return {f"{part}.{name}": value for part, options in parts.items() for name, value in options.items()}
