"""Features before labels: two views of one image are to be nearer to each other than to anything else in the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from instant.match import detached
from instant.types import Method, Network, Output, Problem, Views, Wants


class Contrast(Method):
    """SimCLR (Chen 2020, arXiv 2002.05709): no label is looked at, and the classifier's head learns nothing.

    A small network of its own, left behind afterwards, lies between the features and the comparison, so that they may
    keep what the views are told to forget.
    """

    wants = Wants(second="weak", parts=True)
    classifies = False

    def __init__(self, features: int, *, width: int = 128, temperature: float = 0.5, own_lr: float = 0.1) -> None:
        super().__init__()
        self.project = nn.Sequential(nn.Linear(features, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.temperature = temperature
        self.own_lr = own_lr
        self.own_decay = 5e-4

    def forward(self, model: Network, teacher: Network, views: Views) -> Output:
        features = model(torch.cat([views.x_w, views.x_s])).features
        first, second = F.normalize(self.project(features), dim=1).chunk(2)
        loss, found = contrast(first, second, self.temperature)
        return Output(loss, detached({"loss_contrast": loss, "partner_found": found}), {})


def contrast(first: Tensor, second: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """NT-Xent of two views (B, D) of unit length, row by row of the same sample; and how often the nearest is that one.

    >>> both = torch.eye(2)
    >>> loss, found = contrast(both, both, 1.0)    # its partner at cosine 1, the two others at 0
    >>> round(float(loss), 4) == round(float((torch.e + torch.tensor(2.0)).log() - 1), 4), float(found)
    (True, 1.0)
    """
    both = torch.cat([first, second])
    rows = torch.arange(len(both), device=both.device)
    partner = rows.roll(len(first))
    alike = (both @ both.T / temperature).masked_fill(rows == rows.unsqueeze(1), float("-inf"))
    return F.cross_entropy(alike, partner), (alike.detach().argmax(1) == partner).float().mean()


def contrastive(p: Problem) -> Contrast:
    """As a method is built."""
    return Contrast(p.features)
