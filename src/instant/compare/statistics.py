"""What a few seeds say about two methods: means, paired differences, and whether they are more than luck.

The methods of a seed share its labelled samples and initial weights, so differences are taken seed by seed: what makes
a seed hard for all cancels. The interval is Student's over the seeds; it says nothing about other data, and the test
samples are the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

CONFIDENCE = 0.95
NOTHING = 1e-9  # below it, a spread is rounding


class Mean(NamedTuple):
    """A mean, the standard error of it, and of how many values; one value has no error."""

    value: float
    error: float | None
    seeds: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the mean of all seeds lies, with 95 % confidence; None where the seeds show no spread."""
        if self.error is None or self.error < NOTHING:
            return None
        reach = float(student.ppf(0.5 + CONFIDENCE / 2, self.seeds - 1)) * self.error
        return self.value - reach, self.value + reach


def mean_of(values: Sequence[float]) -> Mean:
    """Mean and standard error, from the deviation with n - 1.

    >>> mean_of([1.0, 2.0, 3.0])  # deviation 1, over the root of 3
    Mean(value=2.0, error=0.5773502691896258, seeds=3)
    >>> mean_of([4.0])
    Mean(value=4.0, error=None, seeds=1)
    """
    count = len(values)
    error = float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else None
    return Mean(float(np.mean(values)), error, count)


def paired(values: Mapping[int, float], reference: Mapping[int, float]) -> Mean | None:
    """The mean difference over the seeds that both have; None where they share none.

    >>> paired({0: 0.5, 1: 0.75, 2: 1.0}, {0: 0.25, 1: 0.25})
    Mean(value=0.375, error=0.125, seeds=2)
    """
    common = [seed for seed in values if seed in reference]
    return mean_of([values[seed] - reference[seed] for seed in common]) if common else None


def beyond_luck(difference: Mean) -> bool | None:
    """Does the interval leave 0 out? None where that cannot be told: one seed, or no spread."""
    if (interval := difference.interval) is None:
        return None
    low, high = interval
    return low > 0 or high < 0


def verdict(method: str, reference: str, difference: Mean | None) -> str:
    """Which of two methods is ahead, by how much, and whether that is more than the seeds explain.

    >>> verdict("uda", "instant", Mean(-0.012, None, 1))
    'instant is ahead of uda by 1.20 points; with one seed nothing can be said about luck.'
    """
    if difference is None:
        return f"{method} and {reference} have no finished seed in common: nothing can be said about them yet."
    points, count = 100 * abs(difference.value), difference.seeds
    level = points < 100 * NOTHING
    first, second = (method, reference) if difference.value > 0 else (reference, method)
    words = f"{first} and {second} are equal" if level else f"{first} is ahead of {second} by {points:.2f} points"
    if count == 1:
        return f"{words}; with one seed nothing can be said about luck."
    if (interval := difference.interval) is None:
        same = "" if level else " the same"
        return f"{words},{same} on each of {count} seeds: without any spread nothing can be said about luck."
    low, high = sorted(100 * math.copysign(1, difference.value) * end for end in interval)
    more = "more" if beyond_luck(difference) else "no more"
    words += " on average" if not level else ""
    return f"{words} over {count} seeds (95 % interval {low:+.2f} to {high:+.2f}): {more} than the seeds explain."
