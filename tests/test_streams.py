"""Rows that learn beside rows that do not: same predictions, same statistics, and just the wanted gradient."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from instant.backbones import build
from instant.backbones.streams import BatchNorm
from instant.learner import Learner
from instant.testing import make_learner, make_views


def test_one_stream_is_ordinary_batch_norm() -> None:
    ours, theirs = BatchNorm(3), nn.BatchNorm2d(3)
    x = torch.randn(8, 3, 4, 4)
    torch.testing.assert_close(ours([x])[0], theirs(x), rtol=0, atol=0)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)


def test_two_streams_share_their_statistics() -> None:
    ours, theirs = BatchNorm(3, momentum=0.3), nn.BatchNorm2d(3, momentum=0.3)
    for norm in (ours, theirs):
        nn.init.uniform_(norm.weight, 0.5, 2.0) if norm is ours else norm.load_state_dict(ours.state_dict())
    x, still = 2 + torch.randn(6, 3, 4, 4), 3 * torch.randn(10, 3, 4, 4)
    both = theirs(torch.cat([x, still]))
    torch.testing.assert_close(torch.cat(ours([x, still])), both, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-5, atol=1e-5)


def test_the_gradient_of_the_first_stream_is_that_of_the_joint_batch() -> None:
    norm = BatchNorm(3)
    x, still = torch.randn(6, 3, 4, 4, requires_grad=True), torch.randn(10, 3, 4, 4, requires_grad=True)
    target = torch.randn(6, 3, 4, 4)
    out, rest = norm([x, still])
    assert not rest.requires_grad
    (found,) = torch.autograd.grad((out * target).sum(), x)
    joint = nn.BatchNorm2d(3)(torch.cat([x, still]))[:6]
    expected, dropped = torch.autograd.grad((joint * target).sum(), [x, still])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert float(dropped.abs().sum()) > 0, "what is dropped: the pull of x on the still rows through the statistics"


@pytest.mark.parametrize("name", ["wrn_28_2", "vit_micro_4_16"])
def test_a_backbone_predicts_the_same_either_way(name: str) -> None:
    side = 16
    torch.manual_seed(0)
    model = build(
        name, shape=(3, side, side), classes=5, **({"drop_path": 0.0} if name.startswith("vit") else {})
    ).train()
    twin = copy.deepcopy(model)
    x, still = torch.randn(4, 3, side, side), torch.randn(6, 3, side, side)
    beside, joint = model(x, still), twin(torch.cat([x, still]))
    torch.testing.assert_close(beside.logits, joint.logits, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=1e-3, atol=1e-4)
    assert beside.logits[:4].requires_grad


def test_a_backbone_without_two_streams_falls_back_to_one_batch() -> None:
    torch.manual_seed(0)
    model = build("small_cnn", shape=(1, 8, 8), classes=3).train()
    twin = copy.deepcopy(model)
    x, still = torch.randn(4, 1, 8, 8), torch.randn(6, 1, 8, 8)
    torch.testing.assert_close(model(x, still).logits, twin(torch.cat([x, still])).logits, rtol=0, atol=0)


def test_without_batch_statistics_the_fast_way_gives_the_same_gradient() -> None:
    """An MLP with LayerNorm: weak rows are only looked at, so leaving them out of the backward pass changes nothing."""
    fast = make_learner("instant")
    assert not fast.weak_gradient
    slow = copy.deepcopy(fast)
    slow.weak_gradient = True
    views = make_views(fast.method)
    for learner in (fast, slow):
        learner(views).loss.backward()
    for (name, a), (_, b) in zip(fast.named_parameters(), slow.named_parameters()):
        if a.requires_grad:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-6, msg=name)


def test_weak_gradient_is_a_choice_where_there_are_batch_statistics() -> None:
    model = build("wrn_28_2", shape=(3, 8, 8), classes=4)
    method = make_learner("fixmatch").method
    assert Learner(model, method).weak_gradient
    assert not Learner(model, method, weak_gradient=False).weak_gradient
