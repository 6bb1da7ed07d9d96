"""Does a method keep its promises?"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from instant import random
from instant.backbones import build
from instant.engine.metrics import check_decision, check_metrics
from instant.labelling.judge import aligned, hold
from instant.learner import Learner, commit
from instant.match import Match
from instant.methods import build_method, find_method, name_of
from instant.testing.rule import make_evidence
from instant.testing.shared import (
    CLASSES,
    FEATURES,
    LABELLED,
    POOL,
    ROWS,
    SAVED,
    STEPS,
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
from instant.types import Decision, Method, MethodFunction, Output, Problem, Views


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
        kept=torch.ones(0),
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

    Checked: the form of its output, of an alignment and of T(x); that gradient reaches every weight of the student, and
    reaches it through the unlabelled samples; that all is finite also where the student is sure of nothing, and where
    labels are of one class; that an alignment makes the same of a row alone as among others, with its momentum at 1;
    that the same input gives the same output; that state is returned, not written, fits the buffers and survives a
    checkpoint; no host synchronisation; no tensor that stays on the CPU; with `compiled` that the compiled step equals
    the eager one on loss, gradient and state (to `atol`); with `learns` that a trivial problem is learnt that well.
    """
    name = method if isinstance(method, str) else getattr(method, "__name__", type(method).__name__)
    # copies, all made before the first call: parts that two learners share would hide state that is kept in neither
    with in_one_sentence(name):
        learner, again, restored = (copy.deepcopy(make_learner(method, seed=seed, **options)) for seed in (0, 0, 1))
    views = make_views(learner.method)

    _check_transition(copy.deepcopy(learner), views, name)
    _check_alignment(learner.method, name)
    before = tensors_of(learner.method)
    output, gradients = _backward(learner, views, name)
    _check_output(output, learner.method, name)
    same(tensors_of(learner.method), before, f"{name}: forward wrote state in place; return it in Output.state")
    for parameter, gradient in gradients.items():
        assert gradient is not None, f"{name}: no gradient reaches {parameter}"
        assert bool(torch.isfinite(gradient).all()), f"{name}: the gradient of {parameter} is not finite"
    _check_extremes(learner, views, name)
    if learner.method.wants.weak:
        _check_unlabelled_gradient(learner, views, name)

    sentence = f"{name}: two equal steps differ; return what it remembers in Output.state, and draw only from views.key"
    for one in (learner, again):
        same(_flat(*_backward(one, views, name)), _flat(output, gradients), sentence)
    for step in range(3):
        commit(again.method, _backward(again, make_views(again.method, step=step), name)[0].state)
    restored.load_state_dict(again.state_dict())
    for step in range(3, 6):
        later = make_views(again.method, step=step)
        found, expected = _backward(restored, later, name), _backward(again, later, name)
        same(_flat(*found), _flat(*expected), f"{name}: {SAVED}")
        for one in (restored, again):
            commit(one.method, expected[0].state)

    mixed = views._replace(kept=torch.full((ROWS // 2 if learner.method.takes_mixed else 0,), 0.7))
    for given in (views, mixed):
        twin = copy.deepcopy(learner)
        with in_one_sentence(name), no_waiting(name):
            twin(given).loss.backward()
    there = Views(*(part.to("meta") for part in views))
    moves_whole(name, learner, lambda moved: _tensors(moved.method(moved.model, moved.judged, there)))
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
    with in_one_sentence(name):
        output = learner(views)
    _check_form(output, name)
    with in_one_sentence(name):
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


def _tensors(output: Output) -> list[Tensor]:
    return [output.loss, *output.metrics.values(), *output.state.values(), *(output.decision or ())]


def _check_form(output: Any, name: str) -> None:
    for field, kind in (("loss", Tensor), ("metrics", dict), ("state", dict), ("decision", Decision | None)):
        value = getattr(output, field)
        wanted = getattr(kind, "__name__", "Decision or None")
        assert isinstance(value, kind), f"{name}: Output.{field} must be a {wanted}, got {kind_of(value)}"
    assert output.loss.ndim == 0, f"{name}: the loss must be one number, got shape {tuple(output.loss.shape)}"
    assert output.loss.requires_grad, f"{name}: the loss must carry gradient, got one that is detached"


def _check_output(output: Output, method: Method, name: str) -> None:
    assert bool(torch.isfinite(output.loss)), f"{name}: the loss is not finite"
    with in_one_sentence(name):
        check_metrics(output.metrics)
    for metric, value in output.metrics.items():
        assert not value.requires_grad, f"{name}: metric {metric} must be detached"
    state_fits(method, output.state, name)
    if output.decision is None:
        return
    for field, column in output.decision._asdict().items():
        assert isinstance(column, Tensor), f"{name}: decision.{field} must be a Tensor, got {kind_of(column)}"
        assert column.shape == (ROWS,), (
            f"{name}: decision.{field} must have one entry a row, shape ({ROWS},), got {tuple(column.shape)}"
        )
        assert not column.requires_grad, f"{name}: decision.{field} must be detached"
        assert bool(torch.isfinite(column).all()), f"{name}: decision.{field} must be finite, got nan or inf"
    with in_one_sentence(name):
        check_decision(output.decision)
    for field, top in (("index", POOL - 1), ("label", CLASSES - 1), ("weight", 1)):
        column = getattr(output.decision, field)
        assert bool(((column >= 0) & (column <= top)).all()), f"{name}: decision.{field} left [0, {top}]"


def _check_transition(learner: Learner, views: Views, name: str) -> None:
    """Thresholds and losses come out of any matrix, so that a step would not notice one that is no T(x)."""
    if not isinstance(learner.method, Match) or learner.method.transitions is None:
        return
    estimator = learner.method.transitions.estimator
    with in_one_sentence(name), torch.no_grad():
        features = learner.student(views.x_w).features
        matrix = estimator(features, views.x_w)
    returned = f"{name}: {type(estimator).__name__}.forward must return T(x)"
    one, each = (CLASSES, CLASSES), (ROWS, CLASSES, CLASSES)
    assert isinstance(matrix, Tensor), f"{returned} as a tensor, got {kind_of(matrix)}"
    assert matrix.shape in (one, each), f"{returned} of shape {one} or {each}, got {tuple(matrix.shape)}"
    proper = (matrix >= 0).all() & ((matrix.sum(-1) - 1).abs() < 1e-4).all()
    assert bool(proper), f"{returned}, whose rows are 0 or more and sum to 1, got rows that do not"
    estimator.eval()
    with in_one_sentence(name), torch.no_grad():
        together, alone = (estimator(features[:rows], views.x_w[:rows]) for rows in (ROWS, 1))
    first = together if together.ndim == 2 else together[:1]
    sentence = f"{returned} of each row by itself, in evaluation, as labels are asked for one by one"
    close({"T": alone}, {"T": first}, sentence, rtol=1e-4, atol=1e-5)


def _check_alignment(method: Method, name: str) -> None:
    """What it returns, and that it takes from a batch through its running means alone: labels are asked for singly."""
    if not isinstance(method, Match) or method.align is None:
        return
    align, seen = copy.deepcopy(method.align), make_evidence()
    returned = f"{name}: {type(align).__name__}.forward must return probabilities, state"
    with in_one_sentence(name), torch.no_grad():
        found = align(seen.probs, seen.probs_l)
    well_formed = isinstance(found, tuple) and list(map(type, found)) == [Tensor, dict]
    assert well_formed, f"{returned}, a tensor and a dict; got {kind_of(found)}"
    probs, state = found
    assert probs.shape == seen.probs.shape, f"{returned}, of shape {tuple(seen.probs.shape)}; got {tuple(probs.shape)}"
    proper = (probs >= 0).all() & ((probs.sum(1) - 1).abs() < 1e-4).all()
    assert bool(proper), f"{returned}, whose rows are 0 or more and sum to 1, got rows that do not"
    with in_one_sentence(name), torch.no_grad():
        commit(align, state)
        hold(align)
        together, alone = ({"probs": aligned(align, rows, seen.probs_l)[:1]} for rows in (seen.probs, seen.probs[:1]))
    sentence = f"{name}: with its momentum at 1, as labels are asked for, what its alignment makes of a row depends on "
    close(alone, together, sentence + "the batch; take from the batch only through a buffer", rtol=1e-4, atol=1e-5)


def _check_extremes(learner: Learner, views: Views, name: str) -> None:
    """Batches that every run has, in which a mean may be one over no rows."""
    one_class = views._replace(y_l=torch.zeros_like(views.y_l), y_weak=torch.zeros_like(views.y_weak))
    unsure = copy.deepcopy(learner)
    with torch.no_grad():
        for network in (unsure.model, unsure.judged):
            network.head.weight.mul_(1e-3)  # type: ignore[union-attr, operator]
    for asked, shown, when in (
        (unsure, views, "where the student is sure of no row"),
        (copy.deepcopy(learner), one_class, "where all labels of a step are of one class"),
    ):
        output, gradients = _backward(asked, shown, name)
        found = {"loss": output.loss, **{f"state {key}": value for key, value in output.state.items()}}
        found |= {f"gradient of {key}": value for key, value in gradients.items() if value is not None}
        lost = next((part for part, value in found.items() if not bool(torch.isfinite(value).all())), None)
        assert lost is None, (
            f"{name}: the {lost} is not finite {when}; is it a mean over rows that count, of which there are none?"
        )


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
    with in_one_sentence(name):
        fast = torch.compile(learner, dynamic=False, backend=backend())(views)
        fast.loss.backward()
    close({"loss": fast.loss}, {"loss": output.loss}, f"{name}: compiled loss differs", rtol=1e-4, atol=atol)
    close(fast.state, output.state, f"{name}: compiled state differs", rtol=1e-4, atol=atol)
    found = {f"model.{n}": p.grad for n, p in learner.model.named_parameters()}
    found |= {f"method.{n}": p.grad for n, p in learner.method.named_parameters()}
    close(found, gradients, f"{name}: compiled gradient differs", rtol=1e-4, atol=atol)
