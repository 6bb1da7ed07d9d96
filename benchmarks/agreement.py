"""Do eager, compiled and captured steps agree? Losses of the same steps, run three ways from the same seed.

    python benchmarks/agreement.py cifar10 --data FOLDER --methods instant,fixmatch --steps 20

Prints, per method, the largest difference of the loss from the eager run, relative to the loss, and exits with 1 if
it passes the tolerance. On a CPU the captured way is left out. Results are kept in benchmarks/agreement.csv.
"""

from __future__ import annotations

import argparse
import dataclasses
import time

import torch

from instant.algorithms import METHODS
from instant.data.sources import load
from instant.data.split import make_split
from instant.engine.fit import build_program
from instant.recipes import resolve


def losses(recipe, split, steps: int) -> tuple[list[float], float]:
    """The loss of each of the first steps, and the seconds until the first one was done."""
    program = build_program(recipe, split)
    started = time.perf_counter()
    found = []
    for step in range(steps):
        program(step)
        found.append(float(program.meter.read()["loss"]))
        if step == 0:
            first = time.perf_counter() - started
    return found, first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", nargs="?", default="digits")
    parser.add_argument("settings", nargs="*", help="key=value, as for instant train")
    parser.add_argument("--data")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tolerance", type=float, default=0.02)
    options = parser.parse_args()
    source = load(options.source, options.data)
    ways = ["compiled"] + (["captured"] if torch.cuda.is_available() else [])
    worst = 0.0
    print(f"{'method':18} {'way':9} {'largest relative difference':>28} {'last loss':>10} {'eager':>10} {'start s':>8}")
    for method in options.methods.split(","):
        settings = dict(word.split("=", 1) for word in options.settings) | {"method": method}
        recipe = resolve(options.source, settings)
        split = make_split(source, labels=None if METHODS[method](_tiny()).all_labels else recipe.labels)
        eager, _ = losses(dataclasses.replace(recipe, step="eager"), split, options.steps)
        for way in ways:
            torch._dynamo.reset()
            found, start = losses(dataclasses.replace(recipe, step=way), split, options.steps)
            apart = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(found, eager))
            worst = max(worst, apart)
            print(f"{method:18} {way:9} {apart:28.2e} {found[-1]:10.5f} {eager[-1]:10.5f} {start:8.1f}", flush=True)
    print(f"worst {worst:.2e}, tolerance {options.tolerance}: {'agree' if worst <= options.tolerance else 'DIFFER'}")
    raise SystemExit(worst > options.tolerance)


def _tiny():
    from instant.types import Problem

    return Problem(classes=2, features=2, unlabelled=4, steps=10)


if __name__ == "__main__":
    main()
