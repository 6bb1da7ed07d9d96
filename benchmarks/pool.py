"""What a run's averaged weights call the images of its pool: shared by the scripts that look at pseudo-labels."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from instant.backbones import build
from instant.data.feed import Normalise
from instant.data.split import Split
from instant.engine.build import source_for, split_for
from instant.engine.metrics import predict
from instant.run import Run

EVERY = 5  # of the pool, which is enough to count mistakes and takes a CPU a minute


class Called(NamedTuple):
    name: str
    step: int  # the averaged weights are from
    split: Split
    rows: np.ndarray  # positions in the split's training images
    truth: Tensor
    probs: Tensor


def asked(doc: str | None) -> tuple[list[str], dict[str, str]]:
    """The words of the command line, runs among them, and key=value: where their data is now."""
    words = [word for word in sys.argv[1:] if "=" not in word]
    if not words or {"-h", "--help"} & set(words):
        raise SystemExit(doc)
    return words, dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)


class Opened(NamedTuple):
    name: str
    step: int  # the averaged weights are from
    split: Split
    network: torch.nn.Module
    rows: np.ndarray  # every fifth image of the pool: positions in the split's training images
    truth: np.ndarray


def opened(folder: str, moved: dict[str, str]) -> Opened:
    """A run, finished or stopped, and its pool; `moved` says where its data is now."""
    run = Run(folder)
    recipe = run.moved(moved) if moved else run.recipe()
    split = split_for(recipe, source_for(recipe))
    network, step = averaged(run, split)
    known = split.oracle.open_for_metrics()
    chosen = np.flatnonzero(known >= 0)[::EVERY]
    return Opened(run.path.name, step, split, network, split.pool[chosen], known[chosen])


def called(folder: str, moved: dict[str, str]) -> Called:
    """What its averaged weights call them."""
    name, step, split, network, rows, truth = opened(folder, moved)
    normalise = Normalise(split.mean, split.std, images=split.train.is_images)
    probs = predict(network, split.train.take(rows), normalise, device=torch.device("cpu"))
    return Called(name, step, split, rows, torch.from_numpy(truth).long(), probs)


def averaged(run: Run, split: Split) -> tuple[torch.nn.Module, int]:
    """The network that is evaluated, and the step it is from."""
    recipe = run.recipe()
    if run.finished:
        return run.load_model()[0], recipe.steps
    found = run.load_checkpoint()
    if found is None:
        raise SystemExit(f"{run} has no checkpoint yet")
    tensors, step, _ = found
    prefix = "learner.teacher." if recipe.ema else "learner.model."
    network = build(recipe.backbone, shape=split.train.shape, classes=len(split.classes), **recipe.backbone_options)
    network.load_state_dict(
        {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    )
    return network.eval(), step
