"""Which of the Triton kernels a GPU can run: tried once, before a step is compiled with them."""

from __future__ import annotations

from functools import cache

import torch

from instant.backbones import kernels, narrow

AMPLE = 160 * 1024  # bytes of shared memory a program may have: less than that does not hold rows of 64 pixels


@cache
def settle(gpu: torch.device) -> str | None:
    """Switch off, for the whole process, what cannot run there, and say why no kernel can; None: some do."""
    if kernels.triton is None or not kernels.enabled:
        return None
    try:
        try_reductions(gpu)
    except torch.OutOfMemoryError:  # which may pass
        raise
    except Exception as error:  # no C compiler, no headers of Python, a GPU that Triton does not know, ...
        kernels.enabled = False
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    known = torch.cuda.get_device_properties(gpu)
    if known.major < 8:  # bfloat16 is imitated there, in more shared memory than there is
        narrow.widest = 0
    elif getattr(known, "shared_memory_per_block_optin", 0) < AMPLE:
        narrow.widest = min(narrow.widest, 32)
        try:
            try_convolutions(gpu)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # cuDNN can do it too
            narrow.widest = 0
    return None


def try_reductions(device: torch.device) -> None:
    x = torch.ones(2, 16, 4, 4, device=device)
    kernels.add_moments(x, x)


def try_convolutions(device: torch.device) -> None:
    """Those that take most: 32 channels, 32 pixels wide, and a residual."""
    x = torch.ones(narrow.WITH_RESIDUAL, 32, 32, 32, device=device, dtype=torch.bfloat16)
    narrow.convolve(x, narrow.widened(x[:, :, :3, :3].repeat(8, 1, 1, 1)), x)
    narrow.weight_gradient(x, x)
