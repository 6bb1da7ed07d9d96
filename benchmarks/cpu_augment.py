"""Batched strong augmentation against Pillow's per-image path, on a CPU: the same images, draws and results.

    python benchmarks/cpu_augment.py                # prints what cpu_augment.txt holds

On two cores ours takes 12.8 ms and Pillow 39.7 ms: 3.1 x; on one core 18.5 and 63.1 ms of processor time: 3.4 x (torch
2.13, Pillow 13, cpu_augment.txt). Of ours 34 % goes into levels (autocontrast, equalize, posterize, solarize in one
table), 27 % into mixing (brightness, color, contrast, sharpness), 17 % into moving pixels, 11 % into the crop and 6 %
into Cutout.

Both sides take the same 448 RGB images of 32 x 32 as bytes through the strong policy (reflected crop and mirroring,
three of fourteen operations, Cutout) and give bytes (448, 3, 32, 32) back; the views are compared, and equal to the
grey level. Ours draws its random numbers within the time; Pillow is handed them ready and crops by indexing an array.
Both sides take turns, medians are compared: on one core of the processor's time, on two of the clock on the wall,
with two threads against two processes that hold half of the images each.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np
import PIL
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor

from instant import random
from instant.augment import images
from instant.augment.policies import Strong, draw_operation

COUNT, SIDE, PAD, FILL = 448, 32, 4, (125, 123, 114)
POLICY = Strong(mirror=True, channels=3)


class Draw(NamedTuple):
    """What one image goes through, as plain numbers."""

    rows: np.ndarray
    columns: np.ndarray
    operations: list[tuple[str, float]]
    hole: tuple[int, int, int, int]


RANGES = {"posterize": (4, 8), "solarize": (0, 256), "rotate": (-30, 30)}
RANGES |= dict.fromkeys(("brightness", "color", "contrast", "sharpness"), (0.05, 0.95))
RANGES |= dict.fromkeys(("shear_x", "shear_y", "translate_x", "translate_y"), (-0.3, 0.3))


def _affine(image: Image.Image, coefficients: Sequence[float]) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, coefficients)


PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "autocontrast": lambda image, v: ImageOps.autocontrast(image),
    "brightness": lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    "color": lambda image, v: ImageEnhance.Color(image).enhance(v),
    "contrast": lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    "equalize": lambda image, v: ImageOps.equalize(image),
    "identity": lambda image, v: image,
    "posterize": lambda image, v: ImageOps.posterize(image, int(v)),
    "rotate": lambda image, v: image.rotate(v),
    "sharpness": lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    "shear_x": lambda image, v: _affine(image, (1, v, 0, 0, 1, 0)),
    "shear_y": lambda image, v: _affine(image, (1, 0, 0, v, 1, 0)),
    "solarize": lambda image, v: ImageOps.solarize(image, v),
    "translate_x": lambda image, v: _affine(image, (1, 0, v * image.width, 0, 1, 0)),
    "translate_y": lambda image, v: _affine(image, (1, 0, 0, 0, 1, v * image.height)),
}


def smooth_images() -> Tensor:
    """Seeded colour fields with some noise: all levels, like small photographs."""
    generator = torch.Generator().manual_seed(0)
    fields = torch.nn.functional.interpolate(
        torch.rand(COUNT, 3, 6, 6, generator=generator), size=SIDE, mode="bicubic", align_corners=False
    )
    noisy = fields + 0.03 * torch.randn(fields.shape, generator=generator)
    return noisy.clamp(0, 1).mul(255).to(torch.uint8)


def magnitudes(name: str, strength: Tensor) -> Tensor | None:
    if name == "posterize":
        return 4 + strength * 5 // images.STRENGTHS
    return images.between(strength, *RANGES[name]) if name in RANGES else None


def draws(key: Tensor) -> list[Draw]:
    """The policy's own random words under `key`, decoded for Pillow."""
    words = random.bits(random.fold(key, 1), 6 + 2 * POLICY.rounds, COUNT)

    def whole(row: int, high: int) -> Tensor:
        return (words[row] * high) >> 32

    tops, lefts, mirrored = (whole(row, high).tolist() for row, high in ((0, 2 * PAD + 1), (1, 2 * PAD + 1), (2, 2)))
    sides = (images.between(whole(3, images.STRENGTHS), 0, POLICY.cutout) * SIDE).tolist()
    centres = [images.between(whole(row, images.STRENGTHS), 0, SIDE).tolist() for row in (4, 5)]
    rounds = []
    for pair in words[6:].view(POLICY.rounds, 2, COUNT):
        operation, strength = draw_operation(pair)
        by_name = {name: magnitudes(name, strength) for name in images.OPERATIONS}
        amounts = {name: [0.0] * COUNT if value is None else value.tolist() for name, value in by_name.items()}
        names = [images.OPERATIONS[number] for number in operation.tolist()]
        rounds.append([(name, amounts[name][i]) for i, name in enumerate(names)])
    reflected = np.pad(np.arange(SIDE), PAD, mode="reflect")
    found = []
    for i in range(COUNT):
        columns = reflected[lefts[i] : lefts[i] + SIDE]
        x, y, half = centres[0][i] - 0.5, centres[1][i] - 0.5, sides[i] / 2
        # The pixels strictly within half a side of the centre.
        hole = (math.floor(x - half) + 1, math.floor(y - half) + 1, math.ceil(x + half) - 1, math.ceil(y + half) - 1)
        found.append(
            Draw(
                rows=reflected[tops[i] : tops[i] + SIDE],
                columns=columns[::-1] if mirrored[i] else columns,
                operations=[drawn[i] for drawn in rounds],
                hole=hole,
            )
        )
    return found


def pillow_views(arrays: np.ndarray, drawn: Sequence[Draw]) -> np.ndarray:
    """(n, 32, 32, 3) bytes to views (n, 3, 32, 32), image by image."""
    views = np.empty((len(drawn), 3, SIDE, SIDE), np.uint8)
    for i, draw in enumerate(drawn):
        image = Image.fromarray(arrays[i].take(draw.rows, 0).take(draw.columns, 1))
        for name, amount in draw.operations:
            image = PILLOW[name](image, amount)
        left, top, right, bottom = draw.hole
        if left <= right and top <= bottom:
            ImageDraw.Draw(image).rectangle(draw.hole, FILL)
        views[i] = np.asarray(image).transpose(2, 0, 1)
    return views


def _work(start: int, stop: int, key_number: int, channel: Connection) -> None:
    """A process of Pillow's: holds its share of the images and the draws, and sends the views back when asked."""
    torch.set_num_threads(1)
    arrays = smooth_images().permute(0, 2, 3, 1).contiguous().numpy()[start:stop]
    drawn = draws(random.root(key_number))[start:stop]
    while channel.recv():
        channel.send_bytes(pillow_views(arrays, drawn).tobytes())


class Pool:
    """Two processes with one half of the images each; bytes come back through a pipe."""

    def __init__(self, key_number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.channels = []
        self.processes = []
        for start in range(0, COUNT, COUNT // 2):
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(start, start + COUNT // 2, key_number, there), daemon=True)
            process.start()
            self.channels.append(here)
            self.processes.append(process)

    def views(self) -> np.ndarray:
        for channel in self.channels:
            channel.send(True)
        parts = [np.frombuffer(channel.recv_bytes(), np.uint8).reshape(-1, 3, SIDE, SIDE) for channel in self.channels]
        return np.concatenate(parts)

    def close(self) -> None:
        for channel, process in zip(self.channels, self.processes):
            channel.send(False)
            process.join()


def interleaved(
    sides: dict[str, Callable[[], object]], repeats: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """The median seconds of each side; the sides take turns, so that a busy moment meets them all.

    On one core the processor's own time is taken, which other programs on the machine do not lengthen.
    """
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeats + 3):
        for name, side in sides.items():
            started = clock()
            side()
            if turn >= 3:  # the first turns warm caches and the allocator
                taken[name].append(clock() - started)
    return {name: statistics.median(values) for name, values in taken.items()}


def whole_policy(repeats: int) -> None:
    batch = smooth_images()
    arrays = batch.permute(0, 2, 3, 1).contiguous().numpy()
    key = random.root(1)
    drawn = draws(key)
    pool = Pool(1)
    ours = POLICY(batch, key).numpy()
    for name, theirs in {"one process": pillow_views(arrays, drawn), "two processes": pool.views()}.items():
        assert np.array_equal(ours, theirs), f"the views of Pillow in {name} are not ours"
    print(f"all {COUNT} views equal Pillow's to the grey level")
    both = {"ours": lambda: POLICY(batch, key), "Pillow": lambda: pillow_views(arrays, drawn)}
    torch.set_num_threads(1)
    compare("one core, processor time", interleaved(both, repeats))
    torch.set_num_threads(2)
    both["Pillow"] = pool.views
    compare("two cores (2 threads, 2 processes), wall clock", interleaved(both, repeats, time.perf_counter))
    pool.close()


def compare(where: str, median: dict[str, float]) -> None:
    ours, theirs = median["ours"], median["Pillow"]
    print(f"{where}: ours {1000 * ours:.1f} ms, Pillow {1000 * theirs:.1f} ms, {theirs / ours:.1f} x")


def parts(repeats: int) -> None:
    """Where our time goes: the passes of the policy, each over the images that need it in the first round."""
    torch.set_num_threads(1)
    batch, key = smooth_images(), random.root(1)
    words = random.bits(random.fold(key, 1), 6 + 2 * POLICY.rounds, COUNT)
    operation, strength = draw_operation(words[6:].view(POLICY.rounds, 2, COUNT).unbind(1))
    every = images.amounts(operation, strength, SIDE, SIDE)
    chosen = [(every.passed[0] == number).nonzero().squeeze(1) for number in range(len(images.PASSES))]
    needed = [(batch[rows], images.Amounts(*(amount[0][rows] for amount in every))) for rows in chosen]
    side, centre = torch.full((COUNT,), 8.0), torch.full((COUNT,), 16.0)
    median = interleaved(
        {
            "random numbers": lambda: random.bits(random.fold(key, 1), 6 + 2 * POLICY.rounds, COUNT),
            "what they stand for": lambda: images.amounts(operation, strength, SIDE, SIDE),
            "crop and mirror": lambda: POLICY.weak.view(batch, words[:3]),
            "levels, 3 x": lambda: images.relevel(*needed[0]),
            "mixing, 3 x": lambda: images.mix(*needed[1]),
            "moving, 3 x": lambda: images.move(*needed[2]),
            "cutout": lambda: images.cutout(batch, side, centre, centre, FILL),
        },
        repeats,
    )
    median = {name: seconds * (3 if name.endswith("3 x") else 1) for name, seconds in median.items()}
    total = sum(median.values())
    print("share of the policy's passes, one thread:")
    for name, seconds in sorted(median.items(), key=lambda entry: -entry[1]):
        print(f"  {name:20} {1000 * seconds:7.2f} ms  {100 * seconds / total:4.0f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=41)
    options = parser.parse_args()
    cores, load = multiprocessing.cpu_count(), os.getloadavg()[0]
    print(f"torch {torch.__version__}, Pillow {PIL.__version__}, {cores} cores, {load:.1f} processes running before")
    whole_policy(options.repeats)
    parts(options.repeats)


if __name__ == "__main__":
    main()
