"""The step of every method, and of two methods with larger networks: compiled side by side, timed one at a time.

    python benchmarks/steps.py --csv benchmarks/step.csv

Each row is what `instant bench step` measures, and has the command that measures it alone beside it. Compiling takes
a processor a minute and the GPU hardly anything, timing needs the GPU undisturbed: so every step has a process of
its own, all wait until the last one is compiled, and then take turns.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from instant.algorithms import METHODS

BOTH = ("fixmatch", "instant")
SETTINGS = {  # what everybody looks at first comes first
    "": (*BOTH, *(method for method in METHODS if method not in BOTH)),
    "backbone=wrn_28_8": BOTH,
    "recipe=pretrained_cifar10 pretrained=none": BOTH,
}


class Turns:
    """Who compiles, who is still to compile, and whose turn it is to be timed, shared by the processes."""

    def __init__(self, context: Any, count: int, at_once: int) -> None:
        self.compiling = context.Semaphore(at_once)
        self.uncompiled = context.Value("i", count)
        self.turn = context.Value("i", 0)

    @contextmanager
    def take(self, number: int) -> Iterator[None]:
        """Wait until all are compiled and those before this one have been timed; then run alone."""
        self._compiled()
        while self.uncompiled.value or self.turn.value < number:
            time.sleep(0.05)
        if number == 0:
            print("all compiled, timing in turn", flush=True)
            time.sleep(5)  # whatever else ran on the device comes to its end
        yield

    def leave(self, number: int, *, waited: bool) -> None:
        """Whatever happened, nobody shall wait for this one."""
        if not waited:
            self._compiled()
        while self.turn.value < number:
            time.sleep(0.05)
        self.turn.value = number + 1

    def _compiled(self) -> None:
        self.compiling.release()
        with self.uncompiled.get_lock():
            self.uncompiled.value -= 1


def job(number: int, words: list[str], csv: Path, turns: Turns, failed: Any) -> None:
    """One step: compiled among others, timed alone, its row written at once."""
    from instant.bench.report import append_csv, as_row
    from instant.bench.step import Result, measure, synthetic
    from instant.engine.build import split_for
    from instant.recipes import resolve

    waited = False

    @contextmanager
    def alone() -> Iterator[None]:
        nonlocal waited
        with turns.take(number):
            waited = True
            yield

    turns.compiling.acquire()
    try:
        recipe = resolve("cifar10", dict(word.split("=", 1) for word in words))
        found = measure(recipe, split_for(recipe, synthetic()), alone=alone)
        row = as_row(found, " ".join(["instant", "bench", "step", "synthetic", *words]))
        if isinstance(found, Result):
            append_csv(csv, [row])
        else:
            failed.value = 1
        print(f"{row.get('ms', row.get('error'))!s:>8}  {row['method']} {row['backbone']} {row['way']}", flush=True)
    finally:
        turns.leave(number, waited=waited)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", nargs="*", help="key=value, for all of them")
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "step.csv")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2), help="compiled at once")
    parser.add_argument("--methods", default=",".join(METHODS), help="as in fixmatch,instant")
    options = parser.parse_args()
    from instant.bench.report import check_csv

    check_csv(options.csv)
    jobs = [
        [*options.settings, *extra.split(), f"method={method}"]
        for extra, methods in SETTINGS.items()
        for method in methods
        if method in options.methods.split(",")
    ]
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
    context = multiprocessing.get_context("spawn")
    turns, failed = Turns(context, len(jobs), options.jobs), context.Value("i", 0)
    running = [
        context.Process(target=job, args=(number, words, options.csv, turns, failed))
        for number, words in enumerate(jobs)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join()
    raise SystemExit(failed.value or any(process.exitcode for process in running))


if __name__ == "__main__":
    main()
