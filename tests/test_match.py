"""The pieces of a step against cases worked by hand: losses, alignment, and whole methods."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from instant import random
from instant.alignment import Alignment, rescaled
from instant.errors import InputError
from instant.fairness import Fairness
from instant.learner import Learner, commit
from instant.losses import cross_entropy, forward_corrected, hard, one_hot, sharpen, squared_error
from instant.match import Match
from instant.methods import build_method
from instant.mixmatch import MixMatch
from instant.rules import Fixed, InstanceDependent
from instant.testing import make_learner, make_views
from instant.transition import AnchorPoints, Identity, Sight, Transitions
from instant.types import Prediction, Problem, State, Views, Wants

LOG = math.log


def views(z_l, y_l, z_w, z_s, step: int = 1000, index=None, strong_l: int = 0) -> Views:
    """Inputs that are their own logits: the model below is the identity."""
    z_l, z_w, z_s = (
        torch.tensor(z, dtype=torch.float32).log() if len(z) else torch.zeros(0, 2) for z in (z_l, z_w, z_s)
    )
    index = torch.arange(len(z_w)) if index is None else torch.tensor(index)
    labels = torch.tensor(y_l)
    y_weak = labels[: len(labels) - strong_l]
    return Views(z_l, labels, z_w, z_s, index, torch.tensor(step), random.root(0), y_weak, torch.ones(0))


def identity(x: torch.Tensor, still: torch.Tensor | None = None) -> Prediction:
    x = x if still is None else torch.cat([x, still])
    return Prediction(x, x)


def problem(steps: int = 1000, pool: int = 4) -> Problem:
    return Problem(classes=2, features=2, unlabelled=pool, steps=steps)


def run(method, given: Views, teacher=identity):
    return method(identity, teacher, given)


# -- losses -----------------------------------------------------------------------------------------------------------


def test_losses_by_hand() -> None:
    logits = torch.tensor([[0.8, 0.2]]).log()
    target = torch.tensor([[0.5, 0.5]])
    assert float(cross_entropy(logits, target)) == pytest.approx(-0.5 * LOG(0.8) - 0.5 * LOG(0.2))
    assert float(squared_error(logits, target)) == pytest.approx((0.09 + 0.09) / 2)
    # T = [[.9, .1], [.3, .7]], k = 0: column (.9, .3); (T^T p)_0 = .9 * .8 + .3 * .2 = .78
    assert float(forward_corrected(logits, torch.tensor([[0.9, 0.3]]))) == pytest.approx(-LOG(0.78))


def test_forward_correction_with_identity_is_plain_cross_entropy() -> None:
    logits = torch.randn(5, 3)
    labels = torch.tensor([0, 1, 2, 1, 0])
    torch.testing.assert_close(
        forward_corrected(logits, torch.eye(3)[labels]), F.cross_entropy(logits, labels, reduction="none")
    )


def test_a_column_of_zeros_is_a_large_loss_and_no_nan() -> None:
    """T may hold that nobody is called k: -log 1e-12, and a gradient that a step survives."""
    logits = torch.tensor([[0.8, 0.2]]).log().requires_grad_()
    loss = forward_corrected(logits, torch.zeros(1, 2))
    assert float(loss.detach()) == pytest.approx(-LOG(1e-12))
    loss.sum().backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.zeros(1, 2))


def test_sharpen_is_the_temperature_of_the_logits() -> None:
    logits = torch.randn(4, 5)
    torch.testing.assert_close(sharpen(F.softmax(logits, 1), 0.4), F.softmax(logits / 0.4, 1))
    assert one_hot(torch.tensor([2, 0]), 3).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert hard(torch.tensor([[0.3, 0.7]])).tolist() == [[0, 1]]


# -- alignment --------------------------------------------------------------------------------------------------------


def test_alignment_starts_from_the_first_batch_and_then_follows() -> None:
    align = Alignment(2, momentum=0.9)
    first = torch.tensor([[0.9, 0.1], [0.7, 0.3]])  # mean (.8, .2)
    aligned, state = align(first, first)
    torch.testing.assert_close(state["model"], torch.tensor([0.8, 0.2]))
    # row 1: .9 * .5 / .8 = .5625, .1 * .5 / .2 = .25 -> .6923, .3077 ; row 2: .4375, .75 -> .3684, .6316
    expected = torch.tensor([[0.5625 / 0.8125, 0.25 / 0.8125], [0.4375 / 1.1875, 0.75 / 1.1875]])
    torch.testing.assert_close(aligned, expected, atol=1e-5, rtol=1e-5)
    commit(align, state)
    _, state = align(torch.tensor([[0.5, 0.5]]), first)
    torch.testing.assert_close(state["model"], torch.tensor([0.77, 0.23]))  # .9 * .8 + .1 * .5
    assert "target" not in state, "a uniform target does not move"


def test_alignment_target_follows_the_labelled_predictions() -> None:
    align = Alignment(2, learn_target=True, momentum=0.9)
    aligned, state = align(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.9, 0.1], [0.8, 0.2]]))
    torch.testing.assert_close(state["target"], torch.tensor([0.535, 0.465]))  # .9 * .5 + .1 * .85
    torch.testing.assert_close(aligned, torch.tensor([[0.535, 0.465]]))  # moved first, then used


def test_alignment_keeps_a_balanced_batch() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    torch.testing.assert_close(Alignment(2)(probs, probs)[0], probs)


def test_alignment_survives_classes_that_nobody_has() -> None:
    """Neither a class that is never predicted nor one that is not wanted makes 0 / 0."""
    sure = torch.tensor([[1.0, 0.0]])
    torch.testing.assert_close(Alignment(2)(sure, sure)[0], sure)  # 1 * .5 / 1 beside 0 * .5 / 0
    unwanted = rescaled(sure, torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5]))  # 1 * 0 / .5 beside 0 * 1 / .5
    torch.testing.assert_close(unwanted, sure)


# -- fairness ---------------------------------------------------------------------------------------------------------


def test_fairness_by_hand() -> None:
    fairness = Fairness(2, weight=1.0, momentum=0.5)
    probs = torch.tensor([[0.9, 0.1], [0.7, 0.3]])
    # p~ = .5 * .5 + .5 * (.8, .2) = (.65, .35) ; h~ = .5 * .5 + .5 * (1, 0) = (.75, .25)
    # N(p~ / h~) = (.8667, 1.4) / 2.2667
    strong = torch.tensor([[0.6, 0.4], [0.2, 0.8], [0.9, 0.1]])
    selected = torch.tensor([1.0, 1.0, 0.0])
    # pbar = (.4, .6), hbar = (.5, .5): N = (.4, .6)
    wanted = (0.65 / 0.75 / (0.65 / 0.75 + 1.4), 1.4 / (0.65 / 0.75 + 1.4))
    loss, state = fairness(probs, strong.log(), selected)
    assert float(loss) == pytest.approx(wanted[0] * LOG(0.4) + wanted[1] * LOG(0.6), rel=1e-5)
    torch.testing.assert_close(state["histogram"], torch.tensor([0.75, 0.25]))
    nothing, _ = fairness(probs, strong.log(), torch.zeros(3))
    assert float(nothing) == 0
    # two of three called 0: pbar = (1.7, 1.3) / 3, hbar = (2, 1) / 3, N = (.85, 1.3) / 2.15
    everybody, _ = fairness(probs, strong.log(), torch.ones(3))
    given = (0.85 / 2.15, 1.3 / 2.15)
    assert float(everybody) == pytest.approx(wanted[0] * LOG(given[0]) + wanted[1] * LOG(given[1]), rel=1e-5)
    light, _ = Fairness(2, weight=0.25, momentum=0.5)(probs, strong.log(), torch.ones(3))
    assert float(light) == pytest.approx(0.25 * float(everybody))


def test_fairness_of_one_row_leaves_the_other_classes_out() -> None:
    """Nobody is called 1: N(pbar/hbar) = (1, 0), where 0 is 1e-12 to the logarithm; and gradients are numbers."""
    logits = torch.tensor([[0.6, 0.4]]).log().requires_grad_()
    probs = torch.tensor([[0.9, 0.1], [0.1, 0.9]])  # p~ = h~ = (.5, .5), and so N(p~/h~)
    loss, _ = Fairness(2, weight=1.0)(probs, logits, torch.ones(1))
    assert float(loss.detach()) == pytest.approx(0.5 * LOG(1e-12), rel=1e-5)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


# -- whole methods; the model is the identity, so inputs are log-probabilities ----------------------------------------

SUPERVISED = -LOG(0.6)  # one labelled row (.6, .4) of class 0


def test_supervised() -> None:
    out = run(build_method("supervised", problem()), views([[0.6, 0.4]], [0], [], []))
    assert float(out.loss) == pytest.approx(SUPERVISED)
    assert out.decision is None


def test_fixmatch() -> None:
    given = views([[0.6, 0.4]], [0], [[0.96, 0.04], [0.9, 0.1]], [[0.7, 0.3], [0.2, 0.8]])
    out = run(build_method("fixmatch", problem()), given)
    # the first row is kept: mean over BOTH rows of -log .7
    assert float(out.loss) == pytest.approx(SUPERVISED - LOG(0.7) / 2)
    assert out.decision.weight.tolist() == [1, 0]
    assert out.decision.label.tolist() == [0, 0]


def test_uda_sharpens_with_its_own_temperature() -> None:
    given = views([[0.6, 0.4]], [0], [[0.8001, 0.1999]], [[0.7, 0.3]])
    q = 0.8001**2.5 / (0.8001**2.5 + 0.1999**2.5)
    out = run(build_method("uda", problem()), given)
    assert float(out.loss) == pytest.approx(SUPERVISED - q * LOG(0.7) - (1 - q) * LOG(0.3), rel=1e-4)


def test_pseudo_label_learns_through_its_own_weak_logits_and_ramps() -> None:
    given = views([[0.6, 0.4]], [0], [[0.96, 0.04]], [], step=100)  # ramp 0.4 * 1000 = 400 steps: a quarter
    out = run(build_method("pseudo_label", problem()), given)
    assert float(out.loss) == pytest.approx(SUPERVISED - 0.25 * LOG(0.96))


def test_pi_model() -> None:
    given = views([[0.6, 0.4]], [0], [[0.9, 0.1]], [[0.7, 0.3]], step=200)
    out = run(build_method("pi_model", problem()), given)
    assert float(out.loss) == pytest.approx(SUPERVISED + 10 * 0.5 * 0.04, rel=1e-5)


def test_mean_teacher_learns_from_the_teacher() -> None:
    given = views([[0.6, 0.4]], [0], [[0.9, 0.1]], [[0.7, 0.3]])

    def teacher(x):
        assert not torch.is_grad_enabled()
        return identity(torch.tensor([[0.2, 0.8]]).log())

    out = run(build_method("mean_teacher", problem()), given, teacher)
    assert float(out.loss) == pytest.approx(SUPERVISED + 50 * 0.25, rel=1e-5)
    assert float(out.loss) > float(run(build_method("mean_teacher", problem()), given).loss)


def test_dash_after_its_warmup() -> None:
    method = build_method("dash", problem(steps=204_800), gamma=1.27)
    assert (method.rule.warmup, method.rule.period) == (5120, 10240)
    given = views([[0.6, 0.4]], [0], [[0.96, 0.04], [0.9, 0.1]], [[0.7, 0.3], [0.2, 0.8]], step=5120)
    out = run(method, given)  # rho_0 = 0, so rho is the floor 0.05 and the target hard
    assert float(out.loss) == pytest.approx(SUPERVISED - LOG(0.7) / 2)
    short = build_method("dash", problem(steps=2048))
    assert (short.rule.warmup, short.rule.period) == (51, 102)


def test_flexmatch_moves_its_counts() -> None:
    method = build_method("flexmatch", problem(pool=4))
    out = run(method, views([[0.6, 0.4]], [0], [[0.96, 0.04], [0.6, 0.4]], [[0.7, 0.3], [0.5, 0.5]], index=[3, 1]))
    assert out.state["rule.last"].tolist() == [-1, -1, -1, 0]
    # nobody counted yet: thresholds are 0, both rows are kept
    assert float(out.loss) == pytest.approx(SUPERVISED - (LOG(0.7) + LOG(0.5)) / 2)


def test_adamatch() -> None:
    method = build_method("adamatch", problem())
    given = views([[0.6, 0.4]], [0], [[0.9, 0.1], [0.3, 0.7]], [[0.7, 0.3], [0.2, 0.8]])
    out = run(method, given)
    # model = batch mean (.6, .4); target = .999 * .5 + .001 * (.6, .4) = (.5001, .4999); threshold .95 * .6 = .57
    a = 0.9 * 0.5001 / 0.6, 0.1 * 0.4999 / 0.4
    b = 0.3 * 0.5001 / 0.6, 0.7 * 0.4999 / 0.4
    assert out.decision.confidence.tolist() == pytest.approx([a[0] / sum(a), b[1] / sum(b)], rel=1e-4)
    assert out.decision.threshold.tolist() == pytest.approx([0.57, 0.57])
    assert float(out.loss) == pytest.approx(SUPERVISED - (LOG(0.7) + LOG(0.8)) / 2)


@pytest.mark.parametrize("method", ["adamatch", "instant"])
def test_strong_labelled_rows_are_learnt_and_move_nothing_else(method: str) -> None:
    """A strong view is predicted with less confidence: counted in kappa, it would lower everybody's bar."""
    rows = [[0.9, 0.1], [0.3, 0.7]], [[0.7, 0.3], [0.2, 0.8]]
    plain = run(build_method(method, problem()), views([[0.6, 0.4]], [0], *rows))
    hard = run(build_method(method, problem()), views([[0.6, 0.4], [0.5, 0.5]], [0, 1], *rows, strong_l=1))
    assert hard.decision.threshold.tolist() == plain.decision.threshold.tolist()
    assert {name: value.tolist() for name, value in hard.state.items()} == {
        name: value.tolist() for name, value in plain.state.items()
    }
    assert float(hard.metrics["loss_supervised"]) == pytest.approx((SUPERVISED - LOG(0.5)) / 2)
    assert float((hard.loss - plain.loss).detach()) == pytest.approx((SUPERVISED - LOG(0.5)) / 2 - SUPERVISED)


def test_no_strong_labelled_row_is_asked_for_its_T() -> None:
    method = build_method("instant", problem())
    asked: list[tuple[torch.Tensor, ...]] = []
    method.transitions.estimator.register_forward_pre_hook(lambda module, given: asked.append(given))
    given = views([[0.6, 0.4], [0.5, 0.5]], [0, 1], [[0.9, 0.1]], [[0.7, 0.3]], strong_l=1)
    run(method, given)
    for rows in asked[0]:  # features and inputs, which are the same here
        torch.testing.assert_close(rows, torch.cat([given.x_l[:1], given.x_w]))


def test_freematch_adds_fairness() -> None:
    given = views([[0.6, 0.4]], [0], [[0.96, 0.04], [0.1, 0.9]], [[0.7, 0.3], [0.2, 0.8]])
    method = build_method("freematch", problem())
    out = run(method, given)
    fairness = float(Fairness(2)(given.x_w.exp(), given.x_s, out.decision.weight)[0])
    assert fairness != 0
    assert out.decision.weight.tolist() == [1, 1]  # tau is about .5
    assert float(out.loss) == pytest.approx(SUPERVISED - (LOG(0.7) + LOG(0.8)) / 2 + fairness)


def test_softmatch_weights_every_row() -> None:
    given = views([[0.6, 0.4]], [0], [[0.96, 0.04], [0.2, 0.8]], [[0.7, 0.3], [0.2, 0.8]])
    out = run(build_method("softmatch", problem()), given)
    weight = out.decision.weight
    assert float(out.loss) == pytest.approx(
        SUPERVISED - float(weight[0]) * LOG(0.7) / 2 - float(weight[1]) * LOG(0.8) / 2
    )


def test_softmatch_aligns_for_the_weight_alone() -> None:
    """The model's mean starts at (.9, .1): aligned with uniform, (.6, .4) would be called 1."""
    method = build_method("softmatch", problem(), momentum=1.0)
    commit(method, {"align.model": torch.tensor([0.9, 0.1]), "align.started": torch.tensor(1.0)})
    given = views([[0.6, 0.4]], [0], [[0.6, 0.4]], [[0.7, 0.3]])
    out = run(method, given)
    assert out.decision.label.tolist() == [0]
    assert out.decision.confidence.item() == pytest.approx((0.6 / 0.9) / (0.4 / 0.1 + 0.6 / 0.9), rel=1e-4)
    assert float(out.loss) == pytest.approx(SUPERVISED - float(out.decision.weight[0]) * LOG(0.7))


def test_what_t_watches_is_not_aligned() -> None:
    """Anchor points are rows of the classifier's own probabilities."""
    anchors = AnchorPoints(2)
    method = Match(Fixed(0.9), align=Alignment(2), transitions=Transitions(anchors))
    out = run(method, views([[0.6, 0.4]], [0], [[0.9, 0.1], [0.8, 0.2]], [[0.7, 0.3], [0.2, 0.8]]))
    torch.testing.assert_close(out.state["transitions.estimator.rows"], torch.tensor([[0.9, 0.1], [0.8, 0.2]]))


class Watching(Identity):
    """Keeps what it is shown."""

    shown: Sight

    def observe(self, sight: Sight) -> State:
        self.shown = sight
        return {}


def test_what_t_is_shown() -> None:
    """tau = .3 + P_s; how far a row is above its own, and what its strong view is called."""
    watching = Watching(2)
    method = Match(InstanceDependent(Fixed(0.3)), transitions=Transitions(watching))
    run(method, views([[0.6, 0.4]], [0], [[0.9, 0.1], [0.4, 0.6]], [[0.3, 0.7], [0.2, 0.8]]))
    assert watching.shown.other.tolist() == [1, 1]
    assert watching.shown.label.tolist() == [0, 1]
    assert watching.shown.above.tolist() == pytest.approx([0.9 - 0.4, 0.6 - 0.7])


def test_labels_are_the_aligned_ones() -> None:
    method = build_method("adamatch", problem(), momentum=1.0)
    commit(method, {"align.model": torch.tensor([0.9, 0.1]), "align.started": torch.tensor(1.0)})
    out = run(method, views([[0.6, 0.4]], [0], [[0.6, 0.4]], [[0.7, 0.3]]))
    assert out.decision.label.tolist() == [1]  # .6 / .9 against .4 / .1
    assert float(out.loss) == pytest.approx(SUPERVISED - LOG(0.3))


@pytest.mark.parametrize(
    ("method", "parts"),
    [
        ("softmatch", ["align.model", "align.started", "rule.mu", "rule.var"]),
        ("freematch", ["fairness.histogram", "fairness.model", "rule.model", "rule.tau"]),
        ("instant", ["align.model", "align.started", *(f"transitions.estimator.{name}" for name in ("best", "rows"))]),
    ],
)
def test_every_part_has_its_next_state(method: str, parts: list[str]) -> None:
    options = {"transition": "anchor"} if method == "instant" else {}
    out = run(build_method(method, problem(), **options), views([[0.6, 0.4]], [0], [[0.9, 0.1]], [[0.7, 0.3]]))
    assert sorted(out.state) == parts


@pytest.mark.parametrize(
    "name", ["fixmatch", "uda", "softmatch", "freematch", "adamatch", "instant", "instant_released", "soft, aligned"]
)
def test_no_gradient_flows_through_what_is_learnt_from(name: str) -> None:
    """The weak rows get none, the labelled ones that of their own loss, and what is told of the step has none."""
    soft = Match(Fixed(0.5), align=Alignment(2, learn_target=True), target=lambda probs, seen: probs)
    method = soft if name == "soft, aligned" else build_method(name, problem())
    given = views([[0.6, 0.4]], [0], [[0.99, 0.01], [0.2, 0.8]], [[0.7, 0.3], [0.2, 0.8]])
    for rows in (given.x_l, given.x_w, given.x_s):
        rows.requires_grad_()
    out = run(method, given)
    told = [*out.metrics.values(), *out.state.values(), *out.decision]
    assert not any(values.requires_grad for values in told)
    of_l, of_w, of_s = torch.autograd.grad(out.loss, [given.x_l, given.x_w, given.x_s], materialize_grads=True)
    torch.testing.assert_close(of_l, torch.tensor([[0.6 - 1, 0.4]]))  # softmax less one-hot
    torch.testing.assert_close(of_w, torch.zeros(2, 2))
    assert of_s.abs().sum() > 0.1


def test_without_a_ramp_the_whole_weight_counts_from_the_first_step_on() -> None:
    out = run(Match(Fixed(0.5)), views([[0.6, 0.4]], [0], [[0.9, 0.1]], [[0.7, 0.3]], step=0))
    assert float(out.loss) == pytest.approx(SUPERVISED - LOG(0.7))


def test_a_teacher_without_a_second_view_is_refused() -> None:
    with pytest.raises(InputError, match="teaches a second view"):
        Match(Fixed(0.9), from_teacher=True, wants=Wants(second="none"))


def test_a_part_that_transitions_would_ignore_is_refused() -> None:
    own = Transitions(Identity(2))
    with pytest.raises(InputError, match="leave out loss"):
        Match(Fixed(0.9), transitions=own, loss=lambda logits, target: logits.sum(1))
    with pytest.raises(InputError, match="leave out align_labels"):
        Match(Fixed(0.9), transitions=own, align_labels=False)
    with pytest.raises(InputError, match="leave out target"):
        Match(Fixed(0.9), transitions=own, target=lambda probs, seen: probs)
    Match(Fixed(0.9), transitions=Transitions(Identity(2), correct=False), target=lambda probs, seen: probs)


def test_instant_over_the_self_adaptive_threshold() -> None:
    """tau_t = .5 + .001 * (.8 - .5), p~ = .5 +- .001 * .1: kappa = .9 * tau_t * p~_k / max p~; T as below."""
    method = build_method("instant", problem(), kappa="self_adaptive", align=False)
    out = run(method, views([[0.6, 0.4]], [0], [[0.9, 0.1], [0.3, 0.7]], [[0.7, 0.3], [0.2, 0.8]]))
    tau, model = 0.5 + 0.001 * (0.8 - 0.5), (0.5 + 0.001 * 0.1, 0.5 - 0.001 * 0.1)
    kappa = [0.9 * tau * model[k] / model[0] for k in (0, 1)]
    assert out.decision.threshold.tolist() == pytest.approx([kappa[0] + 0.1, kappa[1] + 0.3], rel=1e-5)
    assert out.state["rule.base.tau"].item() == pytest.approx(tau)


def test_instant_by_hand() -> None:
    """One labelled and two unlabelled rows; T is 0.95 on the diagonal at the start (K = 2: column k is (.95, .05))."""
    given = views([[0.6, 0.4]], [0], [[0.9, 0.1], [0.3, 0.7]], [[0.7, 0.3], [0.2, 0.8]])
    out = run(build_method("instant", problem()), given)
    # aligned with the uniform prior: model (.6, .4)
    p = 0.9 * 0.5 / 0.6, 0.1 * 0.5 / 0.4
    q = 0.3 * 0.5 / 0.6, 0.7 * 0.5 / 0.4
    first, second = p[0] / sum(p), q[1] / sum(q)
    kappa = 0.9 * 0.6
    # m = .95 * P_s + .05 * P_s, with K = 2 the runner-up is also the only other class
    tau = [kappa + 1 - first, kappa + 1 - second]
    assert out.decision.confidence.tolist() == pytest.approx([first, second], rel=1e-4)
    assert out.decision.threshold.tolist() == pytest.approx(tau, rel=1e-4)
    kept = [float(first > tau[0]), float(second > tau[1])]
    assert out.decision.weight.tolist() == kept == [1, 1]
    # forward-corrected: (T^T p)_k = .95 p_k + .05 (1 - p_k); T's own loss: labelled row called 0 and is 0
    corrected = -(LOG(0.95 * 0.7 + 0.05 * 0.3) + LOG(0.95 * 0.8 + 0.05 * 0.2)) / 2
    assert float(out.loss) == pytest.approx(SUPERVISED + corrected - LOG(0.95), rel=1e-4)
    assert float(out.metrics["transition_diagonal"]) == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("name", "aligned", "relative"),
    [("instant_1", False, False), ("instant_2", False, True), ("instant_3", True, False), ("instant", True, True)],
)
def test_ablations_by_hand(name: str, aligned: bool, relative: bool) -> None:
    given = views([[0.6, 0.4]], [0], [[0.9, 0.1], [0.3, 0.7]], [[0.7, 0.3], [0.2, 0.8]])
    out = run(build_method(name, problem()), given)
    p = (0.9 / 0.6, 0.1 / 0.4) if aligned else (0.9, 0.1)
    first = p[0] / sum(p)
    base = 0.9 * 0.6 if relative else 0.9
    assert float(out.decision.threshold[0]) == pytest.approx(min(1, base + 1 - first), rel=1e-4)


def test_instant_class_has_one_matrix() -> None:
    given = views([[0.6, 0.4]], [0], [[0.9, 0.1], [0.3, 0.7]], [[0.7, 0.3], [0.2, 0.8]])
    out = run(build_method("instant_class", problem()), given)
    stay = (5 + 1 / (1 + math.exp(2))) / (5 + 2 / (1 + math.exp(2)))
    assert float(out.metrics["loss_transition"]) == pytest.approx(-LOG(stay), rel=1e-5)
    assert float(out.metrics["transition_diagonal"]) == pytest.approx(stay, rel=1e-5)


def test_instant_released_by_hand() -> None:
    method = build_method("instant_released", problem(steps=204_800))
    given = views([[0.6, 0.4]], [0], [[0.9, 0.1], [0.3, 0.7]], [[0.7, 0.3], [0.2, 0.8]], step=10_240)
    out = run(method, given)
    a = 0.9 * 0.5001 / 0.6, 0.1 * 0.4999 / 0.4
    b = 0.3 * 0.5001 / 0.6, 0.7 * 0.4999 / 0.4
    first, second = a[0] / sum(a), b[1] / sum(b)
    kappa = 0.9 * (first + second) / 2
    stay = (5 + 1 / (1 + math.exp(2))) / (5 + 2 / (1 + math.exp(2)))
    # the runner-up after the second softmax: 1 / (1 + exp((p_k - p_s) / .5)); K = 2, so m is that value
    runner_up = [1 / (1 + math.exp((2 * value - 1) / 0.5)) for value in (first, second)]
    tau = [min(0.99, kappa + value) for value in runner_up]
    assert out.decision.threshold.tolist() == pytest.approx(tau, rel=1e-4)
    kept = [float(first > tau[0]), float(second > tau[1])]
    corrected = [-LOG(stay * 0.7 + (1 - stay) * 0.3), -LOG(stay * 0.8 + (1 - stay) * 0.2)]
    unsupervised = sum(k * c for k, c in zip(kept, corrected)) / 2
    assert float(out.loss) == pytest.approx(SUPERVISED + 2 * unsupervised, rel=1e-4)
    warm = run(method, given._replace(step=torch.tensor(10_239)))
    assert warm.decision.threshold.tolist() == pytest.approx([kappa, kappa], rel=1e-4)


def test_mixmatch_without_mixing_is_sharpened_self_consistency() -> None:
    method = MixMatch(weight=4.0)
    method.quantiles.fill_(1.0)  # lam = 1: nothing is mixed
    given = views([[0.6, 0.4]], [0], [[0.9, 0.1]], [[0.7, 0.3]])
    q = 0.8**2 / (0.8**2 + 0.2**2)  # mean of the views (.8, .2), sharpened
    out = run(method, given)
    assert float(out.loss) == pytest.approx(SUPERVISED + 4 * ((0.9 - q) ** 2 + (0.7 - q) ** 2) / 2, rel=1e-4)


def test_mixmatch_counts_every_row_with_its_guess() -> None:
    method = MixMatch(weight=4.0)
    method.quantiles.fill_(1.0)
    out = run(method, views([[0.6, 0.4], [0.9, 0.1]], [0, 1], [[0.3, 0.7]], [[0.1, 0.9]]))
    assert float(out.metrics["loss_supervised"]) == pytest.approx((SUPERVISED - LOG(0.1)) / 2)  # the labelled mean
    assert out.decision.label.tolist() == [1]
    assert out.decision.confidence.tolist() == pytest.approx([0.8**2 / (0.8**2 + 0.2**2)])
    assert (out.decision.weight.tolist(), out.decision.threshold.tolist()) == ([1], [0])


def test_mixmatch_mixes_a_row_and_its_target_with_the_same_partner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and targets 0 -> 1 -> 2 -> 0, each .8 of its own."""
    method = MixMatch(weight=4.0)
    method.quantiles.fill_(0.8)
    monkeypatch.setattr(random, "permutations", lambda key, count: torch.tensor([[1, 2, 0]]))
    given = views([[0.6, 0.4]], [0], [[0.9, 0.1]], [[0.7, 0.3]])
    z = [torch.tensor(row).log() for row in ([0.6, 0.4], [0.9, 0.1], [0.7, 0.3])]
    q = 0.8**2 / (0.8**2 + 0.2**2)
    y = [torch.tensor([1.0, 0.0]), torch.tensor([q, 1 - q]), torch.tensor([q, 1 - q])]
    mixed = [(0.8 * z[i] + 0.2 * z[j], 0.8 * y[i] + 0.2 * y[j]) for i, j in ((0, 1), (1, 2), (2, 0))]
    supervised = -(mixed[0][1] * mixed[0][0].log_softmax(0)).sum()
    errors = [((logits.softmax(0) - target) ** 2).mean() for logits, target in mixed[1:]]
    assert float(run(method, given).loss) == pytest.approx(float(supervised + 4 * sum(errors) / 2), rel=1e-4)


def test_mixmatch_share_follows_beta() -> None:
    method = MixMatch(alpha=0.5)
    torch.testing.assert_close(method.quantiles + method.quantiles.flip(0), torch.ones(4096))  # lam, or 1 - lam
    assert method.share(random.root(0)).shape == (1,), "one share a step"
    shares = torch.cat([method.share(random.fold(random.root(0), step)) for step in range(4000)])
    assert 0.5 <= float(shares.min()) < 0.51
    # arcsine law: P(max(lam, 1 - lam) > t) = 1 - (4 / pi) (asin(sqrt t) - pi / 4)
    above = 1 - 4 / math.pi * (math.asin(math.sqrt(0.9)) - math.pi / 4)
    assert float((shares > 0.9).float().mean()) == pytest.approx(above, abs=0.03)


def test_learner_averages_parameters_and_copies_buffers() -> None:
    model = torch.nn.BatchNorm1d(2)
    learner = Learner(model, build_method("supervised", problem()), ema=0.75)
    with torch.no_grad():
        model.weight.fill_(3.0)
        model.running_mean.fill_(7.0)
    learner.average()
    torch.testing.assert_close(learner.teacher.weight, torch.full((2,), 1.5))  # .75 * 1 + .25 * 3
    torch.testing.assert_close(learner.teacher.running_mean, torch.full((2,), 7.0))
    assert learner.judged is learner.teacher
    assert Learner(model, build_method("supervised", problem()), ema=0).judged is model


def test_published_numbers_are_complete() -> None:
    from instant.published import CELLS

    assert len(CELLS) == 10 * 9 + 6 * 6 + 6
    found = {(c.table, c.source, c.labels, c.method): c.accuracy for c in CELLS}
    assert found["table 2", "cifar10", 40, "instant"] == 94.83
    assert found["table 1", "stl10", 100, "dash"] == 89.56
    assert np.isclose(found["ablation", "stl10", 40, "instant_2"], 81.49)


@pytest.mark.parametrize("loss", [F.cross_entropy, lambda logits, target: (logits.softmax(1) - target).square()])
def test_a_loss_that_is_not_one_number_a_row_is_a_sentence(loss: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
    """A mean over all rows would have those teach that were refused."""
    learner = make_learner(lambda p: Match(Fixed(0.95), loss=loss))
    with pytest.raises(InputError, match=r"^Match\(loss=\.\.\.\) must return one number a row, shape \(32,\), got "):
        learner(make_views(learner.method))
