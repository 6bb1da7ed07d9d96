"""`import instant`: public names are found, also by those who look before they ask; and what torch is told first."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import instant


def test_completion_finds_every_public_name() -> None:
    assert set(instant.__all__) <= set(dir(instant))


@pytest.mark.parametrize("name", instant.__all__)
def test_a_public_name_is_what_its_module_calls_so(name: str) -> None:
    assert getattr(instant, name) is getattr(importlib.import_module(instant._HOMES[name]), name)


def test_every_home_is_public_and_another_name_is_none() -> None:
    assert sorted(instant._HOMES) == sorted(instant.__all__)
    with pytest.raises(AttributeError, match="no attribute 'InstantClassifier'"):
        instant.InstantClassifier  # noqa: B018


@pytest.mark.parametrize(
    ("said", "found"),
    [({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")],
    ids=["nothing", "how long", "otherwise"],
)
def test_waiting_threads_are_told_not_to_spin_for_long_before_torch_is_loaded(said: dict[str, str], found: str) -> None:
    code = "import os, sys, instant; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    given = {"PATH": "", "PYTHONPATH": ":".join(sys.path), **said}
    out = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True).stdout
    assert out.split() == [found, "False"]
