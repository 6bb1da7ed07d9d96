"""A problem whose truth is known: clean posterior, transition matrix T(x) and the predictions they lead to.

Samples are a mixture of K unit Gaussians, one a class, so the clean posterior has a closed form. One more coordinate,
the same for all classes, says how smudged a sample is: a classifier mistakes smudged samples more often, and class i
mostly for class i + 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from instant.errors import InputError


class Drawn(NamedTuple):
    """N samples and all that is true of them."""

    x: np.ndarray  # (N, K + 1) vectors, or (N, 1, 8, 8) images of them
    latent: np.ndarray  # (N, K + 1)
    y: np.ndarray  # (N,) the class, drawn from the posterior
    posterior: np.ndarray  # (N, K) P(Y | x)
    transition: np.ndarray  # (N, K, K) T(x)
    noisy: np.ndarray  # (N, K) P(called j | x) = sum_i P(Y = i | x) T(x)[i, j]
    called: np.ndarray  # (N,) a prediction, drawn from row y of T(x)
    again: np.ndarray  # (N,) the prediction of another view: drawn anew


@dataclass(frozen=True, kw_only=True)
class Smudged:
    """T(x) = (1 - e(x)) I + e(x) F, e(x) = low + (high - low) sigmoid(3 u), u the last coordinate.

    F_ij is 3/4 for j = i + 1 (mod K) and shares the rest among the other classes. Where e(x) is large the most
    probable prediction is not the Bayes label.
    """

    classes: int = 5
    distance: float = 2.5  # of each class mean from the origin, along an axis of its own
    low: float = 0.05
    high: float = 0.6
    images: bool = False

    def __post_init__(self) -> None:
        most = 8 if self.images else math.inf  # a picture has nine waves
        if not (3 <= self.classes <= most and 0 <= self.low <= self.high <= 1):
            raise InputError(
                f"{self}: expected at least 3 classes, in images at most 8, and 0 <= low <= high <= 1: chances of a "
                "mistake."
            )

    def posterior(self, latent: np.ndarray) -> np.ndarray:
        """P(Y = k | x) = softmax_k(distance x_k): the terms of the Gaussians that differ between classes."""
        return _softmax(self.distance * latent[:, : self.classes])

    def error(self, latent: np.ndarray) -> np.ndarray:
        """e(x), the chance that x is not called by its class."""
        return self.low + (self.high - self.low) / (1 + np.exp(-3 * latent[:, self.classes]))

    def transition(self, latent: np.ndarray) -> np.ndarray:
        error = self.error(latent)[:, None, None]
        return (1 - error) * np.eye(self.classes) + error * self.flow()

    def flow(self) -> np.ndarray:
        """F: where the mistakes of a class go."""
        others = 0.25 / (self.classes - 2) * (1 - np.eye(self.classes))
        next_class = np.roll(np.eye(self.classes), 1, axis=1)
        return np.where(next_class == 1, 0.75, others)

    def draw(self, count: int, seed: int, *, balanced: bool = False) -> Drawn:
        """`count` samples; `balanced` takes the classes in turn, as a labelled set has them."""
        rng = np.random.default_rng([seed, 0x7A])
        y = np.arange(count) % self.classes if balanced else rng.integers(self.classes, size=count)
        latent = rng.normal(size=(count, self.classes + 1))
        latent[:, : self.classes] += self.distance * np.eye(self.classes)[y]
        matrix, posterior = self.transition(latent), self.posterior(latent)
        rows = matrix[np.arange(count), y]
        return Drawn(
            x=_pictures(latent) if self.images else latent.astype(np.float32),
            latent=latent,
            y=y,
            posterior=posterior,
            transition=matrix,
            noisy=np.einsum("ni,nij->nj", posterior, matrix),
            called=_choose(rows, rng),
            again=_choose(rows, rng),
        )


def _pictures(latent: np.ndarray, side: int = 8) -> np.ndarray:
    """Each coordinate paints its own wave: an orthonormal map, so a picture says just what its vector says."""
    place = (np.arange(side) + 0.5) * np.pi / side
    waves = np.cos(np.arange(1, 4)[:, None] * place) * np.sqrt(2 / side)
    patterns = np.einsum("ai,bj->abij", waves, waves).reshape(9, side, side)[: latent.shape[1]]
    return np.einsum("nd,dij->nij", latent, patterns)[:, None].astype(np.float32)


def _choose(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One class from each row of probabilities."""
    return (rng.random((len(rows), 1)) > rows.cumsum(1)[:, :-1]).sum(1)


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
