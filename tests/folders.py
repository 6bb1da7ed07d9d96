"""What the tests of folders share: small pictures in every form, and a folder that is labelled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from instant.data.folder.problems import Flaw
from instant.data.folder.read import read_own
from instant.data.source import Source

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def plain(colour: tuple[int, ...] | int, size: tuple[int, int] = (20, 20), mode: str = "RGB") -> Image.Image:
    return Image.new(mode, size, colour)


def photos(folder: Path, count: int = 24, labelled: int = 8, classes: tuple[str, ...] = ("cat", "dog")) -> Path:
    """PNGs 000.png ... of noise around a level by class; the first have labels in labels.csv beside the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    rows = ["file,label"]
    for number in range(count):
        k = number % len(classes)
        noise = rng.integers(0, 60, (12 + number % 3, 14, 3)) + 150 * k // max(1, len(classes) - 1)
        Image.fromarray(noise.astype(np.uint8)).save(folder / f"{number:03d}.png")
        if number < labelled:
            rows.append(f"{number:03d}.png,{classes[k]}")
    table = folder.parent / "labels.csv"
    table.write_text("\n".join(rows) + "\n")
    return table


def read(path: Path, labels: Path | None = None, side: int = 8) -> tuple[Source, dict[str, str]]:
    """The source and the reason for every name with a problem; no name has two here."""
    flaws: list[Flaw] = []
    source = read_own(path, labels, side, flaws, progress=False)
    assert len({flaw.file for flaw in flaws}) == len(set(flaws))
    assert len(source.targets) == len(source.train)
    return source, dict(flaws)


def labelled(source: Source) -> dict[str, str]:
    return {file: source.classes[k] for file, k in zip(source.files, source.targets) if k >= 0}
