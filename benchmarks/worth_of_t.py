"""What T(x) is worth in training, where a classifier goes on making mistakes: Fashion-MNIST with forty labels.

Over six seeds no estimator of T is ahead of T = I by more than the seeds explain, and `dual_t`, which is nearest to the
truth, is 0.6 points behind it (two CPU cores, docs/transition.md).

    python benchmarks/worth_of_t.py --features FOLDER data=FOLDER        # worth_of_t.csv, and the table
    python benchmarks/worth_of_t.py --table                              # the table alone

Every run of a seed has the same forty labels, initial weights and features (600 steps without labels, kept in FOLDER),
and 1,000 steps of a small network. InstanT differs in how T is estimated alone, under each of two bars: the paper's
kappa with alignment, and FreeMatch's bar for kappa, which differs by class. Differences are to T = I under the same
bar, and to the method that the bar comes from, AdaMatch or FreeMatch, seed by seed, with their standard errors; what
the seeds do not explain is bold. Rows that the csv has already are not measured again.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import multiprocessing
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from transition_measure import against_confusion

CSV = Path(__file__).with_suffix(".csv")
COMMON = {
    "labels": "40",
    "steps": "1000",
    "ema": "0.99",
    "backbone.width": "16",
    "optim.lr": "0.05",
    "optim.warmup": "50",
    "evaluate_every": "1000",
    "device": "cpu",
}
FEATURES = "600"  # steps
BARS = {
    "paper": {"method.kappa": "labelled", "method.base": "0.9", "method.align": "true"},
    "by class": {"method.kappa": "self_adaptive", "method.base": "1", "method.align": "false"},
}
ESTIMATORS = {
    "identity": {"method.transition": "identity"},
    "head": {},
    "head, confident 1": {"method.confident": "1"},
    "dual_t": {"method.transition": "dual_t"},
}
VARIANTS = {(bar, name): BARS[bar] | given for bar in BARS for name, given in ESTIMATORS.items()}
VARIANTS |= {("its own", name): {"method": name} for name in ("adamatch", "freematch")}
ORIGINS = {"paper": ("its own", "adamatch"), "by class": ("its own", "freematch")}  # whose bar it is, without m(x)
SHARES, ERRORS = ("accuracy", "used", "right"), ("error_T", "error_identity", "error_tau")
Row = dict[str, Any]


class Job(NamedTuple):
    seed: int
    bar: str
    estimator: str
    data: list[str]
    features: Path

    @property
    def weights(self) -> Path:
        return self.features / f"features-{self.seed}.safetensors"

    def recipe(self, **settings: str) -> Any:
        from instant.cli.shared import key_values
        from instant.recipes import resolve

        return resolve("fashion_mnist", COMMON | {"seed": str(self.seed)} | key_values(self.data) | settings)


def learn_features(job: Job) -> None:
    """The network of a seed, before it has seen a label; every run of the seed starts from it."""
    import torch

    torch.set_num_threads(1)
    from instant.contrast import contrastive
    from instant.engine.build import source_for, split_for
    from instant.engine.checkpoint import save_tensors
    from instant.engine.features import features_recipe
    from instant.engine.fit import fit

    if not job.weights.exists():
        recipe = job.recipe(contrast=FEATURES)
        split = split_for(recipe, source_for(recipe))
        trained = fit(features_recipe(recipe, split), split, method=contrastive)
        save_tensors(job.weights, trained.learner.judged.state_dict(), {})


def measure(job: Job) -> Row:
    """One run, and how T(x) and the thresholds of the test images compare with how these are called."""
    import torch

    torch.set_num_threads(1)
    from instant.data.feed import Normalise
    from instant.engine.build import source_for, split_for
    from instant.engine.checkpoint import load_tensors
    from instant.engine.fit import fit

    recipe = job.recipe(**VARIANTS[job.bar, job.estimator])
    split = split_for(recipe, source_for(recipe))
    trained = fit(recipe, split, weights=load_tensors(job.weights)[0])
    summary, learner = trained.summary, trained.learner.eval()
    row: Row = {"bar": job.bar, "estimator": job.estimator, "seed": job.seed, "accuracy": summary["accuracy_last"]}
    row |= {"used": summary["utilisation"], "right": summary["pseudo_label_accuracy"]}
    if (transitions := getattr(learner.method, "transitions", None)) is None:
        return row
    normalise = Normalise(split.mean, split.std, images=True)
    probs, matrices = [], []
    with torch.no_grad():
        for start in range(0, len(split.test), 500):
            x = normalise(torch.tensor(split.test.samples[start : start + 500]))
            seen = learner.student(x)
            probs.append(torch.softmax(seen.logits, 1))
            matrices.append(transitions.estimator(seen.features, x).expand(len(x), -1, -1))
    found = against_confusion(torch.cat(probs), torch.cat(matrices), torch.from_numpy(split.test_targets))
    return row | {name: found[name] for name in ERRORS}


def read() -> list[Row]:
    if not CSV.exists():
        return []
    with open(CSV, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(rows: list[Row]) -> str:
    """Markdown: a line a variant, means over the seeds."""
    from instant.compare.statistics import beyond_luck, paired

    accuracy: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        accuracy.setdefault((row["bar"], row["estimator"]), {})[int(row["seed"])] = 100 * float(row["accuracy"])

    def compared(variant: tuple[str, str], reference: tuple[str, str]) -> str:
        difference = None if variant == reference else paired(accuracy[variant], accuracy.get(reference, {}))
        if difference is None or difference.error is None:
            return ""
        mark = "**" if beyond_luck(difference) else ""
        return f"{mark}{difference.value:+.2f} ± {difference.error:.2f}{mark}"

    heads = "bar", "T", "accuracy", "to T = I", "to its origin", "used", "of these right", "error of T"
    lines = [f"| {' | '.join(heads)} | of the identity | error of tau |", "|---" * 10 + "|"]
    for bar, name in [variant for variant in VARIANTS if variant in accuracy]:
        runs = [row for row in rows if (row["bar"], row["estimator"]) == (bar, name)]
        origin = ORIGINS.get(bar, (bar, name))
        differences = [compared((bar, name), reference) for reference in ((bar, "identity"), origin)]
        shares = [f"{100 * statistics.mean(float(row[key]) for row in runs):.1f}" for key in SHARES]
        errors = [f"{statistics.mean(float(row[key]) for row in runs):.3f}" if runs[0][key] else "" for key in ERRORS]
        lines.append("| " + " | ".join([bar, name, shares[0], *differences, *shares[1:], *errors]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", help="data=FOLDER, where Fashion-MNIST is not among the downloads")
    parser.add_argument("--features", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4, 5])
    parser.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if not options.table:
        if options.features is None:
            parser.error("--features FOLDER: where the features of the seeds are kept")
        options.features.mkdir(parents=True, exist_ok=True)
        run(options)
    print(table(read()))


def run(options: argparse.Namespace) -> None:
    """The runs that the csv has no row of; a row is written as soon as its run is done."""
    import torch

    done = {(int(row["seed"]), row["bar"], row["estimator"]) for row in read()}
    wanted = [(seed, *variant) for seed in options.seeds for variant in VARIANTS]
    jobs = [Job(*which, options.data, options.features) for which in wanted if which not in done]
    shared = {"date": datetime.date.today().isoformat(), "hardware": "cpu, 1 thread", "torch": torch.__version__}
    with open(CSV, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["bar", "estimator", "seed", *SHARES, *ERRORS, *shared])
        if not done:
            writer.writeheader()
        with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
            pool.map(learn_features, {job.seed: job for job in jobs}.values(), chunksize=1)
            for row in pool.imap(measure, jobs):
                writer.writerow(row | shared)
                file.flush()
                print(
                    {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()},
                    flush=True,
                )


if __name__ == "__main__":
    main()
