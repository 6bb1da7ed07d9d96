"""Every setting of the paper, and ours, as a function that returns a Recipe.

    instant train cifar10 labels=40 method=freematch              the recipe that fits the source
    instant train cifar10 recipe=pretrained_cifar10 pretrained=vit.safetensors labels=40

`instant list recipes` prints the command of every cell of the paper's tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from instant.algorithms import METHODS, REFERENCES
from instant.backbones.registry import find_backbone
from instant.config import Recipe, no_suggestion, refuse_ignored
from instant.data.sources import SOURCES, refuse_data
from instant.data.split import per_class
from instant.engine.optim import Optim
from instant.errors import InputError, nearest
from instant.methods import find_method, options_of_ours
from instant.published import CELLS, Cell

AFTER_FEATURES = Optim(name="muon", lr=0.1, cycles=0.5)  # docs/cifar10-trials.md#muon-instead-of-sgd

# The methods without strong views see one unlabelled sample a labelled one
SMALL_RATIO = ("pseudo_label", "pi_model", "mean_teacher", "vat", "mixmatch")
Suggest = Callable[[str], dict[str, Any]]  # by the names of the command line


def _recipe(source: str, labels: int | None, method: str, suggest: Suggest, settings: dict[str, Any]) -> Recipe:
    """With what suits one of our methods in this setting; a method of your own keeps its options' defaults."""
    own = {key: value for key, value in suggest(method).items() if "." not in key and key not in settings}
    return Recipe(source=source, labels=labels, suggest=suggest, suggested=own, **own, **settings).suited(method)


def _quick_means(method: str) -> dict[str, Any]:
    """Running means that follow faster than the published 0.999, which in 600 steps would still be half its start."""
    return {"method.momentum": 0.98} if "momentum" in options_of_ours(method) else {}


def _slow_transition(method: str) -> dict[str, Any]:
    """T(x) would else take the classifier's first mistakes for a rule, and the corrected loss turn whole classes."""
    return {"method.transition_lr": 0.001} if options_of_ours(method).get("trained_on") == "labelled" else {}


def _bar_by_class(method: str) -> dict[str, Any]:
    """Forty labels are known by heart within hundreds of steps, so that the paper's kappa says nothing any more.

    FreeMatch's bar takes its place, low at first and another for each class, which makes alignment needless. Ablations
    keep what they are named after.
    """
    has = options_of_ours(method)
    whole = has.get("kappa") == "labelled" and has.get("relative") and has.get("align")
    return {"method.kappa": "self_adaptive", "method.base": 1.0, "method.align": False} if whole else {}


def quick_by_class(method: str) -> dict[str, Any]:
    """Both, for runs of a thousand steps after features."""
    return _quick_means(method) | _bar_by_class(method)


def slow_by_class(method: str) -> dict[str, Any]:
    """T(x) that learns slowly, and a bar by class: for runs of tens of thousands of steps after features."""
    return _slow_transition(method) | _bar_by_class(method)


def _fast(method: str) -> dict[str, Any]:
    """Features first, for what looks at more than labelled samples; then, from half-way on, strong views of two."""
    features = {"contrast": 0 if method in REFERENCES else 24_000}
    mixes = method in METHODS and method not in (*REFERENCES, *SMALL_RATIO)
    mixed = {"mix": 0.5, "mix_after": 10 / 21} if mixes else {"mix": 0.0, "mix_after": 0.0}
    return features | mixed | slow_by_class(method)


def _steady(method: str) -> dict[str, Any]:
    """For a small network and a handful of labels, which it soon knows by heart.

    InstanT's T(x) learns slowly, and as the classifier is sure of everything, kappa has the 0.95 of AdaMatch. Not so in
    the authors' release, whose T is not fitted on labelled samples.
    """
    slow = _slow_transition(method)
    return _quick_means(method) | slow | ({"method.base": 0.95} if slow else {})


def _mixmatch_weight(weight: float, method: str) -> dict[str, Any]:
    return {"method.weight": weight} if method == "mixmatch" else {}


def _classic_ratio(others: Suggest, method: str) -> dict[str, Any]:
    return {"ratio": 1 if method in SMALL_RATIO else 7} | others(method)


def _pretrained_average(method: str) -> dict[str, Any]:
    """Averaged weights are for MeanTeacher alone."""
    return {"ema": 0.999 if method == "mean_teacher" else 0.0} | _mixmatch_weight(10.0, method)


def classic(source: str, labels: int | None, method: str, suggest: Suggest = no_suggestion, **changes: Any) -> Recipe:
    """Table 2: WRN from scratch, 2^20 steps of SGD, 64 labelled and 7 x 64 unlabelled samples a step.

    The labelled samples are those of the paper's seeds.
    """
    settings: dict[str, Any] = {
        "draw": "usb",
        "backbone": "wrn_28_2",
        "optim": Optim(lr=0.03, momentum=0.9, nesterov=True, weight_decay=5e-4),
        "steps": 2**20,
        "batch": 64,
        "ema": 0.999,
    }
    return _recipe(source, labels, method, partial(_classic_ratio, suggest), settings | changes)


def classic_cifar10(labels: int | None = 40, method: str = "instant") -> Recipe:
    """Table 2, CIFAR-10 with 40, 250 or 4,000 labels: InstanT 94.83 / 94.72 / 95.57 %."""
    return classic("cifar10", labels, method)


def fast_cifar10(labels: int | None = 40, method: str = "instant") -> Recipe:
    """The classic setting in a tenth of the steps: 94.8 and 95.0 % with 40 labels, seeds 1 and 2 (docs/cifar10.md).

    Features are learnt first, without labels; the optimizer of both is Muon, the learning rate falls to zero, and from
    half-way on half of the strong views have a second image in them. InstanT has a bar by class (`_bar_by_class`).
    """
    settings: dict[str, Any] = {"steps": 105_000, "log_every": 500, "evaluate_every": 2500}
    optim = replace(AFTER_FEATURES, warmup=1000)
    return classic("cifar10", labels, method, _fast, optim=optim, **settings)


def classic_cifar100(labels: int | None = 400, method: str = "instant") -> Recipe:
    """Table 2, CIFAR-100 with 400, 2,500 or 10,000 labels: InstanT 53.94 / 67.09 / 72.30 %."""
    suggest = partial(_mixmatch_weight, 150.0)
    return classic("cifar100", labels, method, suggest, optim=Optim(lr=0.03, weight_decay=1e-3))


def classic_stl10(labels: int | None = 1000, method: str = "instant") -> Recipe:
    """STL-10 from scratch with WRN-37-2, the field's usual setting; not in the paper's tables."""
    return classic("stl10", labels, method, backbone="wrn_37_2")


def _pretrained(source: str, labels: int | None, method: str, **changes: Any) -> Recipe:
    """Table 1: a pretrained ViT, 204,800 steps of AdamW, 8 labelled and 8 unlabelled samples a step."""
    settings: dict[str, Any] = {
        "draw": "usb",
        "steps": 204_800,
        "batch": 8,
        "ratio": 1,
        "evaluate_every": 2048,
        "checkpoint_every": 2048,
    }
    return _recipe(source, labels, method, _pretrained_average, settings | changes)


def pretrained_cifar10(labels: int | None = 40, method: str = "instant") -> Recipe:
    """Table 1, CIFAR-10 with 10, 40 or 250 labels: InstanT 87.32 / 97.93 / 98.08 %. Needs pretrained=FILE."""
    return _pretrained("cifar10", labels, method, backbone="vit_s_2_32", optim=_adamw(5e-4, 0.5))


def pretrained_cifar100(labels: int | None = 400, method: str = "instant") -> Recipe:
    """Table 1, CIFAR-100 with 200, 400 or 2,500 labels: InstanT 74.17 / 78.80 / 84.28 %. Needs pretrained=FILE."""
    return _pretrained("cifar100", labels, method, backbone="vit_s_2_32", optim=_adamw(5e-4, 0.5))


def pretrained_stl10(labels: int | None = 40, method: str = "instant") -> Recipe:
    """Table 1 and ablation, STL-10 with 10, 40, 100 labels: InstanT 69.39 / 85.09 / 89.35 %. Needs pretrained=FILE."""
    return _pretrained("stl10", labels, method, backbone="vit_b_16_96", optim=_adamw(1e-4, 0.65))


def _adamw(lr: float, layer_decay: float) -> Optim:
    return Optim(name="adamw", lr=lr, weight_decay=5e-4, layer_decay=layer_decay, warmup=5120)


def small(source: str, labels: int | None, method: str, suggest: Suggest = _quick_means, **changes: Any) -> Recipe:
    """Small images or vectors on a laptop: a minute, not a day."""
    settings: dict[str, Any] = {
        "backbone": "small_cnn",
        "optim": Optim(lr=0.1, cycles=0.5),
        "batch": 32,
        "ratio": 4,
        "ema": 0.98,
        "log_every": 20,
        "evaluate_every": 100,
        "checkpoint_every": 100,
    }
    return _recipe(source, labels, method, suggest, settings | changes)


def digits(labels: int | None = 40, method: str = "instant") -> Recipe:
    """scikit-learn's digits on two CPU cores: the demo.

    The digits fill their frame: larger shifts cut strokes off, and three strong operations leave too little of them.
    """
    return small("digits", labels, method, _steady, steps=600, batch=16, ratio=6, shift=1 / 16, operations=2)


def fashion_mnist(labels: int | None = 40, method: str = "instant") -> Recipe:
    """Fashion-MNIST, 28 x 28, on a CPU within minutes; a starting point, not tuned."""
    return small("fashion_mnist", labels, method, steps=2000)


def images(labels: int | None = None, method: str = "instant") -> Recipe:
    """Small images in memory, with a small CNN."""
    return small("arrays", labels, method, steps=600)


def vectors(labels: int | None = None, method: str = "instant") -> Recipe:
    """Feature vectors in memory, with a small MLP.

    Noise and weight decay were chosen on training rows of five sets (docs/estimator.md).
    """
    optim = Optim(lr=0.1, cycles=0.5, weight_decay=3e-3)
    return small("arrays", labels, method, _steady, backbone="mlp", steps=600, noise=0.3, optim=optim)


RECIPES: dict[str, Callable[..., Recipe]] = {
    function.__name__: function
    for function in (
        classic_cifar10,
        fast_cifar10,
        classic_cifar100,
        classic_stl10,
        pretrained_cifar10,
        pretrained_cifar100,
        pretrained_stl10,
        digits,
        fashion_mnist,
        images,
        vectors,
    )
}

DEFAULTS = {
    "digits": "digits",
    "fashion_mnist": "fashion_mnist",
    "cifar10": "classic_cifar10",
    "cifar100": "classic_cifar100",
    "stl10": "classic_stl10",
}


def recipe_of(cell: Cell) -> str:
    """The recipe that reproduces a cell of the paper's tables."""
    return f"{'classic' if cell.table == 'table 2' else 'pretrained'}_{cell.source}"


def command_of(cell: Cell) -> str:
    """The command that reproduces a cell of the paper's tables (seed 0)."""
    weights = "" if cell.table == "table 2" else "pretrained=FILE "
    settings = f"{weights}labels={cell.labels} method={cell.method} seed=0"
    return f"instant train {cell.source} recipe={recipe_of(cell)} {settings}"


def resolve(source: str, settings: dict[str, str]) -> Recipe:
    """The recipe for a source with the command's key=value settings on top."""
    settings = dict(settings)
    name = settings.pop("recipe", None) or DEFAULTS.get(source)
    if name is None:
        raise InputError(
            f"there is no folder or file {source}, and source {source!r} is not known; {nearest(source, DEFAULTS)}"
        )
    if name not in RECIPES:
        raise InputError(f"recipe={name!r} is not known; {nearest(name, RECIPES)}")
    method = settings.get("method", "instant")
    find_method(method)  # or a sentence, before anything is downloaded
    recipe = RECIPES[name](method=method)
    if recipe.source != source:
        raise InputError(f"recipe={name} is for {recipe.source}, not for {source}; {nearest(source, RECIPES)}")
    for key in ("side", "mirror"):
        if key in settings:
            raise InputError(f"{key}={settings[key]} is for images of your own; that of {source} is fixed.")
    refuse_ignored(settings, source, images=True)
    recipe = recipe.override(settings)
    find_backbone(recipe.backbone)
    refuse_data(source, recipe.data)
    for setting, total in (("labels", recipe.labels), ("validation", recipe.validation)):
        if total is not None and source in SOURCES:  # before anything is downloaded
            per_class(setting, total, SOURCES[source].classes)
    recipe = recipe.located()
    if name.startswith("pretrained_") and "pretrained" not in settings:
        raise InputError(
            f"recipe={name} starts from pretrained weights: add pretrained=FILE (timm-style names, .safetensors or a "
            ".pth of tensors), or pretrained=none to start from scratch."
        )
    return recipe


__all__ = ["CELLS", "DEFAULTS", "RECIPES", "command_of", "recipe_of", "resolve"]
