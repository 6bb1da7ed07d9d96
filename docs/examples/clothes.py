"""Fashion-MNIST as somebody's own photos (docs/own-data.md): make the folder, play the person who checks, keep score.

    python docs/examples/clothes.py make clothes [--data /usr/share/datasets/fashion-mnist]
    python docs/examples/clothes.py check clothes todo.csv          fills in the sheet of `instant certify`
    python docs/examples/clothes.py score clothes run               accuracy on the images nobody trained on

clothes/photos/       20,000 images, as the practitioner has them
clothes/labels.csv    file,label: four of every class, drawn at random
clothes/new/          the 10,000 test images
clothes/truth.csv     file,label of every image in both folders, which only `check` and `score` look at
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.linear_model import LogisticRegression

import instant
from instant.data.sources import load

PHOTOS, EACH, SEED = 20_000, 4, 0


def make(folder: Path, data: str | None) -> None:
    source = load("fashion_mnist", data)
    targets = source.targets[:PHOTOS]
    photos = write_pngs(folder / "photos", source.train.samples[:PHOTOS])
    new = write_pngs(folder / "new", source.test.samples)
    called = [source.classes[k] for k in targets]
    chosen = draw_labels(targets)
    write_table(folder / "labels.csv", ("file", "label"), [(photos[i], called[i]) for i in chosen])
    truth = [(f"photos/{name}", label) for name, label in zip(photos, called)]
    truth += [(f"new/{name}", source.classes[k]) for name, k in zip(new, source.test_targets)]
    write_table(folder / "truth.csv", ("file", "label"), truth)
    print(f"{folder}: {len(photos):,} photos, {len(chosen)} of them labelled, and {len(new):,} new ones")


def draw_labels(targets: np.ndarray) -> list[int]:
    """Positions of EACH samples of every class."""
    rng = np.random.default_rng(SEED)
    classes = range(int(targets.max()) + 1)
    return [int(i) for k in classes for i in rng.choice(np.flatnonzero(targets == k), EACH, replace=False)]


def write_pngs(folder: Path, images: np.ndarray) -> list[str]:
    """(N, 1, H, W) as grey PNGs; their names."""
    folder.mkdir(parents=True)
    names = [f"{number:05d}.png" for number in range(len(images))]
    for name, image in zip(names, images):
        Image.fromarray(image[0]).save(folder / name)
    return names


def check(folder: Path, sheet: Path) -> None:
    """Write the true class into every row of a sheet."""
    truth = read_table(folder / "truth.csv")
    ids = list(read_table(sheet))
    write_table(sheet, ("id", "label"), [(name, truth[f"photos/{name}"]) for name in ids])
    print(f"{sheet}: {len(ids)} labels written")


def score(folder: Path, run: Path) -> None:
    """Of a run, of its supervised baseline, and of a classic on the pixels of the same labels."""
    truth = {name: label for name, label in read_table(folder / "truth.csv").items() if name.startswith("new/")}
    x, y = read_images(folder, truth), np.array(list(truth.values()))
    labels = {f"photos/{name}": label for name, label in read_table(folder / "labels.csv").items()}
    simple = LogisticRegression(max_iter=1000).fit(flat(read_images(folder, labels)), list(labels.values()))
    found = {
        "logistic regression on pixels": simple.predict(flat(x)),
        f"supervised ({run}/baseline)": instant.load(run / "baseline").predict(x),
        f"InstanT ({run})": instant.load(run).predict(x),
    }
    for name, predicted in found.items():
        print(f"{name:32} {100 * (predicted == y).mean():5.2f} % of {len(y):,} new images")


def read_images(folder: Path, names: Iterable[str]) -> np.ndarray:
    return np.stack([np.asarray(Image.open(folder / name)) for name in names])


def flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1) / 255


def read_table(path: Path) -> dict[str, str]:
    """The second column by the first."""
    with open(path, newline="", encoding="utf-8") as file:
        return {row[0]: row[1] for row in list(csv.reader(file))[1:]}


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "check", "score"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path, nargs="?", help="the sheet to fill in, or the run to score")
    parser.add_argument("--data", help="folder with the four idx files; without it they are downloaded (30 MB)")
    given = parser.parse_args()
    if (given.what == "make") != (given.file is None):
        parser.error("make takes a folder alone; check needs a sheet, score a run.")
    if given.what == "make":
        make(given.folder, given.data)
    elif given.what == "check":
        check(given.folder, given.file)
    else:
        score(given.folder, given.file)


if __name__ == "__main__":
    main()
