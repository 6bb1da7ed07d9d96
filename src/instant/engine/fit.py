"""The one trainer: the command, the estimator and the benchmarks all build a Recipe and call `fit`."""

from __future__ import annotations

import platform
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import instant
from instant.algorithms import build_method, method_options
from instant.augment import for_images, for_vectors
from instant.backbones import Backbone, build, load_pretrained
from instant.backbones.base import set_seed
from instant.config import Recipe
from instant.data.feed import Feed, Policy
from instant.data.source import Source
from instant.data.split import Split, make_split
from instant.engine.metrics import QUANTILES, Meter, accuracy, predict, summarise_accuracy
from instant.engine.optim import build_optimizer, schedule
from instant.engine.step import Program, Way
from instant.errors import InputError
from instant.learner import Learner
from instant.run import Run
from instant.types import Method, MethodFunction, Problem


class Callback:
    """Watches a run; override what you need."""

    def start(self, recipe: Recipe, split: Split, step: int) -> None: ...
    def step(self, step: int) -> None: ...
    def record(self, record: dict[str, Any]) -> None: ...
    def end(self, summary: dict[str, Any]) -> None: ...


class Interrupted(Exception):
    """Ctrl-C: the run stopped between two steps, with its checkpoint saved."""

    def __init__(self, step: int, run: Run | None) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step
        self.run = run


@dataclass
class Trained:
    """What `fit` returns."""

    recipe: Recipe
    split: Split
    learner: Learner
    summary: dict[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)


def fit(
    recipe: Recipe,
    split: Split,
    *,
    run: Run | None = None,
    resume: bool = False,
    force: bool = False,
    callbacks: Sequence[Callback] = (),
    policies: tuple[Policy, Policy] | None = None,
    method: MethodFunction | None = None,
) -> Trained:
    """Train; with a `run`, keep checkpoints, curves and results in its folder, and `resume` from there.

    A run that is already in the folder is only replaced with `force`, and only once the recipe is known to be good.
    `policies` (weak, strong) and `method` stand in for what the recipe names, for functions that have no name.
    """
    program = build_program(recipe, split, policies=policies, method=method)
    device = program.clock.device
    learner, meter = program.learner, program.meter
    history: list[dict[str, Any]] = []
    step, seconds = 0, 0.0
    with nullcontext() if run is None else run.exclusive(), _interrupt_flag() as interrupted:
        if run is not None and resume:
            saved = run.load_checkpoint()
            if saved is not None:
                tensors, step, seconds = saved
                _check_same(program, tensors, run)
                program.restore(tensors)
            history = run.rewind(step)
        elif run is not None:
            run.begin(recipe, split, force=force)
        for callback in callbacks:
            callback.start(recipe, split, step)

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
                if last or step % recipe.evaluate_every == 0:
                    before = time.perf_counter()
                    record |= evaluate(learner.judged, split, program, device)
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
            if stop and not last:
                raise Interrupted(step, run)

        summary = summarise(recipe, split, history, seconds=time.perf_counter() - started, device=device)
        if run is not None:
            run.finish(learner.judged, model_card(recipe, split), summary)
    for callback in callbacks:
        callback.end(summary)
    return Trained(recipe, split, learner, summary, history)


def split_for(recipe: Recipe, source: Source) -> Split:
    """The split a recipe asks for; a method that trains on every label there is gets them all."""
    problem = Problem(
        classes=len(source.classes),
        features=1,
        unlabelled=len(source.train),
        steps=recipe.steps,
        network=lambda outputs: _network(recipe, source.train.shape, outputs),
    )
    with torch.random.fork_rng(devices=[]):
        everything = _method(recipe, problem).all_labels
    labels = None if everything else recipe.labels
    return make_split(source, labels=labels, validation=recipe.validation, seed=recipe.seed)


def build_program(
    recipe: Recipe,
    split: Split,
    *,
    policies: tuple[Policy, Policy] | None = None,
    method: MethodFunction | None = None,
) -> Program:
    """Everything a run needs, on its device, at step 0."""
    device = choose_device(recipe.device)
    dtype = choose_dtype(recipe.precision, device)
    shape, classes = split.train.shape, len(split.classes)

    def network(outputs: int) -> Backbone:
        return _network(recipe, shape, outputs)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = network(classes)
        problem = Problem(
            classes=classes,
            features=model.num_features,
            unlabelled=len(split.pool),
            steps=recipe.steps,
            network=network,
        )
        built = _method(recipe, problem, method)
    if recipe.pretrained is not None:
        load_pretrained(model, recipe.pretrained)
    set_seed(model, recipe.seed + 2**63)  # another root than the feed's, whose streams have the same numbers
    if policies is None:
        channels = shape[0]
        policies = for_images(channels, split.mirror) if split.train.is_images else for_vectors()

    learner = Learner(model, built, ema=recipe.ema, dtype=dtype, weak_gradient=recipe.weak_gradient).to(device)
    if device.type == "cuda" and split.train.is_images:
        learner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    weak, strong = policies
    feed = Feed(
        split, batch=recipe.batch, ratio=recipe.ratio, wants=built.wants, weak=weak, strong=strong, seed=recipe.seed
    ).to(device)
    meter = Meter(split.oracle).to(device)
    optimizers = [build_optimizer(learner.model, recipe.optim)]
    own = list(built.parameters())
    if own:
        rate = torch.tensor(built.own_lr, device=device)
        optimizers.append(torch.optim.SGD(own, lr=rate, momentum=0.9, fused=True))
    optim = recipe.optim

    def learning_rate(step: Tensor) -> Tensor:
        return optim.lr * schedule(step, steps=recipe.steps, warmup=optim.warmup, cycles=optim.cycles)

    if built.exact:
        torch.backends.cudnn.allow_tf32 = False
    learner.train()
    return Program(
        learner,
        feed,
        meter,
        optimizers,
        learning_rate=learning_rate,
        clip=recipe.clip,
        way=choose_way(recipe.step, device),
    )


def _network(recipe: Recipe, shape: tuple[int, ...], outputs: int) -> Backbone:
    try:
        return build(recipe.backbone, shape=shape, classes=outputs, **recipe.backbone_options)
    except TypeError as error:
        given = ", ".join(f"backbone.{name}={value}" for name, value in recipe.backbone_options.items())
        raise InputError(f"{recipe.backbone} cannot be built with {given}: {error}") from error


def _method(recipe: Recipe, problem: Problem, function: MethodFunction | None = None) -> Method:
    """The method of a recipe, after a look at the kinds of its options."""
    name = function or recipe.method
    defaults = method_options(name)
    for option, value in recipe.method_options.items():
        default = defaults.get(option)
        if isinstance(default, bool):
            fine, must = isinstance(value, bool), "true or false"
        elif isinstance(default, int | float):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            fine, must = number and abs(value) < 2**31, f"a number, for example {default}"  # NaN is not below either
        else:
            fine, must = isinstance(value, str) or not isinstance(default, str), f"a word, for example {default}"
        if not fine:
            raise InputError(f"method.{option}={value!r} must be {must}")
    method = build_method(name, problem, **recipe.method_options)
    if getattr(method, "from_teacher", False) and recipe.ema == 0:
        raise InputError(
            f"method={recipe.method} learns from the averaged weights, and ema=0 means none; set ema=0.999 or so."
        )
    if method.own_lr < 0:
        raise InputError(f"method={recipe.method} has a learning rate of its own of {method.own_lr}; it must be >= 0.")
    return method


def evaluate(network: nn.Module, split: Split, program: Program, device: torch.device) -> dict[str, float]:
    """Accuracy on the test part, and on the validation part where there is one."""
    found: dict[str, float] = {}
    normalise, dtype = program.feed.normalise, program.learner.dtype
    if len(split.test):
        test = accuracy(predict(network, split.test, normalise, device=device, dtype=dtype), split.test_targets)
        if test is not None:
            found["accuracy"] = test
    if len(split.validation):
        held = split.train.take(split.validation)
        probs = predict(network, held, normalise, device=device, dtype=dtype)
        value = accuracy(probs, split.validation_targets)
        assert value is not None
        found["validation_accuracy"] = value
    return found


def summarise(
    recipe: Recipe, split: Split, history: list[dict[str, Any]], *, seconds: float, device: torch.device
) -> dict[str, Any]:
    """The results of a run, each under its own name."""
    last = history[-1]
    tests = [record["accuracy"] for record in history if "accuracy" in record]
    judging = sum(record.get("seconds_evaluating", 0.0) for record in history)
    quantiles = last.get("threshold_quantiles")
    return {
        "method": recipe.method,
        "source": recipe.source,
        "backbone": recipe.backbone,
        "seed": recipe.seed,
        "steps": recipe.steps,
        **summarise_accuracy(tests),
        "validation_accuracy": last.get("validation_accuracy"),
        "accuracy_of": "averaged weights (EMA)" if recipe.ema > 0 else "last weights",
        "utilisation": last.get("utilisation"),
        "pseudo_label_accuracy": last.get("pseudo_label_accuracy"),
        "threshold_mean": last.get("threshold"),
        "threshold_quantiles": dict(zip(map(str, QUANTILES), quantiles)) if quantiles else None,
        "loss": last["loss"],
        "label_budget": split.budget,
        "split_hash": split.hash,
        "seconds": seconds,
        "steps_per_second": recipe.steps / max(seconds - judging, 1e-9),
        "device": describe(device),
        "versions": {
            "instant": instant.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }


def model_card(recipe: Recipe, split: Split) -> dict[str, Any]:
    """What is needed to rebuild the network and to read its inputs and outputs."""
    return {
        "backbone": recipe.backbone,
        "backbone_options": recipe.backbone_options,
        "shape": list(split.train.shape),
        "classes": list(split.classes),
        "mean": list(split.mean),
        "std": list(split.std),
    }


def describe(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads"


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device={name!r} is not known; use auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device={name}: this machine has no CUDA GPU that torch can use; use device=cpu or auto.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device={name}: this machine has {torch.cuda.device_count()} GPU, counted from cuda:0.")
    return device


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def choose_way(way: str, device: torch.device) -> Way:
    if way == "auto":
        return "captured" if device.type == "cuda" else "eager"
    if way == "captured" and device.type != "cuda":
        raise InputError(
            "step=captured records a CUDA graph and needs a GPU; use step=eager or step=compiled on a CPU."
        )
    if way == "compiled" and device.type == "cpu" and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        raise InputError("step=compiled needs a C++ compiler on a CPU, and none is on PATH; use step=eager.")
    return way  # type: ignore[return-value]


@contextmanager
def _interrupt_flag() -> Iterator[threading.Event]:
    """Ctrl-C sets a flag that the loop reads between steps; a second Ctrl-C stops at once."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def handle(signum: int, frame: object) -> None:
        if flag.is_set():
            raise KeyboardInterrupt
        flag.set()

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, previous)


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
    raise InputError(
        f"the loss stopped being a finite number at step {at} ({cause}); the likely cause is too high a learning "
        f"rate (optim.lr={recipe.optim.lr}). Lower it, or set clip=1.{kept}"
    )


def _check_same(program: Program, tensors: dict[str, Tensor], run: Run) -> None:
    """A checkpoint must hold what this version of the program needs, in the same shapes."""
    wanted = program.tensors()
    wrong = sorted(wanted.keys() ^ tensors.keys()) or [
        name for name, value in wanted.items() if value.shape != tensors[name].shape
    ]
    if wrong:
        raise InputError(
            f"the checkpoint in {run} does not fit its recipe ({len(wrong)} tensors differ, first {wrong[0]!r}); "
            "it was written by another version. Train again with --force."
        )
