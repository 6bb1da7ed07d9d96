"""Among which images a run has put its labelled ones: a class that lies among another's has been taken for it.

    python benchmarks/around_labels.py RUN ... data=FOLDER

Of every labelled image, the twenty nearest among every fifth of the pool, by the cosine of what the averaged weights
make of them before the last layer: their true classes, and what they are called, counted by the class of the label.
And how often that space is right about the pool: the class whose labelled images' mean is nearest, and the true class
of most of the twenty nearest others. RUN/features is what the run started from.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
import torch.nn.functional as F
from pool import asked, opened
from torch import Tensor, nn

from instant.data.feed import Normalise
from instant.data.split import Split
from instant.data.store import batches

NEAREST = 20


@torch.no_grad()
def seen(network: nn.Module, split: Split, rows: np.ndarray) -> tuple[Tensor, Tensor]:
    """Features of length 1, and the class that is called."""
    normalise = Normalise(split.mean, split.std, images=split.train.is_images)
    parts = [network(normalise(samples)) for samples in batches(split.train, torch.device("cpu"), rows)]
    features = F.normalize(torch.cat([part.features for part in parts]), dim=1)
    return features, torch.cat([part.logits for part in parts]).argmax(1)


def main() -> None:
    folders, moved = asked(__doc__)
    for folder in folders:
        run, step, split, network, rows, truth = opened(folder, moved)
        labels, _ = seen(network, split, split.labelled)
        others, called = seen(network, split, rows)
        nearest = (labels @ others.T).topk(NEAREST).indices
        truly = torch.from_numpy(truth)
        means = torch.stack([labels[split.targets == k].mean(0) for k in range(len(split.classes))])
        by_label = ((others @ F.normalize(means, dim=1).T).argmax(1) == truly).float().mean()
        crowd = (others @ others.T).fill_diagonal_(-1).topk(NEAREST).indices
        by_crowd = (truly[crowd].mode(1).values == truly).float().mean()
        print(f"{run}, step {step}: {100 * by_label:.1f} % are nearest to the labels of their class, and")
        print(f"  {100 * by_crowd:.1f} % among others of their class. The {NEAREST} nearest of every labelled image:")
        for k, name in enumerate(split.classes):
            places = nearest[split.targets == k].flatten()
            are, so = (
                ", ".join(f"{split.classes[place]} {count}" for place, count in Counter(found.tolist()).most_common(3))
                for found in (truth[places], called[places])
            )
            print(f"  {name:12} are {are:36} called {so}", flush=True)


if __name__ == "__main__":
    main()
