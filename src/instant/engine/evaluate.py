"""How good a model is: during training, and when it has been saved."""

from __future__ import annotations

from typing import Any

import torch

from instant.data.feed import Normalise
from instant.data.source import Source
from instant.data.split import Split
from instant.engine.device import choose_device
from instant.engine.metrics import accuracy, predict
from instant.errors import InputError
from instant.learner import Learner
from instant.run import Run

LOOKED_AT = 1024  # samples of the pool, evenly spread: enough to see one class flood the others


def evaluate(learner: Learner, split: Split, normalise: Normalise) -> dict[str, Any]:
    """Accuracy on the test part and on the validation part where there is one; how often the pool is called what."""
    parts = {"accuracy": (split.test, split.test_targets)}
    if len(split.validation):
        parts["validation_accuracy"] = (split.train.take(split.validation), split.validation_targets)
    device = normalise.mean.device
    found: dict[str, Any] = {}
    for name, (store, targets) in parts.items():
        if (targets >= 0).any():
            probs = predict(learner.judged, store, normalise, device=device, dtype=learner.dtype)
            found[name] = accuracy(probs, targets)
    rows = split.pool[:: -(-len(split.pool) // LOOKED_AT)]
    calls = predict(learner.judged, split.train.take(rows), normalise, device=device, dtype=learner.dtype).argmax(1)
    found["called"] = (torch.bincount(calls, minlength=len(split.classes)) / len(rows)).tolist()
    return found


def evaluate_run(run: Run, source: Source, *, device: str = "auto") -> dict[str, Any]:
    """Accuracy over all test samples and per class, from model.safetensors alone."""
    network, card = run.load_model()
    if tuple(card["shape"]) != source.test.shape or tuple(card["classes"]) != source.classes:
        raise InputError(
            f"{run} was trained on {len(card['classes'])} classes of shape {tuple(card['shape'])}, but {source.name} "
            f"has {len(source.classes)} of shape {source.test.shape}; evaluate it on the data it was trained for."
        )
    if not (source.test_targets >= 0).any():
        raise InputError(
            f"{source.name} has no test samples with a known class; there is nothing to evaluate {run} on."
        )
    where = choose_device(device)
    normalise = Normalise(card["mean"], card["std"], images=source.test.is_images).to(where)
    probs = predict(network.to(where), source.test, normalise, device=where)
    known = torch.from_numpy(source.test_targets >= 0).to(where)
    truth = torch.from_numpy(source.test_targets).to(where)[known]
    right = (probs.argmax(1)[known] == truth).double()
    return {
        "run": str(run),
        "samples": len(truth),
        "accuracy": float(right.mean()),
        "per_class": {
            name: float(right[truth == k].mean()) for k, name in enumerate(source.classes) if bool((truth == k).any())
        },
    }
