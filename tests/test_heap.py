"""Freed memory is kept inside and given back afterwards, counted in page faults."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from instant.engine.heap import KeptHeap

COUNT = """
import resource
import torch
from instant.engine.heap import kept_heap

def faults() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.full((2**24,), 1.0)  # 64 MiB, more than glibc ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with kept_heap:
    faults()  # until the heap has grown
    print(faults())
print(faults())
"""


def counted(**environment: str) -> list[int]:
    given = {"PATH": "", "PYTHONPATH": ":".join(sys.path), **environment}
    out = subprocess.run([sys.executable, "-c", COUNT], env=given, capture_output=True, text=True, check=True).stdout
    return [int(line) for line in out.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc gives memory back so eagerly")
def test_memory_is_kept_within_and_given_back_after() -> None:
    within, after = counted()
    assert within < 16_384 <= after  # pages of one tensor


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc gives memory back so eagerly")
def test_what_the_environment_says_stands() -> None:
    within, after = counted(MALLOC_ARENA_MAX="8")
    assert within > 10 * 16_384 < after


def test_the_last_of_all_threads_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    heap, told = KeptHeap(), []
    monkeypatch.setattr(KeptHeap, "_set", lambda self, options: told.append(len(options)))

    def nested() -> None:
        with heap, heap:
            pass

    with heap:
        thread = threading.Thread(target=nested)
        thread.start()
        thread.join()
        assert told == [2]
    assert told == [2, 3]
