"""Counter-based randomness: moments, independence across keys, equality of every way to run it."""

from __future__ import annotations

import math
import shutil

import pytest
import torch
from scipy import stats
from torch import Tensor

from instant import random
from instant.testing import no_waiting

N = 200_000
ROOT = random.root(0)


def chi_square(counts: Tensor) -> float:
    """How likely counts this uneven are when all are equally probable."""
    return float(stats.chisquare(counts.numpy()).pvalue)


def key_whose_first_word_is(word: int) -> Tensor:
    """Undo the mixing: bits(key, 1) = mix(mix(key[0]) ^ key[1])."""
    x = word
    x = _undo_shift(x, 15) * pow(0x735A2D97, -1, 2**32) % 2**32
    x = _undo_shift(x, 15) * pow(0x21F0AAAD, -1, 2**32) % 2**32
    x = _undo_shift(x, 16)
    inner = int(random._mix(torch.tensor(12345)))
    return torch.tensor([12345, inner ^ x])


def _undo_shift(y: int, by: int) -> int:
    x = y
    for _ in range(32 // by + 1):
        x = y ^ (x >> by)
    return x


# --- distributions --------------------------------------------------------------------------------------------


def test_words_of_a_key_are_uniform_and_never_repeat() -> None:
    words = random.bits(ROOT, N)
    assert len(words.unique()) == N
    for shift in (0, 8, 16, 24):
        assert chi_square(torch.bincount((words >> shift) & 255, minlength=256)) > 1e-4


def test_uniform_has_the_moments_of_the_uniform_distribution() -> None:
    u = random.uniform(ROOT, N).double()
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 1 / 2) < 5 * math.sqrt(1 / 12 / N)
    assert abs(u.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / N)  # variance of (u - 1/2)^2 is 1/80 - 1/144 = 1/180
    scaled = random.uniform(ROOT, N, low=-3.0, high=5.0).double()
    assert (scaled - (8 * u - 3)).abs().max() < 1e-6


def test_normal_has_the_moments_of_the_normal_distribution() -> None:
    z = random.normal(ROOT, N).double()
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        spread = math.prod(range(1, 2 * power, 2)) - moment**2  # E z^2k = 1 * 3 * ... * (2k - 1)
        assert abs((z**power).mean() - moment) < 5 * math.sqrt(spread / N)
    assert stats.kstest(z.numpy(), "norm").pvalue > 1e-4


def test_the_extreme_words_stay_in_range() -> None:
    top, bottom = key_whose_first_word_is(2**32 - 1), key_whose_first_word_is(0)
    assert int(random.bits(top, 1)) == 2**32 - 1
    assert int(random.bits(bottom, 1)) == 0
    assert float(random.uniform(bottom, 1)) == 0
    assert float(random.uniform(top, 1)) == 1 - 2**-24
    assert int(random.integers(top, 7, 1)) == 6
    assert int(random.integers(bottom, 7, 1)) == 0
    largest = stats.norm.ppf(1 - 2**-24)  # the middle of the last of 2^23 cells
    assert float(random.normal(top, 1)) == pytest.approx(largest, rel=1e-3)
    assert float(random.normal(bottom, 1)) == -float(random.normal(top, 1))


def test_integers_are_uniform() -> None:
    drawn = random.integers(ROOT, 7, N)
    assert set(drawn.tolist()) == set(range(7))
    assert chi_square(torch.bincount(drawn)) > 1e-4
    wide = random.integers(ROOT, 2**31, N)
    assert wide.min() >= 0
    assert 2**31 * 0.999 < wide.max() < 2**31


# --- permutations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 37])
def test_permutations_are_permutations(n: int) -> None:
    rows = random.permutations(ROOT, n, rows=20)
    assert torch.equal(rows.sort(dim=1).values, torch.arange(n).expand(20, n))


def test_permutations_are_numbered() -> None:
    rows = random.permutations(ROOT, 37, rows=6)
    assert torch.equal(random.permutations(ROOT, 37, rows=3, first=2), rows[2:5])
    assert not torch.equal(rows[0], rows[1])


def test_permutations_are_equally_likely() -> None:
    rows = random.permutations(ROOT, 4, rows=24_000)
    counts = torch.bincount((rows * torch.tensor([64, 16, 4, 1])).sum(1))
    assert int((counts > 0).sum()) == 24
    assert chi_square(counts[counts > 0]) > 1e-4


# --- keys -----------------------------------------------------------------------------------------------------


def test_fold_with_a_tensor_equals_fold_with_an_int() -> None:
    for number in (0, 1, 1023, 2**31, 2**32 - 1, 2**40 + 5):
        assert torch.equal(random.fold(ROOT, torch.tensor(number)), random.fold(ROOT, number))


def test_order_and_seed_decide_a_key() -> None:
    def fold(*numbers: int) -> list[int]:
        key = ROOT
        for number in numbers:
            key = random.fold(key, number)
        return key.tolist()

    assert fold(1, 2) != fold(2, 1)
    assert len({tuple(fold(a, b)) for a in range(30) for b in range(30)}) == 900
    seeds = (0, 1, 2**31, 2**32, 2**32 + 1, 2**63 - 1, 2**63)
    assert len({tuple(random.root(seed).tolist()) for seed in seeds}) == len(seeds)


STREAMS = {
    "steps": [random.fold(ROOT, step) for step in range(64)],
    "seeds": [random.root(seed) for seed in range(64)],
    "streams of a step": [random.fold(random.fold(ROOT, 5), stream) for stream in range(64)],
}


@pytest.mark.parametrize("kind", STREAMS)
def test_neighbouring_keys_are_independent(kind: str) -> None:
    n = 4096
    words = torch.stack([random.bits(key, n) for key in STREAMS[kind]])
    # 2^18 words out of 2^32: 8 pairs are equal by chance, two streams that overlap would share thousands
    assert words.numel() - len(words.unique()) < 40
    u = words.double() / 2**32 - 0.5
    correlation = torch.corrcoef(u) - torch.eye(64)
    assert correlation.abs().max() < 5.5 / math.sqrt(n)
    # The same draw of neighbouring keys: 64 values down a column, over 4,096 columns
    assert (u[:-1] * u[1:]).mean().abs() < 5 / 12 / math.sqrt(63 * n)


# --- ways to run ----------------------------------------------------------------------------------------------


def draw(key: Tensor, step: Tensor) -> tuple[Tensor, ...]:
    key = random.fold(key, step)
    return (
        random.bits(key, 50, 3),
        random.uniform(random.fold(key, 1), 100),
        random.integers(random.fold(key, 2), 10, 100),
        random.permutations(random.fold(key, 3), 20, rows=2, first=3),
        random.normal(random.fold(key, 4), 100),
    )


def test_compiled_equals_eager() -> None:
    step = torch.tensor(7)
    *exact, normal = draw(ROOT, step)
    backend = "inductor" if any(map(shutil.which, ("c++", "g++", "clang++"))) else "aot_eager"
    *fast, fast_normal = torch.compile(draw, fullgraph=True, dynamic=False, backend=backend)(ROOT, step)
    for found, expected in zip(fast, exact, strict=True):
        assert torch.equal(found, expected)
    torch.testing.assert_close(fast_normal, normal)  # the inverse error function rounds its own way


def test_a_draw_never_waits_for_the_device() -> None:
    with no_waiting("draw"):
        draw(ROOT, torch.tensor(7))


GOLDEN_ROOT = [965662561, 340428713]
GOLDEN_BITS = [1997824843, 3475696377, 4162683830, 3888806634]
GOLDEN_PERMUTATION = [6, 7, 4, 0, 5, 1, 3, 2]


def test_the_numbers_do_not_change() -> None:
    """Splits, golden curves and old checkpoints stand on these."""
    assert random.root(0).tolist() == GOLDEN_ROOT
    assert random.bits(ROOT, 4).tolist() == GOLDEN_BITS
    assert random.permutations(ROOT, 8)[0].tolist() == GOLDEN_PERMUTATION
