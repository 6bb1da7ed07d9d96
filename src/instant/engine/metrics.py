"""What a run measures of itself: sums on the device, read by the host once per logging interval.

The only module that opens the oracle.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from instant.data.feed import Normalise
from instant.data.split import Oracle
from instant.data.store import Store, batches
from instant.engine.history import History
from instant.errors import InputError
from instant.types import Decision, Output

SLOTS = 16  # room for a method's own named metrics
BINS = 200  # of the histogram of thresholds over [0, 1]
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
RESERVED = frozenset({
    *("step", "loss", "utilisation", "threshold", "threshold_quantiles", "threshold_by_class", "confidence"),
    *("pseudo_label_accuracy", "broken_step", "accuracy", "validation_accuracy", "called"),
    *("seconds_evaluating", "seconds"),
})  # fmt: skip
"""The names of a record that are the engine's own: a method may call its metrics anything else."""


class Meter(nn.Module):
    """Accumulates a step's metrics without waiting for the device; `read` returns their means and starts anew."""

    sums: Tensor
    by_class: Tensor
    histogram: Tensor
    broken: Tensor
    suspects: Tensor
    truth: Tensor

    def __init__(self, oracle: Oracle, classes: int) -> None:
        super().__init__()
        truth = torch.from_numpy(oracle.open_for_metrics())
        self.names: list[str] = []
        self.register_buffer("truth", truth, persistent=False)
        # steps, weight, confidence, weight with known truth, of that right; then the method's own
        self.register_buffer("sums", torch.zeros(5 + SLOTS, dtype=torch.float64))
        self.register_buffer(
            "by_class", torch.zeros(2, classes, dtype=torch.float64)
        )  # rows called so, their thresholds
        self.register_buffer("histogram", torch.zeros(BINS, dtype=torch.float64))
        self.register_buffer("broken", torch.tensor(-1))  # first step with a loss that is not finite
        self.register_buffer("suspects", torch.zeros(SLOTS, dtype=torch.float64), persistent=False)  # its metrics
        self.history = History(len(truth))

    @torch.no_grad()
    def add(self, output: Output, step: Tensor) -> None:
        check_metrics(output.metrics)
        metrics = {"loss": output.loss.detach(), **output.metrics}
        self.names = list(metrics)
        one = torch.ones_like(self.sums[:1])
        shared = self.sums.new_zeros(4)
        if output.decision is not None:
            d = output.decision
            check_decision(d)
            truth = self.truth[d.index]
            known = d.weight * (truth >= 0)
            parts = (d.weight, d.confidence, known, known * (truth == d.label))
            shared = torch.stack([part.double().sum() for part in parts])
            thresholds = d.threshold.double()
            self.by_class.index_add_(1, d.label, torch.stack([torch.ones_like(thresholds), thresholds]))
            place = (d.threshold * BINS).long().clamp(0, BINS - 1)
            self.histogram.scatter_add_(0, place, torch.ones_like(place, dtype=torch.float64))
            self.history.add(d, step)
        own = torch.stack([value.double() for value in metrics.values()])
        self.sums[: 5 + len(metrics)] += torch.cat([one, shared, own])
        first = ~torch.isfinite(output.loss.detach()) & (self.broken < 0)
        self.broken.copy_(torch.where(first, step, self.broken))
        self.suspects[: len(metrics)] = torch.where(first, own, self.suspects[: len(metrics)])

    def culprits(self) -> list[str]:
        """The metrics that were not finite in the first step whose loss was not: later steps spoil them all."""
        return [name for name, value in zip(self.names, self.suspects.tolist()) if not math.isfinite(value)]

    def read(self) -> dict[str, Any]:
        """The means since the last call, in one copy from the device."""
        held = (self.sums, self.by_class, self.histogram)
        packed = torch.cat([*(part.flatten() for part in held), self.broken.double().view(1)]).cpu().numpy()
        for part in held:
            part.zero_()
        sums, by_class, histogram = np.split(packed[:-1], np.cumsum([part.numel() for part in held])[:-1])
        called, asked = by_class.reshape(2, -1)
        broken, rows = int(packed[-1]), called.sum()
        steps, weight, confidence, known, right = sums[:5]
        record: dict[str, Any] = {name: float(value / max(steps, 1)) for name, value in zip(self.names, sums[5:])}
        if rows > 0:
            record["utilisation"] = float(weight / rows)
            record["threshold"] = float(asked.sum() / rows)
            record["threshold_quantiles"] = quantiles(histogram)
            record["threshold_by_class"] = [round(float(t / n), 4) if n else None for n, t in zip(called, asked)]
            record["confidence"] = float(confidence / rows)
            if known > 0:
                record["pseudo_label_accuracy"] = float(right / known)
        if broken >= 0:
            record["broken_step"] = broken
        return record


def check_metrics(metrics: dict[str, Tensor]) -> None:
    """Refuse what a record has no room for: the engine's own names, too many, or what is not one number."""
    for name, value in metrics.items():
        if name in RESERVED:
            raise InputError(f"the method reports a metric called {name!r}, a name of the engine's own; rename it.")
        if not isinstance(value, Tensor) or value.ndim:
            got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise InputError(f"the method's metric {name!r} must be a tensor of one number, shape (), got {got}.")
    if len(metrics) >= SLOTS:
        raise InputError(f"a method may report {SLOTS - 1} metrics, got {len(metrics)}; leave some out.")


def check_decision(decision: Decision) -> None:
    """Refuse a decision whose columns cannot be counted."""
    rows = tuple(decision.index.shape)
    for field, column in decision._asdict().items():
        if tuple(column.shape) != rows or column.ndim != 1:
            got = tuple(column.shape)
            raise InputError(f"the method's decision.{field} must have one entry a row, shape {rows}, got {got}.")
        if field in ("index", "label") and column.dtype != torch.int64:
            raise InputError(f"the method's decision.{field} must be of dtype torch.int64, got {column.dtype}.")


def quantiles(histogram: np.ndarray) -> list[float]:
    """The QUANTILES of values in [0, 1], to half a bin."""
    shares = np.cumsum(histogram) / histogram.sum()
    return [float((np.searchsorted(shares, q) + 0.5) / len(histogram)) for q in QUANTILES]


@torch.no_grad()
def predict(
    network: nn.Module,
    store: Store,
    normalise: Normalise,
    *,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Probabilities (N, K) of a network over a store, in evaluation mode, on the device."""
    was_training = network.training
    network.eval()
    rows = []
    for samples in batches(store, device):
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            logits = network(normalise(samples)).logits
        rows.append(torch.softmax(logits.float(), dim=1))
    network.train(was_training)
    return torch.cat(rows)


def accuracy(probs: Tensor, targets: np.ndarray) -> float:
    """Share of right argmax among samples whose truth is known."""
    truth = torch.from_numpy(targets).to(probs.device)
    known = truth >= 0
    return float((probs.argmax(1) == truth)[known].double().mean())


def summarise_accuracy(history: list[float]) -> dict[str, float | None]:
    """Last, median of the last twenty and best, each named: peers report the best and do not say so."""
    if not history or any(math.isnan(value) for value in history):
        return {"accuracy_last": None, "accuracy_median20": None, "accuracy_best": None}
    return {
        "accuracy_last": history[-1],
        "accuracy_median20": float(np.median(history[-20:])),
        "accuracy_best": max(history),
    }
