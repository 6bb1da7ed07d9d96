"""Each rule against a case worked by hand, and all of them against the public contract."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from runs import points

from instant.engine.fit import fit
from instant.errors import InputError
from instant.learner import commit
from instant.losses import hard
from instant.match import Match, Supervised
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
from instant.types import Evidence, Selection

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


def seen(probs, probs_l=((0.5, 0.5),), y_l=(0,), index=None, step=0, inflow=None) -> Evidence:
    probs = torch.tensor(probs)
    index = torch.arange(len(probs)) if index is None else torch.tensor(index)
    inflow = None if inflow is None else torch.tensor(inflow)
    return Evidence(probs, torch.tensor(probs_l), torch.tensor(y_l), index, torch.tensor(step), inflow)


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


class Leaky(Rule):
    """Breaks the contract: writes its state in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(0.5))

    def threshold(self, seen: Evidence):
        self.mean.mul_(0.9)
        return self.mean, {}


class Waiting(Rule):
    """Breaks the contract: waits for the device."""

    def threshold(self, seen: Evidence):
        return torch.full((), seen.probs.max().item()), {}


class Greedy(Rule):
    """Breaks the contract: depends on the order of rows."""

    def threshold(self, seen: Evidence):
        return torch.linspace(0, 1, len(seen.probs)), {}


class FirstRow(Rule):
    """Breaks the contract: which row comes first decides where the bar is next."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(0.25))

    def threshold(self, seen: Evidence):
        return self.mean, {"mean": self.mean.lerp(seen.probs_l[0].amax(), 0.1)}


class Overwriting(Rule):
    """Breaks the contract: what others are shown too is another afterwards."""

    def threshold(self, seen: Evidence):
        return seen.probs.clamp_(min=0.1).amax(1).mul(0.0), {}


class MeanOfNone(Rule):
    """Breaks the contract: the mean confidence of each class's rows is NaN for good once a step has none of a class."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((4,), 0.25))

    def threshold(self, seen: Evidence):
        confidence, label = seen.probs.max(1)
        called = hard(seen.probs)
        return self.mean[label], {"mean": self.mean.lerp(confidence @ called / called.sum(0), 0.1)}


class Following(Rule):
    """Breaks the contract: its momentum is the share that is new, so that 1 makes the bar the batch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.momentum = 0.01
        self.register_buffer("mean", torch.tensor(0.25))

    def threshold(self, seen: Evidence):
        mean = (1 - self.momentum) * self.mean + self.momentum * seen.probs.amax(1).mean()
        return mean, {"mean": mean}


class Averaging(Rule):
    """A bar that is moved before it is used; which name the share that is kept has, decides."""

    def __init__(self, name: str, share: object = 0.5) -> None:
        super().__init__()
        self.name = name
        self.register_buffer("mean", torch.tensor(0.25))
        if isinstance(share, torch.Tensor):
            self.register_buffer(name, share)
        else:
            setattr(self, name, share)

    def threshold(self, seen: Evidence):
        mean = self.mean.lerp(seen.probs.amax(1).mean(), 1 - getattr(self, self.name))
        return mean, {"mean": mean}


class Decay(Averaging):
    """Breaks the contract: a running mean that does not stand still where labels are asked for."""

    def __init__(self) -> None:
        super().__init__("decay")


class OfTheBatch(Rule):
    """Breaks the contract: a bar that is the batch's own."""

    def threshold(self, seen: Evidence):
        return seen.probs.amax(1).mean(), {}


class Remembering(Rule):
    """Breaks the contract: a running mean in a Python attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.tensor(0.25)

    def threshold(self, seen: Evidence):
        self.mean = self.mean.lerp(seen.probs.amax(1).mean(), 0.001)
        return self.mean, {}


class SetOnce(Rule):
    """Breaks the contract: what the first step showed, in a Python attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.first = None

    def threshold(self, seen: Evidence):
        if self.first is None:
            self.first = seen.probs_l.amax(1).mean()
        return self.first, {}


class Running(Rule):
    """Keeps the contract: the bar is a running mean, used and then moved."""

    def __init__(self, *, persistent: bool = True) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(0.25), persistent=persistent)

    def threshold(self, seen: Evidence):
        return self.mean, {"mean": self.mean.lerp(seen.probs.amax(1).mean(), 0.1)}


class Unsettable(Running):
    """Breaks the contract: a momentum that cannot be set."""

    momentum = property(lambda self: 0.9)


class Unsaved(Running):
    """Breaks the contract: a checkpoint leaves its running mean out."""

    def __init__(self) -> None:
        super().__init__(persistent=False)


class UnsavedInPlace(Unsaved):
    """Breaks the contract: writes a buffer that is not in state_dict, after it was used."""

    def threshold(self, seen: Evidence):
        before = self.mean.clone()
        self.mean.lerp_(seen.probs.amax(1).mean(), 1e-6)
        return before, {}


class NoNumber(Running):
    """Breaks the contract: its next state is no number."""

    def threshold(self, seen: Evidence):
        return torch.tensor(0.5), {"mean": self.mean * math.nan}


class Behind(Rule):
    """Breaks the contract: a tensor that is no buffer, which stays on the CPU when the rule goes to a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.by_class = torch.full((4,), 0.5)

    def threshold(self, seen: Evidence):
        return self.by_class[seen.probs.argmax(1)], {}


class Chance(Rule):
    """Breaks the contract: draws its bar."""

    def threshold(self, seen: Evidence):
        return torch.rand(()), {}


def returning(name: str, answer: Callable[[Evidence], object]) -> type[Rule]:
    """A rule of that name whose `threshold` returns that."""
    return type(name, (Rule,), {"threshold": lambda self, seen: answer(seen)})


BARS = {  # returned by `threshold`, in training as in the check
    returning("Bare", lambda seen: seen.probs.amax(1)): r"threshold must return threshold, state .*, got Tensor",
    returning("Three", lambda seen: (1, 2, 3)): "threshold must return threshold, state .*, got a tuple of 3",
    returning("NoState", lambda seen: (seen.probs.amax(1), None)): "state as a dict, {} for none, got NoneType",
    returning("Number", lambda seen: (0.5, {})): "its bar as a tensor, got float",
    returning("Column", lambda seen: (seen.probs.amax(1, True), {})): r"or one a row, .*got a bar of shape \(\d+, 1\)",
    returning(
        "ByClass", lambda seen: (seen.probs.mean(0), {})
    ): r"one number or one a row, .*got a bar of shape \(\d,\)",
}


class Pair(Rule):
    """Breaks the contract: a plain tuple for a Selection."""

    def forward(self, seen: Evidence):
        bar = seen.probs.amax(1)
        return (torch.ones_like(bar), bar), {}


class WholeRow(Rule):
    """Breaks the contract: a threshold for every class of every row."""

    def forward(self, seen: Evidence):
        return Selection(seen.probs.amax(1), seen.probs), {}


class Learnt(Rule):
    """Breaks the contract: its bar carries gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.bar = torch.nn.Parameter(torch.tensor(0.5))

    def threshold(self, seen: Evidence):
        return self.bar, {}


class Plain(Running):
    """Breaks the contract: a Python number for a buffer's next value."""

    def threshold(self, seen: Evidence):
        return self.mean, {"mean": 0.5}


class Mistaken(Rule):
    """A mistake of Python's own."""

    def threshold(self, seen: Evidence):
        return seen.probabilities, {}


WRONG = BARS | {
    Pair: r"must return Selection\(weight, threshold\), state; got \(\(Tensor, Tensor\), dict\)",
    WholeRow: r"the threshold must have shape \(32,\), got \(32, 4\)",
    Learnt: "the threshold must be detached",
    Plain: "state 'mean' must be a tensor, got float",
    Mistaken: "it stopped with AttributeError: 'Evidence' object has no attribute 'probabilities'",
    Leaky: "in place",
    Greedy: "order of the rows",
    FirstRow: r"order of the rows \(state mean",
    Overwriting: "wrote into what it was shown",
    MeanOfNone: "state 'mean' is not finite after a batch in which a class has no rows",
    Following: "momentum at 1, .* its bar depends on the batch",
    Decay: "its bar depends on the batch",
    OfTheBatch: "its bar depends on the batch",
    Unsettable: "it stopped with AttributeError: property 'momentum'",
    Remembering: "asked twice it decides differently",
    Chance: "asked twice it decides differently",
    SetOnce: "does not survive state_dict",
    Unsaved: "does not survive state_dict",
    UnsavedInPlace: "in place",
    NoNumber: "state 'mean' is not finite",
    Behind: "a tensor stays on the CPU .*register_buffer",
    returning("Constant", lambda seen: (torch.tensor(0.5), {})): "a tensor stays on the CPU .*register_buffer",
    returning("Anew", lambda seen: (torch.full((32,), 0.5), {})): "a tensor stays on the CPU .* device=x.device",
}


@pytest.mark.parametrize("rule", WRONG)
def test_check_rule_finds_what_is_wrong(rule: type[Rule]) -> None:
    with pytest.raises(AssertionError, match=rf"^{rule.__name__}[:.] ?.*{WRONG[rule]}") as caught:
        check_rule(rule())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("way", ["eager", "compiled"])
@pytest.mark.parametrize("rule", BARS)
def test_training_says_what_is_wrong_with_a_bar(rule: type[Rule], way: str) -> None:
    recipe, split = points("fixmatch", step=way)
    with pytest.raises(InputError, match=rf"^{rule.__name__}\..*{BARS[rule]}"):
        fit(recipe, split, method=lambda p: Match(rule()))


def test_a_bar_on_another_device_is_a_sentence() -> None:
    rule = returning("Constant", lambda seen: (torch.tensor(0.5), {}))()
    with pytest.raises(InputError, match=r"^Constant\.threshold must return its bar on .* meta, got one on cpu"):
        rule(Evidence(*(part if part is None else part.to("meta") for part in seen(PROBS))))


@pytest.mark.parametrize("given", [Running, "fixed", Supervised()])
def test_check_rule_says_what_is_no_rule(given: Any) -> None:
    with pytest.raises(AssertionError, match=r"^check_rule takes a rule, as in check_rule\(MyRule\(\)\), got "):
        check_rule(given)


def test_check_rule_leaves_a_right_rule_alone() -> None:
    check_rule(Running())
    check_rule(Averaging("momentum"))
    check_rule(Averaging("momentum", torch.tensor(0.5)))


COPIES = {
    "cpu": lambda probs: probs.cpu(),
    "to": lambda probs: probs.to("cpu", torch.float64).float(),
    "to, by name": lambda probs: probs.to(device="cpu"),
    "numpy": lambda probs: torch.from_numpy(probs.numpy()),
    "array": lambda probs: torch.from_numpy(np.asarray(probs)),
}


@pytest.mark.parametrize("copy", COPIES)
def test_check_rule_finds_a_copy_to_the_host(copy: str) -> None:
    """On a CPU too, where it is none."""
    rule = returning("Copying", lambda seen: (COPIES[copy](seen.probs).amax(1), {}))
    with pytest.raises(AssertionError, match=r"^Copying: the step waits for the device \(Tensor\."):
        check_rule(rule())


def test_a_move_to_where_the_rest_is_is_no_copy_to_the_host() -> None:
    check_rule(returning("Moving", lambda seen: (torch.tensor(0.5).to(seen.probs.device), {}))())


def test_check_rule_finds_a_host_synchronisation() -> None:
    with pytest.raises(AssertionError, match="waits for the device"):
        check_rule(Waiting())
