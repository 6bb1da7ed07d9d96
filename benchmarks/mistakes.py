"""Which images runs are wrong about: prints their largest mistakes and how many they share, and draws some.

    python benchmarks/mistakes.py docs/cifar10-mistakes.png RUN ... data=FOLDER

The runs must have the same pool and labels. A mistake is a class called another by the averaged weights; the largest
of all runs are shown, each by the run that makes it most often. A line of the picture: the labelled images of the true
class, those of the class it is taken for, and mistaken ones.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from pool import Called, called

from instant.labelling.thresholds import confusion

MISTAKES = 4
SHOWN = 14


def largest(runs: list[Called]) -> list[tuple[float, int, int, int]]:
    """(share of the class, run, true class, called class), the largest first."""
    shares = torch.stack([confusion(run.probs.argmax(1), run.truth, len(run.split.classes)) for run in runs])
    share, who = shares.max(0)
    found = [
        (float(share[true, taken]), int(who[true, taken]), true, taken)
        for true in range(len(share))
        for taken in range(len(share))
        if true != taken
    ]
    return sorted(found, reverse=True)[:MISTAKES]


def main() -> None:
    words = [word for word in sys.argv[1:] if "=" not in word]
    moved = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    if len(words) < 2:
        raise SystemExit(__doc__)
    runs = [called(folder, moved) for folder in words[1:]]
    if any(not np.array_equal(run.rows, runs[0].rows) for run in runs):
        raise SystemExit(
            "The runs have different pools, so that their mistakes cannot be compared; give runs of one seed."
        )
    for run in runs:
        right = (run.probs.argmax(1) == run.truth).double().mean()
        print(f"{run.name}, step {run.step}: {right:.2%} of {len(run.truth):,} right")
    drawn = []
    for _, who, true, taken in largest(runs):
        wrong = [(run.truth == true) & (run.probs.argmax(1) == taken) for run in runs]
        names = runs[0].split.classes
        print(f"{names[true]} called {names[taken]}, and how many of the first run's are among them:")
        for run, mine in [(runs[who], wrong[who]), *((r, w) for r, w in zip(runs, wrong) if r is not runs[who])]:
            both = int((mine & wrong[who]).sum())
            sure = f"half surer than {run.probs[mine, taken].median():.6f}"
            print(f"  {run.name:16} {int(mine.sum()):4} of {int((run.truth == true).sum())}, {both:4} the same, {sure}")
        drawn.append((names[true], names[taken], runs[who], true, taken, wrong[who]))
    draw(words[0], drawn)


def draw(path: str, drawn: list) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(drawn), 1, figsize=(13, 0.95 * len(drawn)), layout="constrained")
    for axis, (true_name, taken_name, run, true, taken, wrong) in zip(np.atleast_1d(axes), drawn):
        split = run.split
        labelled = [split.labelled[split.targets == wanted][:4] for wanted in (true, taken)]
        rows = [*labelled, run.rows[np.flatnonzero(wrong.numpy())][:SHOWN]]
        strips = [np.concatenate(list(split.train.samples[part].transpose(0, 2, 3, 1)), 1) for part in rows]
        gap = np.full((len(strips[0]), 10, 3), 255, np.uint8)
        axis.imshow(np.concatenate([strips[0], gap, strips[1], gap, strips[2]], 1))
        title = f"labelled as {true_name}, as {taken_name}; {true_name} that {run.name} calls {taken_name}"
        axis.set_title(title, fontsize=8, loc="left", pad=2)
        axis.axis("off")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
