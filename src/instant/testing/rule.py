"""Does a rule keep its promises?"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from instant import random
from instant.labelling.judge import hold
from instant.learner import commit
from instant.rules import InstanceDependent, Relative, Rule
from instant.testing.shared import (
    CLASSES,
    LABELLED,
    POOL,
    ROWS,
    SAVED,
    backend,
    close,
    in_one_sentence,
    kind_of,
    moves_whole,
    no_waiting,
    same,
    state_fits,
    tensors_of,
)
from instant.types import Evidence, Selection, State


def make_evidence(
    *, classes: int = CLASSES, rows: int = ROWS, pool: int = POOL, step: int = 0, seed: int = 0
) -> Evidence:
    """Plausible input of a rule: random probabilities, labels, pool positions and a column of T(x)."""
    key = random.fold(random.root(seed), step)

    def probs(stream: int, n: int) -> Tensor:
        return F.softmax(3 * random.normal(random.fold(key, stream), n, classes), dim=1)

    index = random.permutations(random.fold(key, 2), pool)[0, :rows]
    inflow = random.uniform(random.fold(key, 3), rows, classes)
    y_l = torch.arange(LABELLED) % classes
    return Evidence(probs(0, rows), probs(1, LABELLED), y_l, index, torch.tensor(step), inflow)


def check_rule(rule: Rule, *, classes: int = CLASSES, pool: int = POOL, compiled: bool = False) -> None:
    """Raise AssertionError with a sentence when a rule breaks the contract of `instant.rules.Rule`.

    Checked over three steps: shapes and ranges, answers that do not depend on the order of the rows, nothing written in
    place, next state that fits the rule's buffers, also after a batch in which a class has no rows, a round trip of
    that state, no host synchronisation, no tensor that stays on the CPU, and (with `compiled`) that the compiled rule
    equals the eager one. With any `momentum` at 1, a row alone must be decided as it is among others: labels are asked
    for one by one.
    """
    assert isinstance(rule, Rule), f"check_rule takes a rule, as in check_rule(MyRule()), got {rule!r:.60}"
    name = type(rule).__name__
    fresh = copy.deepcopy(rule)  # as a resumed run builds it, before it has seen anything
    for step in range(3):
        seen = make_evidence(classes=classes, pool=pool, step=step)
        before, shown = tensors_of(rule), copy.deepcopy(seen)
        selection, state = _ask(rule, seen, name)
        same(seen._asdict(), shown._asdict(), f"{name}: it wrote into what it was shown; make a copy instead")
        for field, column in selection._asdict().items():
            assert not column.requires_grad, f"{name}: the {field} must be detached"
            assert bool(torch.isfinite(column).all()), f"{name}: a {field} is not finite"
        assert bool(((selection.weight >= 0) & (selection.weight <= 1)).all()), f"{name}: a weight left [0, 1]"
        same(tensors_of(rule), before, f"{name}: forward wrote its state in place; return it instead")
        state_fits(rule, state, name)
        sentence = f"{name}: asked twice it decides differently; return what it remembers, and draw no random numbers"
        same(_answers(rule, seen, name), _named(selection, state), sentence)

        flipped = Evidence(*(part.flip(0) if part.ndim else part for part in seen if part is not None))
        turned, moved = _ask(rule, flipped, name)
        answers = _named(Selection(*(column.flip(0) for column in turned)), moved)
        sentence = f"{name}: its answer depends on the order of the rows"
        close(answers, _named(selection, state), sentence, rtol=1e-5, atol=1e-6)
        _misses_classes(rule, seen, name)
        commit(rule, state)
    fresh.load_state_dict(rule.state_dict())
    for step in range(3, 6):
        seen = make_evidence(classes=classes, pool=pool, step=step)
        selection, state = _ask(rule, seen, name)
        same(_answers(fresh, seen, name), _named(selection, state), f"{name}: {SAVED}")
        for one in (fresh, rule):
            commit(one, state)
    twin = copy.deepcopy(rule)
    with in_one_sentence(name), no_waiting(name):
        twin(seen)
    there = Evidence(*(part.to("meta") for part in seen if part is not None))
    moves_whole(name, rule, lambda moved: _named(*moved(there)).values())
    if compiled:
        torch._dynamo.reset()
        fast = torch.compile(rule, fullgraph=True, dynamic=False, backend=backend())
        found, expected = _answers(fast, seen, name), _answers(rule, seen, name)
        close(found, expected, f"{name}: compiled it decides differently", rtol=1e-5, atol=1e-6)
    _stands_alone(rule, seen, name)


def _ask(rule: Callable[..., Any], seen: Evidence, name: str) -> tuple[Selection, State]:
    """The rule's answer, once it has the form of one."""
    with in_one_sentence(name):
        found = rule(seen)
    well_formed = isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Selection)
    assert well_formed, f"{name}: forward must return Selection(weight, threshold), state; got {kind_of(found)}"
    selection, state = found
    assert isinstance(state, dict), f"{name}: forward must return its state as a dict, got {kind_of(state)}"
    rows = (len(seen.probs),)
    for field, column in selection._asdict().items():
        assert isinstance(column, Tensor), f"{name}: the {field} must be a tensor, got {kind_of(column)}"
        assert column.shape == rows, f"{name}: the {field} must have shape {rows}, got {tuple(column.shape)}"
    return selection, state


def _answers(rule: Callable[..., Any], seen: Evidence, name: str) -> dict[str, Tensor]:
    return _named(*_ask(rule, seen, name))


def _named(selection: Selection, state: State) -> dict[str, Tensor]:
    """All that a rule answers, by name."""
    return {**selection._asdict(), **{f"state {key}": value for key, value in state.items()}}


def _misses_classes(rule: Rule, seen: Evidence, name: str) -> None:
    """A step may have no row of a class, labelled or called so: a mean over none would be NaN from then on."""
    probs, probs_l = (part.sort(dim=1, descending=True).values for part in (seen.probs, seen.probs_l))
    _, state = _ask(rule, seen._replace(probs=probs, probs_l=probs_l, y_l=torch.zeros_like(seen.y_l)), name)
    lost = next((key for key, value in state.items() if not bool(torch.isfinite(value).all())), None)
    assert lost is None, f"{name}: state {lost!r} is not finite after a batch in which a class has no rows"


def _stands_alone(rule: Rule, seen: Evidence, name: str) -> None:
    """Asked as `labelling.judge.standing` asks it, a row alone must be decided as it is among others."""
    still = copy.deepcopy(rule)
    with in_one_sentence(name):
        hold(still)
    base = still
    while isinstance(base, InstanceDependent):
        base = base.base
    if type(base) is Relative and base.of_unlabelled:
        return  # the one rule whose batch is replaced by the whole pool there
    together = _ask(still, seen, name)[0]
    assert seen.inflow is not None
    for row in range(4):
        one = slice(row, row + 1)
        alone = seen._replace(probs=seen.probs[one], index=seen.index[one], inflow=seen.inflow[one])
        expected = {field: column[one] for field, column in together._asdict().items()}
        sentence = (
            f"{name}: with its momentum at 1, as labels are asked for, its bar depends on the batch; take from the "
            "batch only through a buffer, as in mean.lerp(new, 1 - momentum), where momentum is the share that is kept"
        )
        close(_ask(still, alone, name)[0]._asdict(), expected, sentence, rtol=1e-5, atol=1e-6)
