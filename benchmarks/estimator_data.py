"""The data of `benchmarks/estimator.py`: five sets of vectors, each with a part that is only ever scored.

| set | training rows | scored rows | what |
|---|---|---|---|
| digits, breast_cancer, wine | 70 % | 30 %, drawn once, class by class | as scikit-learn has them |
| fashion | 10,000 of the 60,000 | the official 10,000 | 784 pixels from 0 to 1 |
| embeddings | another 10,000 of the 60,000 | the official 10,000 | 128 features of a frozen network |

The frozen network is our `small_cnn`, trained by our own `fit` on CIFAR-10 in grey at 16 x 16 (all labels, ten kinds of
animals and vehicles), and has never seen a piece of clothing: its last hidden layer is read off for Fashion-MNIST at
16 x 16. It is made once and kept beside the other cached data; 3 minutes on one core.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

SETS = ("digits", "breast_cancer", "wine", "fashion", "embeddings")
SUBSET = 10_000


class Parts(NamedTuple):
    """Training rows with their truth, of which a method sees some, and the scored rows."""

    x: np.ndarray
    y: np.ndarray
    x_scored: np.ndarray
    y_scored: np.ndarray


def load(name: str, fashion: Path, cifar10: Path, cache: Path) -> Parts:
    if name == "fashion":
        x, y, x_scored, y_scored = _clothes(fashion, 0)
        return Parts(_flat(x), y, _flat(x_scored), y_scored)
    if name == "embeddings":
        return _embeddings(fashion, cifar10, cache / "embeddings.npz")
    return _of_scikit_learn(name)


def draw_labels(y: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """y with -1 for all but `per_class` rows of each class."""
    rng = np.random.default_rng([seed, per_class])
    shown = np.full(len(y), -1)
    for k in np.unique(y):
        rows = rng.choice(np.flatnonzero(y == k), per_class, replace=False)
        shown[rows] = k
    return shown


def _of_scikit_learn(name: str) -> Parts:
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    if name == "digits":
        x = x / 16
    x, x_scored, y, y_scored = train_test_split(x, y, test_size=0.3, stratify=y, random_state=0)
    return Parts(x, y, x_scored, y_scored)


def _clothes(folder: Path, part: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of the training file that no other part has, and the whole test file; images as bytes (n, 28, 28)."""
    from instant.data.sources import load as load_source

    source = load_source("fashion_mnist", str(folder))
    rows = np.random.default_rng(0).permutation(len(source.train))[part * SUBSET : (part + 1) * SUBSET]
    return source.train.samples[rows, 0], source.targets[rows], source.test.samples[:, 0], source.test_targets


def _flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1) / np.float32(255)


def _embeddings(fashion: Path, cifar10: Path, kept: Path) -> Parts:
    if not kept.exists():
        network = _frozen(cifar10)
        x, y, x_scored, y_scored = _clothes(fashion, 1)
        kept.parent.mkdir(parents=True, exist_ok=True)
        parts = Parts(network(_halved(x, 2)), y, network(_halved(x_scored, 2)), y_scored)
        np.savez_compressed(kept, **parts._asdict())
    with np.load(kept) as file:
        return Parts(*(file[name] for name in Parts._fields))


def _halved(images: np.ndarray, border: int = 0) -> np.ndarray:
    """(n, h, w) to half the side, black border around; means of 2 x 2 pixels."""
    images = np.pad(images, ((0, 0), (border, border), (border, border))).astype(np.float32)
    n, h, w = images.shape
    return np.rint(images.reshape(n, h // 2, 2, w // 2, 2).mean((2, 4))).astype(np.uint8)[:, None]


def _frozen(cifar10: Path):  # type: ignore[no-untyped-def]
    """Images (n, 1, 16, 16) in bytes to the features of a network that was trained on CIFAR-10 in grey."""
    import torch

    from instant import arrays, fit, make_split
    from instant.data.feed import Normalise
    from instant.data.sources import load as load_source
    from instant.recipes import small

    colour = load_source("cifar10", str(cifar10))
    grey = (colour.train.samples * np.array([0.299, 0.587, 0.114], np.float32)[:, None, None]).sum(1)
    source = arrays(_halved(grey), colour.targets, channels="first", name="cifar10 in grey")
    recipe = small("cifar10", None, "fully_supervised", steps=3000, batch=64, evaluate_every=3000, device="cpu")
    split = make_split(source, labels=None)
    network = fit(recipe, split).learner.judged.eval()
    normalise = Normalise(split.mean, split.std, images=True)

    @torch.no_grad()
    def features(images: np.ndarray) -> np.ndarray:
        parts = torch.from_numpy(images).split(500)
        return torch.cat([network(normalise(part)).features for part in parts]).numpy()

    return features
