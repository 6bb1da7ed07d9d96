"""What cases by hand share: views whose network is the identity, so that inputs are log-probabilities; evidence."""

from __future__ import annotations

import math

import torch

from instant import random
from instant.types import Evidence, Prediction, Problem, Views

LOG = math.log
SUPERVISED = -LOG(0.6)  # one labelled row (.6, .4) of class 0


def views(z_l, y_l, z_w, z_s, step: int = 1000, index=None, strong_l: int = 0) -> Views:
    """Inputs that are their own logits: the model below is the identity."""
    z_l, z_w, z_s = (
        torch.tensor(z, dtype=torch.float32).log() if len(z) else torch.zeros(0, 2) for z in (z_l, z_w, z_s)
    )
    index = torch.arange(len(z_w)) if index is None else torch.tensor(index)
    labels = torch.tensor(y_l)
    y_weak = labels[: len(labels) - strong_l]
    return Views(z_l, labels, z_w, z_s, index, torch.tensor(step), random.root(0), y_weak, torch.ones(0))


def identity(x: torch.Tensor, still: torch.Tensor | None = None) -> Prediction:
    x = x if still is None else torch.cat([x, still])
    return Prediction(x, x)


def problem(steps: int = 1000, pool: int = 4) -> Problem:
    return Problem(classes=2, features=2, unlabelled=pool, steps=steps)


def run(method, given: Views, teacher=identity):
    return method(identity, teacher, given)


def seen(probs, probs_l=((0.5, 0.5),), y_l=(0,), index=None, step=0, inflow=None) -> Evidence:
    probs = torch.tensor(probs)
    index = torch.arange(len(probs)) if index is None else torch.tensor(index)
    inflow = None if inflow is None else torch.tensor(inflow)
    return Evidence(probs, torch.tensor(probs_l), torch.tensor(y_l), index, torch.tensor(step), inflow)
