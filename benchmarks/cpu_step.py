"""A training step on a CPU, alone and on a busy machine, against the same step as libgomp and glibc would have it.

    python benchmarks/cpu_step.py                  # prints cpu_step.txt
    python benchmarks/cpu_step.py --repeats 1      # a quick look

With us, threads that wait for each other spin for a moment only (src/instant/__init__.py), and the memory of a step is
kept for the next (src/instant/engine/heap.py). Here each is left out in turn, beside none, one and as many loops
without an end as there are cores. A step of small_cnn has 32 labelled images, and 128 unlabelled ones in two views.
Milliseconds are medians of processes, as many as repeats, that take turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

WAYS = {  # what a process has in its environment, and what it takes out of it
    "instant": {},
    "threads spin": {"INSTANT_LEAVE": "GOMP_SPINCOUNT"},
    "memory goes back": {"MALLOC_TOP_PAD_": "131072"},  # glibc's own default, by which a user's say is known
}
SIDES = {"1 x 28 x 28": (1, 28, 28), "3 x 64 x 64": (3, 64, 64)}


def step(shape: tuple[int, ...], steps: int) -> float:
    """Milliseconds, after four steps to warm up."""
    import instant

    os.environ.pop(os.environ.get("INSTANT_LEAVE", ""), None)  # torch is not loaded yet

    import numpy as np

    from instant.engine.build import build_program
    from instant.engine.heap import kept_heap
    from instant.recipes import images

    rng = np.random.default_rng(0)
    labels = np.where(np.arange(1000) < 40, np.arange(1000) % 10, -1)
    source = instant.arrays(rng.integers(0, 256, (1000, *shape), np.uint8), labels, channels="first")
    split = instant.make_split(source, labels=None)
    with kept_heap:
        program = build_program(images().override({"backbone.width": "16", "device": "cpu"}), split)
        for number in range(4):
            program(number)
        started = time.perf_counter()
        for number in range(4, 4 + steps):
            program(number)
        return 1000 * (time.perf_counter() - started) / steps


@contextmanager
def beside(loops: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--alone", choices=SIDES, help="one measurement in this process")
    options = parser.parse_args()
    if options.alone:
        print(step(SIDES[options.alone], options.steps))
        return
    print(f"{'ms a step':12} {'beside':>8}  " + "  ".join(f"{way:>16}" for way in WAYS), flush=True)
    for side in SIDES:
        for loops in sorted({0, 1, os.cpu_count() or 1}):
            taken: dict[str, list[float]] = {way: [] for way in WAYS}
            with beside(loops):
                for _ in range(options.repeats):
                    for way, added in WAYS.items():
                        words = [sys.executable, __file__, "--alone", side, "--steps", str(options.steps)]
                        out = subprocess.run(words, env=os.environ | added, capture_output=True, text=True, check=True)
                        taken[way].append(float(out.stdout))
            row = "  ".join(f"{statistics.median(times):16.0f}" for times in taken.values())
            print(f"{side:12} {loops:>2} loops  {row}", flush=True)


if __name__ == "__main__":
    main()
