"""Which device computes, in which numbers and with which kernels, as far as it can be told without one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from instant.backbones import able, kernels, narrow
from instant.engine import device
from instant.engine.device import choose_device, choose_dtype, device_of
from instant.errors import InputError
from instant.recipes import resolve

H200, RTX_4090, A100, T4 = (9, 232_448), (8, 101_376), (8, 166_912), (7, 65_536)
GPU = torch.device("cuda")
PTXAS = RuntimeError("Failed to find C compiler.\nPlease specify via CC environment variable.")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with one, as far as it is asked about it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(device, "_useless", lambda gpu: None)
    monkeypatch.setattr(device, "settle", lambda gpu: None)
    return monkeypatch


def test_auto_is_the_gpu_if_there_is_one(gpu: pytest.MonkeyPatch) -> None:
    assert choose_device("auto") == choose_device("cuda") == GPU
    gpu.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")


def test_a_gpu_that_torch_was_not_built_for(gpu: pytest.MonkeyPatch) -> None:
    gpu.setattr(device, "_useless", lambda gpu: "no kernel image is available")
    with pytest.warns(UserWarning, match=r"the GPU cannot be used \(no kernel image is available\); the CPU"):
        assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(InputError, match=r"device=cuda:0: that GPU cannot be used \(no .*\); use device=cpu\."):
        choose_device("cuda:0")


def test_it_is_tried_before_it_is_used() -> None:
    assert device._useless.__wrapped__(torch.device("cpu")) is None
    assert "meta" in str(device._useless.__wrapped__(torch.device("meta"))), "which has no numbers to give back"


def test_a_run_is_asked_where_it_was_trained(gpu: pytest.MonkeyPatch) -> None:
    assert device_of("cpu") == torch.device("cpu")
    assert device_of("cuda:0") == torch.device("cuda:0")
    assert device_of("cuda:3") == GPU, "there is no such here"
    assert device_of("cpu", "cuda") == GPU
    with pytest.raises(InputError, match="device=cuda:3: this machine has 1 GPU"):
        device_of("cpu", "cuda:3")


def test_bfloat16_is_for_gpus_that_multiply_it(gpu: pytest.MonkeyPatch) -> None:
    for capability, dtype in (((7, 5), torch.float32), ((8, 0), torch.bfloat16), ((12, 0), torch.bfloat16)):
        gpu.setattr(torch.cuda, "get_device_capability", lambda device, known=capability: known)
        assert choose_dtype("auto", GPU) == dtype
        assert choose_dtype("bfloat16", GPU) == torch.bfloat16
    assert choose_dtype("auto", torch.device("cpu")) == torch.float32
    assert resolve("digits", {}).precision == "auto"


@pytest.mark.parametrize(
    ("known", "convolutions", "widest"),
    [(H200, None, 64), (A100, None, 64), (RTX_4090, None, 32), (RTX_4090, PTXAS, 0), (T4, None, 0)],
)
def test_the_kernels_fit_the_gpu(
    known: tuple[int, int], convolutions: Exception | None, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = _settled(monkeypatch, known, None, convolutions)
    assert tried is None
    assert kernels.enabled
    assert narrow.widest == widest


def test_memory_that_is_full_says_nothing_about_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    full = torch.OutOfMemoryError("CUDA out of memory.")
    for tried in ((full, None), (None, full)):
        with pytest.raises(torch.OutOfMemoryError):
            _settled(monkeypatch, RTX_4090, *tried)
        assert kernels.enabled
    monkeypatch.setattr(torch, "ones", _raising(full))
    with pytest.raises(torch.OutOfMemoryError):
        device._useless.__wrapped__(GPU)


def test_without_kernels_torch_does_it(gpu: pytest.MonkeyPatch) -> None:
    assert _settled(gpu, H200, PTXAS, None) == "Failed to find C compiler."
    assert not kernels.enabled
    assert not kernels.present(torch.ones(1, 16, 4, 4))
    gpu.setattr(device, "settle", lambda gpu: "Failed to find C compiler.")
    with pytest.warns(UserWarning, match=r"Triton's kernels cannot run here \(Failed to find C compiler\.\)"):
        choose_device("cuda")


def _settled(
    patch: pytest.MonkeyPatch, known: tuple[int, int], reductions: Exception | None, convolutions: Exception | None
) -> str | None:
    properties = SimpleNamespace(major=known[0], shared_memory_per_block_optin=known[1])
    patch.setattr(torch.cuda, "get_device_properties", lambda gpu: properties)
    patch.setattr(kernels, "triton", object())
    patch.setattr(kernels, "enabled", True)
    patch.setattr(narrow, "widest", 64)
    patch.setattr(able, "try_reductions", _raising(reductions))
    patch.setattr(able, "try_convolutions", _raising(convolutions))
    return able.settle.__wrapped__(GPU)


def _raising(error: Exception | None) -> Callable[..., None]:
    def outcome(*_: object, **__: object) -> None:
        if error is not None:
            raise error

    return outcome
