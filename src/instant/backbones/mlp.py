"""A multi-layer perceptron for vectors."""

from __future__ import annotations

from torch import Tensor, nn

from instant.backbones.base import Backbone, linear_head
from instant.errors import InputError


class MLP(Backbone):
    """`depth` hidden layers of linear, LayerNorm, ReLU.

    LayerNorm keeps no running state, so tiny batches and several processes give the same network.
    """

    rows_are_independent = True

    def __init__(self, *, inputs: int, classes: int, width: int = 256, depth: int = 2) -> None:
        super().__init__(width, classes)
        if width < 1 or depth < 1:
            raise InputError(f"mlp needs width and depth of at least 1, got width={width}, depth={depth}")
        self.layers = nn.Sequential()
        for incoming in (inputs, *[width] * (depth - 1)):
            linear = nn.Linear(incoming, width)
            nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
            nn.init.zeros_(linear.bias)
            self.layers.extend([linear, nn.LayerNorm(width), nn.ReLU()])
        self.head = linear_head(width, classes)

    def features(self, x: Tensor) -> Tensor:
        return self.layers(x)
