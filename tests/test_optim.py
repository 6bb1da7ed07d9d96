"""Parameter groups, optimizers with a learning rate on the device, schedule: by hand."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from instant.backbones import build
from instant.engine.optim import Optim, build_optimizer, parameter_groups, schedule, set_lr
from instant.errors import InputError


def at(step: int, **settings: float) -> float:
    return float(schedule(torch.tensor(step), **settings))  # type: ignore[arg-type]


def single_weight() -> nn.Linear:
    """w = 1, of two dimensions, so that weight decay applies."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.ones_(layer.weight)
    return layer


def step_with(optimizer: torch.optim.Optimizer, model: nn.Module, gradient: float) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, gradient)
    optimizer.step()


# --- schedule -------------------------------------------------------------------------------------------------


def test_schedule_by_hand() -> None:
    assert at(0, steps=1024) == 1
    assert at(512, steps=1024) == pytest.approx(math.cos(7 * math.pi / 32))
    assert at(1024, steps=1024) == pytest.approx(math.cos(7 * math.pi / 16))
    assert at(2**20 - 1, steps=2**20) == pytest.approx(math.cos(7 * math.pi * (2**20 - 1) / 2**24), abs=1e-6)


def test_schedule_warms_up_then_counts_from_there() -> None:
    settings = {"steps": 110, "warmup": 10}
    assert [at(t, **settings) for t in (0, 1, 5, 10)] == pytest.approx([0, 0.1, 0.5, 1])
    assert at(60, **settings) == pytest.approx(math.cos(7 * math.pi / 32))
    assert at(110, **settings) == pytest.approx(math.cos(7 * math.pi / 16))


def test_schedule_holds_the_full_rate_before_the_cosine() -> None:
    settings = {"steps": 110, "warmup": 10, "cycles": 0.5, "hold": 0.6}
    assert [at(t, **settings) for t in (5, 10, 40, 70)] == pytest.approx([0.5, 1, 1, 1])
    assert at(90, **settings) == pytest.approx(math.cos(math.pi / 4))
    assert at(110, **settings) == pytest.approx(0, abs=1e-6)


def test_schedule_nears_zero_slowly_with_a_power_of_two() -> None:
    settings = {"steps": 100, "cycles": 0.5, "power": 2.0}
    for t in (0, 25, 50, 90, 100):
        assert at(t, **settings) == pytest.approx((1 + math.cos(math.pi * t / 100)) / 2, abs=1e-6)
    assert at(5, warmup=10, **settings) == 0.5  # the growth stays linear


def test_schedule_is_constant_without_cycles_and_never_negative() -> None:
    assert at(7, steps=10, cycles=0.0) == 1
    assert at(9, steps=10, cycles=1.0) == 0
    assert at(300, steps=100) == 0  # past the end


def test_schedule_needs_room_after_the_warm_up() -> None:
    with pytest.raises(InputError, match="below the 100 steps of the run, got 100"):
        at(0, steps=100, warmup=100)


# --- parameter groups -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape"),
    [("wrn_28_2", (3, 32, 32)), ("vit_micro_4_16", (3, 16, 16)), ("small_cnn", (1, 8, 8)), ("mlp", (4,))],
)
def test_groups_hold_every_parameter_once(name: str, shape: tuple[int, ...]) -> None:
    model = build(name, shape=shape, classes=3)
    model.head.bias.requires_grad_(False)
    grouped = [p for group in parameter_groups(model, weight_decay=0.1, lr=1.0) for p in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {p for p in model.parameters() if p.requires_grad}


def test_no_weight_decay_on_vectors_biases_and_tokens() -> None:
    model = build("vit_micro_4_16", shape=(3, 16, 16), classes=3)
    decay = {
        p: group["weight_decay"] for group in parameter_groups(model, weight_decay=0.1, lr=1.0) for p in group["params"]
    }
    for name, parameter in model.named_parameters():
        spared = name.endswith("bias") or "norm" in name or name in ("cls_token", "pos_embed")
        assert decay[parameter] == (0.0 if spared else 0.1), name


def test_layer_decay_of_a_vit_by_hand() -> None:
    """Four blocks: embeddings are layer 0, blocks 1 to 4, norm, head and all that is outside of the ViT layer 5."""
    vit = build("vit_micro_4_16", shape=(3, 16, 16), classes=3)
    learner = nn.ModuleDict({"model": vit, "transition": nn.Linear(64, 9)})
    scale = {
        p: (group["lr_scale"], float(group["lr"]))
        for group in parameter_groups(learner, weight_decay=0.1, layer_decay=0.5, lr=4.0)
        for p in group["params"]
    }
    for parameter, layer in [
        (vit.cls_token, 0),
        (vit.pos_embed, 0),
        (vit.patch_embed.proj.weight, 0),
        (vit.blocks[0].attn.qkv.weight, 1),
        (vit.blocks[3].mlp.fc2.bias, 4),
        (vit.norm.weight, 5),
        (vit.head.weight, 5),
        (learner["transition"].weight, 5),
    ]:
        assert scale[parameter] == (0.5 ** (5 - layer), 4 * 0.5 ** (5 - layer))


def test_layer_decay_is_refused_where_layers_are_not_defined() -> None:
    with pytest.raises(InputError, match=r"optim.layer_decay=0.5 needs a ViT"):
        parameter_groups(build("mlp", shape=(4,), classes=3), weight_decay=0, layer_decay=0.5, lr=1.0)


def test_a_frozen_model_is_refused() -> None:
    with pytest.raises(InputError, match="no trainable parameter"):
        parameter_groups(single_weight().requires_grad_(False), weight_decay=0, lr=1.0)


# --- optimizers -----------------------------------------------------------------------------------------------


def test_two_steps_of_nesterov_sgd_by_hand() -> None:
    model = single_weight()
    optimizer = build_optimizer(model, Optim(lr=0.1, momentum=0.9, weight_decay=0.1))
    step_with(optimizer, model, 0.5)
    # d = 0.5 + 0.1 * 1 = 0.6, buffer 0.6, update 0.6 + 0.9 * 0.6 = 1.14
    assert model.weight.item() == pytest.approx(1 - 0.1 * 1.14)
    step_with(optimizer, model, 0.5)
    # d = 0.5 + 0.1 * 0.886 = 0.5886, buffer 0.9 * 0.6 + 0.5886 = 1.1286, update 0.5886 + 0.9 * 1.1286 = 1.60434
    assert model.weight.item() == pytest.approx(0.886 - 0.1 * 1.60434)


def test_one_step_of_adamw_by_hand() -> None:
    model = single_weight()
    step_with(build_optimizer(model, Optim(name="adamw", lr=0.1, weight_decay=0.1)), model, 0.5)
    # decay 1 * (1 - 0.1 * 0.1) = 0.99; the first step is lr * g / |g| = 0.1
    assert model.weight.item() == pytest.approx(0.99 - 0.1)


@pytest.mark.parametrize("name", ["sgd", "muon", "adamw"])
def test_the_learning_rate_tensor_is_what_the_optimizer_reads(name: str) -> None:
    model = single_weight()
    optimizer = build_optimizer(model, Optim(name=name, lr=0.1, weight_decay=0.0))
    tensors = [group["lr"] for group in optimizer.param_groups]
    set_lr(optimizer, torch.tensor(0.0))
    step_with(optimizer, model, 0.5)
    assert model.weight.item() == 1
    set_lr(optimizer, torch.tensor(0.2))
    step_with(optimizer, model, 0.5)
    # SGD, as Muon for a first layer: buffer 0.9 * 0.5 + 0.5 = 0.95, update 0.5 + 0.9 * 0.95 = 1.355. Adam: a constant
    # gradient moves by lr.
    assert model.weight.item() == pytest.approx(1 - 0.2 * (1 if name == "adamw" else 1.355), abs=1e-6)
    assert all(a is group["lr"] for a, group in zip(tensors, optimizer.param_groups))  # in place


def test_set_lr_scales_each_group() -> None:
    vit = build("vit_micro_4_16", shape=(3, 16, 16), classes=3)
    optimizer = build_optimizer(vit, Optim(lr=1.0, momentum=0.0, nesterov=False, weight_decay=0.0, layer_decay=0.5))
    before = {name: parameter.detach().clone() for name, parameter in vit.named_parameters()}
    set_lr(optimizer, torch.tensor(0.32))
    step_with(optimizer, vit, 1.0)
    for name, scale in [("pos_embed", 1 / 32), ("blocks.1.mlp.fc1.weight", 1 / 8), ("head.bias", 1.0)]:
        moved = before[name] - vit.get_parameter(name)
        torch.testing.assert_close(moved, torch.full_like(moved, 0.32 * scale), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "muon", "adamw"])
def test_a_saved_optimizer_resumes_exactly(name: str) -> None:
    def fresh() -> tuple[nn.Linear, torch.optim.Optimizer]:
        model = single_weight()
        return model, build_optimizer(model, Optim(name=name, lr=0.1))

    one, optimizer = fresh()
    two, resumed = fresh()
    step_with(optimizer, one, 0.5)
    set_lr(optimizer, torch.tensor(0.05))
    two.load_state_dict(one.state_dict())
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # as through a file; torch would share tensors
    step_with(optimizer, one, 0.3)
    step_with(resumed, two, 0.3)
    assert torch.equal(one.weight, two.weight)
    set_lr(resumed, torch.tensor(0.01))  # the resumed run's own tensor, not the saved one's
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.05)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["sgd", "muon", "adamw"])
def test_a_captured_step_follows_the_schedule(name: str) -> None:
    def run(captured: bool) -> Tensor:
        model = single_weight().cuda()
        optimizer = build_optimizer(model, Optim(name=name, lr=0.1))
        step = torch.zeros((), dtype=torch.int64, device="cuda")
        model.weight.grad = torch.full_like(model.weight, 0.5)

        def one_step() -> None:
            set_lr(optimizer, 0.1 * schedule(step, steps=20, warmup=5))
            optimizer.step()
            step.add_(1)

        play: Callable[[], None] = one_step
        torch.cuda.set_sync_debug_mode("error")
        try:
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())  # what the steps read has been written
            with torch.cuda.stream(aside):
                for _ in range(3):
                    one_step()
                if captured:
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        one_step()
                    play = graph.replay
                for _ in range(15):
                    play()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
        return model.weight.detach().cpu()

    torch.testing.assert_close(run(captured=True), run(captured=False))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"name": "adam"}, "did you mean 'adamw'"),
        ({"lr": 0.0}, "optim.lr must be positive, got 0.0"),
        ({"lr": math.nan}, "optim.lr must be positive"),
        ({"lr": math.inf}, "optim.lr must be positive"),
        ({"momentum": 1.0}, r"optim.momentum must lie in \[0, 1\)"),
        ({"momentum": 0.0}, "optim.nesterov needs a momentum"),
        ({"weight_decay": -1.0}, "optim.weight_decay must be 0 or more"),
        ({"weight_decay": math.inf}, "optim.weight_decay must be 0 or more"),
        ({"layer_decay": 0.0}, r"optim.layer_decay must lie in \(0, 1\]"),
        ({"layer_decay": 1.5}, r"optim.layer_decay must lie in \(0, 1\]"),
        ({"warmup": -1}, "optim.warmup must be 0 or more"),
        ({"cycles": 2.0}, r"optim.cycles must lie in \[0, 1\]"),
        ({"hold": 1.0}, r"optim.hold must lie in \[0, 1\)"),
        ({"power": 0.0}, "optim.power must be positive"),
        ({"power": math.inf}, "optim.power must be positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Optim(**settings)  # type: ignore[arg-type]


def test_the_ends_of_what_is_allowed_are_allowed_and_the_defaults_are_those_of_the_papers() -> None:
    assert (Optim(cycles=0.0).cycles, Optim(cycles=1.0).cycles) == (0, 1)
    sgd = Optim()
    assert (sgd.name, sgd.lr, sgd.momentum, sgd.nesterov, sgd.weight_decay) == ("sgd", 0.03, 0.9, True, 5e-4)
    # cos(7 pi t / 16 T) from the first step to the last, nothing else
    assert (sgd.cycles, sgd.warmup, sgd.hold, sgd.power, sgd.layer_decay) == (7 / 16, 0, 0, 1, 1)
