"""The Triton kernels against torch's own operations: on a GPU where there is one, else under Triton's interpreter.

The interpreter rounds bfloat16 wrongly, so there everything is float32; a GPU sees both.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from instant.backbones import able, build, kernels, narrow
from instant.backbones.rows import NormAct

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
here = pytest.mark.skipif(not (kernels.INTERPRETED or DEVICE == "cuda"), reason="runs in a process of its own, below")


@pytest.mark.skipif(DEVICE == "cuda" or kernels.INTERPRETED, reason="the kernels run in this process")
@pytest.mark.skipif(kernels.triton is None, reason="Triton is only there on Linux")
def test_under_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def tensor(*shape: int) -> Tensor:
    x = torch.randn(*shape, device=DEVICE)
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def moments_of(x: Tensor) -> Tensor:
    var, mean = torch.var_mean(x.double(), dim=(0, 2, 3), correction=0)
    return torch.stack([mean, var])


@here
@pytest.mark.parametrize("shape", [(3, 16, 5, 5), (70, 32, 9, 9), (7, 128, 4, 6)])
def test_moments_survive_a_large_mean(shape: tuple[int, int, int, int]) -> None:
    """A mean of 300 deviations: squares alone would leave no digit of the variance."""
    x = tensor(*shape) + 300
    torch.testing.assert_close(kernels.moments(x).double(), moments_of(x), rtol=1e-4, atol=1e-4)


@here
def test_a_sum_and_its_moments_in_one_pass() -> None:
    x, other = tensor(9, 32, 12, 12), tensor(9, 32, 12, 12) - 2
    total, moments = kernels.add_moments(x, other)
    torch.testing.assert_close(total, x + other, rtol=0, atol=0)
    torch.testing.assert_close(moments.double(), moments_of(x + other), rtol=1e-5, atol=1e-5)


@here
def test_pulls_by_hand() -> None:
    """One channel pattern over 16: x = 1, -1; scale 1, shift 0, slope 0.1, mean 0.5; gradients 2 and 3."""
    x = torch.tensor([1.0, -1.0], device=DEVICE).view(2, 1, 1, 1).expand(2, 16, 1, 1)
    grad = torch.tensor([2.0, 3.0], device=DEVICE).view(2, 1, 1, 1).expand(2, 16, 1, 1)
    ones = torch.ones(16, device=DEVICE)
    expected = [
        2.3 * ones,  # 2 + 0.1 * 3
        0.55 * ones,  # 2 * (1 - 0.5) + 0.3 * (-1 - 0.5)
        -1.0 * ones,  # (1 - 0.5) + (-1 - 0.5)
        2.5 * ones,  # 0.25 + 2.25
    ]
    for sums in (2, 4):
        found = kernels.pulls(grad, x, ones, 0 * ones, 0.5 * ones, 0.1, sums)
        torch.testing.assert_close(found, torch.stack(expected[:sums]))


@here
@pytest.mark.parametrize(("images", "channels", "outputs"), [(6, 32, 32), (5, 16, 32), (3, 4, 16)])
@pytest.mark.parametrize("skip", [False, True])
def test_the_narrow_convolution(images: int, channels: int, outputs: int, skip: bool) -> None:
    x, weight, residual = (
        tensor(images, channels, 16, 16),
        tensor(outputs, channels, 3, 3),
        tensor(images, outputs, 16, 16),
    )
    expected = F.conv2d(x.double(), weight.double(), padding=1) + (residual.double() if skip else 0)
    y, moments = narrow.convolve(x, narrow.widened(weight), residual if skip else None)
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if DEVICE == "cpu" else {"rtol": 1e-2, "atol": 5e-2}  # a GPU takes TF32
    torch.testing.assert_close(y.double(), expected, **tolerance)
    torch.testing.assert_close(moments.double(), moments_of(expected), rtol=1e-2, atol=1e-2)


@here
def test_the_variance_of_a_constant_channel_is_never_below_zero() -> None:
    """Mean square less squared mean: of 1,000 rounded sums some come out too small, and a root of that is no number."""
    weight = torch.eye(32, device=DEVICE).view(32, 32, 1, 1) * F.pad(torch.ones(1, 1, device=DEVICE), (1, 1, 1, 1))
    x = torch.linspace(100, 1000, 32, device=DEVICE).view(1, 32, 1, 1).expand(5, 32, 16, 16)
    _, (_, variance) = narrow.convolve(x, narrow.widened(weight), None)
    assert float(variance.min()) >= 0


@here
@pytest.mark.parametrize(("images", "channels", "outputs"), [(6, 32, 32), (5, 16, 32), (3, 4, 16)])
def test_the_narrow_weight_gradient(images: int, channels: int, outputs: int) -> None:
    x, grad = tensor(images, channels, 16, 16), tensor(images, outputs, 16, 16)
    expected = torch.nn.grad.conv2d_weight(x, (outputs, channels, 3, 3), grad, padding=1)
    tolerance = {"rtol": 1e-4, "atol": 1e-3} if DEVICE == "cpu" else {"rtol": 1e-2, "atol": 1e-1}
    torch.testing.assert_close(narrow.weight_gradient(x, grad), expected, **tolerance)


@here
@pytest.mark.parametrize(("images", "channels", "outputs"), [(6, 32, 32), (5, 16, 32), (3, 32, 16)])
def test_the_narrow_input_gradient(images: int, channels: int, outputs: int) -> None:
    weight, grad = tensor(outputs, channels, 3, 3), tensor(images, outputs, 16, 16)
    expected = torch.nn.grad.conv2d_input((images, channels, 16, 16), weight, grad, padding=1)
    tolerance = {"rtol": 1e-4, "atol": 1e-3} if DEVICE == "cpu" else {"rtol": 1e-2, "atol": 5e-2}
    torch.testing.assert_close(narrow.input_gradient(weight, grad), expected, **tolerance)


@here
def test_the_whole_network_and_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """With kernels and without; float32 throughout, so that narrow convolutions must be let in."""
    fits = narrow.fits
    monkeypatch.setattr(narrow, "fits", lambda conv, x: fits(conv, x.bfloat16()))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    model = build("wrn_28_2", shape=(3, 16, 16), classes=5).train().to(DEVICE)
    for module in model.modules():
        if isinstance(module, NormAct):
            nn.init.uniform_(module.weight, 0.5, 2.0)
            nn.init.normal_(module.bias)
    x, still = tensor(6, 3, 16, 16), tensor(5, 3, 16, 16)

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad(model(x, still).logits[:6].square().mean(), list(model.parameters())))

    found = gradients()
    monkeypatch.setattr(narrow, "fits", lambda conv, x: False)
    monkeypatch.setattr(kernels, "usable", lambda x: False)
    for (name, _), a, b in zip(model.named_parameters(), found, gradients()):
        limit = 1e-4 if DEVICE == "cpu" else 5e-2
        assert float((a - b).norm() / b.norm()) < limit, name


@here
def test_what_is_tried_on_a_gpu_runs() -> None:
    able.try_reductions(torch.device(DEVICE))
    able.try_convolutions(torch.device(DEVICE))


@here
def test_a_row_that_is_too_wide_for_the_gpu_is_left_to_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    conv, x = nn.Conv2d(16, 32, 3, padding=1), tensor(2, 16, 64, 64).bfloat16()
    assert narrow.fits(conv, x)
    monkeypatch.setattr(narrow, "widest", 32)
    assert not narrow.fits(conv, x)
    assert narrow.fits(conv, x[..., :32])
    monkeypatch.setattr(kernels, "enabled", False)
    assert not narrow.fits(conv, x[..., :32])
    assert not kernels.usable(x)
