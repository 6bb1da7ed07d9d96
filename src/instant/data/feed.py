"""From a split to one step's views: sampling, augmentation and normalisation, batched on the device."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from instant import random
from instant.augment.mix import resize_mix
from instant.augment.vectors import between
from instant.data.sampler import Draw
from instant.data.samples import Resident, Streamed
from instant.data.split import Split
from instant.errors import InputError
from instant.types import Views, Wants

Policy = Callable[[Tensor, Tensor], Tensor]
"""(samples, key) -> samples: an augmentation, of uint8 images or of standardised vectors."""

LABELLED, POOL, WEAK, SECOND, METHOD, NEIGHBOUR, STRONG, MIX = range(8)  # streams of randomness


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
    """The one source of a run's views: `feed(step) -> Views`, a pure function of (split, seed, step).

    Where the samples are changes no view: all on the device, or `streamed` there from host memory or disk, a few
    steps ahead.
    """

    targets: Tensor
    key: Tensor
    note: str | None = None  # what a person should know before the run starts

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
        near: Tensor | None = None,
        streamed: bool = False,
        strong_labels: float = 0.0,
        mix: float = 0.0,
        mix_after: int = 0,
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
        for place, policy in (("weak", weak), ("strong", strong)):
            require_two_arguments(place, policy)
        self.wants = wants
        self.weak = weak
        self.strong = strong
        self.hardened = min(round(strong_labels * batch), batch - 1)  # labelled rows in strong views, the last ones
        strong_rows = rows if wants.second == "strong" else 0
        self.mixed = min(round(mix * strong_rows), max(0, strong_rows - 1))  # those with another in them, the last ones
        self.mix_after = mix_after
        self.second = weak if wants.second == "weak" else strong
        self.images = split.train.is_images
        self.normalise = Normalise(split.mean, split.std, images=self.images)
        key = random.root(seed)
        keys = random.fold(key, LABELLED), random.fold(key, POOL)
        self.draw = Draw(split.labelled, split.pool, batch=batch, unlabelled=rows, keys=keys, near=near)
        self.samples: Resident | Streamed
        if streamed:
            self.samples = Streamed(split.train.samples, copy.deepcopy(self.draw))
        else:
            self.samples = Resident(split.train.samples)
        self.register_buffer("key", key, persistent=False)
        self.register_buffer("targets", torch.from_numpy(split.targets), persistent=False)

    def prepare(self, step: int) -> None:
        """The host's part, before the step: see that its positions and its samples are on the device."""
        self.draw.prepare(step)
        self.samples.prepare(step)

    def close(self) -> None:
        """Fetch nothing more; a later `prepare` starts anew."""
        self.samples.close()

    def forward(self, step: Tensor) -> Views:
        key = random.fold(self.key, step)
        place_l, index, rows = self.draw(step)
        samples = self.samples(rows)
        seen = len(place_l) + len(index)
        weak = self._view(self.weak, samples[:seen], random.fold(key, WEAK))
        x_l, x_w = weak.split([len(place_l), len(index)])
        if self.hardened:
            some = samples[len(place_l) - self.hardened : len(place_l)]
            x_l = torch.cat([x_l[: -self.hardened], self._view(self.strong, some, random.fold(key, STRONG))])
        x_s = x_w[:0]
        if self.wants.second != "none":
            second = samples[len(place_l) : seen]
            if len(samples) > seen:
                second = between(second, samples[seen:], random.fold(key, NEIGHBOUR))
            x_s = self._view(self.second, second, random.fold(key, SECOND))
        kept = self.normalise.mean.new_zeros(0)
        if self.mixed:
            whole, others = x_s[-self.mixed :], x_s.roll(1, 0)[-self.mixed :]
            mixed, kept = resize_mix(whole, others, random.fold(key, MIX))
            if self.mix_after:
                begun = step >= self.mix_after
                mixed, kept = torch.where(begun, mixed, whole), torch.where(begun, kept, 1.0)
            x_s = _laid_out(torch.cat([x_s[: -self.mixed], mixed]))
        y_l = self.targets[place_l]
        y_weak = y_l[: len(y_l) - self.hardened]
        return Views(x_l, y_l, x_w, x_s, index, step, random.fold(key, METHOD), y_weak, kept)

    def _view(self, policy: Policy, samples: Tensor, key: Tensor) -> Tensor:
        """Images are augmented as bytes, vectors once they are standardised: noise then suits every feature."""
        given = samples if self.images else self.normalise(samples)
        seen = policy(given, key)
        # of sizes alone: the device is not waited for, and a compiled step has nothing left of it
        if not isinstance(seen, Tensor) or seen.shape != given.shape or seen.device != given.device:
            raise InputError(_what_came(policy, given, seen))
        if not self.images:
            return seen
        return _laid_out(self.normalise(seen))


def _laid_out(images: Tensor) -> Tensor:
    """As a network on a GPU wants them."""
    return images.contiguous(memory_format=torch.channels_last) if images.is_cuda else images


def require_two_arguments(place: str, policy: Policy) -> None:
    """Before anything runs, that a policy can be called with samples and a key."""
    try:
        inspect.signature(policy).bind(None, None)
    except TypeError as error:
        raise InputError(
            f"the {place} policy {_name(policy)} must be a function of two arguments, (samples, key) -> samples "
            f"({error}); take both."
        ) from error
    except ValueError:  # built in, without a signature
        pass


def _what_came(policy: Policy, given: Tensor, seen: object) -> str:
    wanted = f"a tensor of the shape it was given, {tuple(given.shape)}, on {given.device}"
    came = f"shape {tuple(seen.shape)} on {seen.device}" if isinstance(seen, Tensor) else f"a {type(seen).__name__}"
    return f"the policy {_name(policy)} must return {wanted}, got {came}; it must change samples, not their number."


def _name(policy: Policy) -> str:
    return getattr(policy, "__name__", type(policy).__name__)
