"""From a split to one step's views: sampling, augmentation and normalisation, batched on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from instant import random
from instant.data.sampler import Sampler
from instant.data.split import Split
from instant.errors import InputError
from instant.types import Views, Wants

Policy = Callable[[Tensor, Tensor], Tensor]
"""(samples, key) -> samples: an augmentation, of uint8 images or of standardised vectors."""

LABELLED, POOL, WEAK, SECOND, METHOD = range(5)  # streams of randomness


class Normalise(nn.Module):
    """uint8 images or float vectors to what the network reads: zero mean, unit deviation."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], *, images: bool) -> None:
        super().__init__()
        shape, top = ((1, -1, 1, 1), 255.0) if images else ((1, -1), 1.0)
        self.register_buffer("mean", top * torch.tensor(mean, dtype=torch.float32).view(shape), persistent=False)
        self.register_buffer("scale", 1 / (top * torch.tensor(std, dtype=torch.float32).view(shape)), persistent=False)

    def forward(self, samples: Tensor) -> Tensor:
        return (samples.float() - self.mean) * self.scale


class Feed(nn.Module):
    """The one source of a run's views: `feed(step) -> Views`, a pure function of (split, seed, step)."""

    data: Tensor
    labelled: Tensor
    targets: Tensor
    pool: Tensor
    key: Tensor

    def __init__(
        self,
        split: Split,
        *,
        batch: int,
        ratio: int,
        wants: Wants,
        weak: Policy,
        strong: Policy,
        seed: int,
    ) -> None:
        super().__init__()
        rows = batch * ratio if wants.weak else 0
        if batch > len(split.pool):
            raise InputError(
                f"batch={batch} asks for more samples a step than {split.source} has: {len(split.pool)}; lower batch."
            )
        if rows > len(split.pool):
            raise InputError(
                f"batch={batch} with ratio={ratio} asks for {rows} unlabelled samples a step, but {split.source} has "
                f"{len(split.pool)}; lower batch or ratio."
            )
        self.wants = wants
        self.weak = weak
        self.second = weak if wants.second == "weak" else strong
        self.images = split.train.is_images
        self.normalise = Normalise(split.mean, split.std, images=self.images)
        key = random.root(seed)
        self.sample_l = Sampler(len(split.labelled), batch, random.fold(key, LABELLED))
        self.sample_u = Sampler(len(split.pool), rows, random.fold(key, POOL)) if rows else None
        self.register_buffer("key", key, persistent=False)
        samples = np.require(split.train.samples, requirements=["C", "W"])  # torch warns of arrays that refuse writes
        self.register_buffer("data", torch.from_numpy(samples), persistent=False)
        self.register_buffer("labelled", torch.from_numpy(split.labelled), persistent=False)
        self.register_buffer("targets", torch.from_numpy(split.targets), persistent=False)
        self.register_buffer("pool", torch.from_numpy(split.pool), persistent=False)

    def prepare(self, step: int) -> None:
        """The host's part, before the step: renew the windows of the samplers when they run out."""
        self.sample_l.prepare(step)
        if self.sample_u is not None:
            self.sample_u.prepare(step)

    def forward(self, step: Tensor) -> Views:
        key = random.fold(self.key, step)
        place_l = self.sample_l(step)
        index = self.pool[:0] if self.sample_u is None else self.sample_u(step)
        rows = torch.cat([self.labelled[place_l], self.pool[index]])
        samples = self.data[rows]
        weak = self._view(self.weak, samples, random.fold(key, WEAK))
        x_l, x_w = weak.split([len(place_l), len(index)])
        x_s = x_w[:0]
        if self.wants.second != "none":
            x_s = self._view(self.second, samples[len(place_l) :], random.fold(key, SECOND))
        return Views(x_l, self.targets[place_l], x_w, x_s, index, step, random.fold(key, METHOD))

    def _view(self, policy: Policy, samples: Tensor, key: Tensor) -> Tensor:
        """Images are augmented as bytes, vectors once they are standardised: noise then suits every feature."""
        if not self.images:
            return policy(self.normalise(samples), key)
        x = self.normalise(policy(samples, key))
        return x.contiguous(memory_format=torch.channels_last) if x.is_cuda else x
