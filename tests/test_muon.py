"""Muon: its directions, its step by hand, and which weights it turns."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from instant.backbones import build
from instant.engine import muon
from instant.engine.muon import QUINTIC, SPEED, directions, orthogonal
from instant.engine.optim import Optim, build_optimizer


def after_five_rounds(value: float) -> float:
    """A singular value, by itself."""
    a, b, c = QUINTIC
    for _ in range(5):
        value = a * value + b * value**3 + c * value**5
    return value


def random_matrix(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def turned_of(model: nn.Module) -> set[str]:
    groups = build_optimizer(model, Optim(name="muon")).param_groups
    turned = {parameter for group in groups if group["turned"] for parameter in group["params"]}
    return {name for name, parameter in model.named_parameters() if parameter in turned}


# --- directions -----------------------------------------------------------------------------------------------


def test_singular_vectors_stay_and_singular_values_go_through_the_polynomial() -> None:
    left, values, right = torch.linalg.svd(random_matrix(6, 20), full_matrices=False)
    found = orthogonal((left @ values.diag() @ right)[None])[0]
    expected = torch.tensor([after_five_rounds(float(value)) for value in values / values.norm()])
    torch.testing.assert_close(left.T @ found @ right.T, expected.diag(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [0.01, 0.03, 0.1, 0.5, 1.0])
def test_large_or_small_a_singular_value_ends_near_one(value: float) -> None:
    assert 0.6 < after_five_rounds(value) < 1.3


def test_what_few_samples_ask_for_counts_as_much() -> None:
    """Fifty times smaller before, of the same size after."""
    found = torch.linalg.svdvals(directions([torch.diag(torch.tensor([50.0, 1.0]))])[0])
    assert 0.6 < float(found.min()) <= float(found.max()) < 1.3


def test_the_direction_of_a_tall_matrix_is_that_of_the_wide_one_on_its_side() -> None:
    wide = random_matrix(4, 16)
    torch.testing.assert_close(directions([wide.T])[0], directions([wide])[0].T)


def test_matrices_of_other_shapes_do_not_change_each_other() -> None:
    shapes = [(8, 3, 3, 3), (4, 16, 1, 1), (16, 4), (5, 5)]  # wide, wider, tall, square
    matrices = [random_matrix(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    for given, found in zip(matrices, directions(matrices)):
        assert found.shape == given.shape
        torch.testing.assert_close(found, directions([given])[0], rtol=1e-4, atol=1e-5)
        found_values = torch.linalg.svdvals(found.flatten(1))
        assert 0.6 < float(found_values.min()) <= float(found_values.max()) < 1.3


def test_bfloat16_is_enough() -> None:
    matrices = [random_matrix(*shape, seed=seed) for seed, shape in enumerate([(8, 3, 3, 3), (16, 4)])]
    for exact, short in zip(directions(matrices), directions(matrices, True)):
        assert short.dtype == exact.dtype
        assert 0 < float((short - exact).abs().max()) < 0.05


def test_a_large_matrix_does_not_fill_up_the_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, ...]] = []
    monkeypatch.setattr(muon, "orthogonal", lambda stack, short: sizes.append(tuple(stack.shape)) or orthogonal(stack))
    matrices = [random_matrix(*shape, seed=1) for shape in ((2, 3), (40, 80), *4 * [(2, 3)])]
    for given, found in zip(matrices, directions(matrices)):
        torch.testing.assert_close(found, directions([given])[0], rtol=1e-4, atol=1e-5)
    assert sizes[:2] == [(5, 2, 3), (1, 40, 80)]


def test_no_gradient_is_no_direction() -> None:
    assert not directions([torch.zeros(3, 4), random_matrix(2, 2)])[0].any()


# --- the step -------------------------------------------------------------------------------------------------


def three_layers() -> nn.Sequential:
    """The second is turned: it is neither the first nor the last."""
    model = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(3)))
    for layer in model:
        nn.init.eye_(layer.weight)
    return model


def test_two_steps_by_hand() -> None:
    """A gradient of c times a rotation has two singular values of c: what remains of it is the rotation."""
    model = three_layers()
    optimizer = build_optimizer(model, Optim(name="muon", lr=0.1, momentum=0.9, weight_decay=0.2))
    rotation = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    length = after_five_rounds(1 / math.sqrt(2))
    expected = torch.eye(2)
    for _ in range(2):
        for layer in model:
            layer.weight.grad = 3 * rotation
        optimizer.step()
        expected = (1 - 0.1 * 0.2 / (1 - 0.9)) * expected - 0.1 * SPEED * length * rotation
    torch.testing.assert_close(model[1].weight.detach(), expected)


@pytest.mark.parametrize("nesterov", [True, False])
def test_all_else_moves_as_with_sgd(nesterov: bool) -> None:
    settings = Optim(name="muon", lr=0.1, momentum=0.8, nesterov=nesterov, weight_decay=0.01)
    ours = build("small_cnn", shape=(1, 8, 8), classes=3)
    theirs = copy.deepcopy(ours)
    turned = turned_of(ours)
    assert turned
    assert turned < {name for name, _ in ours.named_parameters()}
    turning = build_optimizer(ours, settings)
    sgd = build_optimizer(theirs, Optim(lr=0.1, momentum=0.8, nesterov=nesterov, weight_decay=0.01))
    for seed in range(3):
        for model, optimizer in ((ours, turning), (theirs, sgd)):
            for number, parameter in enumerate(model.parameters()):
                parameter.grad = random_matrix(*parameter.shape, seed=100 * seed + number)
            optimizer.step()
    for name, parameter in ours.named_parameters():
        same = torch.allclose(parameter, theirs.get_parameter(name), rtol=1e-5, atol=1e-6)
        assert same == (name not in turned), name


def test_a_layer_without_a_gradient_stays_where_it_is() -> None:
    model = three_layers()
    optimizer = build_optimizer(model, Optim(name="muon"))
    model[0].weight.grad = torch.ones(2, 2)
    optimizer.step()
    assert torch.equal(model[1].weight, torch.eye(2))
    assert not torch.equal(model[0].weight, torch.eye(2))


# --- which weights --------------------------------------------------------------------------------------------


def test_convolutions_are_turned_but_for_the_first_layer() -> None:
    model = build("wrn_28_2", shape=(3, 32, 32), classes=10)
    weights = {name for name, parameter in model.named_parameters() if parameter.ndim > 1}
    assert weights - turned_of(model) == {"stem.weight", "head.weight"}


def test_a_vit_keeps_its_embeddings_and_its_head() -> None:
    model = build("vit_micro_4_16", shape=(3, 16, 16), classes=3)
    weights = {name for name, parameter in model.named_parameters() if parameter.ndim > 1}
    assert weights - turned_of(model) == {"cls_token", "pos_embed", "patch_embed.proj.weight", "head.weight"}


def test_a_convolution_of_many_groups_is_left_to_sgd() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1), nn.Linear(4, 2))
    assert turned_of(model) == {"2.weight"}


@pytest.mark.parametrize("first", [True, False])
def test_a_head_is_spared_wherever_it_stands_and_whatever_it_is(first: bool) -> None:
    model = nn.Module()
    for name in ["head", "one", "two"] if first else ["one", "two", "head"]:
        layer = nn.Linear(2, 2)
        model.add_module(name, nn.Sequential(nn.Dropout(), layer) if name == "head" else layer)
    assert turned_of(model) == {"two.weight"}


def test_a_weight_that_the_first_layer_shares_is_the_first_layers() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
    model[2].weight = model[0].weight
    assert turned_of(model) == {"1.weight"}


def test_other_optimizers_know_no_turned_weights() -> None:
    model = build("mlp", shape=(4,), classes=3)
    groups = [build_optimizer(model, Optim(name=name)).param_groups for name in ("sgd", "adamw")]
    assert not any(group["turned"] for some in groups for group in some)
