"""One more label: of the largest group that a run is wrong about, or of any image. Digits, ten labels, FixMatch.

    python benchmarks/one_label.py 20 21 22 23    # seeds; five minutes each on one core

A group is a class called another by the averaged weights on the pool; which is the largest, only the truth tells, or a
person who checks a sample. The eleventh label is drawn at random from it, or from the pool. Accuracy is on the 360 test
images.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter

import numpy as np
import torch

from instant.data.feed import Normalise
from instant.data.sources import load
from instant.data.split import Split, make_split
from instant.engine.fit import fit
from instant.engine.metrics import predict
from instant.recipes import digits


def with_label(split: Split, row: int, label: int) -> Split:
    return dataclasses.replace(split, labelled=np.append(split.labelled, row), targets=np.append(split.targets, label))


def main() -> None:
    torch.set_num_threads(1)
    source = load("digits")
    found = []
    for seed in map(int, sys.argv[1:]):
        recipe = digits(labels=10, method="fixmatch").override({"seed": str(seed)})
        split = make_split(source, labels=10, seed=seed)
        trained = fit(recipe, split)
        normalise = Normalise(split.mean, split.std, images=True)
        called = predict(trained.learner.judged, split.train, normalise, device=torch.device("cpu")).argmax(1).numpy()
        (true, taken), size = Counter(
            zip(*np.stack([source.targets, called])[:, called != source.targets])
        ).most_common(1)[0]
        rng = np.random.default_rng(seed)
        group = np.flatnonzero((source.targets == true) & (called == taken))
        accuracies = [trained.summary["accuracy_last"]]
        for rows in (group, split.pool):
            row = int(rng.choice(rows))
            accuracies.append(fit(recipe, with_label(split, row, source.targets[row])).summary["accuracy_last"])
        found.append(accuracies)
        ten, of_group, of_any = (f"{accuracy:.1%}" for accuracy in accuracies)
        print(
            f"seed {seed}: {ten}; with one of the {size} {true}s that are {taken}s {of_group}, with any {of_any}",
            flush=True,
        )
    ten, of_group, of_any = (f"{accuracy:.1%}" for accuracy in np.mean(found, 0))
    print(f"on average: {ten}; {of_group}, {of_any}")


if __name__ == "__main__":
    main()
