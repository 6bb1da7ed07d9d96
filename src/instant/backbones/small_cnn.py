"""A small convolutional network for small images: 8x8 digits, 28x28 clothes, 32x32 colour."""

from __future__ import annotations

from torch import Tensor, nn

from instant.backbones.base import Backbone, check_momentum, init_convolutions, linear_head


class SmallCNN(Backbone):
    """Three stages of two 3x3 convolutions with BN and ReLU, pooled in between while the side stays >= 4."""

    def __init__(
        self,
        *,
        shape: tuple[int, int, int],
        classes: int,
        widths: tuple[int, ...] = (32, 64, 128),
        bn_momentum: float = 0.1,
    ) -> None:
        super().__init__(widths[-1], classes)
        check_momentum(bn_momentum)
        channels, side = shape[0], min(shape[1:])
        self.stages = nn.Sequential()
        for number, width in enumerate(widths):
            if number > 0 and side >= 8:
                self.stages.append(nn.MaxPool2d(2))
                side //= 2
            for incoming in (channels, width):
                self.stages.append(nn.Conv2d(incoming, width, 3, padding=1, bias=False))
                self.stages.append(nn.BatchNorm2d(width, momentum=bn_momentum))
                self.stages.append(nn.ReLU())
            channels = width
        self.head = linear_head(channels, classes)
        init_convolutions(self)

    def features(self, x: Tensor) -> Tensor:
        return self.stages(x).mean(dim=(2, 3))
