"""How InstanT uses T(x): a column for the threshold and for the corrected loss, and what T is fitted on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from instant.losses import cross_entropy, forward_corrected
from instant.transition.base import Sight, Transition
from instant.types import State


class Transitions(nn.Module):
    """An estimator of T(x) at work.

    labelled    True: T is trained by its own loss on labelled rows (the paper); False: by the unsupervised loss
                (the authors' release)
    correct     False leaves the consistency loss uncorrected
    warmup      steps during which that loss is plain
    confident   share of the unlabelled rows that join the labelled ones in T's own loss: those furthest above their
                threshold, with their pseudo-label as class and the call of the other view as prediction
    from_step   the first step in which they do
    """

    def __init__(
        self,
        estimator: Transition,
        *,
        labelled: bool = True,
        correct: bool = True,
        warmup: int = 0,
        confident: float = 0.0,
        from_step: int = 0,
    ) -> None:
        super().__init__()
        self.estimator = estimator
        self.labelled = labelled
        self.correct = correct
        self.warmup = warmup
        self.confident = confident
        self.from_step = from_step

    def forward(self, features: Tensor, x: Tensor, labelled: int) -> tuple[Tensor, Tensor]:
        """T of all rows, and of the unlabelled ones as it is used; the first `labelled` rows are the labelled ones."""
        matrix = self.estimator(features.detach(), x)
        rows = matrix if matrix.ndim == 2 else matrix[labelled:]
        return matrix, rows.detach() if self.labelled else rows

    def fit(self, matrix: Tensor, y_l: Tensor, predicted_l: Tensor, sight: Sight, step: Tensor) -> tuple[Tensor, State]:
        """T's own loss, and the next state of its estimator; `matrix` is T of all rows, the labelled ones first."""
        state = self.estimator.observe(sight)
        loss = self.estimator.penalty(matrix)
        if not self.labelled:
            return loss, state
        y, predicted, weight = y_l, predicted_l, None
        if self.confident:
            joins = well_above(sight.above, self.confident) * (step >= self.from_step)
            weight = torch.cat([joins.new_ones(len(y_l)), joins])
            y, predicted = torch.cat([y_l, sight.label]), torch.cat([predicted_l, sight.other])
        rows = matrix if matrix.ndim == 2 else matrix[: len(y)]
        return loss + self.estimator.loss(rows, y, predicted, weight), state

    def consistency(self, logits_s: Tensor, column: Tensor, target: Tensor, step: Tensor) -> Tensor:
        """The consistency loss per row, forward-corrected once the warm-up is over."""
        if not self.correct:
            return cross_entropy(logits_s, target)
        corrected = forward_corrected(logits_s, column)
        if not self.warmup:
            return corrected
        return torch.where(step < self.warmup, cross_entropy(logits_s, target), corrected)


def well_above(above: Tensor, share: float) -> Tensor:
    """1 for the `share` of all rows that are furthest above their threshold, 0 for the rest and for all below it.

    >>> well_above(torch.tensor([0.3, -0.1, 0.1, 0.2]), 0.5)
    tensor([1., 0., 0., 1.])
    """
    bar = above.topk(max(1, round(share * len(above)))).values[-1]
    return ((above >= bar) & (above > 0)).float()
