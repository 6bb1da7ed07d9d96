"""How long does a step take? The median over repeats, by CUDA events on a GPU, after warm-up.

python benchmarks/step.py cifar10 data=FOLDER --methods fixmatch,instant
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from instant.data.sources import load
from instant.engine.build import build_program, split_for
from instant.engine.device import describe
from instant.engine.step import Program
from instant.recipes import resolve


def milliseconds(program: Program, first: int, steps: int) -> float:
    """Mean time of a step over `steps` steps from step `first` on."""
    if program.clock.is_cuda:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for step in range(first, first + steps):
            program(step)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / steps
    started = time.perf_counter()
    for step in range(first, first + steps):
        program(step)
    return (time.perf_counter() - started) / steps * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", nargs="?", default="digits")
    parser.add_argument("settings", nargs="*", help="key=value, as for instant train")
    parser.add_argument("--methods", default="fixmatch,instant")
    parser.add_argument("--steps", type=int, default=40, help="steps a repeat")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    settings = dict(word.split("=", 1) for word in options.settings)
    source = load(options.source, settings.get("data"))
    torch.backends.cudnn.benchmark = True
    print(f"{'method':18} {'ms a step':>10} {'start s':>8}  on")
    for method in options.methods.split(","):
        torch._dynamo.reset()
        recipe = resolve(options.source, settings | {"method": method})
        started = time.perf_counter()
        program = build_program(recipe, split_for(recipe, source))
        milliseconds(program, 0, 10)
        start = time.perf_counter() - started
        found = [milliseconds(program, 10 + i * options.steps, options.steps) for i in range(options.repeats)]
        print(
            f"{method:18} {statistics.median(found):10.2f} {start:8.1f}  {describe(program.clock.device)}", flush=True
        )


if __name__ == "__main__":
    main()
