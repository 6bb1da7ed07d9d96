"""A small convolutional network for small images: 8x8 digits, 28x28 clothes, 32x32 colour."""

from __future__ import annotations

from torch import Tensor, nn

from instant.backbones.base import Backbone, check_momentum, init_convolutions, linear_head
from instant.errors import InputError


class SmallCNN(Backbone):
    """Three stages of two 3x3 convolutions with BN and ReLU, pooled in between while the side stays >= 4.

    The stages are `width`, twice and four times as wide.
    """

    def __init__(
        self,
        *,
        shape: tuple[int, int, int],
        classes: int,
        width: int = 32,
        bn_momentum: float = 0.1,
    ) -> None:
        if width < 1:
            raise InputError(f"width must be at least 1, got {width}")
        super().__init__(4 * width, classes)
        check_momentum(bn_momentum)
        channels, side = shape[0], min(shape[1:])
        self.stages = nn.Sequential()
        for number, wide in enumerate((width, 2 * width, 4 * width)):
            for last, incoming in enumerate((channels, wide)):
                self.stages.append(nn.Conv2d(incoming, wide, 3, padding=1, bias=False))
                self.stages.append(nn.BatchNorm2d(wide, momentum=bn_momentum))
                if last and number < 2 and side >= 8:
                    self.stages.append(nn.MaxPool2d(2))  # before ReLU, which then has a quarter to do for the same
                    side //= 2
                self.stages.append(nn.ReLU(inplace=True))
            channels = wide
        self.head = linear_head(channels, classes)
        init_convolutions(self)

    def features(self, x: Tensor) -> Tensor:
        return self.stages(x).mean(dim=(2, 3))
