"""What all tests share.

One thread a test process: the suite runs one process a core, and threads that share a core wait for each other.
"""

import dataclasses
import signal
from pathlib import Path

import pytest
import torch
from runs import HOSTILE, small

from instant.engine.fit import fit
from instant.report.facts import Facts, collect
from instant.report.warnings import Warn
from instant.run import Run

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores Ctrl-C, which some tests send


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Uninterrupted runs of digits: of a method with its own network, and of one with a state for every sample."""
    found = {}
    for method in ("instant", "flexmatch"):
        found[method] = Run(tmp_path_factory.mktemp("whole") / method)
        fit(*small(method), run=found[method])
    return found


@pytest.fixture(scope="session")
def finished(whole: dict[str, Run]) -> Run:
    """A finished run; look at it, do not change it."""
    return whole["instant"]


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """A run that accepts and refuses, of classes with names that a page had better not believe."""
    recipe, split = small(ema="0.5", **{"method.base": "0.3"})
    split = dataclasses.replace(split, classes=(*HOSTILE, *"56789"))
    run = Run(tmp_path_factory.mktemp("hostile") / "<b>run&amp;")
    fit(recipe, split, run=run)
    facts = collect(run, split)
    facts.warnings.append(Warn("flood", f"One class floods: {HOSTILE[0]} and {HOSTILE[2]}"))
    return facts


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where decoded folders are kept: of this test alone."""
    monkeypatch.setenv("INSTANT_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache" / "folders"
