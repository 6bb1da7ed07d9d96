"""Conformance checks for rules and methods, ours and yours: the `check_estimator` of this package.

from instant.testing import check_rule, check_method
check_rule(MyRule())
check_method(my_method)                      # a function of algorithms.py's form, or its name
"""

from __future__ import annotations

import copy
import dataclasses
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.overrides import TorchFunctionMode

from instant import random
from instant.backbones import build
from instant.engine.metrics import check_decision, check_metrics
from instant.errors import InputError
from instant.labelling.judge import hold
from instant.learner import Learner, commit
from instant.methods import build_method, find_method, name_of
from instant.rules import InstanceDependent, Relative, Rule
from instant.types import Decision, Evidence, Method, MethodFunction, Output, Problem, Selection, State, Views

CLASSES, FEATURES, LABELLED, ROWS, POOL, STEPS = 4, 8, 16, 32, 100, 400
SAVED = "its state does not survive state_dict; keep it in buffers that are saved (register_buffer)"


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

    Checked over three steps: shapes and ranges, rows decided independently of their order, no state written in
    place, next state that fits the rule's buffers, a round trip of that state, no host synchronisation, and (with
    `compiled`) that the compiled rule equals the eager one. With any `momentum` at 1, a row alone must be decided as
    it is among others: labels are asked for one by one.
    """
    name = type(rule).__name__
    fresh = copy.deepcopy(rule)  # as a resumed run builds it, before it has seen anything
    for step in range(3):
        seen = make_evidence(classes=classes, pool=pool, step=step)
        before = _tensors(rule)
        selection, state = _ask(rule, seen, name)
        for field, column in selection._asdict().items():
            assert not column.requires_grad, f"{name}: the {field} must be detached"
            assert bool(torch.isfinite(column).all()), f"{name}: a {field} is not finite"
        assert bool(((selection.weight >= 0) & (selection.weight <= 1)).all()), f"{name}: a weight left [0, 1]"
        _same(_tensors(rule), before, f"{name}: forward wrote its state in place; return it instead")
        _state_fits(rule, state, name)
        sentence = f"{name}: asked twice it decides differently; return what it remembers, and draw no random numbers"
        _same(_answers(rule, seen, name), _named(selection, state), sentence)

        order = torch.arange(len(seen.probs) - 1, -1, -1)
        inflow = None if seen.inflow is None else seen.inflow[order]
        flipped = seen._replace(probs=seen.probs[order], index=seen.index[order], inflow=inflow)
        found = {field: column[order] for field, column in _ask(rule, flipped, name)[0]._asdict().items()}
        sentence = f"{name}: a decision depends on the order of the rows"
        _close(found, selection._asdict(), sentence, rtol=1e-5, atol=1e-6)
        commit(rule, state)
    fresh.load_state_dict(rule.state_dict())
    for step in range(3, 6):
        seen = make_evidence(classes=classes, pool=pool, step=step)
        selection, state = _ask(rule, seen, name)
        _same(_answers(fresh, seen, name), _named(selection, state), f"{name}: {SAVED}")
        for one in (fresh, rule):
            commit(one, state)
    twin = copy.deepcopy(rule)
    with _in_one_sentence(name), no_waiting(name):
        twin(seen)
    if compiled:
        torch._dynamo.reset()
        fast = torch.compile(rule, fullgraph=True, dynamic=False, backend=_backend())
        found, expected = _answers(fast, seen, name), _answers(rule, seen, name)
        _close(found, expected, f"{name}: compiled it decides differently", rtol=1e-5, atol=1e-6)
    _stands_alone(rule, seen, name)


@contextmanager
def _in_one_sentence(name: str) -> Iterator[None]:
    """Whatever stops a rule or a method is an AssertionError that names it; the traceback stays its cause."""
    try:
        yield
    except AssertionError:
        raise
    except InputError as error:
        sentence = str(error)
        raise AssertionError(sentence if sentence.startswith(f"{name}.") else f"{name}: {sentence}") from error
    except Exception as error:
        first = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise AssertionError(f"{name}: it stopped with {type(error).__name__}: {first}") from error


def _ask(rule: Callable[..., Any], seen: Evidence, name: str) -> tuple[Selection, State]:
    """The rule's answer, once it has the form of one."""
    with _in_one_sentence(name):
        found = rule(seen)
    well_formed = isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Selection)
    assert well_formed, f"{name}: forward must return Selection(weight, threshold), state; got {_kind(found)}"
    selection, state = found
    assert isinstance(state, dict), f"{name}: forward must return its state as a dict, got {_kind(state)}"
    rows = (len(seen.probs),)
    for field, column in selection._asdict().items():
        assert isinstance(column, Tensor), f"{name}: the {field} must be a tensor, got {_kind(column)}"
        assert column.shape == rows, f"{name}: the {field} must have shape {rows}, got {tuple(column.shape)}"
    return selection, state


def _answers(rule: Callable[..., Any], seen: Evidence, name: str) -> dict[str, Tensor]:
    return _named(*_ask(rule, seen, name))


def _named(selection: Selection, state: State) -> dict[str, Tensor]:
    """All that a rule answers, by name."""
    return {**selection._asdict(), **{f"state {key}": value for key, value in state.items()}}


def _kind(value: Any) -> str:
    """What was returned instead, in words.

    >>> _kind((0.5, None))
    '(float, NoneType)'
    """
    if type(value) is tuple:
        return f"({', '.join(map(_kind, value))})"
    return type(value).__name__


def _tensors(module: torch.nn.Module) -> dict[str, Tensor]:
    """A copy of its parameters and of all its buffers, saved in checkpoints or not."""
    held = [*module.named_parameters(), *module.named_buffers()]
    return {name: value.detach().clone() for name, value in held}


def _stands_alone(rule: Rule, seen: Evidence, name: str) -> None:
    """Asked as `labelling.judge.standing` asks it, a row alone must be decided as it is among others."""
    still = copy.deepcopy(rule)
    with _in_one_sentence(name):
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
        _close(_ask(still, alone, name)[0]._asdict(), expected, sentence, rtol=1e-5, atol=1e-6)


@contextmanager
def no_waiting(name: str) -> Iterator[None]:
    """Run tensors without data: whatever would make the host wait for the device is an error here.

    That is `.item()`, `if tensor`, boolean indexing, `nonzero`: all that needs values instead of shapes. And `.cpu()`,
    `.to("cpu")` and `.numpy()`, which are nothing on a CPU; `.to(x.device)` is no such copy.
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), _NoCopies():
            yield
    except (DataDependentOutputException, DynamicOutputShapeException, _CopyError) as error:
        raise AssertionError(f"{name}: the step waits for the device ({error})") from error


class _CopyError(Exception):
    """A copy to the host."""


class _NoCopies(TorchFunctionMode):
    """Sees a copy to the host by the name it is called by: with all tensors on a CPU there is nothing else to see."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        to_cpu = func is Tensor.to and any(
            isinstance(word, str) and word == "cpu" for word in (*args, *kwargs.values())
        )
        if to_cpu or func in (Tensor.cpu, Tensor.numpy, Tensor.__array__):
            raise _CopyError(f"Tensor.{func.__name__}")
        return func(*args, **kwargs)


def make_learner(method: str | MethodFunction, *, seed: int = 0, **options: Any) -> Learner:
    """A small classifier of vectors with the method on top; its predictions are confident enough to be used."""

    def network(outputs: int) -> torch.nn.Module:
        return build("mlp", shape=(FEATURES,), classes=outputs, width=16)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build("mlp", shape=(FEATURES,), classes=CLASSES, width=16)
        problem = Problem(classes=CLASSES, features=model.num_features, unlabelled=POOL, steps=STEPS, network=network)
        built = build_method(method, problem, **options)
    with torch.no_grad():
        model.head.weight.mul_(20)
    return Learner(model, built, ema=0.9).train()


def make_views(method: Method, *, step: int = STEPS - 1, seed: int = 0) -> Views:
    """One step's input of vectors, with the views the method wants."""
    key = random.fold(random.root(seed), step)
    rows = ROWS if method.wants.weak else 0
    clean = random.normal(random.fold(key, 0), rows, FEATURES)
    second = rows if method.wants.second != "none" else 0
    y_l = torch.arange(LABELLED) % CLASSES
    return Views(
        x_l=random.normal(random.fold(key, 1), LABELLED, FEATURES),
        y_l=y_l,
        x_w=clean + 0.1 * random.normal(random.fold(key, 2), rows, FEATURES),
        x_s=(clean + 0.3 * random.normal(random.fold(key, 3), rows, FEATURES))[:second],
        index=random.permutations(random.fold(key, 4), POOL)[0, :rows],
        step=torch.tensor(step),
        key=random.fold(key, 5),
        y_weak=y_l,
    )


def check_method(
    method: str | MethodFunction,
    *,
    compiled: bool = False,
    learns: float | None = None,
    atol: float = 1e-5,
    **options: Any,
) -> None:
    """Raise AssertionError with a sentence when a method breaks the contract of `instant.types.Method`.

    Checked: the form of its output; that gradient reaches every weight of the student, and reaches it through the
    unlabelled samples; that the same input gives the same output; that state is returned, not written, fits the
    buffers and survives a checkpoint; no host synchronisation; with `compiled` that the compiled step equals the
    eager one on loss, gradient and state (to `atol`); with `learns` that a trivial problem is learnt that well.
    """
    name = method if isinstance(method, str) else getattr(method, "__name__", str(method))
    # copies, all made before the first call: parts that two learners share would hide state that is kept in neither
    learner, again, restored = (copy.deepcopy(make_learner(method, seed=seed, **options)) for seed in (0, 0, 1))
    views = make_views(learner.method)

    before = _tensors(learner.method)
    output, gradients = _backward(learner, views, name)
    _check_output(output, learner.method, name)
    _same(_tensors(learner.method), before, f"{name}: forward wrote state in place; return it in Output.state")
    for parameter, gradient in gradients.items():
        assert gradient is not None, f"{name}: no gradient reaches {parameter}"
        assert bool(torch.isfinite(gradient).all()), f"{name}: the gradient of {parameter} is not finite"
    if learner.method.wants.weak:
        _check_unlabelled_gradient(learner, views, name)

    sentence = f"{name}: two equal steps differ; return what it remembers in Output.state, and draw only from views.key"
    for one in (learner, again):
        _same(_flat(*_backward(one, views, name)), _flat(output, gradients), sentence)
    for step in range(3):
        commit(again.method, _backward(again, make_views(again.method, step=step), name)[0].state)
    restored.load_state_dict(again.state_dict())
    for step in range(3, 6):
        later = make_views(again.method, step=step)
        found, expected = _backward(restored, later, name), _backward(again, later, name)
        _same(_flat(*found), _flat(*expected), f"{name}: {SAVED}")
        for one in (restored, again):
            commit(one.method, expected[0].state)

    twin = copy.deepcopy(learner)
    with _in_one_sentence(name), no_waiting(name):
        twin(views).loss.backward()
    if compiled:
        _check_compiled(method, views, output, gradients, name, atol, options)
    if learns is not None:
        score = trivial_accuracy(method, **options)
        assert score >= learns, f"{name}: learnt a trivial problem to {score:.2f}, expected {learns:.2f}"


def trivial_accuracy(method: str | MethodFunction, *, steps: int = 200, **options: Any) -> float:
    """Test accuracy on four well separated clouds of points with two labels each, through the one `fit`."""
    from instant import recipes
    from instant.data.sources import arrays
    from instant.data.split import make_split
    from instant.engine.fit import fit

    rng = np.random.default_rng(0)
    y = np.arange(600) % CLASSES
    x = (rng.normal(size=(CLASSES, FEATURES))[y] * 2 + rng.normal(size=(600, FEATURES)) * 0.7).astype(np.float32)
    everything = make_learner(method, **options).method.all_labels
    split = make_split(arrays(x[:400], y[:400], x[400:], y[400:]), labels=None if everything else 2 * CLASSES)
    function = find_method(method)
    recipe = recipes.vectors(method=name_of(function)).override({"steps": str(steps)})
    trained = fit(dataclasses.replace(recipe, method_options=options), split, method=function)
    return float(trained.summary["accuracy_last"])


def _backward(learner: Learner, views: Views, name: str) -> tuple[Output, dict[str, Tensor | None]]:
    learner.zero_grad(set_to_none=True)
    with _in_one_sentence(name):
        output = learner(views)
    _check_form(output, name)
    with _in_one_sentence(name):
        output.loss.backward()
    named = {f"model.{n}": p for n, p in learner.model.named_parameters()}
    named |= {f"method.{n}": p for n, p in learner.method.named_parameters()}
    return output, {name: None if p.grad is None else p.grad.clone() for name, p in named.items()}


def _flat(output: Output, gradients: dict[str, Tensor | None]) -> dict[str, Tensor | None]:
    """All that a step answers, by name."""
    decided = {} if output.decision is None else output.decision._asdict()
    parts = {"metric": output.metrics, "state": output.state, "decision": decided, "gradient of": gradients}
    named = {f"{part} {key}": value for part, held in parts.items() for key, value in held.items()}
    return {"loss": output.loss.detach(), **named}


def _check_form(output: Any, name: str) -> None:
    for field, kind in (("loss", Tensor), ("metrics", dict), ("state", dict), ("decision", Decision | None)):
        value = getattr(output, field)
        wanted = getattr(kind, "__name__", "Decision or None")
        assert isinstance(value, kind), f"{name}: Output.{field} must be a {wanted}, got {_kind(value)}"
    assert output.loss.ndim == 0, f"{name}: the loss must be one number, got shape {tuple(output.loss.shape)}"
    assert output.loss.requires_grad, f"{name}: the loss must carry gradient, got one that is detached"


def _check_output(output: Output, method: Method, name: str) -> None:
    assert bool(torch.isfinite(output.loss)), f"{name}: the loss is not finite"
    with _in_one_sentence(name):
        check_metrics(output.metrics)
    for metric, value in output.metrics.items():
        assert not value.requires_grad, f"{name}: metric {metric} must be detached"
    _state_fits(method, output.state, name)
    if output.decision is None:
        return
    for field, column in output.decision._asdict().items():
        assert isinstance(column, Tensor), f"{name}: decision.{field} must be a Tensor, got {_kind(column)}"
        assert column.shape == (ROWS,), (
            f"{name}: decision.{field} must have one entry a row, shape ({ROWS},), got {tuple(column.shape)}"
        )
        assert not column.requires_grad, f"{name}: decision.{field} must be detached"
        assert bool(torch.isfinite(column).all()), f"{name}: decision.{field} must be finite, got nan or inf"
    with _in_one_sentence(name):
        check_decision(output.decision)
    for field, top in (("index", POOL - 1), ("label", CLASSES - 1), ("weight", 1)):
        column = getattr(output.decision, field)
        assert bool(((column >= 0) & (column <= top)).all()), f"{name}: decision.{field} left [0, {top}]"


def _check_unlabelled_gradient(learner: Learner, views: Views, name: str) -> None:
    """The unlabelled samples must teach the student something; a baseline that ignores them can still look busy."""
    student = views.x_s if len(views.x_s) else views.x_w
    probe = student.clone().requires_grad_()
    changed = views._replace(x_s=probe) if len(views.x_s) else views._replace(x_w=probe)
    loss = copy.deepcopy(learner)(changed).loss
    (gradient,) = torch.autograd.grad(loss, probe, allow_unused=True)
    used = gradient is not None and float(gradient.abs().sum()) > 0
    assert used, f"{name}: no gradient flows through the unlabelled samples"


def _check_compiled(
    method: str | MethodFunction,
    views: Views,
    output: Output,
    gradients: dict[str, Tensor | None],
    name: str,
    atol: float,
    options: dict[str, Any],
) -> None:
    """Compiled equals eager on gradient and state, not only on the loss."""
    torch._dynamo.reset()
    learner = make_learner(method, **options)
    learner.zero_grad(set_to_none=True)
    with _in_one_sentence(name):
        fast = torch.compile(learner, dynamic=False, backend=_backend())(views)
        fast.loss.backward()
    _close({"loss": fast.loss}, {"loss": output.loss}, f"{name}: compiled loss differs", rtol=1e-4, atol=atol)
    _close(fast.state, output.state, f"{name}: compiled state differs", rtol=1e-4, atol=atol)
    found = {f"model.{n}": p.grad for n, p in learner.model.named_parameters()}
    found |= {f"method.{n}": p.grad for n, p in learner.method.named_parameters()}
    _close(found, gradients, f"{name}: compiled gradient differs", rtol=1e-4, atol=atol)


def _backend() -> str:
    """The default compiler where a C++ compiler is at hand; else its first half, where the trap of state lies."""
    return "inductor" if any(map(shutil.which, ("c++", "g++", "clang++"))) else "aot_eager"


def _state_fits(module: torch.nn.Module, state: dict[str, Tensor], name: str) -> None:
    buffers = dict(module.named_buffers())
    for key, value in state.items():
        assert key in buffers, f"{name}: state {key!r} is not a registered buffer"
        assert isinstance(value, Tensor), f"{name}: state {key!r} must be a tensor, got {_kind(value)}"
        shape, dtype = buffers[key].shape, buffers[key].dtype
        assert value.shape == shape, f"{name}: state {key!r} must have shape {tuple(shape)}, got {tuple(value.shape)}"
        assert value.dtype == dtype, f"{name}: state {key!r} must have dtype {dtype}, got {value.dtype}"
        assert not value.requires_grad, f"{name}: state {key!r} must be detached"
        assert bool(torch.isfinite(value).all()), f"{name}: state {key!r} is not finite"


def _same(found: dict[str, Any], expected: dict[str, Any], sentence: str) -> None:
    _close(found, expected, sentence, rtol=0.0, atol=0.0)


def _close(found: dict[str, Any], expected: dict[str, Any], sentence: str, *, rtol: float, atol: float) -> None:
    assert found.keys() == expected.keys(), f"{sentence} ({sorted(found.keys() ^ expected.keys())})"
    for key, value in expected.items():
        if value is None or found[key] is None:
            assert value is found[key], f"{sentence} ({key})"
            continue
        one, other = found[key].detach().double(), value.detach().double()
        assert one.shape == other.shape, f"{sentence} ({key}, in shape {tuple(one.shape)} and {tuple(other.shape)})"
        near = torch.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True)
        assert near, f"{sentence} ({key}, by up to {(one - other).abs().max():.2g})"
