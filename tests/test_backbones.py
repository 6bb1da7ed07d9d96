"""Backbones: layout, initialisation, gradients, stochastic depth, registry."""

from __future__ import annotations

import math
import sys
import types

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from instant.backbones import BACKBONES, Backbone, DropPath, Prediction, build, set_seed, set_step
from instant.backbones.registry import TimmBackbone
from instant.errors import InputError

IMAGES = {
    "wrn_28_2": (3, 32, 32),
    "wrn_28_8": (3, 32, 32),
    "wrn_37_2": (3, 96, 96),
    "vit_s_2_32": (3, 32, 32),
    "vit_b_16_96": (3, 96, 96),
    "vit_tiny_2_32": (3, 32, 32),
    "vit_micro_4_16": (3, 16, 16),
    "small_cnn": (1, 28, 28),
    "mlp": (64,),
}
QUICK = {"wrn_28_2": (3, 8, 8), "vit_micro_4_16": (3, 16, 16), "small_cnn": (1, 8, 8), "mlp": (64,)}
each_quick = pytest.mark.parametrize("name", QUICK)


def make(name: str, **args: float) -> Backbone:
    torch.manual_seed(0)
    return build(name, shape=QUICK[name], classes=10, **args)


def batch(name: str, rows: int = 4) -> Tensor:
    return torch.randn(rows, *QUICK[name], generator=torch.Generator().manual_seed(1))


# --- layout ---------------------------------------------------------------------------------------------------


def wrn_count(widths: list[int], classes: int) -> int:
    """Parameters of a wide ResNet from its layout: 3x3 and 1x1 kernels, two BN a block, last BN, head."""
    total, previous = 3 * 16 * 9, 16
    for width in widths:
        first = 2 * previous + 9 * previous * width + 2 * width + 9 * width**2 + previous * width
        total += first + 3 * (4 * width + 18 * width**2)
        previous = width
    return total + 2 * previous + (previous + 1) * classes


def vit_count(width: int, depth: int, tokens: int, patch: int, classes: int) -> int:
    """Parameters of a ViT: patch kernel, tokens, per block qkv, proj, fc1, fc2 and two norms, last norm, head."""
    block = (3 + 1 + 4 + 4) * width**2 + (3 + 1 + 4 + 1) * width + 4 * width
    embedding = (3 * patch**2 + 1) * width + width + tokens * width
    return embedding + depth * block + 2 * width + (width + 1) * classes


@pytest.mark.parametrize(
    ("name", "exact", "by_layout"),
    [
        ("wrn_28_2", 1_467_610, wrn_count([32, 64, 128], 10)),
        ("wrn_28_8", 23_354_842, wrn_count([128, 256, 512], 10)),
        ("wrn_37_2", 5_929_434, wrn_count([32, 64, 128, 256], 10)),
        ("vit_s_2_32", 21_402_250, vit_count(384, 12, 257, 2, 10)),
        ("vit_b_16_96", 85_683_466, vit_count(768, 12, 37, 16, 10)),
        ("vit_tiny_2_32", 5_392_714, vit_count(192, 12, 257, 2, 10)),
        ("vit_micro_4_16", 205_002, vit_count(64, 4, 17, 4, 10)),
        ("small_cnn", 288_170, 9 * (32 + 32**2 + 32 * 64 + 64**2 + 64 * 128 + 128**2) + 896 + 1290),
        ("mlp", 86_026, 65 * 256 + 512 + 257 * 256 + 512 + 2570),
    ],
)
def test_parameter_count(name: str, exact: int, by_layout: int) -> None:
    with torch.device("meta"):
        model = build(name, shape=IMAGES[name], classes=10)
    assert sum(p.numel() for p in model.parameters()) == exact == by_layout


@pytest.mark.parametrize(("name", "depth"), [("wrn_28_2", 28), ("wrn_28_8", 28), ("wrn_37_2", 37)])
def test_wrn_depth_counts_every_convolution(name: str, depth: int) -> None:
    with torch.device("meta"):
        model = build(name, shape=IMAGES[name], classes=10)
    assert sum(isinstance(module, nn.Conv2d) for module in model.modules()) == depth


def test_every_name_is_covered_here() -> None:
    assert set(IMAGES) == set(BACKBONES)


@pytest.mark.parametrize("name", IMAGES)
def test_shapes_without_a_data_dependent_branch(name: str) -> None:
    with FakeTensorMode():
        model = build(name, shape=IMAGES[name], classes=7)
        set_step(model, torch.zeros((), dtype=torch.int64))
        output = model(torch.randn(2, *IMAGES[name]))
        output.logits.sum().backward()
    assert isinstance(output, Prediction)
    assert isinstance(model.head, nn.Linear)
    assert output.logits.shape == (2, 7)
    assert output.features.shape == (2, model.num_features)
    assert (model.num_features, model.classes) == (model.head.in_features, model.head.out_features)


@each_quick
def test_logits_are_the_head_of_the_features(name: str) -> None:
    model, x = make(name).eval(), batch(name)
    logits, features = model(x)
    torch.testing.assert_close(features, model.features(x))
    torch.testing.assert_close(logits, features @ model.head.weight.T + model.head.bias)


def test_wrn_activates_before_the_residual_in_its_first_block_only() -> None:
    model = make("wrn_28_2").eval()
    seen: dict[str, Tensor] = {}
    blocks = {"first": model.groups[0][0], "later": model.groups[1][0]}
    for key, block in blocks.items():
        block.bn1.bias.data.fill_(0.3)  # so that the activated input differs from the raw one
        block.register_forward_hook(lambda _, x, y, key=key: seen.update({key: x[0].first, key + " out": y.first}))
    model(batch("wrn_28_2"))
    for key, block in blocks.items():
        x = seen[key]
        active = nn.functional.leaky_relu(nn.BatchNorm2d.forward(block.bn1, x), 0.1)
        inner = nn.functional.leaky_relu(nn.BatchNorm2d.forward(block.bn2, block.conv1(active)), 0.1)
        skip = block.shortcut(active if key == "first" else x)
        torch.testing.assert_close(seen[key + " out"], skip + block.conv2(inner))


@pytest.mark.parametrize(
    ("name", "sides"), [("wrn_28_2", [32, 16, 8]), ("wrn_28_8", [32, 16, 8]), ("wrn_37_2", [48, 24, 12, 6])]
)
def test_wrn_halves_the_image_between_groups(name: str, sides: list[int]) -> None:
    seen: list[int] = []
    with torch.device("meta"):
        model = build(name, shape=IMAGES[name], classes=10)
        for group in model.groups:
            group.register_forward_hook(lambda _, xs, ys: seen.append(ys[0].shape[-1]))
        model(torch.randn(1, *IMAGES[name]))
    assert seen == sides


def test_vit_equals_its_equations() -> None:
    """The forward pass written out from the weights: explicit softmax attention, class token after the last norm."""
    model, x = make("vit_micro_4_16").eval(), batch("vit_micro_4_16")
    w = {name: value.double() for name, value in model.state_dict().items()}

    def linear(name: str, h: Tensor) -> Tensor:
        return h @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name: str, h: Tensor) -> Tensor:
        scaled = (h - h.mean(-1, keepdim=True)) / (h.var(-1, keepdim=True, unbiased=False) + 1e-6).sqrt()
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    patches = nn.functional.unfold(x.double(), 4, stride=4).transpose(1, 2)  # (B, 16, 3 * 4 * 4), row by row
    h = patches @ w["patch_embed.proj.weight"].flatten(1).T + w["patch_embed.proj.bias"]
    h = torch.cat([w["cls_token"].expand(4, 1, 64), h], dim=1) + w["pos_embed"]
    for i in range(4):
        q, k, v = linear(f"blocks.{i}.attn.qkv", norm(f"blocks.{i}.norm1", h)).split(64, dim=-1)
        heads = []
        for one in range(4):
            part = slice(16 * one, 16 * one + 16)
            scores = q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(16)
            heads.append(scores.softmax(-1) @ v[..., part])
        h = h + linear(f"blocks.{i}.attn.proj", torch.cat(heads, dim=-1))
        hidden = linear(f"blocks.{i}.mlp.fc1", norm(f"blocks.{i}.norm2", h))
        gelu = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
        h = h + linear(f"blocks.{i}.mlp.fc2", gelu)
    features = norm("norm", h)[:, 0]
    output = model(x)
    torch.testing.assert_close(output.features.double(), features, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(output.logits.double(), linear("head", features), rtol=1e-4, atol=1e-5)


def test_small_cnn_is_as_wide_as_asked() -> None:
    """8, 16 and 32 channels, two convolutions of 3 x 3 each."""
    model = build("small_cnn", shape=(1, 8, 8), classes=3, width=8)
    convolutions = [p.numel() for p in model.parameters() if p.ndim == 4]
    assert convolutions == [9 * n for n in (8, 8 * 8, 8 * 16, 16 * 16, 16 * 32, 32 * 32)]
    assert model.num_features == 32
    with pytest.raises(InputError, match="width must be at least 1, got 0"):
        build("small_cnn", shape=(1, 8, 8), classes=3, width=0)


@pytest.mark.parametrize(("side", "last"), [(4, 4), (8, 4), (28, 7), (32, 8)])
def test_small_cnn_pools_by_image_size(side: int, last: int) -> None:
    model = build("small_cnn", shape=(1, side, side), classes=3)
    assert model.stages(torch.zeros(2, 1, side, side)).shape == (2, 128, last, last)


# --- initialisation -------------------------------------------------------------------------------------------


def test_wrn_initialisation_and_batch_norm_constants() -> None:
    model = make("wrn_28_2")
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            assert module.bias is None
        if isinstance(module, nn.BatchNorm2d):
            assert module.momentum == 0.001
            assert module.eps == (1e-3 if module is model.norm else 1e-5)
    kernel = model.groups[2][3].conv2.weight  # 147,456 draws: the estimate is good to 0.2 %
    assert kernel.std().item() == pytest.approx(math.sqrt(2 / (9 * 128)), rel=0.01)
    assert kernel.mean().item() == pytest.approx(0, abs=5e-4)
    assert model.head.weight.std().item() == pytest.approx(math.sqrt(2 / (128 + 10)), rel=0.1)
    assert (model.head.bias == 0).all()
    faster = make("wrn_28_2", bn_momentum=0.1)
    assert {m.momentum for m in faster.modules() if isinstance(m, nn.BatchNorm2d)} == {0.1}


def test_vit_initialisation() -> None:
    model = make("vit_micro_4_16")
    assert model.blocks[0].attn.qkv.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.pos_embed.std().item() == pytest.approx(0.02, rel=0.1)
    assert all((m.bias == 0).all() for m in model.modules() if isinstance(m, nn.Linear))
    assert [block.drop_path1.rate for block in model.blocks] == pytest.approx([0, 0.2 / 3, 0.4 / 3, 0.2])
    streams = [m.stream for m in model.modules() if isinstance(m, DropPath)]
    assert streams == list(range(8))


def test_mlp_initialisation() -> None:
    model = make("mlp", width=512)
    assert model.layers[3].weight.std().item() == pytest.approx(math.sqrt(2 / 512), rel=0.01)
    assert all((m.bias == 0).all() for m in model.modules() if isinstance(m, nn.Linear))


# --- training -------------------------------------------------------------------------------------------------


@each_quick
def test_a_gradient_reaches_every_parameter(name: str) -> None:
    model = make(name).train()
    model(batch(name)).logits.square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@each_quick
def test_eval_treats_rows_alone_and_leaves_the_state(name: str) -> None:
    model, x = make(name).eval(), batch(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    together = model(x).logits
    torch.testing.assert_close(model(x[:1]).logits, together[:1])
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not torch.equal(model.train()(x).logits, together) or name == "mlp"


@each_quick
def test_bf16_autocast_is_near_fp32(name: str) -> None:
    model, x = make(name).eval(), batch(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(x)
    assert output.logits.dtype == torch.bfloat16
    exact = model(x).logits
    assert (output.logits.float() - exact).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize("name", ["wrn_28_2", "vit_micro_4_16", "small_cnn"])
def test_weights_are_channels_last_and_give_the_same_numbers(name: str) -> None:
    model, x = make(name).eval(), batch(name)
    convolutions = [part for part in model.modules() if isinstance(part, nn.Conv2d)]
    assert all(part.weight.is_contiguous(memory_format=torch.channels_last) for part in convolutions)
    found = [model(images).logits for images in (x, x.to(memory_format=torch.channels_last))]
    model.to(memory_format=torch.contiguous_format)
    assert any(not part.weight.is_contiguous(memory_format=torch.channels_last) for part in convolutions)
    for logits in found:
        torch.testing.assert_close(logits, model(x).logits, rtol=1e-4, atol=1e-5)


@each_quick
def test_traced_equals_eager(name: str) -> None:
    """One graph without a break; the backend that only traces, since generating C++ for these takes a minute."""

    def gradients(forward: nn.Module, model: Backbone) -> tuple[Tensor, list[Tensor]]:
        set_step(model, 5)
        logits = forward(batch(name)).logits
        return logits, list(torch.autograd.grad(logits.logsumexp(1).sum(), list(model.parameters())))

    one, two = make(name).train(), make(name).train()
    expected, expected_grads = gradients(one, one)
    actual, actual_grads = gradients(torch.compile(two, fullgraph=True, backend="aot_eager"), two)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    for a, b in zip(actual_grads, expected_grads):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    for a, b in zip(two.buffers(), one.buffers()):  # the running statistics, which the forward pass writes
        torch.testing.assert_close(a, b)


# --- stochastic depth -----------------------------------------------------------------------------------------


def test_drop_path_keeps_the_mean_and_drops_whole_samples() -> None:
    drop = DropPath(0.25, stream=3)
    y = drop(torch.ones(40_000, 2, 3))
    assert sorted(y.unique().tolist()) == pytest.approx([0, 4 / 3])
    assert torch.equal(y, y[:, :1, :1].expand_as(y))
    # A row is 4/3 with probability 3/4: mean 1, deviation sqrt(1/3), so 0.0115 is four standard errors of 40,000.
    assert y[:, 0, 0].mean().item() == pytest.approx(1, abs=4 * math.sqrt(1 / 3 / 40_000))


def test_drop_path_is_a_function_of_seed_step_and_stream() -> None:
    x = torch.ones(64, 1)

    def masks(step: int | Tensor, *, seed: int = 0, stream: int = 0) -> list[float]:
        drop = nn.Sequential(DropPath(0.5, stream=stream))
        set_seed(drop, seed)
        set_step(drop, step)
        return drop(x).flatten().tolist()

    first = masks(7)
    assert first == masks(torch.tensor(7))
    assert first != masks(8)
    assert first != masks(7, seed=1)
    assert first != masks(7, stream=1)


def test_drop_path_compiled_to_machine_code_draws_the_same_masks() -> None:
    drop = DropPath(0.5, stream=2)
    compiled = torch.compile(drop, fullgraph=True)
    x = torch.randn(16, 3)
    for step in (3, 2**20):
        set_step(drop, step)
        torch.testing.assert_close(compiled(x), drop(x))


def test_drop_path_is_the_identity_in_eval_and_at_rate_zero() -> None:
    x = torch.randn(5, 3)
    assert torch.equal(DropPath(0.9, stream=0).eval()(x), x)
    assert torch.equal(DropPath(0.0, stream=0).train()(x), x)


def test_vit_repeats_a_step_and_its_step_is_no_part_of_the_weights() -> None:
    model, x = make("vit_micro_4_16", drop_path=0.5).train(), batch("vit_micro_4_16", rows=8)
    outputs = []
    for step in (0, 1, 0):
        set_step(model, step)
        outputs.append(model(x).logits)
    assert torch.equal(outputs[0], outputs[2])
    assert not torch.equal(outputs[0], outputs[1])
    assert not [key for key in model.state_dict() if "drop_path" in key]


# --- registry -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "args", "sentence"),
    [
        ("wrn-37-2", (3, 32, 32), {}, "did you mean 'wrn_37_2'"),
        ("resnet50", (3, 32, 32), {}, "no backbone is called 'resnet50': .*, timm:NAME, "),
        ("wrn_28_2", (64,), {}, r"takes images \(C, H, W\), the samples have shape \(64,\).*one of: mlp"),
        ("mlp", (1, 8, 8), {}, r"takes vectors \(D,\).*small_cnn"),
        ("small_cnn", (8, 8), {}, r"the samples have shape \(8, 8\)$"),
        ("small_cnn", (0, 8, 8), {}, "the samples have shape"),
        ("vit_s_2_32", (3, 96, 96), {}, "takes images of 32x32, the samples are 96x96"),
        ("wrn_28_2", (3, 32, 32), {"bn_momentun": 0.1}, "did you mean 'bn_momentum'"),
        ("wrn_28_2", (3, 32, 32), {"drop_path": 0.1}, "has no argument 'drop_path'"),
        ("wrn_28_2", (3, 32, 32), {"bn_momentum": 0.0}, r"bn_momentum must lie in \(0, 1\], got 0.0"),
        ("vit_micro_4_16", (3, 16, 16), {"drop_path": 1.0}, r"drop_path must lie in \[0, 1\), got 1.0"),
        ("mlp", (64,), {"depth": 0}, "depth=0"),
    ],
)
def test_registry_refuses_with_a_sentence(
    name: str, shape: tuple[int, ...], args: dict[str, float], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        build(name, shape=shape, classes=10, **args)


def test_no_classes_is_refused() -> None:
    with pytest.raises(InputError, match="classes must be at least 1"):
        build("mlp", shape=(4,), classes=0)


def test_timm_that_is_not_installed_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)  # Python's own mark for "cannot be imported"
    with pytest.raises(InputError, match=r'pip install "instant-ssl\[timm\]"'):
        build("timm:resnet18", shape=(3, 32, 32), classes=10)


class StandIn(nn.Module):
    """A headless network with timm's calling convention, whose head widens the features as MobileNetV3's does."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.num_features, self.head_hidden_size = 6, 5
        self.trunk = nn.Conv2d(channels, 6, 3)
        self.neck = nn.Linear(6, 5)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.trunk(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        assert pre_logits
        return self.neck(x.mean((2, 3)))


def test_timm_wrapper_gives_a_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_model(name: str, *, num_classes: int, in_chans: int) -> nn.Module:
        assert num_classes == 0
        if name != "stand_in":
            raise RuntimeError(f"Unknown model ({name})")
        return StandIn(in_chans)

    timm = types.ModuleType("timm")
    monkeypatch.setattr(timm, "create_model", create_model, raising=False)
    monkeypatch.setitem(sys.modules, "timm", timm)
    model = build("timm:stand_in", shape=(2, 8, 8), classes=4)
    assert isinstance(model, TimmBackbone)
    output = model(torch.randn(3, 2, 8, 8))
    assert (output.logits.shape, output.features.shape, model.num_features) == ((3, 4), (3, 5), 5)
    with pytest.raises(InputError, match=r"timm cannot make 'other': Unknown model"):
        build("timm:other", shape=(2, 8, 8), classes=4)
    with pytest.raises(InputError, match="takes images"):
        build("timm:stand_in", shape=(64,), classes=4)
