"""The one trainer: the command, the estimator and the benchmarks all build a Recipe and call `fit`."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from instant.backbones.registry import BackboneFunction, backbone_name, own_defaults, without_weights
from instant.config import Recipe
from instant.contrast import contrastive
from instant.data.feed import Policy
from instant.data.split import Split
from instant.engine.build import build_program
from instant.engine.evaluate import evaluate
from instant.engine.features import features_recipe
from instant.engine.heap import kept_heap
from instant.engine.interrupt import Interrupted, interrupt_flag
from instant.engine.plain import plain_torch
from instant.engine.step import Program
from instant.engine.summary import model_card, summarise
from instant.errors import InputError
from instant.labelling.judge import reference_of
from instant.learner import Learner
from instant.methods import method_options, name_of
from instant.run import Run
from instant.run_files import Code
from instant.types import MethodFunction


class Callback:
    """Watches a run; override what you need. Steps of learning features count up to 0, those of the method from 1."""

    def start(self, recipe: Recipe, split: Split, step: int) -> None: ...
    def note(self, text: str) -> None: ...
    def step(self, step: int) -> None: ...
    def record(self, record: dict[str, Any]) -> None: ...
    def end(self, summary: dict[str, Any]) -> None: ...


@dataclass
class Trained:
    """What `fit` returns."""

    recipe: Recipe
    split: Split
    learner: Learner
    summary: dict[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)


@kept_heap
@plain_torch()
def fit(
    recipe: Recipe,
    split: Split,
    *,
    run: Run | str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    callbacks: Sequence[Callback] = (),
    policies: tuple[Policy, Policy] | None = None,
    method: MethodFunction | None = None,
    backbone: BackboneFunction | None = None,
    weights: dict[str, Tensor] | None = None,
    mates: Sequence[Run] = (),
) -> Trained:
    """Train; with a `run`, or its path, keep checkpoints, curves and results in its folder, and `resume` from there.

    A run that is already in the folder is only replaced with `force`, and only once the recipe is known to be good.
    `policies` (weak, strong), `method` and `backbone` stand in for what the recipe names, for functions that have no
    name. Options that the recipe suggests are those for `method`; those that somebody asked for and it does not take
    are refused. `weights` are a network's to start from, instead of fresh ones. Where one of the `mates` has learnt the
    features that this run would learn (`contrast`), it gets a copy of them.
    """
    if not isinstance(recipe, Recipe) or not isinstance(split, Split):
        got = f"{type(recipe).__name__} and {type(split).__name__}"
        raise InputError(
            f"fit(recipe, split): expected a Recipe and a Split, got {got}; make_split makes a Split, and "
            "InstanTClassifier().fit(X, y) takes arrays."
        )
    run = run if run is None or isinstance(run, Run) else Run(run)
    recipe = recipe.suited(recipe.method if method is None else name_of(method))  # the folder keeps what is trained
    if backbone is not None:
        recipe = replace(recipe, backbone=backbone_name(backbone))
    code = code_of(method or recipe.method, policies, backbone or recipe.backbone)
    going_on = run is not None and resume and run.exists
    resumed = run is not None and resume and run.has_checkpoint
    # The checkpoint, or that of the features, has what the weights became
    fresh = replace(recipe, pretrained=None) if resumed or (going_on and recipe.contrast) else recipe
    defaults = code.backbone
    if run is not None and going_on:
        began = run.code()
        fresh = replace(fresh, method_options=began.options | fresh.method_options)
        defaults = defaults | {name: value for name, value in began.backbone.items() if name in defaults}
    fresh = replace(fresh, backbone_options=defaults | fresh.backbone_options)
    shaped = without_weights(fresh.backbone, fresh.backbone_options) if resumed else fresh.backbone_options
    program = build_program(
        replace(fresh, backbone_options=shaped), split, policies=policies, method=method, backbone=backbone
    )
    if run is not None:
        _check_found_again(recipe, split, everything=program.learner.method.all_labels)
    first = features_recipe(recipe, split) if recipe.contrast and weights is None else None
    if weights is not None:
        _start_from(program.learner, weights)
    device = program.clock.device
    learner, meter = program.learner, program.meter
    history: list[dict[str, Any]] = []
    step, seconds, earlier = 0, 0.0, 0.0
    stopping = interrupt_flag(terminate=run is not None)
    with closing(program.feed), nullcontext() if run is None else run.exclusive(), stopping as interrupted:
        if run is not None and going_on:
            run.go_on(recipe, split, code)
            saved = run.load_checkpoint()
            if saved is not None:
                tensors, step, seconds = saved
                _check_same(program, tensors, run)
                program.restore(tensors)
            history = run.rewind(step)
            if step == recipe.steps and (not history or history[-1]["step"] < step):
                raise InputError(
                    f"{run} was trained to its last step, but metrics.jsonl does not say how that ended; put the file "
                    "back as it was, or train again with --force."
                )
        elif run is not None:
            if first is not None:
                run.features.require_free(force=force)
            run.begin(recipe, split, force=force, code=code)
        for callback in callbacks:
            callback.start(recipe, split, step)

        def announce(text: str) -> None:
            for callback in callbacks:
                callback.note(text)

        program.announce = announce
        for note in (program.pretrained if first is None else None, program.feed.note):
            if note is not None:
                announce(str(note))

        if first is not None and not resumed:
            learnt, earlier = _features(
                first, split, run, resume=resume, force=force, callbacks=callbacks, backbone=backbone, mates=mates
            )
            _start_from(learner, learnt)
            seconds = earlier
        elif first is not None and run is not None and run.features.finished:
            earlier = run.features.summary()["seconds"]
        started = time.perf_counter() - seconds
        while step < recipe.steps:
            program(step)
            step += 1
            for callback in callbacks:
                callback.step(step)
            last = step == recipe.steps
            if last or step % recipe.log_every == 0 or step % recipe.evaluate_every == 0:
                _stop_if_broken(program, step, recipe, run)
                record: dict[str, Any] = {"step": step, **meter.read()}
                if math.isnan(record.get("threshold", 0.0)):
                    raise InputError(
                        f"{recipe.method} had a threshold that is no number before step "
                        f"{step}; mend its rule (instant.testing.check_rule helps)."
                    )
                if learner.method.classifies and (last or step % recipe.evaluate_every == 0):
                    before = time.perf_counter()
                    record |= evaluate(learner, split, program.feed.normalise)
                    record["seconds_evaluating"] = time.perf_counter() - before
                record["seconds"] = time.perf_counter() - started
                history.append(record)
                if run is not None:
                    run.append(record)
                for callback in callbacks:
                    callback.record(record)
            stop = interrupted.is_set()
            if run is not None and (last or stop or step % recipe.checkpoint_every == 0):
                _stop_if_broken(program, step, recipe, run)
                run.save_checkpoint(program.tensors(), step=step, seconds=time.perf_counter() - started)
            if stop and (run is None or not last):  # a run that has come to its end is kept
                raise Interrupted(step, run)

        seconds = time.perf_counter() - started
        summary = summarise(recipe, split, history, seconds=seconds, earlier=earlier, device=device)
        if run is not None:
            rests_on = reference_of(learner.judged, learner.method, split, program.feed.normalise)
            run.finish(learner.judged, model_card(fresh, split), rests_on, summary)
    for callback in callbacks:
        callback.end(summary)
    return Trained(recipe, split, learner, summary, history)


def code_of(
    method: str | MethodFunction, policies: tuple[Policy, Policy] | None, backbone: str | BackboneFunction
) -> Code:
    """What the folder is told about the code of a run: defaults that can be written down, and whose views."""
    plain = (bool, int, float, str, type(None))  # and not what is only like one of them, such as an enum
    options, of_network = (
        {name: value for name, value in defaults.items() if type(value) in plain}
        for defaults in (method_options(method), own_defaults(backbone))
    )
    whose = (part if inspect.isroutine(part) else type(part) for part in policies or ())
    return Code(options, tuple(f"{part.__module__}:{part.__qualname__}" for part in whose), of_network)


def _start_from(learner: Learner, weights: dict[str, Tensor]) -> None:
    for network in filter(None, (learner.model, learner.teacher)):
        network.load_state_dict(weights)


class _Earlier(Callback):
    """Tells those who watch a run of the steps before its first: they count up to 0."""

    def __init__(self, callbacks: Sequence[Callback], steps: int) -> None:
        self.callbacks = callbacks
        self.steps = steps

    def note(self, text: str) -> None:
        for callback in self.callbacks:
            callback.note(text)

    def step(self, step: int) -> None:
        for callback in self.callbacks:
            callback.step(step - self.steps)


def _features(
    recipe: Recipe,
    split: Split,
    run: Run | None,
    *,
    resume: bool,
    force: bool,
    callbacks: Sequence[Callback],
    backbone: BackboneFunction | None,
    mates: Sequence[Run],
) -> tuple[dict[str, Tensor], float]:
    """The network that has learnt without labels, and the seconds that took: a run of its own in the run's folder."""
    own = None if run is None else run.features
    kept = own is not None and resume and own.exists and own.differs(recipe) is None and own.is_of(split)
    if own is not None and not kept and (mate := _with_features(mates, recipe, split, backbone)) is not None:
        own.copy_of(mate.features)
        kept = True
        for callback in callbacks:
            callback.note(f"features are those of {mate}, which has the same data and seed")
    if own is not None and kept and own.finished:
        return own.load_model(backbone or recipe.backbone)[0].state_dict(), own.summary()["seconds"]
    watched = _Earlier(callbacks, recipe.steps)
    watched.note(f"learning features first, without labels: {recipe.steps} steps")
    try:
        trained = fit(
            recipe,
            split,
            run=own,
            resume=kept,
            force=force or resume,
            callbacks=[watched],
            method=contrastive,
            backbone=backbone,
        )
    except Interrupted as stop:
        raise Interrupted(0, run, f"{stop.step} of the {recipe.steps} for features") from None
    found, seconds = trained.history[-1]["partner_found"], trained.summary["seconds"]
    watched.note(
        f"features learnt in {seconds:.0f} s: a view's other half is the nearest of all in {100 * found:.0f} %"
    )
    return trained.learner.judged.state_dict(), seconds


def _with_features(mates: Sequence[Run], recipe: Recipe, split: Split, backbone: BackboneFunction | None) -> Run | None:
    """The first that has learnt what this recipe would: with its settings, data, weights to start from and code."""
    code = code_of(contrastive, None, backbone or recipe.backbone)
    for mate in mates:
        known = mate.features
        with suppress(InputError):  # damaged: no reason not to learn features of one's own
            if (
                known.finished
                and known.differs(recipe) is None
                and known.recipe().pretrained == recipe.pretrained
                and known.is_of(split)
                and known.code() == code
            ):
                known.load_model(backbone or recipe.backbone)
                known.summary()
                return mate
    return None


def _check_found_again(recipe: Recipe, split: Split, *, everything: bool) -> None:
    """A run folder keeps the recipe, by which later commands draw the split again; arrays they cannot find anyway."""
    if recipe.source == "arrays":
        return
    has = {"seed": split.seed, "draw": split.draw, "validation": len(split.validation)}
    if not everything and recipe.labels is not None:
        has["labels"] = len(split.labelled)
    for name, value in has.items():
        if (said := getattr(recipe, name)) != value:
            raise InputError(
                f"the split has {name}={value} and the recipe {name}={said}, by which nobody would find it again in "
                f"the run folder; use recipe.override({{{name!r}: {value!r}}}), or make_split(..., {name}={said!r})."
            )


def _stop_if_broken(program: Program, step: int, recipe: Recipe, run: Run | None) -> None:
    """Stop before a loss that is not finite, or weights that overflow, reach a checkpoint."""
    meter = program.meter
    weights: list[Tensor] = list(program.learner.parameters())
    broken = int(meter.broken)
    if broken < 0 and bool(torch.stack(torch._foreach_norm(weights)).isfinite().all()):
        return
    parts = [name for name in meter.culprits() if name.startswith("loss_")]
    cause = f"in {' and '.join(parts)}" if parts else "in the total" if broken >= 0 else "the weights overflowed"
    kept = ""
    if run is not None:
        saved = run.load_checkpoint()
        kept = (
            f" The last good checkpoint, of step {saved[1]}, is intact." if saved else " No checkpoint was reached yet."
        )
    at = broken if broken >= 0 else step - 1
    where, rate = "", f"(optim.lr={recipe.optim.lr}). Lower it"
    if not program.learner.method.classifies:
        where, rate = " of the features", "for so many pairs of views. Lower batch or ratio"
    raise InputError(
        f"the loss stopped being a finite number at step {at}{where} ({cause}); the likely cause is too high a "
        f"learning rate {rate}, or set clip=1.{kept}"
    )


def _check_same(program: Program, tensors: dict[str, Tensor], run: Run) -> None:
    """A checkpoint must hold what this version of the program needs, in the same shapes."""
    wanted = program.tensors()
    wrong = sorted(wanted.keys() ^ tensors.keys()) or [
        name for name, value in wanted.items() if value.shape != tensors[name].shape
    ]
    if wrong:
        raise InputError(
            f"the checkpoint in {run} does not fit its recipe (tensors that differ: {len(wrong)}, first {wrong[0]!r}); "
            "it was written by another version of instant, or of a method or backbone of your own. Bring that back, or "
            "train again with --force."
        )
