"""InstanTClassifier against scikit-learn on vectors with 1, 4 and 10 labels a class: accuracy and seconds.

    python benchmarks/estimator.py --fashion DIR --cifar10 DIR     # measures, writes benchmarks/estimator.csv
    python benchmarks/estimator.py --table                         # the tables of docs/estimator.md from that file
    python benchmarks/estimator.py --fashion DIR --cifar10 DIR --validate noise=0.4     # what a setting is worth

The data are those of `benchmarks/estimator_data.py`. For every seed the labelled rows are drawn anew, the same for all
methods; accuracy is of `predict` on rows that no fit has seen and that no setting was chosen by. Our settings are the
defaults, the same in all cells. Ours and theirs were chosen by accuracy on other rows of the training part, with other
draws of the labels (seeds from 100 on); theirs may differ between pixels and other features. `--validate` does that for
ours: other draws, accuracy on the unlabelled training rows, the scored rows unseen.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import multiprocessing
import os
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from estimator_data import SETS, draw_labels, load

HERE = Path(__file__).parent
PER_CLASS, SEEDS = (1, 4, 10), (0, 1, 2)
VALIDATION_SEEDS = (100, 101, 102)
OURS = "InstanTClassifier"
METHODS = (OURS, "SelfTraining", "LabelSpreading", "LabelPropagation", "LogisticRegression", "HistGradientBoosting")
SPEED = "speed"  # of a larger set, beside the methods
EVERYTHING = ",".join((*METHODS, SPEED))
COLUMNS = [
    "date",
    "data",
    "per_class",
    "seed",
    "method",
    "accuracy",
    "seconds",
    "processor_seconds",
    "threads",
    "command",
]
PIXELS = ("digits", "fashion")  # one unit for all features: scikit-learn's do better without standardising
T_95 = 4.303  # Student's t, two degrees of freedom


def model_of(method: str, data: str, seed: int) -> Any:
    """The classifier with its settings; `InstanTClassifier` standardises by itself."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier

    from instant import InstanTClassifier

    logistic = LogisticRegression(max_iter=1000)
    near = 10 if data in PIXELS else 20
    if method == OURS:
        return InstanTClassifier(random_state=seed, device="cpu")
    if method == "HistGradientBoosting":
        return HistGradientBoostingClassifier(min_samples_leaf=1, random_state=seed)
    model = {
        "SelfTraining": SelfTrainingClassifier(LogisticRegression(max_iter=100), threshold=0.75),
        "LabelSpreading": LabelSpreading(kernel="knn", n_neighbors=near, max_iter=200),
        "LabelPropagation": LabelPropagation(kernel="knn", n_neighbors=5, max_iter=1000),
        "LogisticRegression": logistic,
    }[method]
    return model if data in PIXELS else make_pipeline(StandardScaler(), model)


def measure(job: tuple[str, int, int, str, argparse.Namespace]) -> dict[str, object]:
    """One method in one cell, on one thread."""
    data, per_class, seed, method, options = job
    parts = load(data, options.fashion, options.cifar10, options.cache)
    y = draw_labels(parts.y, per_class, seed)
    model = model_of(method, data, seed)
    x = parts.x
    if method in ("LogisticRegression", "HistGradientBoosting"):
        x, y = x[y >= 0], y[y >= 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what did not converge, and samples that no label reaches
        start = time.perf_counter()
        model.fit(x, y)
        accuracy = model.score(parts.x_scored, parts.y_scored)
        seconds = time.perf_counter() - start
    row = {"date": datetime.date.today().isoformat(), "data": data, "per_class": per_class, "seed": seed}
    return row | {"method": method, "accuracy": round(accuracy, 5), "seconds": round(seconds, 2)}


def transduced(job: tuple[str, int, int, argparse.Namespace]) -> tuple[str, int, float]:
    """Ours with other settings, on the unlabelled rows of the training part: what settings may be chosen by."""
    from instant import InstanTClassifier

    data, per_class, seed, options = job
    parts = load(data, options.fashion, options.cifar10, options.cache)
    y = draw_labels(parts.y, per_class, seed)
    settings = dict(word.split("=", 1) for word in options.validate)
    model = InstanTClassifier(random_state=seed, device="cpu", settings=settings).fit(parts.x, y)
    return data, per_class, float((model.transduction_ == parts.y)[y < 0].mean())


def validate(options: argparse.Namespace) -> None:
    """Print the accuracy in every cell, its mean over the draws, and the mean of all."""
    os.environ["OMP_NUM_THREADS"] = "1"
    found: dict[tuple[str, int], list[float]] = {}
    jobs = [(d, n, s, options) for d in SETS for n in PER_CLASS for s in VALIDATION_SEEDS]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for data, per_class, accuracy in pool.imap(transduced, jobs):
            found.setdefault((data, per_class), []).append(100 * accuracy)
    means = {cell: statistics.mean(values) for cell, values in found.items()}
    for data in SETS:
        print(f"{data:14}", *(f"{means[data, n]:6.1f}" for n in PER_CLASS))
    print(f"{'mean':14} {statistics.mean(means.values()):6.2f}")


def speed(threads: int) -> dict[str, object]:
    """A row: `fit` on 10,000 made-up embeddings of 384 features with 40 labels; processor time is of all threads."""
    import torch

    from instant import InstanTClassifier

    torch.set_num_threads(threads)
    rng = np.random.default_rng(0)
    truth = np.arange(10_000) % 10
    x = (rng.normal(size=(10, 384))[truth] + 2 * rng.normal(size=(10_000, 384))).astype(np.float32)
    y = np.where(np.arange(10_000) < 40, truth, -1)
    start, worked = time.perf_counter(), time.process_time()
    InstanTClassifier(random_state=0, device="cpu").fit(x, y)
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    row = {"date": datetime.date.today().isoformat(), "data": "10,000 x 384", "per_class": 4, "seed": 0, "method": OURS}
    return row | {"seconds": round(seconds, 2), "processor_seconds": round(worked, 2), "threads": threads}


def run(options: argparse.Namespace) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # of the processes that measure
    load("embeddings", options.fashion, options.cifar10, options.cache)  # made once, before several ask for it
    methods = options.methods.split(",")
    rows: list[dict[str, object]] = []
    if options.csv.exists():
        with open(options.csv, newline="", encoding="utf-8") as file:
            rows.extend(
                row for row in csv.DictReader(file) if (row["method"] if row["accuracy"] else SPEED) not in methods
            )
    shared = {"threads": 1, "command": "python benchmarks/estimator.py"}
    jobs = [(d, n, s, m, options) for d in SETS for m in METHODS if m in methods for n in PER_CLASS for s in SEEDS]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for row in pool.imap(measure, jobs):
            rows.append(row | shared)
            text = f"{row['data']:14} {row['per_class']:3} a class, seed {row['seed']}: {row['method']:21}"
            print(f"{text} {100 * float(str(row['accuracy'])):5.1f} %  {row['seconds']:6} s", flush=True)
    if SPEED in methods:
        rows.append(shared | speed(options.jobs))
    with open(options.csv, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


class Cell:
    """A method on one set with so many labels a class: what its seeds gave."""

    def __init__(self, rows: list[dict[str, str]]) -> None:
        values = [100 * float(row["accuracy"]) for row in rows]
        self.mean = statistics.mean(values)
        self.half = T_95 * statistics.stdev(values) / len(values) ** 0.5
        self.seconds = statistics.mean(float(row["seconds"]) for row in rows)


def read(path: Path) -> tuple[dict[tuple[str, int, str], Cell], dict[str, str]]:
    """Every cell, and the row of the timing."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found: dict[tuple[str, int, str], list[dict[str, str]]] = {}
    for row in rows:
        if row["accuracy"]:
            found.setdefault((row["data"], int(row["per_class"]), row["method"]), []).append(row)
    (timing,) = (row for row in rows if not row["accuracy"])
    return {key: Cell(members) for key, members in found.items()}, timing


def verdict(cells: dict[tuple[str, int, str], Cell], data: str, per_class: int) -> tuple[str, str]:
    """The best method of a cell, and "best", "within" or "below" for ours: within its 95 % interval or not."""
    best = max(METHODS, key=lambda method: cells[data, per_class, method].mean)
    ours, top = cells[data, per_class, OURS], cells[data, per_class, best]
    return best, "best" if best == OURS else "within" if ours.mean >= top.mean - top.half else "below"


def table(path: Path) -> str:
    cells, timing = read(path)
    lines = [f"| data, labels a class | {' | '.join(METHODS)} | {OURS} is |", "|---" * (len(METHODS) + 2) + "|"]
    verdicts = []
    for data in SETS:
        for n in PER_CLASS:
            best, word = verdict(cells, data, n)
            verdicts.append(word)
            shown = []
            for method in METHODS:
                cell = cells[data, n, method]
                text = f"{cell.mean:.1f} ± {cell.half:.1f}"
                shown.append(f"**{text}**" if method == best else text)
            lines.append(f"| {data}, {n} | {' | '.join(shown)} | {word} |")
    seconds = [statistics.mean(cells[d, n, m].seconds for d in SETS for n in PER_CLASS) for m in METHODS]
    lines.append(f"| mean seconds | {' | '.join(f'{value:.1f}' for value in seconds)} | |")
    good = verdicts.count("best") + verdicts.count("within")
    lines.append(
        f"\n{OURS} is best in {verdicts.count('best')} cells of {len(verdicts)}, best or within the interval of the "
        f"best in {good} ({100 * good / len(verdicts):.0f} %). Fitting 10,000 vectors of 384 features with 40 labels "
        f"took {float(timing['seconds']):.1f} s with threads={timing['threads']}, "
        f"{float(timing['processor_seconds']):.1f} s of processor time."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fashion", type=Path, help="folder with the four idx files of Fashion-MNIST")
    parser.add_argument("--cifar10", type=Path, help="folder with the binary batches of CIFAR-10")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/instant/benchmarks")
    parser.add_argument("--csv", type=Path, default=HERE / "estimator.csv")
    parser.add_argument("--jobs", type=int, default=2, help="processes, one thread each")
    parser.add_argument("--methods", default=EVERYTHING, help="measure these anew, keep the csv's others")
    parser.add_argument("--table", action="store_true", help="print the table of the csv instead of measuring")
    parser.add_argument("--validate", nargs="*", metavar="SETTING=VALUE", help="try settings on training rows instead")
    options = parser.parse_args()
    if not options.table and (options.fashion is None or options.cifar10 is None):
        parser.error("--fashion and --cifar10 name the folders of the data (or --table reads what was measured)")
    if options.validate is not None:
        validate(options)
        return
    if not options.table:
        run(options)
    if options.table or options.methods == EVERYTHING:
        print(table(options.csv))


if __name__ == "__main__":
    main()
