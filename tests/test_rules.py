"""Each rule against a case worked by hand, and all of them against the public contract."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from by_hand import seen

from instant.learner import commit
from instant.rules import (
    Curriculum,
    Decaying,
    Fixed,
    InstanceDependent,
    Relative,
    Rule,
    SelfAdaptive,
    TruncatedGaussian,
    instance_margin,
)
from instant.testing import check_rule

RULES = {
    "fixed": lambda: Fixed(0.8),
    "relative": lambda: Relative(0.95),
    "relative of unlabelled": lambda: Relative(0.9, of_unlabelled=True),
    "decaying": lambda: Decaying(warmup=1, period=2),
    "curriculum": lambda: Curriculum(4, 100, 0.8),
    "self-adaptive": lambda: SelfAdaptive(4),
    "gaussian": lambda: TruncatedGaussian(4),
    "instance": lambda: InstanceDependent(Relative(0.9)),
    "instance, release": lambda: InstanceDependent(
        Relative(0.9, of_unlabelled=True), clip=0.99, resoftmax=0.5, warmup=2
    ),
    "instance over a rule with state": lambda: InstanceDependent(SelfAdaptive(4)),
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_keeps_the_contract(name: str) -> None:
    check_rule(RULES[name]())


def test_compiled_rule_equals_eager() -> None:
    check_rule(InstanceDependent(SelfAdaptive(4)), compiled=True)


def test_fixed() -> None:
    (weight, threshold), state = Fixed(0.8)(seen([[0.8, 0.2], [0.79, 0.21]]))
    assert weight.tolist() == [1, 0]
    torch.testing.assert_close(threshold, torch.tensor([0.8, 0.8]))
    assert state == {}


def test_relative_is_a_share_of_the_labelled_confidence() -> None:
    evidence = seen([[0.7, 0.3], [0.6, 0.4]], probs_l=[[0.9, 0.1], [0.3, 0.7]], y_l=[0, 1])
    # mean labelled confidence (0.9 + 0.7) / 2 = 0.8
    threshold, _ = Relative(0.9).threshold(evidence)
    assert float(threshold) == pytest.approx(0.72)
    # mean unlabelled confidence (0.7 + 0.6) / 2 = 0.65
    threshold, _ = Relative(0.9, of_unlabelled=True).threshold(evidence)
    assert float(threshold) == pytest.approx(0.585)


def test_dash_tracks_the_labelled_loss_then_decays_to_its_floor() -> None:
    rule = Decaying(warmup=2, period=10, gamma=2.0, scale=1.5, floor=0.05, momentum=0.5)
    probs_l, y_l = [[0.5, 0.5]], [0]  # labelled loss log 2
    for step in range(2):
        (weight, _), state = rule(seen([[1.0, 0.0]], probs_l, y_l, step=step))
        assert weight.tolist() == [0], "nothing is kept during the warm-up"
        commit(rule, state)
    assert float(rule.rho_0) == pytest.approx(math.log(2))
    _, state = rule(seen([[0.9, 0.1]], [[0.01, 0.99]], y_l, step=2))
    commit(rule, state)
    assert float(rule.rho_0) == pytest.approx(math.log(2)), "the warm-up is over"
    rho = [float(rule.rho(torch.tensor(step))) for step in (0, 2, 11, 12, 22, 1000)]
    start = 1.5 * math.log(2)
    assert rho == pytest.approx([start, start, start, start / 2, start / 4, 0.05])


def test_dash_knows_the_labelled_loss_after_a_short_warm_up() -> None:
    """Ten steps at log 2, five at log 1.25: with 0.99, as in long runs, rho_0 would still be at the former."""
    rule = Decaying(warmup=15, period=30)
    for step in range(15):
        right = 0.5 if step < 10 else 0.8
        commit(rule, rule(seen([[1.0, 0.0]], [[right, 1 - right]], [0], step=step))[1])
        assert step or float(rule.rho_0) == pytest.approx(math.log(2)), "it starts from the first step's"
    share = (1 - 5 / 15) ** 5  # what five steps leave of what was before
    assert float(rule.rho_0) == pytest.approx(share * math.log(2) + (1 - share) * math.log(1.25))


@pytest.mark.parametrize(("warmup", "kept"), [(0, 0), (4, 0), (10, 1 / 2), (400, 79 / 80), (500, 0.99), (5120, 0.99)])
def test_dash_forgets_a_fifth_of_its_warm_up_or_a_hundredth_a_step(warmup: int, kept: float) -> None:
    assert Decaying(warmup=warmup, period=10).momentum == pytest.approx(kept)


def test_dash_takes_certainty_for_a_loss_of_nought_and_certain_error_for_a_large_one() -> None:
    rule = Decaying(warmup=1, period=10)
    (weight, _), _ = rule(seen([[1.0, 0.0]], step=10_000))
    assert weight.tolist() == [1], "0 * log 0 would be no number"
    _, state = rule(seen([[1.0, 0.0]], [[1.0, 0.0]], [1], step=0))
    assert float(state["rho_0"]) == pytest.approx(-math.log(1e-12))


def test_dash_keeps_easy_rows_and_sharpens_until_the_floor() -> None:
    rule = Decaying(warmup=0, period=10, floor=0.05, scale=1.0)
    commit(rule, {"rho_0": torch.tensor(0.4)})
    evidence = seen([[0.8, 0.2], [0.6, 0.4]], step=0)
    # p^(1/0.5) normalised: .64/.68 and .04/.68 ; .36/.52 and .16/.52
    soft = torch.tensor([[0.64 / 0.68, 0.04 / 0.68], [0.36 / 0.52, 0.16 / 0.52]])
    torch.testing.assert_close(rule.target(evidence.probs, evidence), soft)
    # losses: -.9412 log .8 - .0588 log .2 = .3047 ; -.6923 log .6 - .3077 log .4 = .6356
    (weight, threshold), _ = rule(evidence)
    assert weight.tolist() == [1, 0]
    torch.testing.assert_close(threshold, torch.full((2,), math.exp(-0.4)))
    late = evidence._replace(step=torch.tensor(10_000))
    torch.testing.assert_close(rule.target(late.probs, late), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    (weight, _), _ = rule(seen([[0.96, 0.04], [0.95, 0.05]], step=10_000))  # -log .96 = .041, -log .95 = .0513
    assert weight.tolist() == [1, 0]


def test_flexmatch_counts_the_last_confident_prediction_of_every_sample() -> None:
    rule = Curriculum(2, 10, 0.8)
    commit(rule, {"last": torch.tensor([0, 0, 0, 0, 0, 1, 1, -1, -1, -1])})
    # counts 5 and 2, unused 3, the largest is 5: b = 1 and .4 -> .8 * 1 / 1 and .8 * .4 / 1.6 = .2
    evidence = seen([[0.7, 0.3], [0.45, 0.55], [0.1, 0.9]], index=[7, 0, 8])
    (weight, threshold), state = rule(evidence)
    torch.testing.assert_close(threshold, torch.tensor([0.8, 0.2, 0.2]))
    assert weight.tolist() == [0, 1, 1]
    # only the third was confident (>= .8): sample 8 becomes class 1, sample 0 keeps its old one
    assert state["last"].tolist() == [0, 0, 0, 0, 0, 1, 1, -1, 1, -1]


def test_flexmatch_is_sure_from_its_value_on() -> None:
    _, state = Curriculum(2, 2, 0.75).threshold(seen([[0.75, 0.25], [0.7, 0.3]]))
    assert state["last"].tolist() == [0, -1]


def test_flexmatch_starts_with_the_unused_as_the_largest() -> None:
    rule = Curriculum(2, 10, 0.8)
    threshold, _ = rule.threshold(seen([[0.9, 0.1]]))
    assert threshold.tolist() == [0]
    commit(rule, {"last": torch.tensor([0, 0, 1] + [-1] * 7)})
    threshold, _ = rule.threshold(seen([[0.9, 0.1], [0.1, 0.9]]))
    # counts 2 and 1, unused 7: b = 2/7 and 1/7 -> .8 * b / (2 - b)
    torch.testing.assert_close(threshold, torch.tensor([0.8 * 2 / 12, 0.8 * 1 / 13]))


@pytest.mark.parametrize("probs", [[[0.9, 0.1], [0.6, 0.4]], [[0.6, 0.4], [0.9, 0.1]]])
def test_flexmatch_keeps_what_is_sure_of_a_sample_that_a_batch_holds_twice(probs: list[list[float]]) -> None:
    _, state = Curriculum(2, 3, 0.8).threshold(seen(probs, index=[1, 1]))
    assert state["last"].tolist() == [-1, 0, -1]


def test_freematch_moves_before_it_decides() -> None:
    rule = SelfAdaptive(2, momentum=0.5)
    evidence = seen([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
    # tau: .5 * .5 + .5 * (.9 + .6 + .7) / 3 = .61667 ; p~: .5 * .5 + .5 * (.6, .4) = (.55, .45)
    (weight, threshold), state = rule(evidence)
    tau, ratio = 0.25 + 0.5 * 2.2 / 3, 0.45 / 0.55
    torch.testing.assert_close(threshold, torch.tensor([tau, tau, tau * ratio]))
    assert weight.tolist() == [1, 0, 1]
    assert float(state["tau"]) == pytest.approx(tau)
    torch.testing.assert_close(state["model"], torch.tensor([0.55, 0.45]))


def test_softmatch_weights_by_a_truncated_gaussian() -> None:
    rule = TruncatedGaussian(2, momentum=0.5)
    evidence = seen([[0.9, 0.1], [0.5, 0.5]])
    # mu = .5 * .5 + .5 * .7 = .6 ; var = .5 * 1 + .5 * .08 = .54 ; weight of .5: exp(-.01 / (2 * .54 / 4))
    (weight, threshold), state = rule(evidence)
    torch.testing.assert_close(weight, torch.tensor([1.0, math.exp(-0.01 / 0.27)]))
    torch.testing.assert_close(threshold, torch.tensor([0.6, 0.6]))
    assert float(state["var"]) == pytest.approx(0.54)
    # One row has no variance of its own: 0, where the unbiased one would be no number. var = .5 * 1
    assert float(rule(seen([[0.9, 0.1]]))[1]["var"]) == 0.5
    # Three have the unbiased one: (.04 + .04 + 0) / 2. var = .5 * 1 + .5 * .04
    assert float(rule(seen([[0.9, 0.1], [0.5, 0.5], [0.7, 0.3]]))[1]["var"]) == pytest.approx(0.52)


def test_softmatch_with_other_sigmas_and_without_any_spread() -> None:
    """mu = .7, var = .08; of one row, followed at once, var = 0: it is at mu and has full weight."""
    (weight, _), _ = TruncatedGaussian(2, sigmas=3.0, momentum=0.0)(seen([[0.9, 0.1], [0.5, 0.5]]))
    torch.testing.assert_close(weight, torch.tensor([1.0, math.exp(-0.04 / (2 * 0.08 / 9))]))
    (weight, _), _ = TruncatedGaussian(2, momentum=0.0)(seen([[0.9, 0.1]]))
    assert weight.tolist() == [1]


PROBS, INFLOW = [[0.7, 0.2, 0.1], [0.3, 0.6, 0.1]], [[0.9, 0.1, 0.3], [0.2, 0.8, 0.0]]
# rows: .9 * .2 + (.1 * .2 + .3 * .1) = .23 ; .8 * .3 + (.2 * .3 + 0 * .1) = .30
MARGINS = [0.23, 0.30]


def test_instance_margin_by_hand() -> None:
    torch.testing.assert_close(instance_margin(torch.tensor(PROBS), torch.tensor(INFLOW)), torch.tensor(MARGINS))


def test_whatever_t_is_the_margin_is_at_most_twice_what_the_first_class_leaves() -> None:
    """So no T refuses a sample above (kappa + 2) / 3: docs/cifar10.md rests on it."""
    generator = torch.Generator().manual_seed(0)
    probs = F.softmax(6 * torch.randn(2000, 5, generator=generator), dim=1)
    for inflow in (torch.rand(2000, 5, generator=generator), torch.ones(2000, 5), torch.zeros(2000, 5)):
        margin = instance_margin(probs, inflow)
        assert (margin >= -1e-6).all()
        assert (margin <= 2 * (1 - probs.amax(1)) + 1e-6).all()
    two = torch.tensor([[0.9, 0.1]])
    torch.testing.assert_close(instance_margin(two, torch.ones(1, 2)), torch.tensor([0.2]))  # the bound is reached


def test_instance_margin_of_a_sure_sample_is_no_rounding() -> None:
    logits, inflow = torch.tensor([[20.0, 2.0, 1.0]]), torch.tensor([[0.9, 0.3, 0.2]])
    p = torch.softmax(logits.double(), 1)[0]
    expected = 0.9 * p[1] + 0.3 * p[1] + 0.2 * p[2]
    found = instance_margin(torch.softmax(logits, 1), inflow)
    torch.testing.assert_close(found, expected[None].float(), rtol=1e-4, atol=0)


def test_instance_margin_with_identity_is_the_runner_up() -> None:
    probs = torch.tensor(PROBS)
    identity = torch.eye(3)[probs.argmax(1)]
    torch.testing.assert_close(instance_margin(probs, identity), torch.tensor([0.2, 0.3]))


def test_instance_threshold_adds_kappa() -> None:
    rule = InstanceDependent(Relative(0.5))
    (weight, threshold), _ = rule(seen(PROBS, [[0.9, 0.05, 0.05]], inflow=INFLOW))  # kappa .45
    torch.testing.assert_close(threshold, torch.tensor([0.68, 0.75]))
    assert weight.tolist() == [1, 0]


def test_instance_rule_is_strict() -> None:
    probs, identity = [[0.75, 0.25], [0.875, 0.125]], [[1.0, 0.0], [1.0, 0.0]]  # margins .25 and .125, exact
    (weight, threshold), _ = InstanceDependent(Fixed(0.5))(seen(probs, inflow=identity))
    assert threshold.tolist() == [0.75, 0.625]
    assert weight.tolist() == [0, 1], "0.75 is not above 0.75"


def test_instance_threshold_is_clipped() -> None:
    probs, inflow = [[0.999, 0.001]], [[1.0, 0.9]]
    for clip in (1.0, 0.99):
        (weight, threshold), _ = InstanceDependent(Fixed(0.999), clip=clip)(seen(probs, inflow=inflow))
        assert threshold.tolist() == pytest.approx([clip])
        assert weight.tolist() == [clip < 0.999]
    assert InstanceDependent(Fixed(0.999)).threshold(seen(probs, inflow=inflow))[0].tolist() == [1], "the paper's"


def test_release_applies_a_second_softmax_and_warms_up() -> None:
    rule = InstanceDependent(Fixed(0.4), resoftmax=0.5, warmup=5)
    (_, threshold), _ = rule(seen(PROBS, inflow=INFLOW, step=4))
    torch.testing.assert_close(threshold, torch.tensor([0.4, 0.4]))
    # softmax(2 * (.7, .2, .1)) = (4.0552, 1.4918, 1.2214) / 6.7684
    top, second, third = 4.0552 / 6.7684, 1.4918 / 6.7684, 1.2214 / 6.7684
    assert top == pytest.approx(0.599, abs=1e-3)
    (_, threshold), _ = rule(seen(PROBS, inflow=INFLOW, step=5))
    assert float(threshold[0]) == pytest.approx(0.4 + 0.9 * second + 0.1 * second + 0.3 * third, abs=1e-4)


def test_a_rule_without_a_threshold_says_so() -> None:
    with pytest.raises(TypeError, match="must define threshold"):
        Rule()(seen([[0.5, 0.5]]))
