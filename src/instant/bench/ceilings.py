"""What the device can do, measured: the rate of a large matrix product, and of copying memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from instant.bench.timing import clock_of


class Ceilings(NamedTuple):
    tflops: float
    gbs: float  # 10^9 bytes a second, read and written


class Sizes(NamedTuple):
    """Large enough that the device is busy and its caches do not help."""

    side: int  # of the matrices
    buffer: int  # bytes copied


GPU, CPU = Sizes(8192, 2**30), Sizes(1024, 2**28)


def measure_ceilings(
    device: torch.device, dtype: torch.dtype, *, tf32: bool, sizes: Sizes | None = None, repeats: int = 10
) -> Ceilings:
    """The best of several repeats: a ceiling is what can be reached."""
    sizes = sizes or (GPU if device.type == "cuda" else CPU)
    clock = clock_of(device)
    a, b = (torch.randn(sizes.side, sizes.side, device=device).to(dtype) for _ in range(2))
    product = torch.empty_like(a)
    with _tf32(tf32):
        torch.mm(a, b, out=product)
        fastest = min(clock(lambda: torch.mm(a, b, out=product)) for _ in range(repeats))
    tflops = 2 * sizes.side**3 / fastest / 1e12
    source = torch.ones(sizes.buffer, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    fastest = min(clock(lambda: target.copy_(source)) for _ in range(repeats))
    return Ceilings(tflops, 2 * sizes.buffer / fastest / 1e9)


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """Convolutions in float32 may use TF32, matrix products of torch by default not: the ceiling is theirs."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
