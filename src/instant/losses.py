"""Losses per row. Every method takes their mean over the whole unlabelled batch, refused rows counting as zero."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """CE with a distribution (rows, K) as target."""
    return -(target * F.log_softmax(logits, dim=1)).sum(1)


def squared_error(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the classes of the squared distance between softmax and target (Pi-model, MeanTeacher, MixMatch)."""
    return (F.softmax(logits, dim=1) - target).square().mean(1)


def forward_corrected(logits: Tensor, inflow: Tensor) -> Tensor:
    """Forward-corrected CE with a hard label k: -log (T(x)^T softmax(logits))_k (InstanT eq. 8, Patrini 2017).

    Only column k of T enters, `inflow` (rows, K) with inflow[:, i] = T[i, k].
    """
    return -torch.logsumexp(F.log_softmax(logits, dim=1) + inflow.clamp_min(1e-12).log(), dim=1)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """(rows, K) float; unlike torch's it never looks at the values, which on some devices means waiting for them."""
    return (labels.unsqueeze(1) == torch.arange(classes, device=labels.device)).float()


def hard(probs: Tensor) -> Tensor:
    """The one-hot distribution of the most probable class."""
    return one_hot(probs.argmax(1), probs.shape[1])


def sharpen(probs: Tensor, temperature: float) -> Tensor:
    """p^(1/temperature), normalised; equal to softmax(logits / temperature) of the logits behind p."""
    return F.softmax(probs.clamp_min(1e-12).log() / temperature, dim=1)
