"""MixMatch (Berthelot 2019): guess labels from two weak views, sharpen them, and mix everything with everything."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import betaincinv
from torch import Tensor

from instant import random
from instant.losses import cross_entropy, one_hot, sharpen, squared_error
from instant.match import detached, ramped
from instant.types import Decision, Method, Network, Output, Views, Wants


class MixMatch(Method):
    """CE on mixed labelled rows + weight_t * squared error on mixed unlabelled rows.

    One mixing share max(lam, 1 - lam) a step, lam ~ Beta(alpha, alpha), drawn by the inverse of its distribution
    function (a table, so that the draw stays on the device).
    """

    wants = Wants(weak=True, second="weak")
    quantiles: Tensor

    def __init__(
        self,
        *,
        temperature: float = 0.5,
        alpha: float = 0.5,
        weight: float = 100.0,
        ramp: int = 0,
    ) -> None:
        super().__init__()
        self.temperature, self.weight, self.ramp = temperature, weight, ramp
        table = betaincinv(alpha, alpha, (np.arange(4096) + 0.5) / 4096).astype(np.float32)
        self.register_buffer("quantiles", torch.from_numpy(table), persistent=False)

    def share(self, key: Tensor) -> Tensor:
        """This step's mixing share, in [1/2, 1)."""
        lam = self.quantiles[random.integers(key, len(self.quantiles), 1)]
        return torch.maximum(lam, 1 - lam)

    def guess(self, model: Network, views: Views) -> Tensor:
        """The sharpened mean prediction of the two weak views."""
        with torch.no_grad():
            logits = model(torch.cat([views.x_w, views.x_s])).logits
            return sharpen(F.softmax(logits, dim=1).view(2, len(views.x_w), -1).mean(0), self.temperature)

    def forward(self, model: Network, teacher: Network, views: Views) -> Output:
        guess = self.guess(model, views)
        onehot = one_hot(views.y_l, guess.shape[1])
        x = torch.cat([views.x_l, views.x_w, views.x_s])
        y = torch.cat([onehot, guess, guess])

        partner = random.permutations(random.fold(views.key, 1), len(x))[0]
        share = self.share(views.key)
        mixed_y = share * y + (1 - share) * y[partner]
        logits = model(share * x + (1 - share) * x[partner]).logits

        rows = len(views.x_l)
        supervised = cross_entropy(logits[:rows], mixed_y[:rows]).mean()
        unsupervised = squared_error(logits[rows:], mixed_y[rows:]).mean()
        weight = ramped(self.weight, self.ramp, views.step)
        confidence, label = guess.max(1)
        everybody = torch.ones_like(confidence)
        return Output(
            supervised + weight * unsupervised,
            detached({"loss_supervised": supervised, "loss_unsupervised": unsupervised}),
            {},
            Decision(views.index, label, confidence, torch.zeros_like(confidence), everybody),
        )
