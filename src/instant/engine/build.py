"""From a recipe and its data to a program that can run: network, method, feed, optimizers, on the device."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from instant.augment import Part, for_images, for_vectors
from instant.backbones import Backbone, BackboneFunction, build, load_pretrained
from instant.backbones.base import set_seed
from instant.backbones.registry import without_weights
from instant.config import Recipe, refuse_ignored
from instant.data.feed import Feed, Policy
from instant.data.folder.read import OWN, read_again
from instant.data.neighbours import neighbours
from instant.data.source import Source
from instant.data.sources import load
from instant.data.split import Split, make_split
from instant.engine.device import choose_device, choose_dtype, choose_way
from instant.engine.metrics import Meter
from instant.engine.optim import build_optimizer, schedule
from instant.engine.plain import plain_torch
from instant.engine.step import Program
from instant.errors import InputError
from instant.learner import Learner
from instant.methods import build_method, name_of
from instant.types import Method, MethodFunction, Problem

SEEDING = threading.Lock()  # torch has one generator for all threads


def source_for(recipe: Recipe) -> Source:
    """The data of a recipe, found again: a named set, or the user's own files."""
    if recipe.source == "arrays":
        raise InputError(
            "There is no data set 'arrays': samples that were given in Python can only be given there again. Ask the "
            "run about them with instant.load(RUN).decide(x), or save them and write instant label RUN x.npy."
        )
    if recipe.source != OWN or recipe.data is None:
        return load(recipe.source, recipe.data)
    labels = None if recipe.label_file is None else Path(recipe.label_file)
    return read_again(Path(recipe.data), labels, recipe.side or 0)


def split_for(recipe: Recipe, source: Source) -> Split:
    """The split a recipe asks for; a method that trains on every label there is gets them all."""
    options = without_weights(recipe.backbone, recipe.backbone_options)  # a recipe from a folder is not trusted
    recipe = replace(recipe, backbone_options=options)
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
    return make_split(source, labels=labels, validation=recipe.validation, seed=recipe.seed, draw=recipe.draw)


@plain_torch()
def build_program(
    recipe: Recipe,
    split: Split,
    *,
    policies: tuple[Policy, Policy] | None = None,
    method: MethodFunction | None = None,
    backbone: BackboneFunction | None = None,
) -> Program:
    """Everything a run needs, on its device, at step 0."""
    device = choose_device(recipe.device)
    dtype = choose_dtype(recipe.precision, device)
    shape, classes = split.train.shape, len(split.classes)

    def network(outputs: int) -> Backbone:
        return _network(recipe, shape, outputs, backbone)

    with SEEDING, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(recipe.seed)  # that of the CPU alone: those of GPUs are not put back
        model = network(classes)
        problem = Problem(
            classes=classes,
            features=model.num_features,
            unlabelled=len(split.pool),
            steps=recipe.steps,
            network=network,
        )
        built = _method(recipe, problem, method)
    if built.all_labels and split.spare:
        raise InputError(
            f"method={recipe.method} trains on every label there is, and the split leaves {split.spare} of them out; "
            "make it with labels=None."
        )
    report = None if recipe.pretrained is None else load_pretrained(model, recipe.pretrained)
    set_seed(model, recipe.seed + 2**63)  # another root than the feed's, whose streams have the same numbers
    set_seed(built, recipe.seed + 2**62)  # and than the model's: T(x) may have a network of its own
    if policies is None:
        policies = for_vectors(recipe.noise)
        if split.train.is_images:
            mirror = split.mirror if recipe.mirror is None else recipe.mirror
            policies = for_images(shape[0], mirror, shift=recipe.shift, operations=recipe.operations)
            if built.wants.parts:
                policies = Part(mirror), Part(mirror)

    if recipe.mix:
        _refuse_mixing(recipe, built, split)
    elif recipe.mix_after:
        raise InputError(
            f"mix_after={recipe.mix_after} is when mixing begins, and mix=0 is none; set mix too, or mix_after=0."
        )
    learner = Learner(model, built, ema=recipe.ema, dtype=dtype, weak_gradient=recipe.weak_gradient).to(device)
    weak, strong = policies
    near = None
    if recipe.neighbours and built.wants.second == "strong" and not split.train.is_images:
        near = neighbours(split, recipe.neighbours, device=device)
    too_large = why_streamed(recipe.memory, split, device)
    feed = Feed(
        split,
        batch=recipe.batch,
        ratio=recipe.ratio,
        wants=built.wants,
        weak=weak,
        strong=strong,
        seed=recipe.seed,
        near=near,
        streamed=too_large is not None,
        strong_labels=recipe.strong_labels,
        mix=recipe.mix,
        mix_after=min(round(recipe.mix_after * recipe.steps), recipe.steps - 1),
    ).to(device)
    if recipe.mix and not feed.mixed:
        raise InputError(
            f"mix={recipe.mix} of the {recipe.batch * recipe.ratio} strong views of a step is none of them; raise mix, "
            "batch or ratio, or set mix=0."
        )
    feed.note = too_large
    meter = Meter(split.oracle, classes).to(device)
    optimizers = [build_optimizer(learner.model, recipe.optim)]
    own = list(built.parameters())
    if own:
        rate = torch.tensor(float(built.own_lr), device=device)
        optimizers.append(torch.optim.SGD(own, lr=rate, momentum=0.9, weight_decay=built.own_decay, fused=True))
    optim = recipe.optim

    def learning_rate(step: Tensor) -> Tensor:
        return optim.lr * schedule(
            step, steps=recipe.steps, warmup=optim.warmup, cycles=optim.cycles, hold=optim.hold, power=optim.power
        )

    learner.train()
    return Program(
        learner,
        feed,
        meter,
        optimizers,
        learning_rate=learning_rate,
        clip=recipe.clip,
        way=choose_way(recipe.step, device),
        pretrained=report,
    )


def _refuse_mixing(recipe: Recipe, method: Method, split: Split) -> None:
    refuse_ignored(["mix"], split.source, images=split.train.is_images)
    if not method.takes_mixed or method.wants.second != "strong":
        raise InputError(
            f"mix={recipe.mix} makes strong views of two images, and method={recipe.method} does not learn from such; "
            "set mix=0."
        )


def why_streamed(memory: float | None, split: Split, device: torch.device) -> str | None:
    """Why the samples stay in host memory, for people; None where they fit on the device.

    They may take `memory` MiB. None: half of what a GPU has free, and anything on a CPU, which reads them in place.
    """
    if memory is None and device.type != "cuda":
        return None
    limit = torch.cuda.mem_get_info(device)[0] / 2**21 if memory is None else memory
    size = split.train.samples.nbytes / 2**20
    if size <= limit:
        return None
    return (
        f"samples stay in host memory ({size:,.1f} MiB, more than the {limit:,.1f} MiB of device memory they may "
        "take): batches are fetched ahead"
    )


def _network(
    recipe: Recipe, shape: tuple[int, ...], outputs: int, function: BackboneFunction | None = None
) -> Backbone:
    for name in ("shape", "classes"):
        if name in recipe.backbone_options:
            raise InputError(f"backbone.{name} is not an option: the data say their {name}; leave it out.")
    try:
        return build(function or recipe.backbone, shape=shape, classes=outputs, **recipe.backbone_options)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: more than memory holds
        given = ", ".join(f"backbone.{name}={value}" for name, value in recipe.backbone_options.items())
        raise InputError(f"{recipe.backbone} cannot be built with {given}: {error}") from error


def _method(recipe: Recipe, problem: Problem, function: MethodFunction | None = None) -> Method:
    recipe = recipe.suited(recipe.method if function is None else name_of(function))
    method = build_method(function or recipe.method, problem, **recipe.method_options)
    if getattr(method, "from_teacher", False) and recipe.ema == 0:
        raise InputError(
            f"method={recipe.method} learns from the averaged weights, and ema=0 means none; set ema=0.999 or so."
        )
    if method.own_lr < 0:
        raise InputError(f"method={recipe.method} has a learning rate of its own of {method.own_lr}; it must be >= 0.")
    return method
