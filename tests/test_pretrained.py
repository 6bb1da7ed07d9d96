"""Weights from a file: names, nests, prefixes, resized positions, and files that are refused."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from instant.backbones import build, load_pretrained
from instant.backbones.pretrained import resize_positions
from instant.backbones.registry import TimmBackbone
from instant.backbones.vit import VisionTransformer
from instant.errors import InputError


def vit(*, image: int = 8, patch: int = 2, classes: int = 5, seed: int = 0) -> VisionTransformer:
    torch.manual_seed(seed)
    return VisionTransformer(channels=3, classes=classes, image=image, patch=patch, width=16, depth=2, heads=2)


def state(**args: int) -> dict[str, Tensor]:
    return {name: value.contiguous() for name, value in vit(**args).state_dict().items()}


def save(path: Path, content: Any) -> Path:
    if path.suffix == ".safetensors":
        save_file(content, path)
    else:
        torch.save(content, path)
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt", ".bin"])
def test_round_trip(tmp_path: Path, suffix: str) -> None:
    source, target = state(seed=1), vit(seed=2)
    report = load_pretrained(target, save(tmp_path / f"w{suffix}", source))
    assert set(report.matched) == set(source)
    assert report.missing == report.unexpected == report.resized == report.mismatched == ()
    assert not report.head_replaced
    assert all(torch.equal(value, source[name]) for name, value in target.state_dict().items())
    assert str(report) == f"{len(source)} of {len(source)} tensors from w{suffix}"


def test_names_are_those_of_timm() -> None:
    block = {
        f"blocks.{i}.{part}.{kind}"
        for i in range(2)
        for part in ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
        for kind in ("weight", "bias")
    }
    rest = {"cls_token", "pos_embed"} | {
        f"{part}.{kind}" for part in ("patch_embed.proj", "norm", "head") for kind in ("weight", "bias")
    }
    assert set(state()) == block | rest


@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: {"model": s, "epoch": 3},
        lambda s: {"state_dict": {f"module.{k}": v for k, v in s.items()}},
        lambda s: {"model_state": {f"module.backbone.{k}": v for k, v in s.items()}},
        lambda s: {"model": {"state_dict": {f"_orig_mod.{k}": v for k, v in s.items()}}},
        lambda s: {**s, "epoch": 3},
    ],
)
def test_nests_and_prefixes_are_looked_through(
    tmp_path: Path, wrap: Callable[[dict[str, Tensor]], dict[str, Any]]
) -> None:
    source, target = state(seed=1), vit(seed=2)
    report = load_pretrained(target, save(tmp_path / "w.pth", wrap(source)))
    assert len(report.matched) == len(source)
    assert torch.equal(target.blocks[1].mlp.fc1.weight, source["blocks.1.mlp.fc1.weight"])


def test_another_grid_and_class_count(tmp_path: Path) -> None:
    source, target = state(image=16, classes=1000, seed=1), vit(image=8, classes=5, seed=2)
    fresh = target.head.weight.detach().clone()
    report = load_pretrained(target, save(tmp_path / "w.safetensors", source))
    assert report.resized == ("pos_embed",)
    assert report.head_replaced
    assert set(report.mismatched) == {"head.weight", "head.bias"}
    assert set(report.matched) == set(source) - {"head.weight", "head.bias"}
    assert torch.equal(target.head.weight, fresh)
    assert (target.head.bias == 0).all()
    assert torch.equal(target.cls_token, source["cls_token"])
    assert torch.equal(target.pos_embed[:, 0], source["pos_embed"][:, 0])
    assert target(torch.randn(2, 3, 8, 8)).logits.shape == (2, 5)
    text = str(report)
    assert text.startswith("30 of 32 tensors from w.safetensors\n")
    assert "fresh one is trained" in text
    assert "resized to this grid: pos_embed" in text


def test_positions_are_resized_over_the_grid() -> None:
    """At three times the side every third centre coincides with an old one, and the kernel interpolates."""
    torch.manual_seed(0)
    table = torch.randn(1, 1 + 4 * 4, 2)
    resized = resize_positions(table, 1 + 12 * 12)
    assert torch.equal(resized[:, :1], table[:, :1])
    old, new = table[0, 1:].view(4, 4, 2), resized[0, 1:].view(12, 12, 2)
    torch.testing.assert_close(new[1::3, 1::3], old)
    # A third of the way between two centres, Keys' kernel with a = -0.75 weighs the four neighbours so:
    weights = torch.tensor([-6, 43, 20, -3]) / 54
    torch.testing.assert_close(new[5, 1::3], torch.einsum("r,rcd->cd", weights, old))


def test_another_patch_size_leaves_the_kernel_fresh(tmp_path: Path) -> None:
    source, target = state(image=16, patch=4, seed=1), vit(image=8, patch=2, seed=2)
    fresh = target.patch_embed.proj.weight.detach().clone()
    report = load_pretrained(target, save(tmp_path / "w.pth", source))
    assert report.mismatched == ("patch_embed.proj.weight",)
    assert torch.equal(target.patch_embed.proj.weight, fresh)
    assert "other shape, left fresh: patch_embed.proj.weight" in str(report)


def test_missing_and_unexpected_are_named(tmp_path: Path) -> None:
    source = state(seed=1)
    del source["head.weight"], source["head.bias"]
    source |= {f"extra.{i}": torch.zeros(1) for i in range(6)}
    report = load_pretrained(vit(), save(tmp_path / "w.pth", source))
    assert report.missing == ("head.weight", "head.bias")
    assert not report.head_replaced
    assert report.unexpected == tuple(f"extra.{i}" for i in range(6))
    assert "in the file, unused: extra.0, extra.1, extra.2, extra.3 and 2 more" in str(report)


def test_an_exact_name_goes_before_a_stripped_one(tmp_path: Path) -> None:
    source = state(seed=1)
    target, both = vit(seed=2), {f"module.{k}": v + 1 for k, v in source.items()} | source
    report = load_pretrained(target, save(tmp_path / "w.pth", both))
    assert torch.equal(target.cls_token, source["cls_token"])
    assert set(report.unexpected) == {f"module.{name}" for name in source}


def test_a_head_is_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    source, target = state(seed=1), vit(seed=2)
    source |= {"head.weight": torch.ones(5, 7), "head.bias": torch.ones(5)}  # only the bias would fit
    report = load_pretrained(target, save(tmp_path / "w.pth", source))
    assert report.head_replaced
    assert set(report.mismatched) == {"head.weight", "head.bias"}
    assert (target.head.bias == 0).all()


def test_plain_names_reach_the_body_of_a_wrapped_timm_model(tmp_path: Path) -> None:
    source = state(classes=1000, seed=1)
    target = TimmBackbone(vit(seed=2), num_features=16, classes=5)
    report = load_pretrained(target, save(tmp_path / "w.safetensors", source))
    assert torch.equal(target.body.cls_token, source["cls_token"])
    assert report.head_replaced


def test_half_precision_files_load(tmp_path: Path) -> None:
    source = {name: value.half() for name, value in state(image=16, seed=1).items()}
    target = vit(image=8)
    load_pretrained(target, save(tmp_path / "w.safetensors", source))
    assert target.pos_embed.dtype == torch.float32
    assert torch.equal(target.norm.weight, source["norm.weight"].float())


def test_other_backbones_load_too(tmp_path: Path) -> None:
    source = build("wrn_28_2", shape=(3, 8, 8), classes=100)
    source.norm.running_mean += 1
    target = build("wrn_28_2", shape=(3, 8, 8), classes=10)
    report = load_pretrained(target, save(tmp_path / "w.pth", source.state_dict()))
    assert report.head_replaced
    assert torch.equal(target.norm.running_mean, source.norm.running_mean)


# --- files that are refused -----------------------------------------------------------------------------------


def test_weights_of_another_network_are_refused_and_change_nothing(tmp_path: Path) -> None:
    target = vit()
    before = {name: value.clone() for name, value in target.state_dict().items()}
    other = build("mlp", shape=(4,), classes=5, width=16).state_dict()  # its head fits, nothing else does
    with pytest.raises(InputError, match=r"fits nothing of this model.*head.bias.*blocks.0"):
        load_pretrained(target, save(tmp_path / "w.pth", other))
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())


class Bomb:
    """Unpickled the ordinary way, it makes a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"mkdir {self.trace}",)


@pytest.mark.parametrize("archive", ["zip", "pickle", "named safetensors"])
def test_a_file_that_holds_code_is_refused_and_not_run(tmp_path: Path, archive: str) -> None:
    trace, path = tmp_path / "ran", tmp_path / "w.pth"
    content = {"model": state(), "args": Bomb(trace)}
    if archive == "zip":
        torch.save(content, path)
    else:
        path = path.with_suffix(".pth" if archive == "pickle" else ".safetensors")
        path.write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match=r"w\.\w+ (is refused.*nothing of it was run|cannot be read)"):
        load_pretrained(vit(), path)
    assert not trace.exists()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9])
def test_a_truncated_or_empty_file_is_refused(tmp_path: Path, suffix: str, share: float) -> None:
    path = save(tmp_path / f"w{suffix}", state())
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(InputError, match=r"truncated|damaged"):
        load_pretrained(vit(), path)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("w.pth", [1, 2], "must hold a table of named tensors, it holds a list"),
        ("w.pth", {"epoch": 3}, "fits nothing of this model: it holds no tensors"),
        ("w.npz", {}, r"weights must be a file in \.safetensors, \.pth"),
    ],
)
def test_other_content_is_refused(tmp_path: Path, name: str, content: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load_pretrained(vit(), save(tmp_path / name, content))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.pth", tmp_path):
        with pytest.raises(InputError, match="no weights file at"):
            load_pretrained(vit(), path)
