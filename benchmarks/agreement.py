"""Do eager, compiled and captured steps agree? Each step is run three ways from the same state, and compared.

    python benchmarks/agreement.py cifar10 --data FOLDER --methods instant,fixmatch --steps 20

Before every step the other way takes over the eager run's whole state, so that what is compared is the step and not
the chaos of training (two runs that differ by one rounding part within ten steps). Prints, per method, the largest
difference of the loss and of the updated weights (relative to the largest entry of each tensor), in float32
without TF32, and exits with 1 beyond the tolerance. On a CPU the captured way is left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import time

import torch

from instant.algorithms import METHODS
from instant.data.sources import load
from instant.engine.build import build_program, split_for
from instant.engine.step import Program
from instant.recipes import resolve


def apart(first: Program, second: Program) -> float:
    """The largest relative difference of any weight or state tensor."""
    pairs = zip(first.tensors().items(), second.tensors().values())
    floats = [(a, b) for (name, a), b in pairs if a.is_floating_point() and name.startswith("learner.")]
    return max(float((a - b).abs().max() / a.abs().max().clamp_min(1e-3)) for a, b in floats if a.numel())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", nargs="?", default="digits")
    parser.add_argument("settings", nargs="*", help="key=value, as for instant train")
    parser.add_argument("--data")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tolerance", type=float, default=1e-2)
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    source = load(options.source, options.data)
    ways = ["compiled"] + (["captured"] if torch.cuda.is_available() else [])
    worst = 0.0
    print(
        f"{'method':18} {'way':9} {'loss apart':>11} {'weights apart':>14} "
        f"{'first loss':>11} {'last loss':>10} {'start s':>8}"
    )
    for method in options.methods.split(","):
        settings = dict(word.split("=", 1) for word in options.settings) | {"method": method, "precision": "float32"}
        recipe = resolve(options.source, settings)
        split = split_for(recipe, source)
        for way in ways:
            torch._dynamo.reset()
            eager = build_program(dataclasses.replace(recipe, step="eager"), split)
            other = build_program(dataclasses.replace(recipe, step=way), split)
            losses, differences, weights, start = [], [], [], 0.0
            for step in range(options.steps):
                other.restore({name: value.clone() for name, value in eager.tensors().items()})
                eager(step)
                started = time.perf_counter()
                other(step)
                start = start or time.perf_counter() - started
                weights.append(apart(eager, other))
                expected, found = float(eager.meter.read()["loss"]), float(other.meter.read()["loss"])
                losses.append(expected)
                differences.append(abs(found - expected) / max(abs(expected), 1e-3))
            worst = max(worst, *differences, *weights)
            print(
                f"{method:18} {way:9} {max(differences):11.1e} {max(weights):14.1e} "
                f"{losses[0]:11.4f} {losses[-1]:10.4f} {start:8.1f}",
                flush=True,
            )
    print(f"worst {worst:.1e}, tolerance {options.tolerance}: {'agree' if worst <= options.tolerance else 'DIFFER'}")
    raise SystemExit(worst > options.tolerance)


if __name__ == "__main__":
    main()
