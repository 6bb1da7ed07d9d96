"""`check_rule`, and training itself, find what is wrong with a rule and say it in a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from by_hand import seen
from runs import points

from instant.engine.fit import fit
from instant.errors import InputError
from instant.losses import hard
from instant.match import Match, Supervised
from instant.rules import (
    Rule,
)
from instant.testing import check_rule
from instant.types import Evidence, Selection


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
        rule(Evidence(*(part if part is None else part.to("meta") for part in seen([[0.7, 0.3]]))))


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
