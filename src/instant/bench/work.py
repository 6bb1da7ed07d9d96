"""What a step has to do at the least: its floating-point operations and the bytes its matrix products touch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from instant.backbones import narrow  # noqa: F401 (it registers the operations of its kernels)

_aten = torch.ops.aten
# torch counts attention on a GPU and not on a CPU; the arithmetic is the same.
_ON_CPU = {
    _aten._scaled_dot_product_flash_attention_for_cpu: lambda *shapes, **_: sdpa_flop_count(*shapes[:3]),
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda *shapes, **_: sdpa_backward_flop_count(
        *shapes[:4]
    ),
}
_MATRIX = {name for name in (*flop_registry, *_ON_CPU) if isinstance(name, torch._ops.OpOverloadPacket)}


class Work(NamedTuple):
    flop: int  # a multiplication and an addition are two
    bytes: int


class _Traffic(TorchDispatchMode):
    """Sums the sizes of what matrix products read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in _MATRIX:
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
            self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return result


def count(run: Callable[[], object]) -> Work:
    """The work of `run`, which must be eager; a backward pass within it is counted too.

    Operations are those of convolutions, matrix products and attention. Bytes are a floor: each operand of these is
    read or written once, and all other work (normalisation, activations, losses, augmentation, the update) is taken
    to be fused into them and to cost nothing.

    >>> a, b = torch.ones(2, 3), torch.ones(3, 4)
    >>> count(lambda: a @ b)  # 2 * 2 * 3 * 4 operations on (6 + 12 + 8) numbers of 4 bytes
    Work(flop=48, bytes=104)
    """
    with FlopCounterMode(display=False, custom_mapping=_ON_CPU) as operations, _Traffic() as traffic:
        run()
    return Work(operations.get_total_flops(), traffic.bytes)
