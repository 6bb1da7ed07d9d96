"""How well each estimator finds T(x), where T(x) is known and on images where only its average can be checked.

    python benchmarks/transition.py --figure docs/transition.png   # synthetic: transition.csv, table and figure
    python benchmarks/transition.py mixture --labels 5 20 125      # inside training: transition-mixture.csv
    python benchmarks/transition.py digits                         # the same on digits: transition-digits.csv

Rows that the csv has already are not measured again. On CIFAR-10: transition_frozen.py. What the tables say is in
docs/transition.md.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import multiprocessing
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from transition_measure import (
    KEY,
    PER_CLASS,
    Job,
    Row,
    measure_source,
    measure_synthetic,
    source_jobs,
    synthetic_jobs,
)

HERE = Path(__file__).parent
COLUMNS = {"error_T": "error of T", "error_tau": "error of tau", "share": "accepted %", "precision": "precision %"}
PERCENT = ("share", "precision", "bayes", "accuracy")
SYNTHETIC = COLUMNS | {"bayes": "Bayes label %"}
TRAINED = {"error_T": "error of T", "error_identity": "of the identity"} | COLUMNS
TRAINED |= {"accuracy": "accuracy %", "runs": "runs"}


def run(jobs: list[Job], measure: Callable[[Job], Row], path: Path, processes: int) -> None:
    """Measure the jobs that the file has no row of, and write each row at once: an interrupted run goes on there."""
    import torch

    hardware = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu, 1 thread"
    shared = {"date": datetime.date.today().isoformat(), "hardware": hardware, "torch": torch.__version__}
    shared["command"] = " ".join(["python", "benchmarks/transition.py", *sys.argv[1:]])
    done = set()
    if path.exists():
        with open(path, newline="", encoding="utf-8") as file:
            done = {tuple(row[name] for name in KEY) for row in csv.DictReader(file)}
    jobs = [job for job in jobs if tuple(job.key.values()) not in done]
    with open(path, "a", newline="", encoding="utf-8") as file:
        header = not done
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            for job, found in zip(jobs, pool.imap(measure, jobs)):
                row = job.key | found | shared
                writer = csv.DictWriter(file, list(row))
                if header:
                    writer.writeheader()
                    header = False
                writer.writerow(row)
                file.flush()
                print(*job.key.values(), {k: round(v, 4) for k, v in found.items()}, flush=True)


def read(path: Path) -> dict[tuple[str, int], list[Row]]:
    """The rows of each estimator and label count."""
    found: dict[tuple[str, int], list[Row]] = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name = row["estimator"] + (" (images)" if row["problem"] == "images" else "")
            found.setdefault((name, int(row["labels"])), []).append(row)
    return found


def table(found: dict[tuple[str, int], list[Row]], columns: dict[str, str]) -> str:
    """Markdown: a line an estimator, in each cell a number a label count; means over the runs there are."""
    labels = sorted({number for _, number in found})
    heads = [f"{title}: " + " / ".join(map(str, labels)) for title in columns.values()]
    lines = ["| estimator | " + " | ".join(heads) + " |", "|---" * (1 + len(heads)) + "|"]
    for name in dict.fromkeys(name for name, _ in found):
        cells = [" / ".join(_cell(found.get((name, number), []), column) for number in labels) for column in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(rows: list[Row], column: str) -> str:
    if column == "runs" or not rows:
        return str(len(rows)) if column == "runs" else "-"
    mean = statistics.mean(float(row[column]) for row in rows)
    return f"{100 * mean:.1f}" if column in PERCENT else f"{mean:.3f}"


def draw(found: dict[tuple[str, int], list[Row]], path: Path) -> None:
    """Error of T(x) against labels a class, seeds as dots and means as lines, between two references."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = ("head", "network", "parts", "matrix", "volmin", "dual_t", "anchor")
    colours = dict(zip(names, ("#c0392b", "#e67e22", "#27ae60", "#2980b9", "#8e44ad", "#16a085", "#f1c40f")))
    panels = {
        "fitted on labelled pairs": {name: name for name in names[:5]},
        "and on all accepted samples (confident=1)": {name: f"{name}, confident 1" for name in names[:5]},
        "from unlabelled predictions alone": {"volmin": "volmin, unlabelled", "dual_t": "dual_t", "anchor": "anchor"},
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(11, 3.8), sharey=True, layout="constrained")
    places = range(len(PER_CLASS))
    for axis, (title, lines) in zip(axes, panels.items()):
        for name, key in lines.items():
            values = [[float(row["error_T"]) for row in found[key, number]] for number in PER_CLASS]
            axis.plot(places, [statistics.mean(v) for v in values], color=colours[name])
            for place, dots in zip(places, values):
                axis.plot([place] * len(dots), dots, "o", color=colours[name], markersize=3)
        for reference, style in (("identity", ":"), ("mean of T", "--")):
            level = statistics.mean(float(row["error_T"]) for row in found[reference, PER_CLASS[0]])
            axis.axhline(level, color="#7f8c8d", linestyle=style, label=reference)
        axis.set_title(title, fontsize=10)
        axis.set_xticks(places, PER_CLASS)
        axis.set_xlabel("labels a class", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("mean absolute error of T(x)", fontsize=9)
    axes[0].set_ylim(0)
    marks = [plt.Line2D([], [], color=colour) for colour in colours.values()] + axes[0].get_legend_handles_labels()[0]
    figure.legend(marks, [*names, "identity", "mean of T"], loc="outside lower center", ncols=9, fontsize=9)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", nargs="?", default="synthetic", choices=("synthetic", "mixture", "digits"))
    parser.add_argument("settings", nargs="*", help="key=value: settings of the training runs")
    parser.add_argument("--labels", type=int, nargs="+", default=[10, 40], help="labels in all, of the training runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    parser.add_argument("--only", nargs="+", metavar="ESTIMATOR", help="leave the other estimators out")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--figure", type=Path, help="synthetic: draw this file too")
    options = parser.parse_args()
    synthetic = options.problem == "synthetic"
    path = options.csv or HERE / ("transition.csv" if synthetic else f"transition-{options.problem}.csv")
    if synthetic:
        jobs, measure, columns = synthetic_jobs(options.seeds), measure_synthetic, SYNTHETIC
    else:
        settings = dict(text.split("=", 1) for text in options.settings)
        jobs = source_jobs(options.problem, options.labels, options.seeds, settings)
        measure, columns = measure_source, TRAINED
    run([job for job in jobs if not options.only or job.transition in options.only], measure, path, options.jobs)
    print("\n" + table(read(path), columns))
    if options.figure is not None:
        draw(read(path), options.figure)


if __name__ == "__main__":
    main()
