"""A folder of JPEGs decoded once, against a bare Pillow loop with a process pool over the same files.

    python benchmarks/decode.py                     # prints what decode.txt holds
    python benchmarks/decode.py --count 500         # a quick look

On two cores ours reads 0.95 x the images a second of the bare loop (medians of three), a second run starts in a
twentieth of a second, and 20,000 files take the memory of 2,000: 331 MiB, most of it torch's, and 40 MiB a worker
(decode.txt).

The images are JPEGs of 200 x 150 that the program makes itself: seeded gradients with noise. The bare loop is what one
would write by hand: a pool of as many processes as cores, each file opened, converted to RGB, its middle square resized
to 64 x 64 with Pillow's bilinear filter and returned. Ours lists the folder, looks at headers, decodes with the same
number of processes and leaves a whole, synced array with its statistics on disk; then it is asked again. Both sides
take turns and both start their processes within the time. Memory is the largest resident set of the process and of any
worker, for each folder in a fresh process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL
from PIL import Image

SIDE = 64


def make(folder: Path, count: int) -> None:
    """Seeded JPEGs; the first forty are labelled."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    across, down = np.meshgrid(np.linspace(0, 1, 200), np.linspace(0, 1, 150))
    rows = ["file,label"]
    for number in range(count):
        slope = rng.normal(size=(2, 3)) * 60
        pixels = 128 + across[..., None] * slope[0] + down[..., None] * slope[1] + rng.normal(size=(150, 200, 3)) * 12
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number:06d}.jpg", quality=85)
        if number < 40:
            rows.append(f"{number:06d}.jpg,class {number % 2}")
    (folder / "labels.csv").write_text("\n".join(rows))


def bare_one(path: str) -> np.ndarray:
    with Image.open(path) as image:
        colour = image.convert("RGB")
        left = (colour.width - colour.height) / 2
        box = (left, 0, left + colour.height, colour.height)
        return np.asarray(colour.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box))


def bare(folder: Path, count: int, workers: int) -> None:
    images = np.empty((count, SIDE, SIDE, 3), np.uint8)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        paths = [str(path) for path in sorted(folder.glob("*.jpg"))]
        for row, image in enumerate(pool.imap(bare_one, paths, chunksize=64)):
            images[row] = image


def ours(folder: Path, cache: Path) -> None:
    from instant.data.folder.read import read_own

    os.environ["INSTANT_DATA"] = str(cache)
    source = read_own(folder, folder / "labels.csv", SIDE, [], progress=False)
    assert source.train.shape == (3, SIDE, SIDE)


def seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def memory(folder: Path, cache: Path) -> tuple[float, float]:
    """MiB of the process and of its largest worker, in a process of its own."""
    answer = subprocess.run(
        [sys.executable, __file__, "--measure", str(folder), str(cache)], check=True, capture_output=True, text=True
    )
    own, worker = json.loads(answer.stdout)
    return own / 1024, worker / 1024


def measure(folder: Path, cache: Path) -> None:
    # asked from outside: what the system counts for children includes the moment before they became other programs
    ended, largest = threading.Event(), 0

    def watch() -> None:
        nonlocal largest
        while not ended.wait(0.05):
            for child in multiprocessing.active_children():
                with contextlib.suppress(OSError, ValueError):
                    status = Path(f"/proc/{child.pid}/status").read_text()
                    peak = int(status.split("VmHWM:")[1].split()[0]) if b"spawn" in command(child.pid) else 0
                    largest = max(largest, peak)

    watching = threading.Thread(target=watch)
    watching.start()
    ours(folder, cache)
    ended.set()
    watching.join()
    print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, largest]))


def command(process: int | None) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=2, type=Path)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure)
        return
    count, workers = options.count, len(os.sched_getaffinity(0))
    import instant.data.folder.read  # noqa: F401  torch's import is no part of decoding

    with tempfile.TemporaryDirectory() as home:
        folder, many = Path(home, "few"), Path(home, "many")
        make(folder, count)
        by_hand, cold, warm = [], [], []
        for repeat in range(options.repeats):
            cache = Path(home, f"cache-{repeat}")
            by_hand.append(count / seconds(lambda: bare(folder, count, workers)))
            cold.append(count / seconds(lambda cache=cache: ours(folder, cache)))  # type: ignore[misc]
            warm.append(seconds(lambda cache=cache: ours(folder, cache)))  # type: ignore[misc]
        ratio = statistics.median(ours / theirs for ours, theirs in zip(cold, by_hand))
        print(f"{workers} processes, Pillow {PIL.__version__}, {count:,} JPEGs of 200 x 150 to {SIDE} x {SIDE}")
        print(f"bare loop      {statistics.median(by_hand):8,.0f} images/s")
        print(f"ours           {statistics.median(cold):8,.0f} images/s   {ratio:.2f} x the bare loop")
        print(f"ours, again    {statistics.median(warm):8.3f} s in all")
        make(many, 10 * count)
        for where in (folder, many):
            own, worker = memory(where, Path(home, f"cache-memory-{where.name}"))
            print(f"peak memory of {len(list(where.glob('*.jpg'))):6,} files: {own:.0f} MiB, a worker {worker:.0f} MiB")


if __name__ == "__main__":
    main()
