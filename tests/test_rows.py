"""Rows that learn beside rows that do not: same predictions, same statistics, and just the wanted gradient."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from instant.backbones import build
from instant.backbones.rows import NormAct, Rows, convolve
from instant.backbones.wrn import WideResNet
from instant.errors import InputError
from instant.learner import Learner
from instant.testing import make_learner, make_views


def plain(model: WideResNet, x: torch.Tensor) -> torch.Tensor:
    """The same network from torch's own operations."""

    def norm(bn: nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(F.batch_norm(x, None, None, bn.weight, bn.bias, True, 0.0, bn.eps), 0.1)

    x = model.stem(x)
    for block in (block for group in model.groups for block in group):
        h = norm(block.bn1, x)
        skip = block.shortcut(h if block.activate_first else x)
        x = skip + block.conv2(norm(block.bn2, block.conv1(h)))
    return model.head(norm(model.norm, x).mean(dim=(2, 3)))


def gradients(model: nn.Module, loss: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def wide(side: int = 8) -> WideResNet:
    torch.manual_seed(0)
    model = build("wrn_28_2", shape=(3, side, side), classes=5).double().train()
    for module in model.modules():  # a fresh network hides mistakes in scale and shift
        if isinstance(module, NormAct):
            nn.init.uniform_(module.weight, 0.5, 2.0)
            nn.init.normal_(module.bias)
    return model


def test_with_all_rows_learning_it_is_the_ordinary_network_and_gradient() -> None:
    model = wide()
    x, y = torch.randn(6, 3, 8, 8).double(), torch.arange(6) % 5
    ours, theirs = model(x).logits, plain(model, x)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    found, expected = (gradients(model, F.cross_entropy(logits, y)) for logits in (ours, theirs))
    for (name, _), a, b in zip(model.named_parameters(), found, expected):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9, msg=name)


def test_the_gradient_reaches_the_input() -> None:
    """VAT asks for it."""
    model = wide()
    x = torch.randn(4, 3, 8, 8).double().requires_grad_()
    (found,) = torch.autograd.grad(model(x).logits.square().sum(), x)
    (expected,) = torch.autograd.grad(plain(model, x).square().sum(), x)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_compiled_gives_the_same_gradient() -> None:
    model = wide()
    x, still = torch.randn(4, 3, 8, 8).double(), torch.randn(3, 3, 8, 8).double()
    block = model.groups[0]
    compiled = torch.compile(lambda x, still: block(convolve(model.stem, Rows.of(x, still))).first.square().mean())
    found, expected = (
        torch.autograd.grad(f(x, still), list(block.parameters()))
        for f in (compiled, compiled._torchdynamo_orig_callable)
    )
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_running_statistics_move_as_torch_moves_them() -> None:
    ours, theirs = NormAct(3, momentum=0.3), nn.BatchNorm2d(3, momentum=0.3)
    x, still = 2 + torch.randn(6, 3, 4, 4), 3 * torch.randn(10, 3, 4, 4)
    both = F.leaky_relu(theirs(torch.cat([x, still])), 0.1)
    rows = ours(Rows.of(x, still))
    torch.testing.assert_close(rows.whole, both, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(rows.first, both[:6], rtol=1e-5, atol=1e-5)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-5, atol=1e-5)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(Rows.of(x)).first, F.leaky_relu(theirs(x), 0.1), rtol=1e-5, atol=1e-5)


def test_one_pixel_has_no_statistics() -> None:
    with pytest.raises(InputError, match="batch=1 leaves one pixel a channel"):
        NormAct(3, momentum=0.1)(Rows.of(torch.randn(1, 3, 1, 1)))


def test_still_rows_like_the_learning_ones_give_the_ordinary_gradient() -> None:
    """Twice the same rows, the loss on the first half: what the second would add, the first stands in for."""
    model = wide()
    x, y = torch.randn(6, 3, 8, 8).double(), torch.arange(6) % 5
    found = gradients(model, F.cross_entropy(model(x, x.clone()).logits[:6], y))
    expected = gradients(model, F.cross_entropy(model(torch.cat([x, x])).logits[:6], y))
    for (name, _), a, b in zip(model.named_parameters(), found, expected):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9, msg=name)


def test_the_gradient_knows_that_scale_and_shift_do_not_matter() -> None:
    """Also where still rows are unlike: no component along 1 and x, or every weight before a norm would drift."""
    norm = NormAct(3, momentum=0.1, eps=1e-12).double()
    x, still = torch.randn(6, 3, 4, 4).double().requires_grad_(), 5 + 3 * torch.randn(10, 3, 4, 4).double()
    rows = norm(Rows.of(x, still))
    assert not rows.whole.requires_grad
    (found,) = torch.autograd.grad((rows.first * torch.randn(6, 3, 4, 4)).sum(), x)
    assert float(found.norm()) > 0.1
    torch.testing.assert_close(found.sum((0, 2, 3)), torch.zeros(3).double(), rtol=0, atol=1e-9)
    torch.testing.assert_close((found * x.detach()).sum((0, 2, 3)), torch.zeros(3).double(), rtol=0, atol=1e-9)


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


def test_a_backbone_without_such_a_way_falls_back_to_one_batch() -> None:
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
    assert not Learner(model, method).weak_gradient
    assert Learner(model, method, weak_gradient=True).weak_gradient


def test_it_is_compiled_in_one_piece_also_by_older_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 2.13 the compiler cannot follow the question whether a device has autocast, and cuts the step there."""
    monkeypatch.setattr(torch.amp, "is_autocast_available", lambda kind: pytest.fail("asked in a step"))
    model, x, still = wide().float(), torch.randn(2, 3, 8, 8), torch.randn(1, 3, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert Rows.of(x).whole.dtype == torch.bfloat16
        found = torch.compile(model, fullgraph=True, backend="eager")(x, still).logits
        torch.testing.assert_close(found, model(x, still).logits)
    assert Rows.of(x).whole.dtype == torch.float32
