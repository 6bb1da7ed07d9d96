"""Every estimator of T on one finished classifier, against the confusion of its predictions on the test images.

    instant train cifar10 data=FOLDER labels=40 steps=16000 optim.lr=0.1 optim.cycles=0.5 validation=5000 --out RUN
    python benchmarks/transition_frozen.py RUN                       # adds to transition-cifar10.csv, prints its table

The run's network looks at views of its labelled images and of 8,000 unlabelled ones, drawn as in training; each
estimator is fitted on that for 1,500 steps of 64 labelled and 448 unlabelled rows. `network` is left out: it would
have to learn from the images themselves. Takes some minutes of a CPU.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transition import COLUMNS, table
from transition_measure import against_confusion

from instant import random
from instant.augment.policies import for_images
from instant.data.feed import Normalise
from instant.engine.build import source_for, split_for
from instant.learner import commit
from instant.rules import InstanceDependent, Relative
from instant.run import Run
from instant.transition import Sight, Transitions, inflow
from instant.transition.registry import TRANSITIONS, build_transition
from instant.types import Evidence, Problem

HERE = Path(__file__).parent
STEPS, PAIRS, ROWS, POOL, REPEATS = 1500, 64, 448, 8000, 20
TRAINED = ("head", "parts", "matrix", "volmin")
SHOWN = {"error_T": "error of T", "error_identity": "of the identity"} | COLUMNS | {"accuracy": "accuracy %"}


class Seen(NamedTuple):
    """What the classifier makes of some images."""

    features: Tensor
    probs: Tensor
    y: Tensor


class Classifier(NamedTuple):
    labelled: Seen  # the labelled images in weak views, over and over
    pool: Seen
    other: Tensor  # (POOL,) what the pool is called in strong views
    test: Seen


@torch.no_grad()
def look(run: Run) -> Classifier:
    recipe = run.recipe()
    source = source_for(recipe)
    split = split_for(recipe, source)
    network, card = run.load_model()
    normalise = Normalise(card["mean"], card["std"], images=True)
    weak, strong = for_images(source.train.shape[0], split.mirror, shift=recipe.shift, operations=recipe.operations)
    key = random.root(recipe.seed)

    def seen(samples: Tensor, y: Tensor) -> Seen:
        outs = [network(normalise(part)) for part in samples.split(250)]
        return Seen(
            torch.cat([out.features for out in outs]), torch.softmax(torch.cat([out.logits for out in outs]), 1), y
        )

    labelled = torch.tensor(split.train.samples[split.labelled]).repeat(REPEATS, 1, 1, 1)
    pool = torch.tensor(split.train.samples[split.pool[:: len(split.pool) // POOL][:POOL]])
    nobody = torch.full((len(pool),), -1)
    return Classifier(
        labelled=seen(weak(labelled, random.fold(key, 1)), torch.from_numpy(split.targets).repeat(REPEATS)),
        pool=seen(weak(pool, random.fold(key, 2)), nobody),
        other=seen(strong(pool, random.fold(key, 3)), nobody).probs.argmax(1),
        test=seen(torch.tensor(split.test.samples), torch.from_numpy(split.test_targets)),
    )


def measure(c: Classifier, name: str, confident: float) -> dict[str, float]:
    """Fit one estimator; compare its T and its thresholds on the test images with the truth."""
    torch.manual_seed(0)
    classes, features = c.test.probs.shape[1], c.test.features.shape[1]
    problem = Problem(classes=classes, features=features, unlabelled=POOL, steps=STEPS)
    use = Transitions(build_transition(name, problem), confident=confident)
    rule = InstanceDependent(Relative(0.9))
    own = list(use.parameters())
    optimizer = torch.optim.SGD(own, lr=0.01, momentum=0.9, weight_decay=use.estimator.decay) if own else None

    def decide(probs: Tensor, matrix: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """The threshold of each row and whether it is accepted, with all labelled rows behind kappa."""
        nobody = torch.zeros(len(probs), dtype=torch.int64)
        column = inflow(matrix, probs.argmax(1))
        found, _ = rule(Evidence(probs, c.labelled.probs, c.labelled.y, nobody, torch.tensor(step), column))
        return found.threshold, found.weight >= 1

    started = time.perf_counter()
    for step in range(STEPS):
        one, many = torch.randint(len(c.labelled.y), (PAIRS,)), torch.randint(len(c.pool.y), (ROWS,))
        rows = torch.cat([c.labelled.features[one], c.pool.features[many]])
        matrix, used = use(rows, rows, PAIRS)
        probs = c.pool.probs[many]
        confidence, label = probs.max(1)
        sight = Sight(probs, c.other[many], label, confidence - decide(probs, used.detach(), step)[0])
        called = c.labelled.probs[one].argmax(1)
        loss, state = use.fit(matrix, c.labelled.y[one], called, sight, torch.tensor(step))
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        commit(use.estimator, state)
    with torch.no_grad():
        use.eval()
        matrix, _ = use(c.test.features, c.test.features, 0)
        matrix = matrix if matrix.ndim == 3 else matrix.expand(len(c.test.y), -1, -1)
        _, accepted = decide(c.test.probs, matrix, STEPS)
        right = (c.test.probs.argmax(1) == c.test.y).double()
        return against_confusion(c.test.probs, matrix, c.test.y) | {
            "share": float(accepted.double().mean()),
            "precision": float(right[accepted].mean()),
            "accuracy": float(right.mean()),
            "seconds": round(time.perf_counter() - started, 1),
        }


def measured(path: Path) -> dict[tuple[str, int], list[dict[str, str]]]:
    """The rows of each estimator and classifier, which is known by its steps of training."""
    found: dict[tuple[str, int], list[dict[str, str]]] = {}
    if path.exists():
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                found.setdefault((row["estimator"], int(row["steps"])), []).append(row)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", help="none: print the table of what was measured")
    parser.add_argument("--csv", type=Path, default=HERE / "transition-cifar10.csv")
    options = parser.parse_args()
    if options.run is not None:
        recipe, classifier = Run(options.run).recipe(), look(Run(options.run))
        jobs = [(name, 0.0) for name in TRANSITIONS if name != "network"] + [(name, 1.0) for name in TRAINED]
        rows: list[dict[str, Any]] = [
            {"source": recipe.source, "labels": recipe.labels, "seed": recipe.seed, "steps": recipe.steps}
            | {"estimator": f"{name}, confident {share:g}" if share else name}
            | measure(classifier, name, share)
            for name, share in jobs
        ]
        kept = [row for group in measured(options.csv).values() for row in group if int(row["steps"]) != recipe.steps]
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept + rows)
    print(table(measured(options.csv), SHOWN))


if __name__ == "__main__":
    main()
