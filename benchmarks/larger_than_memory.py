"""What does it cost when the samples do not fit on the device? A step with all samples on it, and with batches fetched.

    python benchmarks/larger_than_memory.py
    python benchmarks/larger_than_memory.py --samples 2000 --size 8 --steps 3 batch=4 backbone=small_cnn    # on a CPU

Makes a file of random images and trains on it three times with the settings of classic CIFAR-10: resident; streamed
from host memory; streamed from the mapped file. Streamed, the samples may take a quarter of the memory they need.
Checks that the views of some steps, backwards too, are equal bit for bit, as plain torch makes them and as the program
does. Prints the median of the repeats, by CUDA events on a GPU, after warm-up, and exits with 1 when a view differs or
a streamed step takes more than --bar times the resident one. The file has just been written, so what is read from it
is in the cache of the operating system as far as that has room.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from instant.data.source import Source
from instant.data.store import Store
from instant.engine.build import build_program, split_for
from instant.engine.device import describe
from instant.engine.step import Program
from instant.recipes import resolve
from instant.types import Views

WARM_UP = 10
LOOKED_AT = (0, 1, 2, 3, 4, 5, 3, 1000, 1001, 2)


def write(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """A file of random bytes, mapped for reading."""
    random = np.random.default_rng(0)
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    for start in range(0, len(file), 10_000):
        part = file[start : start + 10_000]
        part[:] = random.integers(0, 256, part.shape, np.uint8)
    file.flush()
    return np.load(path, mmap_mode="r")


def as_source(samples: np.ndarray) -> Source:
    targets = np.arange(len(samples)) % 10
    return Source(
        name="random images",
        train=Store(samples),
        targets=targets,
        test=Store(samples[:0]),
        test_targets=targets[:0],
        classes=tuple("0123456789"),
        mean=(0.5,) * 3,
        std=(0.289,) * 3,
    )


@torch.no_grad()
def look(program: Program, draw: Callable[[torch.Tensor], Views]) -> list[Views]:
    """The views of some steps, on the host."""
    found = []
    for step in LOOKED_AT:
        program.feed.prepare(step)
        found.append(Views(*(part.cpu() for part in draw(torch.tensor(step, device=program.clock.device)))))
    return found


def differing(found: list[Views], expected: list[Views]) -> int:
    """In how many of the steps a view differs."""
    return sum(not all(map(torch.equal, one, other)) for one, other in zip(found, expected))


def milliseconds(program: Program, first: int, steps: int) -> float:
    """Mean time of a step over `steps` steps from step `first` on."""
    cuda = program.clock.is_cuda
    if cuda:
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
    started = time.perf_counter()
    for step in range(first, first + steps):
        program(step)
    if cuda:
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / steps
    return (time.perf_counter() - started) / steps * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", nargs="*", help="key=value, as for instant train")
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=32, help="side of an image")
    parser.add_argument("--steps", type=int, default=100, help="steps a repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the file of images goes; by default a temporary folder")
    parser.add_argument("--bar", type=float, default=1.3, help="how much longer a streamed step may take")
    options = parser.parse_args()
    settings = dict(word.split("=", 1) for word in options.settings)
    torch.backends.cudnn.benchmark = True
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        on_disk = write(Path(folder) / "images.npy", (options.samples, 3, options.size, options.size))
        in_memory = np.array(on_disk)
        size = in_memory.nbytes / 2**20
        print(f"{len(on_disk)} images, {size:.1f} MiB; streamed: at most {size / 4:.1f} MiB on the device")
        print(f"{'samples':22} {'ms a step':>10} {'ratio':>6} {'views apart':>12} {'in the step':>12} {'start s':>8}")
        cases = (
            ("resident", in_memory, size),
            ("streamed, host memory", in_memory, size / 4),
            ("streamed, mapped file", on_disk, size / 4),
        )
        good, base, expected, expected_in_step = True, 0.0, [], []
        for name, samples, memory in cases:
            torch._dynamo.reset()
            recipe = resolve("cifar10", settings | {"memory": str(memory)})
            started = time.perf_counter()
            program = build_program(recipe, split_for(recipe, as_source(samples)))
            plain, in_step = look(program, program.feed), look(program, program._draw)
            milliseconds(program, 0, WARM_UP)
            start = time.perf_counter() - started
            found = statistics.median(
                milliseconds(program, WARM_UP + number * options.steps, options.steps)
                for number in range(options.repeats)
            )
            if name == "resident":
                base, expected, expected_in_step = found, plain, in_step
            apart, apart_in_step = differing(plain, expected), differing(in_step, expected_in_step)
            good &= apart == apart_in_step == 0 and found <= options.bar * base
            print(f"{name:22} {found:10.2f} {found / base:6.3f} {apart:12} {apart_in_step:12} {start:8.1f}", flush=True)
            program.feed.close()
        print(f"on {describe(program.clock.device)}: {'good' if good else 'NOT GOOD'}")
    raise SystemExit(not good)


if __name__ == "__main__":
    main()
