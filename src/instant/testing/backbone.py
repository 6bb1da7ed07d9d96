"""Does a backbone keep its promises?"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from instant import random
from instant.backbones.base import Backbone
from instant.backbones.own import try_out
from instant.backbones.registry import BackboneFunction, backbone_name, build
from instant.testing.shared import (
    CLASSES,
    ROWS,
    SAVED,
    backend,
    close,
    in_one_sentence,
    moves_whole,
    no_waiting,
    same,
    tensors_of,
)

NEAR = {"rtol": 1e-4, "atol": 1e-4}  # sums in another order


def check_backbone(
    backbone: str | BackboneFunction,
    *,
    shape: tuple[int, ...] = (3, 32, 32),
    classes: int = CLASSES,
    compiled: bool = False,
    **options: Any,
) -> None:
    """Raise AssertionError with a sentence when a backbone breaks the contract of `instant.backbones.Backbone`.

    Checked, on samples of `shape`: the form of its predictions, in training and in evaluation, with still rows and
    without; that they are finite, also of a sample that is 0 everywhere; that gradient reaches every parameter; that
    weights are drawn from torch's generator and nothing is drawn later; that rows alone are predicted as they are among
    others, in evaluation always and in training where `rows_are_independent` says so; that still rows share the batch
    of the others; that its state survives a checkpoint and stands still in evaluation; that samples are not written to;
    that `no_weight_decay` and `layer_numbers` name parameters; no host synchronisation; no tensor stays on the CPU;
    with `compiled` that the compiled network equals the eager one on predictions and gradient.
    """
    name = backbone_name(backbone)
    network, again, other = (_make(backbone, shape, classes, seed, options, name) for seed in (0, 0, 1))
    same(again.state_dict(), network.state_dict(), f"{name}: one seed gave two networks; draw weights from torch alone")
    for table in ("no_weight_decay", "layer_numbers"):
        named = network.no_weight_decay if table == "no_weight_decay" else network.layer_numbers()
        unknown = sorted(set(named) - dict(network.named_parameters()).keys())
        assert not unknown, f"{name}: {table} names {unknown[0]!r}, which is none of its parameters"

    x = random.normal(random.root(0), ROWS, *shape)
    x[-1] = 0.0
    shown = x.clone()
    found, gradients = _backward(network, x, name)
    same({"x": x}, {"x": shown}, f"{name}: it wrote into the samples; make a copy instead")
    for part, value in found.items():
        sentence = f"{name}: the {part} are not finite, where one sample is 0 everywhere"
        assert bool(torch.isfinite(value).all()), sentence
    for parameter, gradient in gradients.items():
        assert gradient is not None, f"{name}: no gradient reaches {parameter}"
        assert bool(torch.isfinite(gradient).all()), f"{name}: the gradient of {parameter} is not finite"
    drawn = f"{name}: two equal steps differ; draw only from instant.random, as instant.backbones.DropPath does"
    same(_backward(network, x, name, seed=1)[0], found, drawn)

    whole = {True: found, False: _predict(network, x, name, training=False)}
    half, shares = ROWS // 2, not network.rows_are_independent  # rows that share nothing may be dropped by their number
    beside = _predict(network, x[:half], name, still=x[half:], training=shares)
    sentence = f"{name}: still rows are predicted otherwise than in one batch, after the others"
    close(beside, whole[shares], sentence, **NEAR)
    for training, sentence in (
        (False, "in evaluation a row depends on the others"),
        (True, "it says rows_are_independent, but in training a row depends on the others"),
    ):
        if training <= network.rows_are_independent:
            few = 1 + training  # batch statistics, which training would have, are of two rows at least
            first = {part: value[:few] for part, value in whole[training].items()}
            close(_predict(network, x[:few], name, training=training), first, f"{name}: {sentence}", **NEAR)

    trained = copy.deepcopy(network)
    _backward(trained, x, name, keep=True)  # running statistics have moved
    other.load_state_dict(trained.state_dict())
    expected = _predict(trained, x, name, training=False)
    same(_predict(other, x, name, training=False), expected, f"{name}: {SAVED}")

    twin = copy.deepcopy(network)
    with in_one_sentence(name), no_waiting(name):
        twin.train()(x).logits.sum().backward()
    moves_whole(name, network, lambda moved: moved.train()(x.to("meta")))
    if compiled:
        torch._dynamo.reset()
        fast, slopes = _backward(network, x, name, compiled=True)
        close(fast, found, f"{name}: compiled predictions differ", **NEAR)
        close(slopes, gradients, f"{name}: compiled gradient differs", **NEAR)


def _make(
    backbone: str | BackboneFunction, shape: tuple[int, ...], classes: int, seed: int, options: Any, name: str
) -> Backbone:
    with in_one_sentence(name), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build(backbone, shape=shape, classes=classes, **options)
        try_out(network, name, shape=shape, classes=classes)  # ours too
    return copy.deepcopy(network)  # parts that two networks share would hide state that is kept in neither


def _predict(
    network: Backbone, x: Tensor, name: str, *, still: Tensor | None = None, training: bool = True
) -> dict[str, Tensor]:
    """Of a copy: what it predicts in training moves nothing."""
    asked = copy.deepcopy(network).train(training)
    with in_one_sentence(name), torch.no_grad():
        found = asked(x) if still is None else asked(x, still)
    if not training:
        same(tensors_of(asked), tensors_of(network), f"{name}: in evaluation its state moves")
    return found._asdict()


def _backward(
    network: Backbone, x: Tensor, name: str, *, seed: int = 0, keep: bool = False, compiled: bool = False
) -> tuple[dict[str, Tensor], dict[str, Tensor | None]]:
    """Predictions and gradients of a step in training, whatever torch's generator says; only `keep` moves `network`."""
    asked = (network if keep else copy.deepcopy(network)).train()
    asked.zero_grad(set_to_none=True)
    with in_one_sentence(name), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        call = torch.compile(asked, dynamic=False, backend=backend()) if compiled else asked
        found = call(x)
        torch.nn.functional.cross_entropy(found.logits, torch.arange(len(x)) % found.logits.shape[1]).backward()
    slopes = {parameter: value.grad for parameter, value in asked.named_parameters() if value.requires_grad}
    return {part: value.detach() for part, value in found._asdict().items()}, slopes
