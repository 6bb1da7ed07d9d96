"""Trains the runs of a comparison that are not finished, one after another; one that fails does not cost the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from instant.compare.page import write_page
from instant.compare.plan import Entry, Plan, make_plan
from instant.compare.results import Comparison, Failure, gather
from instant.console import say, say_problems
from instant.data.split import Split
from instant.engine.build import build_program, source_for, split_for
from instant.engine.interrupt import Interrupted, interrupt_flag
from instant.jobs import train_run
from instant.progress import AtStart
from instant.report.baseline import comparable
from instant.report.page import write_report


def compare_methods(
    source: str,
    settings: Mapping[str, str] | None = None,
    *,
    methods: Sequence[str],
    seeds: Sequence[int],
    out: str | Path,
    labels: str | Path | None = None,
    console: Console | None = None,
) -> Comparison:
    """Train every method with every seed, into folders of `out`, and compare them; what is finished is left as it is.

    `settings` are those of `instant train`, as {"labels": "40"}. Nothing is printed without a console. A run that fails
    is among the `failures` of what is returned; Ctrl-C raises, and the same call goes on.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare_methods("digits", {"steps": "2"}, methods=["instant", "uda"], seeds=[0], out=folder)
    >>> found.methods, len(found.results), found.failures
    (('instant', 'uda'), 2, ())
    """
    plan = make_plan(source, settings or {}, methods=methods, seeds=seeds, out=Path(out), labels=labels)
    failures: list[Failure] = []
    train_plan(plan, failures, console=console or Console(quiet=True))
    found = gather(plan, failures)
    if found.results:
        write_page(plan, found)
    return found


def train_plan(plan: Plan, failures: list[Failure], *, console: Console) -> None:
    """Train what is not finished; a run that fails is added to `failures`. Ctrl-C raises, with the checkpoint saved."""
    if all(entry.run.finished for entry in plan.entries):
        return
    gather(plan)  # or a sentence, now rather than in the end: what is finished cannot be read
    splits = splits_of(plan)
    if not any(map(comparable, splits.values())):
        say(
            "Warning: no labels are held out, so accuracies will not be known. Hold some out with validation=N.",
            console,
        )
    with interrupt_flag(terminate=True) as stopping:
        for number, entry in enumerate(plan.entries, start=1):
            if stopping.is_set():  # on the last step of a run, which is finished, or while its report was written
                raise KeyboardInterrupt
            begin = f"run {number} of {len(plan.entries)}: {entry.method}, seed {entry.seed}"
            say(f"{begin}, is finished already" if entry.run.finished else begin, console)
            if entry.run.finished:
                continue
            try:
                train_entry(entry, splits[entry.run.path], plan, console)
            except (Interrupted, KeyboardInterrupt):
                raise
            except Exception as error:  # whatever it is, the other runs are not to blame
                failures.append(failure_of(entry, error))
                say(f"{entry.run.path.name} failed: {failures[-1].reason}", console)


def splits_of(plan: Plan) -> dict[Path, Split]:
    """The data of every run; what cannot be built, or has changed since a run was begun, is said before training."""
    data = plan.data or source_for(plan.entries[0].recipe)
    splits = {}
    tried = set()
    for entry in plan.entries:
        splits[entry.run.path] = split_for(entry.recipe, data)
        if entry.run.exists:
            entry.run.require_same(splits[entry.run.path])
            entry.run.require_same_test(splits[entry.run.path])
        elif entry.method not in tried:
            tried.add(entry.method)
            build_program(entry.recipe, splits[entry.run.path]).feed.close()
    return splits


def train_entry(entry: Entry, split: Split, plan: Plan, console: Console) -> None:
    """One run, new or from its checkpoint, and its page."""
    run = entry.run
    flaws = list(plan.problems)
    listing = [AtStart(lambda: say_problems(run.save_problems(flaws), len(set(flaws)), console))] if flaws else []
    _, told = train_run(
        run,
        entry.recipe,
        split,
        console=console,
        title=run.path.name,
        resume=run.exists,
        callbacks=listing,
        mates=[other.run for other in plan.entries if other.seed == entry.seed and other is not entry],
    )
    try:
        _, facts = write_report(run, split, method=entry.method, backbone=entry.recipe.backbone)
    except Exception as error:  # the run is finished and kept
        said = f"{run} is finished, but its report is not written ({error}); try again with: {run.report_command}"
        say(said, console)
        return
    for warning in facts.warnings:
        if warning.kind not in told:
            say(f"Warning: {warning.sentence}", console)


def failure_of(entry: Entry, error: Exception) -> Failure:
    words = " ".join(str(error).split())
    reason = words if type(error).__module__.startswith("instant.") else f"{type(error).__name__}: {words}"
    return Failure(entry.method, entry.seed, reason, entry.run.resume_command if entry.run.exists else entry.command)
