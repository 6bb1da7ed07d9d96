"""On a CPU, memory that one step frees is kept for the next, instead of going back to the system and being zeroed anew.

By default glibc returns the large blocks of a network's activations at every step, and each comes back a page fault at
a time: with photos of 64 x 64, forty per cent of the processor time.
"""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import ContextDecorator

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # of malloc.h
USUAL = {MMAP_MAX: 65_536, MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20}  # where glibc itself ends up
KEPT = {MMAP_MAX: 0, TRIM_THRESHOLD: -1}


class KeptHeap(ContextDecorator):
    """A context for work on large tensors; the last of all threads to leave gives everything back.

    Without glibc, or where the environment already says how to allocate, it does nothing.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0

    def __enter__(self) -> None:
        with self.lock:
            self.inside += 1
            if self.inside == 1:
                self._set(KEPT)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0 and self._set(USUAL):
                ctypes.CDLL(None).malloc_trim(0)

    @staticmethod
    def _set(options: dict[int, int]) -> bool:
        if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
            return False
        try:
            process = ctypes.CDLL(None)
            change, _ = process.mallopt, process.malloc_trim
        except (OSError, TypeError, AttributeError):  # macOS, Windows, musl
            return False
        for option, value in options.items():
            change(option, value)
        return True


kept_heap = KeptHeap()
