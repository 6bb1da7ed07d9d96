"""Muon (Jordan 2024, https://kellerjordan.github.io/posts/muon): SGD whose matrices move in all directions alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from instant.engine.device import multiplies_bfloat16

SPEED = 0.056  # the singular values of a turned group's step at a rate of 1: rates are then about those of SGD
MOST = 4  # times the numbers there are, when all matrices are filled up to one size
QUINTIC = 3.4445, -4.7750, 2.0315  # five rounds of a x + b x^3 + c x^5 bring singular values from 0.01 to 1 near 1


class Muon(torch.optim.Optimizer):
    """Groups with `turned` move by the orthogonal matrix nearest to their momentum, the others as with SGD.

    A gradient is mostly what many samples agree about; made orthogonal, what few of them ask for counts as much.
    SGD's weight decay goes through the momentum and so counts 1 / (1 - momentum) times. That of a turned group stays
    outside and is multiplied by as much, so that one setting means the same for both.
    """

    def __init__(self, groups: list[dict[str, Any]], *, momentum: float, nesterov: bool) -> None:
        super().__init__(groups, {"momentum": momentum, "nesterov": nesterov})
        # a compiled step has it compiled too
        self.directions: Callable[[list[Tensor], bool], list[Tensor]] = directions
        self.short = multiplies_bfloat16(self.param_groups[0]["params"][0].device)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            rate, momentum, decay, turned = (group[name] for name in ("lr", "momentum", "weight_decay", "turned"))
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            gradients = [parameter.grad for parameter in parameters]
            if decay and not turned:
                gradients = list(torch._foreach_add(gradients, parameters, alpha=decay))
            means = [self._mean(parameter) for parameter in parameters]
            torch._foreach_mul_(means, momentum)
            torch._foreach_add_(means, gradients)
            updates = means
            if group["nesterov"]:
                updates = list(torch._foreach_add(gradients, means, alpha=momentum))
            if turned:
                torch._foreach_mul_(parameters, 1 - rate * (decay / (1 - momentum)))
                updates, rate = self.directions(updates, self.short), SPEED * rate
            torch._foreach_add_(parameters, torch._foreach_mul(updates, -rate))

    def _mean(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return state["momentum_buffer"]


def directions(matrices: list[Tensor], short: bool = False) -> list[Tensor]:
    """Of each, its rows by all the rest, the nearest orthogonal matrix; in bfloat16 if `short`.

    All at once, if they are of similar size: what is smaller than the largest is filled up with zeros, and zeros they
    stay. Otherwise those of one shape at once.
    """
    flat = [matrix.flatten(1).float() for matrix in matrices]
    wide = [matrix.mT if len(matrix) > matrix.shape[1] else matrix for matrix in flat]
    rows, columns = (max(matrix.shape[side] for matrix in wide) for side in (0, 1))
    together = len(wide) * rows * columns <= MOST * sum(matrix.numel() for matrix in wide)
    alike: dict[tuple[int, int], list[int]] = {}
    for number, matrix in enumerate(wide):
        alike.setdefault((rows, columns) if together else (len(matrix), matrix.shape[1]), []).append(number)
    found = list(matrices)
    for (height, length), numbers in alike.items():
        # filled up and stacked, not written into a whole: a compiler makes one kernel of this
        stack = torch.stack([F.pad(wide[n], (0, length - wide[n].shape[1], 0, height - len(wide[n]))) for n in numbers])
        for turned, number in zip(orthogonal(stack, short), numbers):
            part, given = turned[: len(wide[number]), : wide[number].shape[1]], matrices[number]
            part = part if len(part) == len(given) else part.mT
            found[number] = torch.empty_like(given).copy_(part.reshape(given.shape))  # laid out alike, or a kernel each
    return found


def orthogonal(x: Tensor, short: bool = False) -> Tensor:
    """(B, m, n), m <= n -> the same singular vectors, and singular values near 1, by Newton and Schulz.

    They end between 0.6 and 1.3 if they were a hundredth of the norm or more, smaller ones below that. In bfloat16 if
    `short`, which is enough, and fast where a GPU multiplies it.
    """
    a, b, c = QUINTIC
    y = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-12)
    y = y.bfloat16() if short else y
    for _ in range(5):
        square = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(square, square, square, beta=b, alpha=c), y, beta=a)
    return y.to(x.dtype)
