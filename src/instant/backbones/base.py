"""What every backbone shares: its face, its initialisation, and randomness as a function of (seed, step).

Shapes: B rows of the batch, K classes, D features.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from instant import random
from instant.errors import InputError
from instant.types import Prediction


class Backbone(nn.Module):
    """A network that ends in a linear head; a subclass makes `head` and writes `features`."""

    head: nn.Linear
    no_weight_decay: frozenset[str] = frozenset()  # parameters of two or more dimensions to spare
    rows_are_independent = False  # True: no batch statistics, a row's prediction is its own

    def __init__(self, num_features: int, classes: int) -> None:
        super().__init__()
        if classes < 1:
            raise InputError(f"classes must be at least 1, got {classes}")
        self.num_features = num_features
        self.classes = classes

    def features(self, x: Tensor) -> Tensor:
        """(B, D) of a batch."""
        raise TypeError(f"{type(self).__name__} must define features(x)")

    def features_beside(self, x: Tensor, still: Tensor) -> Tensor | None:
        """(B, D) of x and of further rows that carry no gradient; None where a backbone has no such way."""
        if not self.rows_are_independent:
            return None
        with torch.no_grad():
            rest = self.features(still)
        return torch.cat([self.features(x), rest])

    def forward(self, x: Tensor, still: Tensor | None = None) -> Prediction:
        """Predictions of x; with `still`, of those rows too, sharing batch statistics but without their gradient."""
        features = None if still is None else self.features_beside(x, still)
        if features is None:
            features = self.features(x if still is None else torch.cat([x, still]))
        return Prediction(self.head(features), features)

    def layer_numbers(self) -> dict[str, int]:
        """The depth of each parameter, for layer-wise learning rates; empty where that is not defined."""
        return {}


def linear_head(num_features: int, classes: int) -> nn.Linear:
    """Xavier-normal weights and a zero bias."""
    head = nn.Linear(num_features, classes)
    nn.init.xavier_normal_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def init_convolutions(model: nn.Module) -> None:
    """Kaiming-normal over the fan-out, gain sqrt(2), for every convolution of a model."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def check_momentum(bn_momentum: float) -> None:
    """The share of the new batch in the running statistics, torch's sense of the word."""
    if not 0 < bn_momentum <= 1:
        raise InputError(f"bn_momentum must lie in (0, 1], got {bn_momentum}")


class DropPath(nn.Module):
    """Stochastic depth: training drops a sample's branch with probability `rate`, scales the rest by 1/keep.

    The masks are a function of (seed, step, stream, row): `set_step` writes the step before the forward pass.
    """

    step: Tensor
    key: Tensor

    def __init__(self, rate: float, *, stream: int) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise InputError(f"drop_path must lie in [0, 1), got {rate}")
        self.rate = rate
        self.stream = stream
        self.register_buffer("step", torch.zeros((), dtype=torch.int64), persistent=False)
        self.register_buffer("key", random.root(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        keep = 1 - self.rate
        key = random.fold(random.fold(self.key, self.step), self.stream)
        kept = random.uniform(key, x.shape[0]) < keep
        return x * (kept.to(x.dtype) / keep).view(-1, *[1] * (x.ndim - 1))

    def extra_repr(self) -> str:
        return f"rate={self.rate:.3f}, stream={self.stream}"


def _drop_paths(model: nn.Module) -> Iterator[DropPath]:
    return (module for module in model.modules() if isinstance(module, DropPath))


def set_step(model: nn.Module, step: Tensor | int) -> None:
    """Tell every DropPath of a model which step comes next; call it outside a compiled forward."""
    for module in _drop_paths(model):
        if isinstance(step, Tensor):
            module.step.copy_(step)
        else:
            module.step.fill_(step)


def set_seed(model: nn.Module, seed: int) -> None:
    """Give every DropPath of a model the root key of `seed`; once, before training."""
    for module in _drop_paths(model):
        module.key.copy_(random.root(seed))
