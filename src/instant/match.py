"""The family's shared step: views -> predictions -> alignment -> transition -> rule -> consistency loss.

Every pseudo-labelling and consistency method of `algorithms.py` is this module with other parts in it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from instant.alignment import Alignment
from instant.errors import InputError
from instant.fairness import Fairness
from instant.losses import cross_entropy, hard
from instant.rules import Rule
from instant.transition import Sight, Transitions, inflow
from instant.types import Decision, Evidence, Method, Network, Output, Prediction, Selection, State, Views, Wants


def hard_target(probs: Tensor, seen: Evidence) -> Tensor:
    """The one-hot pseudo-label."""
    return hard(probs)


class Match(Method):
    """A method of the family, composed of the parts that differ.

    rule        which unlabelled samples count, and how much
    target      (probs, seen) -> (B, K): what the student learns; the one-hot pseudo-label by default
    loss        (logits, target) -> (B,): cross-entropy by default
    align       distribution alignment of the weak predictions
    align_labels  False: alignment is for the rule alone, and pseudo-labels are the weak predictions' own
    transitions T(x) for instance-dependent rules, with forward correction
    fairness    FreeMatch's regulariser
    weight      lambda, the weight of the unsupervised loss
    ramp        steps over which that weight grows linearly from 0
    wants       which views: (weak, strong) by default; second "none" puts the loss on the weak view itself
    from_teacher  the target comes from the averaged teacher instead of the student
    own_lr      learning rate of the transition estimator
    own_decay   weight decay of the transition estimator
    """

    def __init__(
        self,
        rule: Rule,
        *,
        target: Callable[[Tensor, Evidence], Tensor] = hard_target,
        loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
        align: Alignment | None = None,
        align_labels: bool = True,
        transitions: Transitions | None = None,
        fairness: Fairness | None = None,
        weight: float = 1.0,
        ramp: int = 0,
        wants: Wants = Wants(),  # noqa: B008 (an immutable value)
        from_teacher: bool = False,
        own_lr: float = 0.01,
        own_decay: float = 0.0,
    ) -> None:
        super().__init__()
        self.takes_mixed = wants.second == "strong" and type(self).forward is Match.forward
        if transitions is not None and (loss is not cross_entropy or not align_labels):
            given = "loss" if loss is not cross_entropy else "align_labels"
            raise InputError(f"Match(transitions=...) has a loss of its own, for aligned labels; leave out {given}.")
        if transitions is not None and transitions.correct and target is not hard_target:
            raise InputError("Match(transitions=...) corrects the loss of the pseudo-label; leave out target.")
        if from_teacher and wants.second == "none":
            raise InputError("Match(from_teacher=True) teaches a second view; wants=Wants(second='none') has none.")
        self.rule = rule
        self.target = target
        self.loss = loss
        self.align = align
        self.align_labels = align_labels
        self.transitions = transitions
        self.fairness = fairness
        self.weight = weight
        self.ramp = ramp
        self.wants = wants
        self.from_teacher = from_teacher
        self.own_lr = own_lr
        self.own_decay = own_decay

    def forward(self, model: Network, teacher: Network, views: Views) -> Output:
        labelled, weak, student = self._predict(model, teacher, views)
        supervised = F.cross_entropy(labelled.logits, views.y_l)
        metrics = {"loss_supervised": supervised}
        state: State = {}

        raw = F.softmax(weak.logits.detach(), dim=1)
        calm = len(views.y_weak)  # kappa, the wanted prior and T are about weak views
        probs_l = F.softmax(labelled.logits[:calm].detach(), dim=1)
        probs = raw
        if self.align is not None:
            probs, moved = self.align(raw, probs_l)
            state |= _named("align", moved)

        column = matrix = None
        if self.transitions is not None:
            features = torch.cat([labelled.features[:calm], weak.features])
            matrix, used = self.transitions(features, torch.cat([views.x_l[:calm], views.x_w]), calm)
            column = inflow(used, probs.argmax(1))
            metrics["transition_diagonal"] = used.diagonal(dim1=-2, dim2=-1).mean()

        flow = None if column is None else column.detach()
        seen = Evidence(probs, probs_l, views.y_weak, views.index, views.step, flow)
        selection, moved = self.rule(seen)
        if not isinstance(selection, Selection):
            raise InputError(
                f"{type(self.rule).__name__}.forward returned a {type(selection).__name__}, expected an "
                "instant.types.Selection(weight, threshold), and its state."
            )
        state |= _named("rule", moved)

        called = probs if self.align_labels else raw
        target = self.target(called, seen)
        unsupervised = self._consistency(student, target, column, selection.weight, views).mean()
        metrics["loss_unsupervised"] = unsupervised

        alone = len(raw) - len(views.kept)  # views of one sample; what is said of the others is of two
        label = called.argmax(1)
        confidence = probs.gather(1, label[:, None]).squeeze(1)
        total = supervised + ramped(self.weight, self.ramp, views.step) * unsupervised
        if self.transitions is not None and matrix is not None:
            above = confidence - selection.threshold
            sight = Sight(raw[:alone], student[:alone].detach().argmax(1), label[:alone], above[:alone])
            own_loss, moved = self.transitions.fit(matrix, views.y_weak, probs_l.argmax(1), sight, views.step)
            state |= _named("transitions.estimator", moved)
            metrics["loss_transition"] = own_loss
            total = total + own_loss
        if self.fairness is not None:
            fairness, moved = self.fairness(raw, student[:alone], selection.weight[:alone])
            state |= _named("fairness", moved)
            metrics["loss_fairness"] = fairness
            total = total + fairness

        decision = Decision(views.index, label, confidence, selection.threshold, selection.weight)
        return Output(total, detached(metrics), detached(state), decision)

    def _consistency(
        self, student: Tensor, target: Tensor, column: Tensor | None, weight: Tensor, views: Views
    ) -> Tensor:
        """(B,) losses of the rows that count. A view of two learns both targets by its shares, if both count.

        One that is whole after all, of which a share of 1 is its own, learns its own.
        """
        losses = self._loss(student, target, column, views.step)
        mixed = len(views.kept)
        if not mixed:
            return weight * losses

        def other(rows: Tensor) -> Tensor:
            return rows.roll(1, 0)[-mixed:]

        their = self._loss(student[-mixed:], other(target), None if column is None else other(column), views.step)
        both = weight[-mixed:] * torch.where(views.kept < 1, other(weight), 1)
        return torch.cat([(weight * losses)[:-mixed], both * their.lerp(losses[-mixed:], views.kept)])

    def _loss(self, logits: Tensor, target: Tensor, column: Tensor | None, step: Tensor) -> Tensor:
        if self.transitions is not None and column is not None:
            return self.transitions.consistency(logits, column, target, step)
        losses = self.loss(logits, target)
        if losses.shape != logits.shape[:1]:  # a mean of its own would have refused rows teach
            raise InputError(
                f"Match(loss=...) must return one number a row, shape ({len(logits)},), got {tuple(losses.shape)}; "
                "leave the mean to Match, as cross_entropy(..., reduction='none') does."
            )
        return losses

    def _predict(self, model: Network, teacher: Network, views: Views) -> tuple[Prediction, Prediction, Tensor]:
        """Predictions of labelled and weak rows, and the logits that learn.

        All rows go through the network in one batch: they share their batch statistics (splitting them learns much
        worse). The teacher sees the weak rows alone.
        """
        if self.wants.second == "none":
            sizes = [len(views.x_l), len(views.x_w)]
            out = model(torch.cat([views.x_l, views.x_w]))
        else:
            sizes = [len(views.x_l), len(views.x_s), len(views.x_w)]
            still = None if self.from_teacher else views.x_w
            out = model(torch.cat([views.x_l, views.x_s]), still)
        if self.from_teacher:
            with torch.no_grad():
                seen = teacher(views.x_w)
            out = Prediction(torch.cat([out.logits, seen.logits]), torch.cat([out.features, seen.features]))
        logits, features = out.logits.split(sizes), out.features.split(sizes)
        return Prediction(logits[0], features[0]), Prediction(logits[-1], features[-1]), logits[1]


class Supervised(Method):
    """Cross-entropy on the labelled samples and nothing else; `all_labels` makes it the fully supervised reference."""

    wants = Wants(weak=False, second="none")

    def __init__(self, *, all_labels: bool = False) -> None:
        super().__init__()
        self.all_labels = all_labels

    def forward(self, model: Network, teacher: Network, views: Views) -> Output:
        loss = F.cross_entropy(model(views.x_l).logits, views.y_l)
        return Output(loss, detached({"loss_supervised": loss}), {})


def ramped(weight: float, ramp: int, step: Tensor) -> Tensor | float:
    """`weight` after growing linearly from 0 over `ramp` steps."""
    return weight * (step / ramp).clamp_max(1.0) if ramp else weight


def detached(values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in values.items()}


def _named(part: str, state: State) -> State:
    return {f"{part}.{name}": value for name, value in state.items()}
