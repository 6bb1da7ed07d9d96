"""CIFAR-10 with forty labels: trains the runs of a comparison, gathers their curves, draws them.

    python benchmarks/cifar10_40.py train --data FOLDER --runs RUNS --minutes 9 --at-once 2    # again and again
    python benchmarks/cifar10_40.py gather --runs RUNS                             # cifar10_40.csv, and the summaries
    python benchmarks/cifar10_40.py draw docs/cifar10.png                          # from that file
    python benchmarks/cifar10_40.py trial --data FOLDER --runs RUNS "half the batch: batch=32" "fast: optim.lr=0.1"

Training stops when the minutes are over and goes on in the next call from the checkpoints, also where RUNS was carried
to another machine. But for those named after what else differs ("mixed" to "longer" below), every run of a seed has the
same labels, features, views, schedule, optimizer and network, and only the method differs. Drawing needs matplotlib.

A row of the csv is an evaluation on the test images, which decide nothing: the last one counts. What a change is worth
is tried in trials, all at once and, called again, from where they were stopped: 16,000 steps on the labels of seed 0,
judged by 5,000 training images held out (cifar10_40-trials.csv).
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from instant.cli.shared import key_values
from instant.config import Recipe
from instant.engine.build import source_for, split_for
from instant.errors import InputError
from instant.recipes import RECIPES, resolve
from instant.run import Run

HERE = Path(__file__).parent
EARLIER = ("method=instant", "steps=120000")
SGD = ("method=instant", "mix=0", "optim.name=sgd")
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
    "mixed": (*EARLIER, "mix_after=0"),
    "unmixed": (*EARLIER, "mix=0"),
    "sgd": (*SGD, "steps=120000", "optim.lr=0.03"),
    "shorter": (*SGD, "contrast=12000", "steps=90000", "optim.warmup=5000"),
    "longer": (*SGD, "steps=140000", "optim.warmup=5000"),
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
    ("usb", "features", "shared"): "features first,\nUSB's labels",
    ("usb", "short"): "the same features, no\nmixing, USB's labels",
    ("usb", "scratch"): "from scratch, no\nmixing, USB's labels",
    ("seeded", "scratch"): "from scratch, no\nmixing, other labels",
}


class Job(NamedTuple):
    name: str
    seed: int

    @property
    def run(self) -> str:
        return f"{self.name}-{self.seed}"

    def folder(self, runs: Path) -> Path:
        return runs / self.run

    @property
    def start(self) -> tuple[Any, ...]:
        """Jobs that are alike in this begin with the same features."""
        return self.seed, *(word for word in METHODS[self.name] if word.startswith(("contrast=", "optim.name=")))


SEEDS = (0, 1, 2)
JOBS = [Job(name, seed) for seed in SEEDS for name in METHODS]
FURTHER = ("instant", "adamatch")  # with all seeds; the others with the first, unless asked for


def settings_of(job: Job, data: str, further: list[str]) -> dict[str, str]:
    named = {"data": data, "recipe": "fast_cifar10", "labels": "40", "seed": str(job.seed)}
    given = key_values(further)
    if taken := [key for key in given if key in (*named, "method")]:
        raise SystemExit(f"{taken[0]}={given[taken[0]]} is in the name of a run: choose runs with --only and --seeds")
    return named | key_values([*METHODS[job.name]]) | given


def train(options: argparse.Namespace) -> None:
    """The unfinished jobs, some side by side. A seed's first one learns the features, and the others get a copy."""
    options.runs.mkdir(parents=True, exist_ok=True)
    waiting: dict[Job, dict[str, str]] = {}
    for job in JOBS:
        if {job.name, job.run} & set(options.only or (FURTHER if job.seed else METHODS)) and job.seed in options.seeds:
            given = settings_of(job, options.data, options.settings)
            require_same(job.folder(options.runs), given)
            if not Run(job.folder(options.runs)).finished:
                waiting[job] = given
    team = Team(options.minutes)
    while team.time_left and (waiting or team.running):
        for job, given in list(waiting.items()):
            folder = job.folder(options.runs)
            mates = [Run(mate.folder(options.runs)) for mate in JOBS if mate.start == job.start and mate != job]
            first = given.get("contrast") != "0"
            learnt = next((run.features for run in mates if first and run.features.finished), None)
            learning = first and any(run.path in team.running for run in mates)
            if len(team.running) < options.at_once and (learnt is not None or not learning):
                del waiting[job]
                if learnt is not None and not Run(folder).exists:
                    begin_with(learnt, folder, given)
                team.start(folder, given)
        for folder in team.ended():
            print(f"{folder.name:20} {latest(evaluations(Run(folder), 'accuracy'), 'accuracy')}", flush=True)
    team.stop()


def require_same(folder: Path, given: dict[str, str]) -> None:
    """A run that is there has other settings: it would go on with them."""
    run = Run(folder)
    if run.exists and (name := run.differs(resolve("cifar10", given))):
        began = run.recipe().leaves().get(name)
        raise SystemExit(f"{folder} was begun with {name}={began}: give that, or another --runs or name")


def begin_with(features: Run, folder: Path, given: dict[str, str]) -> None:
    """A run that finds the features it would learn already in its folder; other ones than these it learns anew."""
    recipe = resolve("cifar10", given)
    Run(folder).features.copy_of(features)
    Run(folder).begin(recipe, split_for(recipe, source_for(recipe)))


class Team:
    """Runs side by side, each in a process of its own that writes NAME.txt, until the time is over."""

    def __init__(self, minutes: float) -> None:
        self.until = time.monotonic() + 60 * minutes
        self.running: dict[Path, subprocess.Popen] = {}
        self.failed = False

    @property
    def time_left(self) -> bool:
        return time.monotonic() < self.until

    def start(self, folder: Path, given: dict[str, str]) -> None:
        if Run(folder).exists:
            action = ["train", "--resume", str(folder), f"data={given['data']}"]
        else:
            action = ["train", "cifar10", *(f"{key}={value}" for key, value in given.items()), "--out", str(folder)]
        print(f"{folder.name}: instant {' '.join(action)}", flush=True)
        with open(_log(folder), "a", encoding="utf-8") as log:
            self.running[folder] = subprocess.Popen([sys.executable, "-m", "instant", *action], stdout=log, stderr=log)

    def ended(self) -> list[Path]:
        """Of the folders, those that have ended since, after half a second."""
        time.sleep(0.5)
        over = [folder for folder, process in self.running.items() if process.poll() is not None]
        for folder in over:
            if self.running.pop(folder).returncode:
                self.failed = True
                print(f"{folder.name:20} failed: {_log(folder).read_text(encoding='utf-8').splitlines()[-1:]}")
        return over

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()  # it saves a checkpoint
        for folder, process in self.running.items():
            process.wait()
            print(f"{folder.name:20} stopped: the time is over", flush=True)
        if self.failed:
            raise SystemExit(1)


def trial(options: argparse.Namespace) -> None:
    """Trials side by side; their evaluations on held-out training images are added to a csv, and the last printed."""
    common = ["recipe=fast_cifar10", "labels=40", "seed=0", "validation=5000", "steps=16000", "evaluate_every=2000"]
    options.runs.mkdir(parents=True, exist_ok=True)
    folders: dict[str, Path] = {}
    asked: list[dict[str, str]] = []
    for text in options.trials:
        name, colon, given = text.partition(":")
        folder = options.runs / name.replace(" ", "-")
        if not colon or folder in folders.values():
            raise SystemExit(f"{text!r}: a trial has a name of its own, a colon, and what it changes")
        asked.append({"data": options.data} | key_values(common) | key_values(given.split()))
        require_same(folder, asked[-1])
        folders[name] = folder
    team = Team(options.minutes)
    for folder, given in zip(folders.values(), asked):
        if not Run(folder).finished:
            team.start(folder, given)
    while team.time_left and team.running:
        team.ended()
    team.stop()
    rows: list[dict[str, Any]] = []
    for name, folder in folders.items():
        run = Run(folder)
        records = evaluations(run, "validation_accuracy")
        rows += [{"trial": name, **record, **_where(run), "command": command(run)} for record in records]
        print(f"{name:30} {latest(records, 'validation_accuracy')}", flush=True)
    path = options.csv.with_name("cifar10_40-trials.csv")
    mine = {row["trial"] for row in rows}
    kept = [row for row in _rows(path) if row["trial"] not in mine] if path.exists() else []
    _write(path, TRIAL_COLUMNS, kept + rows)


def evaluations(run: Run, column: str) -> list[dict[str, Any]]:
    """The records of a run, if there is one, that have such an accuracy."""
    return [record for record in run.history() if column in record]


def latest(records: list[dict[str, Any]], column: str) -> str:
    return f"step {records[-1]['step']}: {100 * records[-1][column]:.2f} %" if records else "no result"


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
    rows: list[dict[str, Any]] = []
    summaries: dict[Path, dict[str, Any]] = {}
    for job in JOBS:
        run = Run(job.folder(options.runs))
        if not run.exists:
            continue
        recipe = run.recipe()
        setting = recipe.draw, start_of(recipe)
        if run.finished:
            summaries[options.csv.with_suffix("") / "-".join(setting) / f"{run.path.name}.json"] = run.summary()
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
            for record in evaluations(run, "accuracy")
        ]
    gathered = {_run_of(row): row for row in rows}
    known = _rows(options.csv) if options.csv.exists() else []
    for row in known:
        if (mine := gathered.get(_run_of(row))) and mine["command"] != row["command"] and not options.force:
            raise SystemExit(f"another run is known as {_run_of(row)}; add --force to replace it:\n{row['command']}")
    for path, summary in summaries.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    _write(options.csv, COLUMNS, rows + [row for row in known if _run_of(row) not in gathered])
    for (name, seed, *setting), row in gathered.items():
        print(f"{name:13} {seed} {' '.join(setting):15}  step {row['step']:6}  {100 * row['accuracy']:.2f} %")


def start_of(recipe: Recipe) -> str:
    """With features of its own, with those of another run, for long or for the comparison of methods, or with none."""
    if recipe.contrast or not recipe.pretrained:
        return "features" if recipe.contrast else "scratch"
    return "shared" if recipe.steps > 16_000 else "short"


def command(run: Run) -> str:
    """The command of a run as the recipe is today: with all that is another in the folder, which may be older."""
    from instant.methods import method_options

    recipe = run.recipe()
    usual = {f"method.{name}": value for name, value in method_options(recipe.method).items()}
    has, given = usual | recipe.leaves(), usual | RECIPES["fast_cifar10"](method=recipe.method).leaves()
    named = {"data": "FOLDER", "recipe": "fast_cifar10", "labels": recipe.labels, "seed": recipe.seed}
    has |= {"pretrained": recipe.pretrained and "FEATURES"}
    differs = {key: value for key, value in has.items() if value != given.get(key) and key not in named}
    if not recipe.mix:
        differs.pop("mix_after", None)
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
    palette = "#c0392b #2980b9 #27ae60 #7f8c8d #e67e22 #34495e #e59866 #d35ea8 #8b4513 #16a085 #f1c40f #8e44ad #c71585"
    colours = dict(zip(METHODS, palette.split(), strict=True))
    size = {"nrows": len(SETTINGS), "ncols": len(PANELS), "figsize": (13, 10)}
    figure, axes = plt.subplots(**size, sharex="row", layout="constrained")
    for line, (setting, title) in zip(axes, SETTINGS.items()):
        line[0].set_ylabel(title, fontsize=9)
        for axis, column in zip(line, PANELS):
            axis.spines[["top", "right"]].set_visible(False)
            for job in JOBS:
                wanted = [(job.name, str(job.seed), setting[0], start) for start in setting[1:]]
                mine = [row for row in rows if _run_of(row) in wanted and row[column]]
                steps, values = [int(row["step"]) / 1000 for row in mine], [float(row[column]) for row in mine]
                width = 1.6 if job.seed == 0 or job.name == "instant" else 0.9
                style = {"linewidth": width, "linestyle": LINES[job.seed]}
                axis.plot(steps, values, color=colours[job.name], **style)
    for top, bottom, title in zip(axes[0], axes[-1], PANELS.values()):
        top.set_title(title, fontsize=10)
        bottom.set_xlabel("thousand steps", fontsize=9)
    known = {row["name"] for row in rows}
    handles = [plt.Line2D([], [], color=colours[name], label=name) for name in METHODS if name in known]
    seeds = [plt.Line2D([], [], color="black", linestyle=LINES[seed], label=f"seed {seed}") for seed in SEEDS]
    figure.legend(handles=handles + seeds, loc="outside lower center", ncols=6, fontsize=9)
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
        elif action is train:
            sub.add_argument("--set", dest="settings", nargs="*", default=[], metavar="key=value", help="for all runs")
        if action is gather:
            sub.add_argument("--force", action="store_true", help="replace runs of other settings")
        else:
            sub.add_argument("--data", required=True)
            sub.add_argument("--minutes", type=float, default=1e6)
        if action is train:
            names = [*METHODS, *(job.run for job in JOBS)]
            sub.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="such as paper, or paper-0")
            sub.add_argument("--at-once", type=int, choices=range(1, 9), default=1, help="runs side by side")
            sub.add_argument("--seeds", nargs="+", type=int, choices=SEEDS, default=SEEDS)
    sub = actions.add_parser("draw")
    sub.set_defaults(action=draw)
    sub.add_argument("figure", type=Path)
    options = parser.parse_args()
    try:
        options.action(options)
    except InputError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
