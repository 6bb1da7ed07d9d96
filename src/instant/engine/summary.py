"""What is kept of a finished run: its results, and the card its model is shared with."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import torch

import instant
from instant.config import Recipe
from instant.data.split import Split
from instant.engine.device import describe
from instant.engine.metrics import QUANTILES, summarise_accuracy


def summarise(
    recipe: Recipe, split: Split, history: list[dict[str, Any]], *, seconds: float, earlier: float, device: torch.device
) -> dict[str, Any]:
    """The results of a run, each under its own name; of its seconds, the earlier ones went into features."""
    last = history[-1]
    tests = [record["accuracy"] for record in history if "accuracy" in record]
    aside = earlier + sum(record.get("seconds_evaluating", 0.0) for record in history)
    quantiles = last.get("threshold_quantiles")
    return {
        "method": recipe.method,
        "source": recipe.source,
        "backbone": recipe.backbone,
        "seed": recipe.seed,
        "steps": recipe.steps,
        **summarise_accuracy(tests),
        "validation_accuracy": last.get("validation_accuracy"),
        "accuracy_of": "averaged weights (EMA)" if recipe.ema > 0 else "last weights",
        "utilisation": last.get("utilisation"),
        "pseudo_label_accuracy": last.get("pseudo_label_accuracy"),
        "threshold_mean": last.get("threshold"),
        "threshold_quantiles": dict(zip(map(str, QUANTILES), quantiles)) if quantiles else None,
        "loss": last["loss"],
        "label_budget": split.budget,
        "split_hash": split.hash,
        "seconds": seconds,
        "seconds_features": earlier,
        "steps_per_second": recipe.steps / max(seconds - aside, 1e-9),
        "device": describe(device),
        "versions": {
            "instant": instant.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }


def model_card(recipe: Recipe, split: Split) -> dict[str, Any]:
    """What is needed to rebuild the network and to read its inputs and outputs."""
    return {
        "backbone": recipe.backbone,
        "backbone_options": recipe.backbone_options,
        "shape": list(split.train.shape),
        "classes": list(split.classes),
        "mean": list(split.mean),
        "std": list(split.std),
    }
