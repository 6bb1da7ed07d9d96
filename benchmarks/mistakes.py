"""Which images runs are wrong about: prints their largest mistakes and how many they share, and draws some.

    python benchmarks/mistakes.py docs/cifar10-mistakes.png RUN ... data=FOLDER

The runs must have the same pool and labels. A mistake is a class called another by the averaged weights; the largest
of all runs are shown, each by the run that makes it most often. How often confidence is higher for one that is rightly
called so than for a mistaken one: 100 % would be a perfect filter, 50 % is none. A line of the picture: the labelled
images of the true class, those of the class it is taken for, and mistaken ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from pool import Called, asked, called
from sklearn.metrics import roc_auc_score
from torch import Tensor

from instant.labelling.thresholds import confusion

MISTAKES = 4
SHOWN = 14


class Mistake(NamedTuple):
    share: float  # of the true class
    run: Called
    true: int
    taken: int

    def of(self, run: Called) -> Tensor:
        """Where a run makes this mistake, row by row."""
        return (run.truth == self.true) & (run.probs.argmax(1) == self.taken)

    def told(self, run: Called) -> float:
        """How often confidence puts one that is rightly called so above a mistaken one."""
        label = run.probs.argmax(1)
        rows = (label == self.taken) & ((run.truth == self.taken) | (run.truth == self.true))
        return float(roc_auc_score(run.truth[rows] == self.taken, run.probs[rows, self.taken]))


def largest(runs: list[Called]) -> list[Mistake]:
    classes = range(len(runs[0].split.classes))
    shares = torch.stack([confusion(run.probs.argmax(1), run.truth, len(classes)) for run in runs])
    share, who = shares.max(0)
    found = [
        Mistake(float(share[true, taken]), runs[who[true, taken]], true, taken)
        for true in classes
        for taken in classes
        if true != taken
    ]
    return sorted(found, key=lambda mistake: mistake.share, reverse=True)[:MISTAKES]


def main() -> None:
    words, moved = asked(__doc__)
    if len(words) < 2:
        raise SystemExit(__doc__)
    runs = [called(folder, moved) for folder in words[1:]]
    first = runs[0]
    for run in runs:
        if not (np.array_equal(run.rows, first.rows) and np.array_equal(run.split.labelled, first.split.labelled)):
            raise SystemExit(f"{run.name} has another pool or other labels than {first.name}; give runs of one seed.")
        right = (run.probs.argmax(1) == run.truth).double().mean()
        print(f"{run.name}, step {run.step}: {right:.2%} of {len(run.truth):,} right")
    names = first.split.classes
    found = largest(runs)
    for mistake in found:
        print(f"{names[mistake.true]} called {names[mistake.taken]}:")
        most = mistake.of(mistake.run)
        for run in runs:
            mine = mistake.of(run)
            if not mine.any():
                continue
            count = f"{int(mine.sum()):4} of {int((run.truth == mistake.true).sum())}"
            same = f"{int((mine & most).sum()):4} of {mistake.run.name}'s {int(most.sum())}"
            sure = f"half above {run.probs[mine, mistake.taken].median():.6f}, told by it {mistake.told(run):.0%}"
            print(f"  {run.name:16} {count}, {same}; {sure}")
    draw(words[0], found)


def draw(path: str, found: list[Mistake]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(found), 1, figsize=(13, 0.95 * len(found)), layout="constrained")
    for axis, mistake in zip(np.atleast_1d(axes), found):
        run, split = mistake.run, mistake.run.split
        labelled = [split.labelled[split.targets == wanted][:4] for wanted in (mistake.true, mistake.taken)]
        rows = [*labelled, run.rows[np.flatnonzero(mistake.of(run).numpy())][:SHOWN]]
        strips = [np.concatenate(list(split.train.samples[part].transpose(0, 2, 3, 1)), 1) for part in rows]
        gap = np.full((len(strips[0]), 10, 3), 255, np.uint8)
        axis.imshow(np.concatenate([strips[0], gap, strips[1], gap, strips[2]], 1))
        true, taken = (split.classes[label] for label in (mistake.true, mistake.taken))
        axis.set_title(
            f"labelled {true}, labelled {taken}, and {true} that {run.name} calls {taken}", fontsize=8, loc="left"
        )
        axis.axis("off")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
