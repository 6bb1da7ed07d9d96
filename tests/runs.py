"""What the tests of training share: small problems, a Ctrl-C, real processes, and what makes two runs equal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_blobs
from torch import Tensor

from instant import recipes
from instant.config import Recipe
from instant.data.sources import arrays, load
from instant.data.split import Split
from instant.engine.build import split_for
from instant.engine.fit import Callback
from instant.run import Run

DIGITS = load("digits")
TINY = {"steps": "24", "batch": "8", "ratio": "2", "log_every": "5", "evaluate_every": "10", "checkpoint_every": "6"}
TINY["device"] = "cpu"  # also where there is a GPU, whose sums need not come out the same twice
# Names of classes that would like to be markup, or are too long for any line
HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a" * 90, "{{ 7 * 7 }}", "&lt;b&gt;")


def small(method: str = "instant", **settings: str) -> tuple[Recipe, Split]:
    """A second of digits."""
    recipe = recipes.digits(labels=10, method=method).override(TINY | settings)
    return recipe, split_for(recipe, DIGITS)


def points(method: str = "instant", **settings: str) -> tuple[Recipe, Split]:
    """A tenth of a second of vectors."""
    y = np.arange(150) % 3
    x = np.random.default_rng(0).normal(size=(150, 5)) + 2 * y[:, None]
    recipe = recipes.vectors(labels=6, method=method).override(TINY | {"backbone.width": "16"} | settings)
    return recipe, split_for(recipe, arrays(x[:120], y[:120], x[120:], y[120:]))


class StopAt(Callback):
    """Ctrl-C while a step is running."""

    def __init__(self, *steps: int) -> None:
        self.steps = steps

    def step(self, step: int) -> None:
        if step in self.steps:
            signal.raise_signal(signal.SIGINT)


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def curves(run: Run) -> list[dict[str, Any]]:
    """The records of a run without what a clock says."""
    records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if "seconds" not in key} for record in records]


def assert_same_run(found: Run, expected: Run) -> None:
    """Weights, averages, method state, optimizer state, meter and clock; the shared model; the curves."""
    tensors, step, _ = found.load_checkpoint()  # type: ignore[misc]
    wanted, last, _ = expected.load_checkpoint()  # type: ignore[misc]
    assert step == last
    assert_equal(tensors, wanted)
    assert model_bytes(found) == model_bytes(expected)
    assert curves(found) == curves(expected)


def model_bytes(run: Run) -> bytes:
    return (run.path / "model.safetensors").read_bytes()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


COMMAND = [sys.executable, "-m", "instant", "train", "digits", "labels=10", "batch=8", "ratio=2", "log_every=5"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *words], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def blobs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three clouds: samples, classes, and labels of which four a class are known."""
    x, truth = make_blobs(150, centers=[(0, 0), (5, 0), (0, 5)], random_state=0)
    y = np.full(150, -1)
    for k in range(3):
        y[np.flatnonzero(truth == k)[:4]] = k
    return x, truth, y
