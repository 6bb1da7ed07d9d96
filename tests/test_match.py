"""Whole methods against cases worked by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from by_hand import LOG, SUPERVISED, identity, problem, run, views

from instant.alignment import Alignment
from instant.errors import InputError
from instant.fairness import Fairness
from instant.learner import Learner, commit
from instant.match import Match
from instant.methods import build_method
from instant.rules import Fixed, InstanceDependent
from instant.testing import make_learner, make_views
from instant.transition import AnchorPoints, Identity, Sight, Transitions
from instant.types import State, Wants


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
