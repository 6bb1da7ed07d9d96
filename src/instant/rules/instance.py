"""InstanT (Li 2023): every sample has its own bar, from how its pseudo-label can be wrong."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from instant.rules.base import Rule
from instant.types import Evidence, Selection, State


def instance_margin(probs: Tensor, inflow: Tensor) -> Tensor:
    """m(x) = T_kk P_s + sum_{i != k} T_ik P_i (eq. 3), k the most probable class and s the runner-up.

    Needs column k of T(x) only: `inflow` (B, K), inflow[:, i] = T[i, k].

    >>> probs, inflow = torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([[0.9, 0.1, 0.3]])
    >>> instance_margin(probs, inflow)  # 0.9 * 0.2 + (0.1 * 0.2 + 0.3 * 0.1)
    tensor([0.2300])
    """
    top, place = probs.topk(2, dim=1)
    first = place[:, :1]
    stay = inflow.gather(1, first).squeeze(1)
    # the others' sum, not that of all less the first: of a sure sample rounding would leave nothing else
    others = probs.masked_fill(torch.arange(probs.shape[1], device=probs.device) == first, 0.0)
    return stay * top[:, 1] + (inflow * others).sum(1)


class InstanceDependent(Rule):
    """tau(x)_t = min(clip, m(x) + base threshold) (eq. 5); keeps P(k|x) > tau(x)_t.

    The paper: clip 1, plain aligned probabilities, no warm-up. The authors' release: clip 0.99,
    `resoftmax=0.5` (the posterior in m is softmax(probabilities / 0.5)), and m = 0 during `warmup` steps.
    """

    def __init__(self, base: Rule, *, clip: float = 1.0, resoftmax: float | None = None, warmup: int = 0) -> None:
        super().__init__()
        self.base = base
        self.clip = clip
        self.resoftmax = resoftmax
        self.warmup = warmup

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        assert seen.inflow is not None, "an instance-dependent rule needs Match(transitions=...)"
        kappa, state = self.base.threshold(seen)
        posterior = seen.probs if self.resoftmax is None else F.softmax(seen.probs / self.resoftmax, dim=1)
        margin = instance_margin(posterior, seen.inflow)
        if self.warmup:
            margin = torch.where(seen.step < self.warmup, 0.0, margin)
        return (margin + kappa).clamp_max(self.clip), {f"base.{name}": value for name, value in state.items()}

    def forward(self, seen: Evidence) -> tuple[Selection, State]:
        threshold, state = self.threshold(seen)
        return Selection((seen.probs.amax(1) > threshold).float(), threshold), state

    def extra_repr(self) -> str:
        return f"clip={self.clip}, resoftmax={self.resoftmax}, warmup={self.warmup}"
