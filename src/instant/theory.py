"""The InstanT paper's two theorems, executable: what an accepted label means, and when T(x) can be known at all.

docs/theory.md explains each function; its code is run by the tests. Shapes: N samples, K classes, T[i, j] =
P(called j | truly i), rows summing to 1.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np

from instant.errors import InputError
from instant.labelling.probabilities import as_array

SUBSETS = 200_000  # how many sets of rows are looked at before the Kruskal rank is left a lower bound


class Acceptance(NamedTuple):
    """What the paper's threshold does where the truth is known; one entry a sample."""

    label: np.ndarray  # k, the most probable class of the estimated noisy posterior
    bayes: np.ndarray  # the most probable class of the clean posterior
    stay: np.ndarray  # T_kk
    tau: np.ndarray  # T_kk P_s + sum_{i != k} T_ik P_i + kappa, with clean P
    accepted: np.ndarray
    margin: np.ndarray  # largest minus second largest clean probability

    @property
    def wrong(self) -> np.ndarray:
        """Accepted, and not the Bayes label: the event that the corrected Theorem 1 bounds."""
        return self.accepted & (self.label != self.bayes)


def accept(T: np.ndarray, clean: np.ndarray, estimated: np.ndarray | None = None, *, kappa: float = 0.0) -> Acceptance:
    """Hold the noisy posterior (N, K) against the paper's threshold from the true T (N, K, K) and clean posterior.

    `estimated` is the classifier's noisy posterior; None stands for the true one, T^T clean: no estimation error.

    >>> done = accept(np.array([[[0.4, 0.6], [0.0, 1.0]]]), np.array([[0.9, 0.1]]))
    >>> done.label, done.bayes, done.accepted  # called 1, truly 0, refused: the printed theorem says neither
    (array([1]), array([0]), array([False]))
    """
    T, clean = _numbers(T, "T"), _numbers(clean, "clean")
    if clean.ndim != 2 or clean.shape[1] < 2 or T.shape != (*clean.shape, clean.shape[1]):
        raise InputError(
            f"T: expected shape (N, K, K) beside a clean posterior of shape (N, K), got {T.shape} beside {clean.shape}."
        )
    for name, rows in (("T", T), ("clean", clean)):
        if not ((rows >= 0).all() and np.allclose(rows.sum(-1), 1, atol=1e-3)):  # NaN fails both
            raise InputError(f"{name}: expected probabilities, in rows that sum to 1.")
    if not isinstance(kappa, Real):
        raise InputError(f"kappa={kappa!r} must be a number, for example 0.1.")
    estimated = np.einsum("nij,ni->nj", T, clean) if estimated is None else _numbers(estimated, "estimated")
    if estimated.shape != clean.shape:
        raise InputError(f"estimated: expected shape {clean.shape} like the clean posterior, got {estimated.shape}.")
    rows = np.arange(len(clean))
    label = estimated.argmax(1)
    column = T[rows, :, label]
    stay = column[rows, label]
    others = clean.copy()
    others[rows, label] = -np.inf
    tau = stay * others.max(1) + (column * clean).sum(1) - stay * clean[rows, label] + kappa
    top = np.sort(clean, axis=1)
    return Acceptance(
        label, clean.argmax(1), stay, tau, estimated[rows, label] >= tau, margin=top[:, -1] - top[:, -2]
    )  # fmt: skip


class Kruskal(NamedTuple):
    """Kruskal's condition for p views with the same matrix: p * rank >= 2 K + p - 1."""

    rank: int  # the Kruskal rank: every set of so many rows is linearly independent
    exact: bool  # False: only so much was established, the rank may be larger
    views: int
    total: int
    needed: int

    @property
    def holds(self) -> bool:
        return self.total >= self.needed


def kruskal(T: np.ndarray, views: int = 3) -> Kruskal:
    """Whether T and the class prior follow, up to the order of the classes, from `views` independent labels.

    >>> kruskal(np.eye(4)).holds, kruskal(np.eye(4), views=2).holds
    (True, False)
    """
    matrix = _matrix(T)
    if not isinstance(views, Integral) or views < 1:
        raise InputError(f"views={views!r} must be a whole number from 1: how many labels has a sample?")
    rank, exact = kruskal_rank(matrix)
    return Kruskal(rank, exact, views, views * rank, 2 * len(matrix) + views - 1)


def kruskal_rank(matrix: np.ndarray) -> tuple[int, bool]:
    """The largest r such that every r rows are linearly independent, and whether that is exact.

    A matrix of full rank is answered at once. Otherwise sets of rows are tried, smallest first; when there are too
    many of them the answer is a lower bound.

    >>> kruskal_rank(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]))  # any two differ, all three do not
    (2, True)
    """
    rows = len(matrix)
    if np.linalg.matrix_rank(matrix) == rows:
        return rows, True
    seen = 0
    for size in range(1, rows + 1):
        subsets = combinations(range(rows), size)
        seen += math.comb(rows, size)
        if seen > SUBSETS:
            return size - 1, False
        while block := list(islice(subsets, 4096)):
            if (np.linalg.matrix_rank(matrix[np.array(block)]) < size).any():
                return size - 1, True
    raise AssertionError("a matrix of full rank was answered above")


@dataclass(frozen=True)
class Identifiability:
    """What Theorem 2 says about a number of labels a class and a matrix.

    `problems` are the theorem's own premises that fail. Kruskal's condition, from which the theorem follows, asks for
    a little less than full rank, so that T may be identifiable in spite of one.
    """

    labels: int  # of the class that has fewest
    rank: int
    condition: float  # largest over smallest singular value: how near the matrix is to a lower rank
    kruskal: Kruskal
    problems: tuple[str, ...]

    @property
    def identifiable(self) -> bool:
        return self.kruskal.holds

    def __str__(self) -> str:
        k = self.kruskal
        sums = f"Kruskal: {k.views} x {k.rank} = {k.total} {'>=' if k.holds else '<'} {k.needed}"
        verdict = "identifiable, up to the order of the classes" if k.holds else "not known to be identifiable"
        return f"T is {verdict} ({sums}){': ' * bool(self.problems)}{'; '.join(self.problems)}."


def identifiability(labels_per_class: int | Sequence[int], T: np.ndarray) -> Identifiability:
    """Theorem 2's premises for a (K, K) matrix: at least three labels in every class, and rank K; warns of what fails.

    >>> print(identifiability(4, np.array([[0.9, 0.1], [0.2, 0.8]])))
    T is identifiable, up to the order of the classes (Kruskal: 4 x 2 = 8 >= 7).
    """
    matrix = _matrix(T)
    classes = len(matrix)
    counts = as_array(labels_per_class, "labels_per_class")
    if counts.dtype.kind not in "iu" or counts.shape not in ((), (classes,)) or (counts < 0).any():
        raise InputError(
            f"labels_per_class: expected a whole number from 0, or {classes} of them, one a class of T, got "
            f"{labels_per_class!r}. Count the labelled samples of each class."
        )
    fewest = int(counts.min())
    values = np.linalg.svd(matrix, compute_uv=False)
    rank = int(np.linalg.matrix_rank(matrix))
    problems = []
    if fewest < 3:
        where = f"class {int(counts.argmin())}" if counts.ndim else "a class"
        problems.append(f"{where} has {fewest} label{'s' * (fewest != 1)}, three are needed")
    if rank < classes:
        problems.append(f"T has rank {rank} with {classes} classes: some classes are called alike")
    condition = float(values[0] / values[-1]) if rank == classes else math.inf
    found = Identifiability(fewest, rank, condition, kruskal(matrix, max(fewest, 1)), tuple(problems))
    for problem in problems:
        warnings.warn(f"Theorem 2 does not apply: {problem}.", stacklevel=2)
    return found


class Binary(NamedTuple):
    """Two classes: how frequent +1 is, how often +1 is called -1, and how often -1 is called +1."""

    prior: float
    e_plus: float
    e_minus: float

    def law(self, labels: int) -> np.ndarray:
        """P(exactly j of so many independent labels of one sample are +1), j = 0 .. labels."""
        count = np.arange(labels + 1)
        ways = np.array([math.comb(labels, j) for j in count])
        plus, minus = 1 - self.e_plus, self.e_minus
        return ways * (
            self.prior * plus**count * (1 - plus) ** (labels - count)
            + (1 - self.prior) * minus**count * (1 - minus) ** (labels - count)
        )

    def twin(self, prior: float) -> Binary:
        """Other parameters, with this prior, under which two labels of a sample have the very same law.

        Two labels tell the mean m of P(+1 | truth) and its variance v; with prior q these are met by
        m + sqrt(v (1 - q) / q) and m - sqrt(v q / (1 - q)), or with both signs turned, where the former are none.

        >>> np.round(Binary(0.7, 0.2, 0.2).twin(0.8), 4)
        array([0.8   , 0.2425, 0.0701])
        """
        if not 0 < prior < 1:
            raise InputError(f"prior={prior} must be above 0 and below 1: with one class there is nothing to confuse.")
        plus, minus = 1 - self.e_plus, self.e_minus
        mean = self.prior * plus + (1 - self.prior) * minus
        variance = self.prior * (1 - self.prior) * (plus - minus) ** 2
        up, down = math.sqrt(variance * (1 - prior) / prior), math.sqrt(variance * prior / (1 - prior))
        for first, second in ((mean + up, mean - down), (mean - up, mean + down)):
            if 0 <= first <= 1 and 0 <= second <= 1:
                return Binary(prior, 1 - first, second)
        raise InputError(f"prior={prior} has no twin of {self}: it would need a probability outside [0, 1].")


def _numbers(values: np.ndarray, name: str) -> np.ndarray:
    array = as_array(values, name)
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name}: expected numbers, got {array.dtype}.")
    return array.astype(np.float64)


def _matrix(T: np.ndarray) -> np.ndarray:
    matrix = _numbers(T, "T")
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] >= 2
    if not (square and (matrix >= 0).all() and np.allclose(matrix.sum(1), 1, atol=1e-3)):  # NaN fails both
        raise InputError(
            f"T: expected a (K, K) matrix of probabilities whose rows sum to 1, got shape {matrix.shape}"
            f"{f' with rows summing to {matrix.sum(1).round(3).tolist()}' if square else ''}. "
            "T[i, j] is the probability that a sample of class i is called j."
        )
    return matrix
