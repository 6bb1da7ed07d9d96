"""VAT (Miyato 2018): the prediction must not change in the direction in which it would change most."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from instant import random
from instant.match import detached, ramped
from instant.types import Method, Network, Output, Views, Wants


def unit(d: Tensor) -> Tensor:
    """Each sample scaled to length one."""
    return F.normalize(d.flatten(1), dim=1).view_as(d)


def divergence(p: Tensor, logits: Tensor) -> Tensor:
    """KL(p || softmax(logits)), mean over rows."""
    return F.kl_div(F.log_softmax(logits, dim=1), p, reduction="batchmean")


def direction(logits: Callable[[Tensor], Tensor], x: Tensor, p: Tensor, key: Tensor, xi: float = 1e-2) -> Tensor:
    """The unit direction in which the prediction at x, p, changes most, by one power iteration."""
    d = xi * unit(random.normal(key, *x.shape))
    d.requires_grad_()
    (gradient,) = torch.autograd.grad(divergence(p, logits(x + d)), d)
    return unit(gradient)


class VAT(Method):
    """CE + weight_t * KL(p(x) || p(x + eps * r)) + entropy * H(p(x)), with r found by one power iteration.

    All predictions are made among the labelled samples: with other batch statistics p(x + 0) would not be p(x), and the
    direction would be that of the difference. It is the gradient of the divergence at a small step xi along a random
    one. The published xi = 1e-6 moves a pixel by about 1e-8, which float32 cannot resolve: the gradient is then mostly
    rounding noise (cosine with the direction found in float64: 0.5 and below, against 0.998 with 1e-2;
    tests/test_vat.py).
    """

    exact = True  # the finite difference would vanish in bfloat16
    wants = Wants(weak=True, second="none")

    def __init__(
        self, *, eps: float = 6.0, xi: float = 1e-2, entropy: float = 0.06, weight: float = 1.0, ramp: int = 0
    ) -> None:
        super().__init__()
        self.eps, self.xi, self.entropy, self.weight, self.ramp = eps, xi, entropy, weight, ramp
        # The gradient inside the forward pass does not survive tracing. As a decorator, this would import torch's
        # compiler for whoever imports a method
        self.direction = torch.compiler.disable(direction)

    def forward(self, model: Network, teacher: Network, views: Views) -> Output:
        rows = [len(views.x_l), len(views.x_w)]

        def both(x: Tensor) -> tuple[Tensor, ...]:
            return model(torch.cat([views.x_l, x])).logits.split(rows)

        logits_l, logits_w = both(views.x_w)
        supervised = F.cross_entropy(logits_l, views.y_l)
        p = F.softmax(logits_w.detach(), dim=1)
        r = self.direction(lambda x: both(x)[1], views.x_w, p, views.key, self.xi)
        adversarial = divergence(p, both(views.x_w + self.eps * r)[1])
        entropy = -(F.softmax(logits_w, dim=1) * F.log_softmax(logits_w, dim=1)).sum(1).mean()
        weight = ramped(self.weight, self.ramp, views.step)
        total = supervised + weight * adversarial + self.entropy * entropy
        metrics = {"loss_supervised": supervised, "loss_unsupervised": adversarial, "entropy": entropy}
        return Output(total, detached(metrics), {})
