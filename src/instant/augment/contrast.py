"""Views for learning without labels: a part of the image, brought to its size, in other colours."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from instant import random
from instant.augment.policies import check_images

YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))
"""From red, green and blue to brightness and the two axes of colour, about which the hue turns."""


class Part(nn.Module):
    """SimCLR's views (arXiv 2002.05709): a fifth of the image to all of it, mirrored if `mirror`, in other colours.

    In four of five images brightness, contrast and saturation change by up to `jitter`, and the hue by up to a quarter
    of it, as a share of a full turn; one of five has no colour left. Grey images change in brightness and contrast.
    """

    yiq: Tensor
    back: Tensor

    def __init__(self, mirror: bool, *, smallest: float = 0.2, jitter: float = 0.4) -> None:
        super().__init__()
        self.mirror = mirror
        self.smallest = smallest
        self.jitter = jitter
        self.register_buffer("yiq", torch.tensor(YIQ), persistent=False)
        self.register_buffer("back", torch.linalg.inv(torch.tensor(YIQ)), persistent=False)

    def forward(self, samples: Tensor, key: Tensor) -> Tensor:
        """Float levels from 0 to 255."""
        check_images(samples)
        draws = random.uniform(random.fold(key, 2), 11, len(samples))
        return self.recolour(self.part(samples.float(), draws[:5]), draws[5:])

    def part(self, images: Tensor, draws: Tensor) -> Tensor:
        """A rectangle of `smallest` to all of the area, 3:4 to 4:3, by five draws an image, (5, B)."""
        side = (self.smallest + (1 - self.smallest) * draws[0]).sqrt()
        stretch = torch.exp((2 * draws[1] - 1) * (math.log(4 / 3) / 2))
        width, height = (side * stretch).clamp(max=1), (side / stretch).clamp(max=1)
        across, down = (1 - width) * (2 * draws[2] - 1), (1 - height) * (2 * draws[3] - 1)
        if self.mirror:
            width = torch.where(draws[4] < 0.5, -width, width)
        none = torch.zeros_like(width)
        where = torch.stack([width, none, across, none, height, down], dim=1).view(-1, 2, 3)
        grid = F.affine_grid(where, list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)

    def recolour(self, images: Tensor, draws: Tensor) -> Tensor:
        """By six draws an image, (6, B)."""
        change = torch.where(draws[4] < 0.8, self.jitter * (2 * draws[:4] - 1), 0.0)
        bright, contrasted = (1 + change[:2]).view(2, -1, 1, 1, 1)
        if images.shape[1] == 3:
            colour = torch.where(draws[5] < 0.2, 0.0, 1 + change[2])
            mixing = self.back @ self._turned(change[3] * (math.pi / 2), colour) @ self.yiq
            images = torch.einsum("bij,bjhw->bihw", mixing, images)
        mean = images.mean(dim=(1, 2, 3), keepdim=True)
        return (bright * (mean + contrasted * (images - mean))).clamp(0, 255)

    def _turned(self, angle: Tensor, colour: Tensor) -> Tensor:
        """Matrices (B, 3, 3) of brightness and colour: the one stays, the other is turned, and faded or deepened."""
        cosine, sine, none = colour * angle.cos(), colour * angle.sin(), torch.zeros_like(angle)
        return torch.stack([none + 1, none, none, none, cosine, -sine, none, sine, cosine], dim=1).view(-1, 3, 3)
