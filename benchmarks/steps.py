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

SETTINGS = {
    "": tuple(METHODS),
    "backbone=wrn_28_8": ("fixmatch", "instant"),
    "recipe=pretrained_cifar10 pretrained=none": ("fixmatch", "instant"),
}


class Turns:
    """Who is still compiling and who has not been timed yet, shared by the processes."""

    def __init__(self, context: Any, count: int) -> None:
        self.waiting_for = [context.Value("i", count), context.Value("i", count)]
        self.lock = context.Lock()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Wait for all others, then run alone, then wait for all others again."""
        self._meet()
        time.sleep(10)  # whatever else ran on the device comes to its end
        with self.lock:
            yield
        self._meet()

    def leave(self) -> None:
        """Whatever happened, nobody shall wait for this one."""
        while self.waiting_for:
            self._arrive()

    def _meet(self) -> None:
        left = self._arrive()
        while left.value > 0:
            time.sleep(0.2)

    def _arrive(self) -> Any:
        left = self.waiting_for.pop(0)
        with left.get_lock():
            left.value -= 1
            if left.value == 0 and self.waiting_for:
                print("all compiled, timing in turn", flush=True)
        return left


def job(words: list[str], turns: Turns, results: Any) -> None:
    """One step: prints what is going on, and puts its row into the queue, or None."""
    from instant.bench.report import as_row
    from instant.bench.step import Result, measure, synthetic
    from instant.engine.build import split_for
    from instant.recipes import resolve

    row = None
    try:
        recipe = resolve("cifar10", dict(word.split("=", 1) for word in words))
        found = measure(recipe, split_for(recipe, synthetic()), alone=turns.take)
        if isinstance(found, Result):
            row = as_row(found, " ".join(["instant", "bench", "step", "synthetic", *words]))
            print(f"{row['ms']:8} ms  {row['method']} {row['backbone']} {row['way']}", flush=True)
        else:
            print(f"  failed     {' '.join(words)}: {found.error}", flush=True)
    finally:
        turns.leave()
        results.put(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", nargs="*", help="key=value, for all of them")
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "step.csv")
    parser.add_argument("--methods", default=",".join(METHODS), help="as in fixmatch,instant")
    options = parser.parse_args()
    from instant.bench.report import append_csv, check_csv

    check_csv(options.csv)
    jobs = [
        [*options.settings, *extra.split(), f"method={method}"]
        for extra, methods in SETTINGS.items()
        for method in methods
        if method in options.methods.split(",")
    ]
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # there is a process for each processor already
    context = multiprocessing.get_context("spawn")
    turns, results = Turns(context, len(jobs)), context.Queue()
    for words in jobs:
        context.Process(target=job, args=(words, turns, results)).start()
    rows = [results.get() for _ in jobs]
    order = [words[-1].removeprefix("method=") for words in jobs]
    kept = [row for row in rows if row is not None]
    append_csv(options.csv, sorted(kept, key=lambda row: (row["backbone"], order.index(row["method"]))))
    raise SystemExit(len(kept) < len(jobs))


if __name__ == "__main__":
    main()
