"""Which samples a step sees: shuffled epochs without replacement, as a pure function of (seed, step)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from instant import random

WINDOW = 65_536
WARM_UP = 3  # steps that are run in a row, before a recording, with one `prepare`


class Sampler(nn.Module):
    """Yields positions in range(n), `batch` a step; every epoch is a new permutation, batches run across epochs.

    The device holds a window of the coming permutations, which `prepare` renews from the host now and then without
    waiting for the device, so that drawing a step's batch is one gather inside the step.
    """

    key: Tensor
    order: Tensor
    start: Tensor

    def __init__(self, n: int, batch: int, key: Tensor) -> None:
        super().__init__()
        self.n = n
        self.batch = batch
        self.epochs = max(math.ceil(WARM_UP * batch / n) + 1, math.ceil(WINDOW / n))
        self._first: int | None = None  # number of the first epoch in the window
        self.register_buffer("key", key, persistent=False)
        self.register_buffer("order", key.new_zeros(self.epochs * n), persistent=False)
        self.register_buffer("start", key.new_zeros(()), persistent=False)

    def prepare(self, step: int) -> None:
        """Make sure that the window covers `step`; called on the host before the step."""
        first, last = step * self.batch, (step + 1) * self.batch
        if self._first is not None and self._first * self.n <= first and last <= (self._first + self.epochs) * self.n:
            return
        self._first = first // self.n
        self.order.copy_(random.permutations(self.key, self.n, rows=self.epochs, first=self._first).view(-1))
        self.start.fill_(self._first * self.n)

    def forward(self, step: Tensor) -> Tensor:
        offset = step * self.batch - self.start
        return self.order[offset + torch.arange(self.batch, device=self.order.device)]


class Drawn(NamedTuple):
    """What a step draws: L labelled and B unlabelled samples."""

    place_l: Tensor  # (L,) positions among the labelled
    index: Tensor  # type: ignore[assignment]  # (B,) positions in the pool; hides tuple.index
    rows: Tensor  # (L + B,) where both lie in the data, or (L + 2 B,): then a neighbour of each unlabelled one


class Draw(nn.Module):
    """The draws of a run, the labelled samples and the pool each by a sampler of its own."""

    labelled: Tensor
    pool: Tensor
    near: Tensor | None

    def __init__(
        self,
        labelled: np.ndarray,
        pool: np.ndarray,
        *,
        batch: int,
        unlabelled: int,
        keys: tuple[Tensor, Tensor],
        near: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.sample_l = Sampler(len(labelled), batch, keys[0])
        self.sample_u = Sampler(len(pool), unlabelled, keys[1]) if unlabelled else None
        self.register_buffer("labelled", torch.from_numpy(labelled), persistent=False)
        self.register_buffer("pool", torch.from_numpy(pool), persistent=False)
        self.register_buffer("near", near, persistent=False)  # (pool, k): where the neighbours of each lie in the data

    @property
    def size(self) -> int:
        """L + B, or L + 2 B with neighbours."""
        unlabelled = 0 if self.sample_u is None else self.sample_u.batch
        return self.sample_l.batch + (unlabelled if self.near is None else 2 * unlabelled)

    def prepare(self, step: int) -> None:
        """The host's part: renew the windows of the samplers when they run out."""
        self.sample_l.prepare(step)
        if self.sample_u is not None:
            self.sample_u.prepare(step)

    def forward(self, step: Tensor) -> Drawn:
        place_l = self.sample_l(step)
        rows = [self.labelled[place_l]]
        if self.sample_u is None:
            return Drawn(place_l, self.pool[:0], rows[0])
        index = self.sample_u(step)
        rows.append(self.pool[index])
        if self.near is not None:
            choice = random.integers(random.fold(self.sample_u.key, step), self.near.shape[1], len(index))
            rows.append(self.near[index, choice])
        return Drawn(place_l, index, torch.cat(rows))
