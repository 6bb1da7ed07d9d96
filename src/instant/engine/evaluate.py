"""How good a model is: during training, and when it has been saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from instant.backbones import BackboneFunction
from instant.contrast import contrastive
from instant.data.feed import Normalise
from instant.data.source import Source
from instant.data.split import Split
from instant.engine.device import device_of
from instant.engine.metrics import accuracy, predict
from instant.errors import InputError
from instant.learner import Learner
from instant.methods import name_of
from instant.run import Run


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
    seen = split.train.take(split.spread)
    calls = predict(learner.judged, seen, normalise, device=device, dtype=learner.dtype).argmax(1)
    found["called"] = (torch.bincount(calls, minlength=len(split.classes)) / len(seen)).tolist()
    return found


def evaluate_run(
    run: Run, source: Source, *, backbone: str | BackboneFunction | None = None, device: str = "auto"
) -> dict[str, Any]:
    """Accuracy over all test samples and per class, from model.safetensors alone.

    Where no class of a test sample is known, over the validation part, which the run held out of training.
    """
    if run.recipe().method == name_of(contrastive):
        raise InputError(f"{run} holds features, learnt without classes; evaluate the run that started from them.")
    network, card = run.load_model(backbone)
    if tuple(card["shape"]) != source.test.shape or tuple(card["classes"]) != source.classes:
        raise InputError(
            f"{run} was trained on {len(card['classes'])} classes of shape {tuple(card['shape'])}, but {source.name} "
            f"has {len(source.classes)} of shape {source.test.shape}; evaluate it on the data it was trained for."
        )
    part, store, targets = "test", source.test, source.test_targets
    if not (targets >= 0).any():
        split = run.split_record()
        if not split["validation"]:
            raise InputError(
                f"{source.name} has no test samples with a known class, and {run} held no labels out for validation; "
                f"there is nothing to evaluate it on. See what its labels are worth with: instant certify {run.quoted}"
            )
        run.require_same_samples(source)
        part, store = "validation", source.train.take(np.array(split["validation"]))
        targets = np.array(split["validation_targets"])
    where = device_of(run.recipe().device, device)
    normalise = Normalise(card["mean"], card["std"], images=store.is_images).to(where)
    probs = predict(network.to(where), store, normalise, device=where)
    known = torch.from_numpy(targets >= 0).to(where)
    truth = torch.from_numpy(targets).to(where)[known]
    right = (probs.argmax(1)[known] == truth).double()
    return {
        "run": str(run),
        "part": part,
        "samples": len(truth),
        "accuracy": float(right.mean()),
        "per_class": {
            name: float(right[truth == k].mean()) for k, name in enumerate(source.classes) if bool((truth == k).any())
        },
    }
