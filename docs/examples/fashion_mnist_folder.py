"""Fashion-MNIST as files of one's own: a folder of PNGs, forty labels in a table, and the truth apart.

    python docs/examples/fashion_mnist_folder.py clothes [--data /usr/share/datasets/fashion-mnist]

clothes/photos/       20,000 of the images to train on, as the practitioner has them
clothes/labels.csv    file,label: four files of every class, drawn at random
clothes/new/          the 10,000 test images, which training never sees
clothes/truth.csv     file,label of every image in both folders, for judging afterwards
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from instant.data.sources import load


def draw_labels(targets: np.ndarray, each: int, seed: int) -> list[int]:
    """Positions of `each` samples of every class, drawn at random."""
    rng = np.random.default_rng(seed)
    classes = range(int(targets.max()) + 1)
    return [int(i) for k in classes for i in rng.choice(np.flatnonzero(targets == k), each, replace=False)]


def write_pngs(folder: Path, images: np.ndarray) -> list[str]:
    """(N, 1, H, W) as grey PNGs; their names."""
    folder.mkdir(parents=True)
    names = [f"{number:05d}.png" for number in range(len(images))]
    for name, image in zip(names, images):
        Image.fromarray(image[0]).save(folder / name)
    return names


def write_table(path: Path, rows: Iterable[Sequence[str]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([("file", "label"), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder to make")
    parser.add_argument("--data", help="folder with the four idx files; without it they are downloaded (30 MB)")
    parser.add_argument("--photos", type=int, default=20_000, help="images to train on")
    parser.add_argument("--each", type=int, default=4, help="labels a class")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of labels")
    given = parser.parse_args()
    source = load("fashion_mnist", given.data)
    targets = source.targets[: given.photos]
    photos = write_pngs(given.folder / "photos", source.train.samples[: given.photos])
    new = write_pngs(given.folder / "new", source.test.samples)
    called = [source.classes[k] for k in targets]
    chosen = draw_labels(targets, given.each, given.seed)
    write_table(given.folder / "labels.csv", [(photos[i], called[i]) for i in chosen])
    truth = [(f"photos/{name}", label) for name, label in zip(photos, called)]
    truth += [(f"new/{name}", source.classes[k]) for name, k in zip(new, source.test_targets)]
    write_table(given.folder / "truth.csv", truth)
    print(f"{given.folder}: {len(photos):,} photos, {len(chosen)} of them labelled, and {len(new):,} new ones")


if __name__ == "__main__":
    main()
