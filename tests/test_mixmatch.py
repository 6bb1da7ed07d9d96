"""MixMatch against cases worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from by_hand import LOG, SUPERVISED, run, views

from instant import random
from instant.mixmatch import MixMatch


def test_mixmatch_without_mixing_is_sharpened_self_consistency() -> None:
    method = MixMatch(weight=4.0)
    method.quantiles.fill_(1.0)  # lam = 1: nothing is mixed
    given = views([[0.6, 0.4]], [0], [[0.9, 0.1]], [[0.7, 0.3]])
    q = 0.8**2 / (0.8**2 + 0.2**2)  # mean of the views (.8, .2), sharpened
    out = run(method, given)
    assert float(out.loss) == pytest.approx(SUPERVISED + 4 * ((0.9 - q) ** 2 + (0.7 - q) ** 2) / 2, rel=1e-4)


def test_mixmatch_counts_every_row_with_its_guess() -> None:
    method = MixMatch(weight=4.0)
    method.quantiles.fill_(1.0)
    out = run(method, views([[0.6, 0.4], [0.9, 0.1]], [0, 1], [[0.3, 0.7]], [[0.1, 0.9]]))
    assert float(out.metrics["loss_supervised"]) == pytest.approx((SUPERVISED - LOG(0.1)) / 2)  # the labelled mean
    assert out.decision.label.tolist() == [1]
    assert out.decision.confidence.tolist() == pytest.approx([0.8**2 / (0.8**2 + 0.2**2)])
    assert (out.decision.weight.tolist(), out.decision.threshold.tolist()) == ([1], [0])


def test_mixmatch_mixes_a_row_and_its_target_with_the_same_partner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and targets 0 -> 1 -> 2 -> 0, each .8 of its own."""
    method = MixMatch(weight=4.0)
    method.quantiles.fill_(0.8)
    monkeypatch.setattr(random, "permutations", lambda key, count: torch.tensor([[1, 2, 0]]))
    given = views([[0.6, 0.4]], [0], [[0.9, 0.1]], [[0.7, 0.3]])
    z = [torch.tensor(row).log() for row in ([0.6, 0.4], [0.9, 0.1], [0.7, 0.3])]
    q = 0.8**2 / (0.8**2 + 0.2**2)
    y = [torch.tensor([1.0, 0.0]), torch.tensor([q, 1 - q]), torch.tensor([q, 1 - q])]
    mixed = [(0.8 * z[i] + 0.2 * z[j], 0.8 * y[i] + 0.2 * y[j]) for i, j in ((0, 1), (1, 2), (2, 0))]
    supervised = -(mixed[0][1] * mixed[0][0].log_softmax(0)).sum()
    errors = [((logits.softmax(0) - target) ** 2).mean() for logits, target in mixed[1:]]
    assert float(run(method, given).loss) == pytest.approx(float(supervised + 4 * sum(errors) / 2), rel=1e-4)


def test_mixmatch_share_follows_beta() -> None:
    method = MixMatch(alpha=0.5)
    torch.testing.assert_close(method.quantiles + method.quantiles.flip(0), torch.ones(4096))  # lam, or 1 - lam
    assert method.share(random.root(0)).shape == (1,), "one share a step"
    shares = torch.cat([method.share(random.fold(random.root(0), step)) for step in range(4000)])
    assert 0.5 <= float(shares.min()) < 0.51
    # arcsine law: P(max(lam, 1 - lam) > t) = 1 - (4 / pi) (asin(sqrt t) - pi / 4)
    above = 1 - 4 / math.pi * (math.asin(math.sqrt(0.9)) - math.pi / 4)
    assert float((shares > 0.9).float().mean()) == pytest.approx(above, abs=0.03)
