"""Losses, alignment and fairness against cases worked by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from by_hand import LOG

from instant.alignment import Alignment, rescaled
from instant.fairness import Fairness
from instant.learner import commit
from instant.losses import cross_entropy, forward_corrected, hard, one_hot, sharpen, squared_error

# -- losses -----------------------------------------------------------------------------------------------------------


def test_losses_by_hand() -> None:
    logits = torch.tensor([[0.8, 0.2]]).log()
    target = torch.tensor([[0.5, 0.5]])
    assert float(cross_entropy(logits, target)) == pytest.approx(-0.5 * LOG(0.8) - 0.5 * LOG(0.2))
    assert float(squared_error(logits, target)) == pytest.approx((0.09 + 0.09) / 2)
    # T = [[.9, .1], [.3, .7]], k = 0: column (.9, .3); (T^T p)_0 = .9 * .8 + .3 * .2 = .78
    assert float(forward_corrected(logits, torch.tensor([[0.9, 0.3]]))) == pytest.approx(-LOG(0.78))


def test_forward_correction_with_identity_is_plain_cross_entropy() -> None:
    logits = torch.randn(5, 3)
    labels = torch.tensor([0, 1, 2, 1, 0])
    torch.testing.assert_close(
        forward_corrected(logits, torch.eye(3)[labels]), F.cross_entropy(logits, labels, reduction="none")
    )


def test_a_column_of_zeros_is_a_large_loss_and_no_nan() -> None:
    """T may hold that nobody is called k: -log 1e-12, and a gradient that a step survives."""
    logits = torch.tensor([[0.8, 0.2]]).log().requires_grad_()
    loss = forward_corrected(logits, torch.zeros(1, 2))
    assert float(loss.detach()) == pytest.approx(-LOG(1e-12))
    loss.sum().backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.zeros(1, 2))


def test_sharpen_is_the_temperature_of_the_logits() -> None:
    logits = torch.randn(4, 5)
    torch.testing.assert_close(sharpen(F.softmax(logits, 1), 0.4), F.softmax(logits / 0.4, 1))
    assert one_hot(torch.tensor([2, 0]), 3).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert hard(torch.tensor([[0.3, 0.7]])).tolist() == [[0, 1]]


# -- alignment --------------------------------------------------------------------------------------------------------


def test_alignment_starts_from_the_first_batch_and_then_follows() -> None:
    align = Alignment(2, momentum=0.9)
    first = torch.tensor([[0.9, 0.1], [0.7, 0.3]])  # mean (.8, .2)
    aligned, state = align(first, first)
    torch.testing.assert_close(state["model"], torch.tensor([0.8, 0.2]))
    # row 1: .9 * .5 / .8 = .5625, .1 * .5 / .2 = .25 -> .6923, .3077 ; row 2: .4375, .75 -> .3684, .6316
    expected = torch.tensor([[0.5625 / 0.8125, 0.25 / 0.8125], [0.4375 / 1.1875, 0.75 / 1.1875]])
    torch.testing.assert_close(aligned, expected, atol=1e-5, rtol=1e-5)
    commit(align, state)
    _, state = align(torch.tensor([[0.5, 0.5]]), first)
    torch.testing.assert_close(state["model"], torch.tensor([0.77, 0.23]))  # .9 * .8 + .1 * .5
    assert "target" not in state, "a uniform target does not move"


def test_alignment_target_follows_the_labelled_predictions() -> None:
    align = Alignment(2, learn_target=True, momentum=0.9)
    aligned, state = align(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.9, 0.1], [0.8, 0.2]]))
    torch.testing.assert_close(state["target"], torch.tensor([0.535, 0.465]))  # .9 * .5 + .1 * .85
    torch.testing.assert_close(aligned, torch.tensor([[0.535, 0.465]]))  # moved first, then used


def test_alignment_keeps_a_balanced_batch() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    torch.testing.assert_close(Alignment(2)(probs, probs)[0], probs)


def test_alignment_survives_classes_that_nobody_has() -> None:
    """Neither a class that is never predicted nor one that is not wanted makes 0 / 0."""
    sure = torch.tensor([[1.0, 0.0]])
    torch.testing.assert_close(Alignment(2)(sure, sure)[0], sure)  # 1 * .5 / 1 beside 0 * .5 / 0
    unwanted = rescaled(sure, torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5]))  # 1 * 0 / .5 beside 0 * 1 / .5
    torch.testing.assert_close(unwanted, sure)


# -- fairness ---------------------------------------------------------------------------------------------------------


def test_fairness_by_hand() -> None:
    fairness = Fairness(2, weight=1.0, momentum=0.5)
    probs = torch.tensor([[0.9, 0.1], [0.7, 0.3]])
    # p~ = .5 * .5 + .5 * (.8, .2) = (.65, .35) ; h~ = .5 * .5 + .5 * (1, 0) = (.75, .25)
    # N(p~ / h~) = (.8667, 1.4) / 2.2667
    strong = torch.tensor([[0.6, 0.4], [0.2, 0.8], [0.9, 0.1]])
    selected = torch.tensor([1.0, 1.0, 0.0])
    # pbar = (.4, .6), hbar = (.5, .5): N = (.4, .6)
    wanted = (0.65 / 0.75 / (0.65 / 0.75 + 1.4), 1.4 / (0.65 / 0.75 + 1.4))
    loss, state = fairness(probs, strong.log(), selected)
    assert float(loss) == pytest.approx(wanted[0] * LOG(0.4) + wanted[1] * LOG(0.6), rel=1e-5)
    torch.testing.assert_close(state["histogram"], torch.tensor([0.75, 0.25]))
    nothing, _ = fairness(probs, strong.log(), torch.zeros(3))
    assert float(nothing) == 0
    # two of three called 0: pbar = (1.7, 1.3) / 3, hbar = (2, 1) / 3, N = (.85, 1.3) / 2.15
    everybody, _ = fairness(probs, strong.log(), torch.ones(3))
    given = (0.85 / 2.15, 1.3 / 2.15)
    assert float(everybody) == pytest.approx(wanted[0] * LOG(given[0]) + wanted[1] * LOG(given[1]), rel=1e-5)
    light, _ = Fairness(2, weight=0.25, momentum=0.5)(probs, strong.log(), torch.ones(3))
    assert float(light) == pytest.approx(0.25 * float(everybody))


def test_fairness_of_one_row_leaves_the_other_classes_out() -> None:
    """Nobody is called 1: N(pbar/hbar) = (1, 0), where 0 is 1e-12 to the logarithm; and gradients are numbers."""
    logits = torch.tensor([[0.6, 0.4]]).log().requires_grad_()
    probs = torch.tensor([[0.9, 0.1], [0.1, 0.9]])  # p~ = h~ = (.5, .5), and so N(p~/h~)
    loss, _ = Fairness(2, weight=1.0)(probs, logits, torch.ones(1))
    assert float(loss.detach()) == pytest.approx(0.5 * LOG(1e-12), rel=1e-5)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
