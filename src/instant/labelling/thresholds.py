"""InstanT's threshold for every sample of any classifier, from its probabilities alone: nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from instant.alignment import Alignment
from instant.errors import InputError, nearest
from instant.labelling.probabilities import TOLERANCE, Array, as_array, as_table, as_tensor, blocks, class_numbers
from instant.labelling.reasons import Parts, reason
from instant.rules.instance import instance_margin
from instant.transition import inflow


@dataclass(frozen=True, eq=False)
class Thresholds:
    """One entry a sample; tau = min(1, kappa + stay + inflow), accepted where confidence > tau."""

    label: Array  # k, the most probable class
    runner_up: Array  # s, the second most probable
    confidence: Array  # P_k
    tau: Array
    kappa: Array  # beta x the mean confidence on labelled samples, the same for everyone
    stay: Array  # T_kk P_s
    inflow: Array  # sum_{i != k} T_ik P_i
    mistaken: Array  # inflow / (1 - P_k): how often such a sample is called k when it is not
    accepted: Array

    by_class = False  # whether kappa differs between classes

    def __len__(self) -> int:
        return len(self.label)

    def reason(self, row: int, classes: Sequence[str] | None = None) -> str:
        """Why this sample was accepted or refused, in one sentence."""
        names = [str(int(k)) if classes is None else classes[int(k)] for k in (self.label[row], self.runner_up[row])]
        columns = ("confidence", "tau", "kappa", "stay", "inflow", "mistaken")
        values = {column: float(getattr(self, column)[row]) for column in columns}
        accepted = bool(self.accepted[row])
        return reason(Parts(label=names[0], runner_up=names[1], accepted=accepted, by_class=self.by_class, **values))


@torch.no_grad()
def instance_thresholds(
    probs_labelled: Array,
    y_labelled: Array,
    probs_unlabelled: Array,
    *,
    transition: Array = "confusion",
    beta: float = 0.9,
    align: Array = None,
) -> Thresholds:
    """Label every sample and decide which labels to keep, by InstanT's rule (equations 3-5).

    probs_labelled    (L, K) probabilities of samples whose class is known; out-of-fold ones if the classifier was
                      trained on them, as it is surer of those than of new samples
    y_labelled        (L,) their classes, 0 .. K - 1
    probs_unlabelled  (N, K), any number of rows: they are worked on in blocks
    transition        T[i, j] = P(called j | truly i): "confusion", counted on the labelled samples (see `confusion`);
                      "identity" or None; a (K, K) matrix; or (N, K, K), one matrix a sample
    beta              share of the mean labelled confidence that everyone is asked for
    align             None; "uniform" or K class shares: probabilities are first rescaled towards these on average

    >>> probs_l = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> found = instance_thresholds(probs_l, [0, 1], np.array([[0.99, 0.01], [0.3, 0.7]]), transition="identity")
    >>> found.kappa.round(3), found.tau.round(3), found.accepted  # 0.9 * 0.85; plus 0.01; plus 0.3, cut at 1
    (array([0.765, 0.765]), array([0.775, 1.   ]), array([ True, False]))
    """
    labelled, unlabelled = as_table(probs_labelled, "probs_labelled"), as_table(probs_unlabelled, "probs_unlabelled")
    if labelled.shape[1] != unlabelled.shape[1]:
        raise InputError(
            f"probs_labelled has {labelled.shape[1]} classes and probs_unlabelled {unlabelled.shape[1]}; "
            "both need one column for every class, in the same order."
        )
    if not (isinstance(beta, Real) and 0 <= beta <= 1):
        raise InputError(f"beta={beta!r} must be a number from 0 to 1, for example 0.9.")
    classes = unlabelled.shape[1]
    device = unlabelled.device if isinstance(unlabelled, Tensor) else torch.device("cpu")
    y = class_numbers(y_labelled, len(labelled), classes)
    probs_l = torch.cat([block for _, block in blocks(labelled, "probs_labelled")])
    kappa = float(beta) * float(probs_l.double().amax(1).mean())
    matrix = _transition(transition, probs_l.argmax(1).to(y.device), y, (len(unlabelled), classes))
    rescale = _alignment(align, unlabelled, classes)

    def decide(block: Tensor, T: Tensor) -> tuple[Tensor, ...]:
        if rescale is not None:
            block = rescale(block, block)[0]
        m = margin_parts(block, inflow(T, block.argmax(1)))
        tau = (m.margin + kappa).clamp_max(1.0)
        everyone = torch.full_like(tau, kappa)
        return m.label, m.runner_up, m.confidence, tau, everyone, m.stay, m.inflow, m.mistaken, m.confidence > tau

    parts = []
    for start, block in blocks(unlabelled, "probs_unlabelled", entries=classes if matrix.ndim == 2 else classes**2):
        T = matrix if matrix.ndim == 2 else _checked_matrix(as_tensor(matrix[start : start + len(block)]))
        parts.append(decide(block, T.to(device, block.dtype)))
    columns = [torch.cat(column) for column in zip(*parts)]
    return Thresholds(*(columns if isinstance(unlabelled, Tensor) else [column.numpy() for column in columns]))


class MarginParts(NamedTuple):
    """m(x) and what it is made of, one entry a row; named as in `Thresholds`."""

    label: Tensor
    runner_up: Tensor
    confidence: Tensor
    margin: Tensor
    stay: Tensor
    inflow: Tensor
    mistaken: Tensor


def margin_parts(probs: Tensor, column: Tensor) -> MarginParts:
    """The margin of training, taken apart; `column` (B, K) is column k of each row's T."""
    confidence, label = probs.max(1)
    second, runner_up = probs.scatter(1, label[:, None], -1.0).max(1)
    margin = instance_margin(probs, column)
    stay = column.gather(1, label[:, None]).squeeze(1) * second
    others = probs.scatter(1, label[:, None], 0.0)  # their sum is 1 - confidence, where rounding leaves that
    flow = (column * others).sum(1)
    mistaken = (flow / others.sum(1).clamp_min(torch.finfo(probs.dtype).tiny)).clamp_max(1.0)
    return MarginParts(label, runner_up, confidence, margin, stay, flow, mistaken)


def confusion(predicted: Tensor, y: Tensor, classes: int) -> Tensor:
    """T counted on labelled samples: row i is how often class i was called j, with one more sample spread evenly.

    The share of its counts is what the paper's loss for T tends to; the extra sample keeps a class with few labels
    from being certain, and makes a class without any uniform.

    >>> confusion(torch.tensor([0, 0, 1]), torch.tensor([0, 0, 0]), 2)  # (2 + .5) / 4, (1 + .5) / 4; no sample of 1
    tensor([[0.6250, 0.3750],
            [0.5000, 0.5000]], dtype=torch.float64)
    """
    counts = torch.bincount(y * classes + predicted, minlength=classes**2).view(classes, classes).double()
    return (counts + 1 / classes) / (counts.sum(1, keepdim=True) + 1)


def _transition(transition: Array, predicted: Tensor, y: Tensor, shape: tuple[int, int]) -> Array:
    """(K, K) as a tensor, or (N, K, K) as it was given."""
    rows, classes = shape
    if transition is None or isinstance(transition, str):
        name = transition or "identity"
        if name == "identity":
            return torch.eye(classes)
        if name == "confusion":
            return confusion(predicted, y, classes)
        raise InputError(f"transition={name!r} is not known; {nearest(name, ('confusion', 'identity'))}")
    matrix = transition.detach() if isinstance(transition, Tensor) else as_array(transition, "transition")
    if isinstance(matrix, np.ndarray) and matrix.dtype.kind not in "fiu":
        raise InputError(f"transition: expected numbers, or 'confusion' or 'identity', got {matrix.dtype}.")
    if tuple(matrix.shape) not in ((classes, classes), (rows, classes, classes)):
        raise InputError(
            f"transition: expected a matrix of shape {(classes, classes)}, or {(rows, classes, classes)} for one a "
            f"sample, got {tuple(matrix.shape)}."
        )
    return _checked_matrix(as_tensor(matrix)) if matrix.ndim == 2 else matrix


def _checked_matrix(matrix: Tensor) -> Tensor:
    sums = matrix.sum(-1)
    if not (bool(((sums - 1).abs() <= TOLERANCE).all()) and float(matrix.amin()) >= 0):
        worst = float(sums.flatten()[(sums - 1).abs().nan_to_num(torch.inf).argmax()])
        raise InputError(
            f"transition: expected probabilities whose rows sum to 1, got a row with the sum {worst:.4g} and the "
            f"smallest entry {float(matrix.amin()):.4g}. Entry (i, j) is the probability that class i is called j."
        )
    return matrix


def _alignment(align: Array, unlabelled: Array, classes: int) -> Alignment | None:
    """The alignment of training, standing still at the mean prediction over all rows."""
    if align is None:
        return None
    if isinstance(align, str):
        if align != "uniform":
            raise InputError(f"align={align!r} is not known; use 'uniform', the share of every class, or None.")
        target = torch.full((classes,), 1 / classes)
    else:
        shares = as_array(align, "align")
        if shares.dtype.kind not in "fiu":
            raise InputError(f"align: expected 'uniform', or a number for every class, got {shares.dtype}.")
        target = torch.from_numpy(shares.astype(np.float64))
        if target.shape != (classes,) or not (bool((target >= 0).all()) and abs(float(target.sum()) - 1) <= TOLERANCE):
            raise InputError(
                f"align: expected {classes} shares from 0 that sum to 1, one a class, got shape {tuple(target.shape)} "
                f"with the sum {float(target.sum()):.4g}."
            )
    sums = [block.sum(0) for _, block in blocks(unlabelled, "probs_unlabelled")]
    still = Alignment(classes, momentum=1.0).to(sums[0])
    still.model.copy_(torch.stack(sums).double().sum(0) / len(unlabelled))
    still.target.copy_(target)
    still.started.fill_(1.0)
    return still
