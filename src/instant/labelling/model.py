"""A finished run as a classifier: `instant.load(RUN)`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from instant.backbones import BackboneFunction
from instant.data.store import batches
from instant.engine.device import device_of
from instant.engine.plain import plain_torch
from instant.errors import InputError
from instant.labelling.decisions import Decisions, decide_rows
from instant.labelling.inputs import as_store
from instant.labelling.judge import load_judge, require_rule
from instant.run import Run
from instant.types import MethodFunction


class Model:
    """What a run has learnt, to be asked about images or vectors such as it was trained on, numpy or torch.

    `predict` and `predict_proba` are the classifier as `instant evaluate` measures it. `decide` is the method's own
    decision, on aligned probabilities where it aligns, and may call a sample otherwise.
    """

    def __init__(
        self,
        run: Run,
        device: str = "auto",
        method: str | MethodFunction | None = None,
        backbone: str | BackboneFunction | None = None,
    ) -> None:
        self.run = run
        judge, self.classes, self.shape = load_judge(run, method, backbone)
        self._judge = judge.to(device_of(run.recipe().device, device))

    def predict(self, x: Any) -> np.ndarray:
        """The name of the most probable class of every sample: text, also where classes were given as numbers."""
        return np.array(self.classes)[self.predict_proba(x).argmax(1)]

    @plain_torch()
    @torch.no_grad()
    def predict_proba(self, x: Any) -> np.ndarray:
        """(n, K), the classes in the order of `classes`."""
        store = as_store(x, self.shape)
        blocks = batches(store, self._judge.step.device)
        parts = [self._judge.classify(block).cpu() for block in blocks]
        return torch.cat(parts).numpy()

    @plain_torch()
    def decide(self, x: Any) -> Decisions:
        """Label, confidence, threshold with its parts, and accepted or not; `.reason(row)` says why."""
        require_rule(self._judge, self.run)
        store = as_store(x, self.shape)
        return decide_rows(self._judge, store, np.arange(len(store)), self.classes)


def load(
    run: str | Path,
    *,
    device: str = "auto",
    method: str | MethodFunction | None = None,
    backbone: str | BackboneFunction | None = None,
) -> Model:
    """The model of a finished run folder. Safetensors and JSON are all that is read: nothing in them can run code.

    `method` and `backbone` are for runs of a method or backbone of your own: its function, or
    `package.module:function`.

    >>> import tempfile
    >>> import numpy as np
    >>> import instant
    >>> from instant.recipes import vectors
    >>> x = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 9]], 30, axis=0)
    >>> y = np.where(np.arange(60) % 30 < 3, np.repeat(["low", "high"], 30), "")  # three labels a class
    >>> folder = tempfile.TemporaryDirectory()
    >>> split = instant.make_split(instant.arrays(x, y), labels=None)
    >>> settings = {"steps": "60", "batch": "6", "ratio": "2"}
    >>> _ = instant.fit(vectors().override(settings), split, run=folder.name)
    >>> model = instant.load(folder.name)
    >>> model.predict([[0.5, 0.1], [8.9, 9.3]]).tolist()
    ['low', 'high']
    >>> model.decide([[0.5, 0.1], [8.9, 9.3]]).label.tolist(), model.classes  # numbers of the classes
    ([1, 0], ('high', 'low'))
    >>> folder.cleanup()
    """
    if not isinstance(run, (str, os.PathLike)):
        raise InputError(f"run={run!r} must be the path of a run folder.")
    return Model(Run(run), device, method, backbone)
