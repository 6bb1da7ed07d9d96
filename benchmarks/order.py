"""What a transition matrix can change: how many of a run's pseudo-labels are right when the surest come first.

    python benchmarks/order.py RUN ... data=FOLDER

The averaged weights of a run, finished or stopped, call every fifth image of its pool. "Surest" is the confidence, or
what InstanT compares with kappa, P - m(x), under two T: the identity, and the classifier's own mistakes on these very
images, counted with the truth: the best T that is the same for all. As m(x) is at most 2 (1 - P), no T can refuse a
sample above (kappa + 2) / 3, nor accept one below kappa; two lines say how many are in between with the paper's kappa
in the end, 0.9. A finished run may have had another bar, of each class its own: the last line says what m(x) refuses at
that, and how much of it is T's doing. Of two runs, one after the other, it also counts what both are wrong about.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from pool import Called, asked, called
from torch import Tensor

from instant.labelling.decisions import decide_rows
from instant.labelling.judge import load_judge
from instant.labelling.thresholds import confusion
from instant.rules import instance_margin
from instant.run import Run

SHARES = (0.5, 0.6, 0.7, 0.8, 0.9)
KAPPA = 0.9


def show(name: str, surest: Tensor, right: Tensor) -> None:
    order = surest.argsort(descending=True)
    cells = (f"{100 * right[order[: round(share * len(order))]].mean():6.2f}" for share in SHARES)
    print(f"  {name:36}", *cells)


def show_own(run: Run, seen: Called) -> None:
    """What m(x) decides at the bar that the run had in the end, with its T(x) and with the identity in its place."""
    judge, classes, _ = load_judge(run)
    if judge.estimator is None:
        return
    found = decide_rows(judge, seen.split.train, seen.rows, classes)
    refused = (found.confidence > found.kappa) & ~found.accepted
    plain = found.confidence > np.minimum(1, found.kappa + np.sort(found.probs)[:, -2])
    other = plain != found.accepted
    right = (found.label == seen.truth.numpy())[refused]
    known = f" ({right.mean():.0%} of these right)" if len(right) else ""
    below = (found.confidence <= found.kappa).mean()
    print(f"  its own bar: {below:.1%} below kappa, {refused.mean():.1%} refused by m(x){known}, ", end="")
    print(f"{other.mean():.2%} decided otherwise with T the identity")


def show_both(first: Called, second: Called) -> None:
    """What two runs call the images that both were asked about."""
    _, mine, theirs = np.intersect1d(first.rows, second.rows, return_indices=True)
    truth, one, two = first.truth[mine], first.probs[mine], second.probs[theirs]
    wrong = [probs.argmax(1) != truth for probs in (one, two)]
    alike = wrong[0] & (one.argmax(1) == two.argmax(1))
    alone = " and ".join(f"{part.double().mean():.1%}" for part in wrong)
    right = ((one + two).argmax(1) == truth).double().mean()
    print(f"{first.name} and {second.name}, {len(truth):,} images: {alone} wrong, {alike.double().mean():.1%} alike;")
    print(f"  the mean of their probabilities is right about {right:.1%}")


def main() -> None:
    folders, moved = asked(__doc__)
    seen = []
    for folder in folders:
        seen.append(called(folder, moved))
        name, step, split, _, truth, probs = seen[-1]
        confidence, label = probs.max(1)
        right = (label == truth).double()
        print(f"{name}, step {step}: {right.mean():.2%} of {len(truth):,} right; % right among the surest")
        print(f"  {'':36}", *(f"{share:6.0%}" for share in SHARES))
        show("confidence P", confidence, right)
        classes = len(split.classes)
        for name, matrix in (
            ("P - m(x), T the identity", torch.eye(classes)),
            ("P - m(x), T its true mistakes", confusion(label, truth, classes).float()),
        ):
            show(name, confidence - instance_margin(probs, matrix.t()[label]), right)
        mistakes = confusion(label, truth, classes).fill_diagonal_(0).flatten().topk(4)
        named = (
            f"{split.classes[place // classes]} as {split.classes[place % classes]} {share:.0%}"
            for share, place in zip(*(part.tolist() for part in mistakes))
        )
        print(f"  most often mistaken: {', '.join(named)}")
        upper = (KAPPA + 2) / 3
        for name, part in (("all", right >= 0), ("the wrong", right == 0)):
            low, high = ((confidence[part] < bar).double().mean() for bar in (KAPPA, upper))
            between = f"{high - low:.1%} where T decides"
            print(f"  of {name}: {low:.1%} below {KAPPA}, {between}, {1 - high:.1%} above {upper:.3f}")
        if (run := Run(folder)).finished:
            show_own(run, seen[-1])
    for first, second in pairwise(seen):
        show_both(first, second)


if __name__ == "__main__":
    main()
