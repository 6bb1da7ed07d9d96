"""CIFAR-10 with forty labels: trains the runs of a comparison one after another, gathers their curves, draws them.

    python benchmarks/cifar10_40.py train --data FOLDER --runs RUNS --minutes 9    # again and again, until all are done
    python benchmarks/cifar10_40.py gather --runs RUNS                             # cifar10_40.csv, and the summaries
    python benchmarks/cifar10_40.py draw docs/cifar10.png                          # from that file
    python benchmarks/cifar10_40.py trial --data FOLDER --runs RUNS "half the batch: batch=32" "slow: optim.lr=0.03"

Training stops when the minutes are over and goes on in the next call from the checkpoints, also where RUNS was carried
to another machine. Every run of a seed has the same labels, features, schedule and network; only the method differs.
A row of the csv is an evaluation on the test images, which decide nothing: the last one counts. What a change is worth
is tried in trials, all at once and, called again, from where they were stopped: 16,000 steps on the labels of seed 0,
judged by 5,000 training images held out (cifar10_40-trials.csv).
"""

from __future__ import annotations

import argparse
import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from instant.run import Run

HERE = Path(__file__).parent
ALIGNED = ("method=instant", "method.base=0.9", "method.align=true")
METHODS = {  # what is compared: a name, and the settings it stands for
    "instant": ("method=instant",),
    "adamatch": ("method=adamatch",),
    "freematch": ("method=freematch",),
    "fixmatch": ("method=fixmatch",),
    "identity": ("method=instant", "method.transition=identity"),
    "released": ("method=instant_released",),
    "paper": (*ALIGNED, "method.kappa=labelled"),
    "self_adaptive": (*ALIGNED, "method.kappa=self_adaptive"),
}
PANELS = {
    "accuracy": "test accuracy",
    "utilisation": "pseudo-labels used",
    "pseudo_label_accuracy": "of these, right",
    "threshold": "mean threshold",
}
LINES = ("-", "--", ":")  # of the seeds
BY_CLASS = ("threshold_by_class", "called")  # in the order of the classes; the share of the pool that is called so
COLUMNS = [
    "name", "seed", "draw", "start", "step", *PANELS, *BY_CLASS, "transition_diagonal", "seconds", "hardware", "torch",
    "command",
]  # fmt: skip

TRIAL_COLUMNS = ["trial", "step", "validation_accuracy", *(name for name in COLUMNS[6:] if name not in BY_CLASS)]
SETTINGS = {  # a row of the figure each: which images are labelled, and what the network starts from
    ("usb", "features"): "features first,\nUSB's labels",
    ("usb", "scratch"): "from scratch,\nUSB's labels",
    ("seeded", "scratch"): "from scratch,\nother labels",
}


class Job(NamedTuple):
    name: str
    seed: int

    def folder(self, runs: Path) -> Path:
        return runs / f"{self.name}-{self.seed}"


SEEDS = (0, 1, 2)
JOBS = [Job(name, seed) for seed in SEEDS for name in METHODS]
FURTHER = ("instant", "adamatch")  # with all seeds; the others with the first, unless asked for


def words(job: Job, data: str, settings: list[str]) -> list[str]:
    chosen = ["recipe=fast_cifar10", "labels=40", f"seed={job.seed}", *METHODS[job.name], *settings]
    return ["train", "cifar10", f"data={data}", *chosen]


def train(options: argparse.Namespace) -> None:
    """The first unfinished jobs, each in a process of its own, until the time is over."""
    until = time.monotonic() + 60 * options.minutes
    for job in JOBS:
        folder = job.folder(options.runs)
        usual = FURTHER if job.seed else METHODS
        wanted = job.name in (options.only or usual) and job.seed in options.seeds
        if not wanted or (folder / "summary.json").exists():
            continue
        if (folder / "recipe.json").exists():
            action = ["train", "--resume", str(folder), f"data={options.data}"]
        else:
            action = [*words(job, options.data, options.settings), "--out", str(folder)]
        print(f"{job.name} {job.seed}: instant {' '.join(action)}", flush=True)
        process = subprocess.Popen([sys.executable, "-m", "instant", *action])
        try:
            process.wait(until - time.monotonic())
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # it saves a checkpoint
            process.wait()
            print("the time is over", flush=True)
            return
        if process.returncode:
            raise SystemExit(process.returncode)


def trial(options: argparse.Namespace) -> None:
    """Trials side by side; their evaluations on held-out training images are added to a csv, and the last printed."""
    from instant.run import Run

    until = time.monotonic() + 60 * options.minutes
    common = ["recipe=fast_cifar10", "labels=40", "seed=0", "validation=5000", "steps=16000", "evaluate_every=2000"]
    options.runs.mkdir(parents=True, exist_ok=True)
    running: list[tuple[str, Path, subprocess.Popen]] = []
    for text in options.trials:
        name, _, given = text.partition(":")
        settings = dict(word.split("=", 1) for word in [*common, *given.split()])
        words = [f"{key}={value}" for key, value in settings.items()]
        folder = options.runs / name.replace(" ", "-")
        if Run(folder).exists:
            action = ["train", "--resume", str(folder), f"data={options.data}"]
        else:
            action = ["train", "cifar10", f"data={options.data}", *words, "--out", str(folder)]
        with open(_log(folder), "a", encoding="utf-8") as log:
            process = subprocess.Popen([sys.executable, "-m", "instant", *action], stdout=log, stderr=log)
        running.append((name, folder, process))
    while time.monotonic() < until and any(process.poll() is None for *_, process in running):
        time.sleep(0.5)
    for *_, process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # it saves a checkpoint
    rows: list[dict[str, Any]] = []
    for name, folder, process in running:
        process.wait()
        run = Run(folder)
        if not run.exists:
            print(f"{name:30} failed: {_log(folder).read_text(encoding='utf-8').splitlines()[-1:]}", flush=True)
            continue
        records = [record for record in run.history() if "validation_accuracy" in record]
        rows += [{"trial": name, **record, **_where(run), "command": command(run)} for record in records]
        last = (
            f"step {records[-1]['step']}: {100 * records[-1]['validation_accuracy']:.1f} %" if records else "no result"
        )
        print(f"{name:30} {last}", flush=True)
    path = options.csv.with_name("cifar10_40-trials.csv")
    mine = {row["trial"] for row in rows}
    kept = [row for row in _rows(path) if row["trial"] not in mine] if path.exists() else []
    _write(path, TRIAL_COLUMNS, kept + rows)


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _write(path: Path, columns: list[str], rows: list[dict[str, Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _log(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.txt")


def gather(options: argparse.Namespace) -> None:
    """The evaluations of all runs, finished or not, beside those that are known of other ones."""
    from instant.run import Run

    rows: list[dict[str, Any]] = []
    for job in JOBS:
        run = Run(job.folder(options.runs))
        if not run.exists:
            continue
        recipe = run.recipe()
        setting = recipe.draw, "features" if recipe.contrast else "scratch"
        known = run.summary() if run.finished else {}
        if known:
            summary = options.csv.with_suffix("") / "-".join(setting) / f"{run.path.name}.json"
            summary.parent.mkdir(parents=True, exist_ok=True)
            summary.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        rows += [
            {
                "name": job.name,
                "seed": job.seed,
                **dict(zip(("draw", "start"), setting)),
                **record,
                **_where(run),
                "command": command(run),
                **{name: " ".join(str(_short(value)) for value in record.get(name, [])) for name in BY_CLASS},
            }
            for record in run.history()
            if "accuracy" in record
        ]
    gathered = {_run_of(row): row for row in rows}
    known = _rows(options.csv) if options.csv.exists() else []
    _write(options.csv, COLUMNS, rows + [row for row in known if _run_of(row) not in gathered])
    for (name, seed, *setting), row in gathered.items():
        print(f"{name:13} {seed} {' '.join(setting):15}  step {row['step']:6}  {100 * row['accuracy']:.2f} %")


def command(run: Run) -> str:
    """The command of a run as the recipe is today: with all that is another in the folder, which may be older."""
    from instant.methods import method_options
    from instant.recipes import RECIPES

    recipe = run.recipe()
    usual = {f"method.{name}": value for name, value in method_options(recipe.method).items()}
    has, given = usual | recipe.leaves(), usual | RECIPES["fast_cifar10"](method=recipe.method).leaves()
    named = {"data": "FOLDER", "recipe": "fast_cifar10", "labels": recipe.labels, "seed": recipe.seed}
    differs = {key: value for key, value in has.items() if value != given.get(key) and key not in named}
    shown = [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in differs.items()]
    words = [f"{key}={value}" for key, value in named.items()]
    return " ".join(["instant train cifar10", *words, f"method={recipe.method}", *shown])


def _run_of(row: dict[str, Any]) -> tuple[str, str, str, str]:
    return row["name"], str(row["seed"]), row["draw"], row["start"]


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _where(run: Run) -> dict[str, str]:
    """On what a run was trained, once it is finished."""
    known = run.summary() if run.finished else None
    return {"hardware": known["device"], "torch": known["versions"]["torch"]} if known else {}


def draw(options: argparse.Namespace) -> None:
    """The curves of the paper's figure 3: a colour a method, a kind of line a seed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = _rows(options.csv)
    palette = "#c0392b #2980b9 #27ae60 #7f8c8d #e67e22 #34495e #e59866 #d35ea8"
    colours = dict(zip(METHODS, palette.split(), strict=True))
    size = {"nrows": len(SETTINGS), "ncols": len(PANELS), "figsize": (13, 8.6)}
    figure, axes = plt.subplots(**size, sharex=True, sharey="col", layout="constrained")
    for line, (setting, title) in zip(axes, SETTINGS.items()):
        line[0].set_ylabel(title, fontsize=9)
        for axis, column in zip(line, PANELS):
            axis.spines[["top", "right"]].set_visible(False)
            for job in JOBS:
                wanted = (job.name, str(job.seed), *setting)
                mine = [row for row in rows if _run_of(row) == wanted and row[column]]
                steps, values = [int(row["step"]) / 1000 for row in mine], [float(row[column]) for row in mine]
                style = {"linewidth": 1.6 if job.seed == 0 else 0.9, "linestyle": LINES[job.seed]}
                axis.plot(steps, values, color=colours[job.name], **style)
    for top, bottom, title in zip(axes[0], axes[-1], PANELS.values()):
        top.set_title(title, fontsize=10)
        bottom.set_xlabel("thousand steps", fontsize=9)
    known = {row["name"] for row in rows}
    handles = [plt.Line2D([], [], color=colours[name], label=name) for name in METHODS if name in known]
    seeds = [plt.Line2D([], [], color="black", linestyle=LINES[seed], label=f"seed {seed}") for seed in SEEDS]
    figure.legend(handles=handles + seeds, loc="outside lower center", ncols=len(handles + seeds), fontsize=9)
    figure.savefig(options.figure, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", type=Path, default=HERE / "cifar10_40.csv")
    actions = parser.add_subparsers(required=True)
    for action in (train, gather, trial):
        sub = actions.add_parser(action.__name__)
        sub.set_defaults(action=action)
        sub.add_argument("--runs", type=Path, required=True)
        if action is trial:
            sub.add_argument("trials", nargs="+", metavar="NAME: key=value ...")
        else:
            sub.add_argument("settings", nargs="*", help="key=value, for all runs")
        if action is not gather:
            sub.add_argument("--data", required=True)
            sub.add_argument("--minutes", type=float, default=1e6)
        if action is train:
            sub.add_argument("--only", nargs="+", choices=METHODS)
            sub.add_argument("--seeds", nargs="+", type=int, choices=SEEDS, default=SEEDS)
    sub = actions.add_parser("draw")
    sub.set_defaults(action=draw)
    sub.add_argument("figure", type=Path)
    options = parser.parse_args()
    options.action(options)


if __name__ == "__main__":
    main()
