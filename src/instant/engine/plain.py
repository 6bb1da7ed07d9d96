"""What a caller has told torch for its own work is not meant for ours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


class _Float32:
    """torch's default dtype is float32 inside; all threads share it, so the last to leave brings back what it was."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.before: torch.dtype | None = None

    def __enter__(self) -> None:
        with self.lock:
            self.inside += 1
            if torch.get_default_dtype() != torch.float32:
                self.before = torch.get_default_dtype()
                torch.set_default_dtype(torch.float32)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0 and self.before is not None:
                torch.set_default_dtype(self.before)
                self.before = None


_FLOAT32 = _Float32()


@contextmanager
def plain_torch() -> Iterator[None]:
    """Gradients are on, new tensors float32 on the CPU, and numbers not shortened, whatever the caller has set.

    It is as it was afterwards.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_FLOAT32)
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield
