"""Wide residual networks, pre-activation (Zagoruyko and Komodakis 2016), in the form FixMatch made standard.

Depth counts the stem, the 3x3 convolutions and the 1x1 shortcuts: 4 blocks a group give 1 + 3 * (2 * 4 + 1)
= 28 with three groups and 1 + 4 * (2 * 4 + 1) = 37 with four. The stem is 16 wide, the groups 16, 32, 64, 128
times the factor.

Only the first block of the first group hands its activated input to the shortcut too, as in google/fixmatch.
TorchSSL and USB omit BN and activation before the first convolution of the later groups, so that BN gets no
gradient there, and give the stem a bias (16 parameters more); here no convolution has one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from instant.backbones.base import Backbone, check_momentum, init_convolutions, linear_head
from instant.backbones.streams import BatchNorm, Streams, each


class Block(nn.Module):
    """BN, LeakyReLU, 3x3 convolution, twice, beside a shortcut that is 1x1 where the width changes."""

    def __init__(
        self, channels: int, width: int, *, stride: int, bn_momentum: float, activate_first: bool = False
    ) -> None:
        super().__init__()
        self.bn1 = BatchNorm(channels, momentum=bn_momentum)
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = BatchNorm(width, momentum=bn_momentum)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.act = nn.LeakyReLU(0.1)
        self.shortcut: nn.Module = nn.Identity()
        if channels != width or stride != 1:
            self.shortcut = nn.Conv2d(channels, width, 1, stride=stride, bias=False)
        self.activate_first = activate_first

    def forward(self, xs: Streams) -> Streams:
        hs = each(self.act, self.bn1(xs))
        skips = each(self.shortcut, hs if self.activate_first else xs)
        hs = each(self.act, self.bn2(each(self.conv1, hs)))
        return [skip + h for skip, h in zip(skips, each(self.conv2, hs))]


class WideResNet(Backbone):
    """Stem, three or four groups of residual blocks, BN, global average pooling, linear head."""

    def __init__(
        self,
        *,
        channels: int,
        classes: int,
        width: int,
        groups: int = 3,
        blocks: int = 4,
        first_stride: int = 1,
        bn_momentum: float = 0.001,
    ) -> None:
        widths = [16 * width * 2**group for group in range(groups)]
        super().__init__(widths[-1], classes)
        check_momentum(bn_momentum)
        self.stem = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.groups = nn.Sequential()
        previous = 16
        for number, wide in enumerate(widths):
            stride = first_stride if number == 0 else 2
            first = Block(previous, wide, stride=stride, bn_momentum=bn_momentum, activate_first=number == 0)
            rest = [Block(wide, wide, stride=1, bn_momentum=bn_momentum) for _ in range(blocks - 1)]
            self.groups.append(nn.Sequential(first, *rest))
            previous = wide
        self.norm = BatchNorm(previous, momentum=bn_momentum, eps=1e-3)
        self.act = nn.LeakyReLU(0.1)
        self.head = linear_head(previous, classes)
        init_convolutions(self)

    def features(self, x: Tensor) -> Tensor:
        return self._features([x])[0]

    def features_beside(self, x: Tensor, still: Tensor) -> Tensor:
        return torch.cat(self._features([x, still]))

    def _features(self, xs: Streams) -> Streams:
        return each(lambda x: self.act(x).mean(dim=(2, 3)), self.norm(self.groups(each(self.stem, xs))))
