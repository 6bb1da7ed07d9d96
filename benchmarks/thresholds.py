"""One million rows of 100 classes through `instance_thresholds`: 0.92 s and 0.70 GiB on two free CPU cores.

    python benchmarks/thresholds.py --threads 2

Aligned: 1.04 s, 0.79 GiB (2026-11-15, torch 2.13, float32). Where another program takes one of the cores, --threads 1
is faster: threads wait for each other. The probabilities are made first and are not part of the time; the peak memory
is the whole process's, with them.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np
import torch

from instant import instance_thresholds


def made(rng: np.random.Generator, rows: int, classes: int) -> np.ndarray:
    """Peaked random probabilities in float32, made in place: no second copy is in the peak."""
    probs = rng.random((rows, classes), dtype=np.float32)
    np.power(probs, 12, out=probs)
    probs[np.arange(rows), rng.integers(classes, size=rows)] += 40
    probs /= probs.sum(1, keepdims=True)
    return probs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rng = np.random.default_rng(0)
    probs = made(rng, options.rows, options.classes)
    probs_l = made(rng, 40 * options.classes, options.classes)
    y_l = probs_l.argmax(1)
    y_l[::10] = (y_l[::10] + 1) % options.classes  # one in ten is called something else
    unit = 2**30 if sys.platform == "darwin" else 2**20  # macOS counts bytes, Linux kilobytes
    for align in (None, "uniform"):
        started, worked = time.perf_counter(), time.process_time()
        found = instance_thresholds(probs_l, y_l, probs, align=align)
        seconds, processor = time.perf_counter() - started, time.process_time() - worked
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
        print(
            f"{options.rows:,} rows, {options.classes} classes, {options.threads} threads, align={align}: "
            f"{seconds:.2f} s ({processor:.2f} s of processor), peak {peak:.2f} GiB, "
            f"accepted {found.accepted.mean():.1%}, mean tau {found.tau.mean():.3f}"
        )


if __name__ == "__main__":
    main()
