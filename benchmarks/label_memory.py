"""The memory it takes to decode and to label a folder of images, which must not grow with their number.

    python benchmarks/label_memory.py                          # prints the first half of label_memory.txt
    python benchmarks/label_memory.py --counts 100000          # and the second
    python benchmarks/label_memory.py --counts 200 1000        # a quick look

Labelling takes 328 MiB for 2,000 files, 355 for 20,000 and 356 for 100,000 in parquet, and about as much in the other
formats; decoding takes 184, 188 and 195, which is the names of the files (label_memory.txt).

The images are grey PNGs of 28 x 28 that the program makes itself, seeded. A run of twenty steps is trained on the first
folder. Every line is a fresh process: `decode` reads a folder as `instant train` does, into an empty cache; `label`
is the whole command, and the first of them decodes as well. Memory is the largest that a look every five milliseconds
saw: `own` is what the process itself has filled (RssAnon of /proc/self/status), and grows if something is kept for
every file; `mapped` are pages of programs and of files being read (RssFile), which the system takes back when it needs
them. Most of both is torch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
from PIL import Image

FORMS = ("parquet", "csv", "json")
TRAIN = ("--labels", "labels.csv", "steps=20", "device=cpu", "--out", "run")


def make(folder: Path, count: int) -> None:
    """Seeded PNGs of two brightnesses."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(count):
        pixels = rng.integers(0, 100, (28, 28), np.uint8) + np.uint8(100 * (number % 2))
        Image.fromarray(pixels).save(folder / f"{number:06d}.png")


def decode(folder: str) -> None:
    from instant.data.folder.read import read_own

    read_own(Path(folder), Path("labels.csv"), 28, [], progress=False)


def watched(words: list[str]) -> None:
    """Do as the words say in this process, and print the largest amounts of memory in MiB."""
    ended, largest = threading.Event(), {"RssAnon": 0, "RssFile": 0}

    def watch() -> None:
        while not ended.wait(0.005):
            for line in Path("/proc/self/status").read_text().splitlines():
                name, value = line.split(":")
                if name in largest:
                    largest[name] = max(largest[name], int(value.split()[0]))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        if words[0] == "decode":
            decode(words[1])
        else:
            from instant.cli import main as instant

            assert instant(words) == 0
    finally:
        ended.set()
        watching.join()
    print(json.dumps([round(kib / 1024) for kib in largest.values()]))


def measure(*words: str, cache: str) -> tuple[int, int]:
    answer = subprocess.run(
        [sys.executable, __file__, "--watch", *words],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "INSTANT_DATA": str(Path(cache).resolve())},
    )
    own, mapped = json.loads(answer.stdout.splitlines()[-1])
    return own, mapped


def main() -> None:
    if sys.argv[1:2] == ["--watch"]:
        watched(sys.argv[2:])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--counts", type=int, nargs="+", default=[2000, 20_000])
    counts = parser.parse_args().counts
    with tempfile.TemporaryDirectory() as home:
        os.chdir(home)
        rows = [f"{number:06d}.png,{'dark' if number % 2 == 0 else 'bright'}" for number in range(40)]
        Path("labels.csv").write_text("\n".join(["file,label", *rows]))
        for count in counts:
            make(Path(f"{count}"), count)
        measure("train", f"{counts[0]}", *TRAIN, cache="train")
        for count in counts:
            own, mapped = measure("decode", f"{count}", cache=f"decode-{count}")
            print(f"decode        {count:8,} files   own {own} MiB, mapped {mapped} MiB", flush=True)
        for form in FORMS:
            for count in counts:
                words = ("label", "run", f"{count}", "--out", f"{count}.{form}")
                own, mapped = measure(*words, cache=f"label-{count}")
                print(f"label {form:7} {count:8,} files   own {own} MiB, mapped {mapped} MiB", flush=True)


if __name__ == "__main__":
    main()
