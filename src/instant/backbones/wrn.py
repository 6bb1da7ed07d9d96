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
from instant.backbones.rows import NormAct, Rows, convolve


class Block(nn.Module):
    """BN, LeakyReLU, 3x3 convolution, twice, beside a shortcut that is 1x1 where the width changes."""

    def __init__(
        self, channels: int, width: int, *, stride: int, bn_momentum: float, activate_first: bool = False
    ) -> None:
        super().__init__()
        self.bn1 = NormAct(channels, momentum=bn_momentum)
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = NormAct(width, momentum=bn_momentum)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.shortcut: nn.Module = nn.Identity()
        if channels != width or stride != 1:
            self.shortcut = nn.Conv2d(channels, width, 1, stride=stride, bias=False)
        self.activate_first = activate_first

    def forward(self, rows: Rows) -> Rows:
        h = self.bn1(rows)
        skip = convolve(self.shortcut, h if self.activate_first else rows)
        return convolve(self.conv2, self.bn2(convolve(self.conv1, h)), skip)


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
        self.norm = NormAct(previous, momentum=bn_momentum, eps=1e-3)
        self.head = linear_head(previous, classes)
        init_convolutions(self)

    def features(self, x: Tensor) -> Tensor:
        return self._last(Rows.of(x)).first.mean(dim=(2, 3))

    def features_beside(self, x: Tensor, still: Tensor) -> Tensor:
        if not self.training:
            with torch.no_grad():
                rest = self.features(still)
            return torch.cat([self.features(x), rest])
        rows = self._last(Rows.of(x, still))
        return torch.cat([rows.first.mean(dim=(2, 3)), rows.whole[len(x) :].mean(dim=(2, 3))])

    def _last(self, rows: Rows) -> Rows:
        return self.norm(self.groups(convolve(self.stem, rows)))
