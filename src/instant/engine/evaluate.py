"""How good a saved model is on the test part of its source."""

from __future__ import annotations

from typing import Any

import torch

from instant.data.feed import Normalise
from instant.data.source import Source
from instant.engine.fit import choose_device
from instant.engine.metrics import predict
from instant.errors import InputError
from instant.run import Run


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
