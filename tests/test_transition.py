"""Every estimator of T against cases worked by hand, one table for all of them, and the confident samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from runs import points

from instant import random
from instant.backbones import build
from instant.engine.build import build_program
from instant.errors import InputError
from instant.learner import commit
from instant.losses import forward_corrected
from instant.match import Match
from instant.methods import build_method
from instant.rules import InstanceDependent, Relative
from instant.rules.instance import instance_margin
from instant.testing import check_method
from instant.transition import (
    AnchorPoints,
    DualT,
    Identity,
    PartDependent,
    Sight,
    Transition,
    TransitionHead,
    TransitionMatrix,
    Transitions,
    VolumeMinimal,
    inflow,
)
from instant.transition.registry import TRANSITIONS, build_transition
from instant.transition.use import well_above
from instant.transition.volmin import log_volume
from instant.types import Problem

LOG = math.log
STEP = torch.tensor(0)


def sight(probs, other, label=None, above=None) -> Sight:
    probs = torch.tensor(probs)
    label = probs.argmax(1) if label is None else torch.tensor(label)
    return Sight(probs, torch.tensor(other), label, torch.zeros(len(probs)) if above is None else torch.tensor(above))


@pytest.mark.parametrize("classes", [5, 10, 50])
def test_a_head_learns_that_a_class_is_mistaken_however_many_there_are(classes: int) -> None:
    """One sample a class; that of class 0 is always called 1, as the settings of training let T see it."""
    features = random.normal(random.root(0), classes, 64)
    y = torch.arange(classes)
    called = y.clone()
    called[0] = 1
    head = TransitionHead(64, classes)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01, momentum=0.9, weight_decay=head.decay)
    for _ in range(500):
        optimizer.zero_grad()
        head.loss(head(features, features), y, called).backward()
        optimizer.step()
    found = head(features, features)[0, 0, 1]
    assert found > 0.8, float(found)


class Given(Transition):
    """An estimator of somebody's own, which returns what it is told to."""

    def __init__(self, make: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.make = make

    def forward(self, features, x):
        return self.make(torch.eye(4, device=features.device))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda eye: 0.9 * eye, "whose rows are 0 or more and sum to 1"),
        (lambda eye: 2 * eye - 0.25, "whose rows are 0 or more and sum to 1"),
        (lambda eye: eye * math.nan, "whose rows are 0 or more and sum to 1"),
        (lambda eye: eye[0], r"of shape \(4, 4\) or \(32, 4, 4\), got \(4,\)"),
        (lambda eye: (eye, {}), r"as a tensor, got \(Tensor, dict\)"),
    ],
)
def test_check_method_looks_at_the_matrix(make: Callable[[torch.Tensor], object], sentence: str) -> None:
    def own(p: Problem, *, make: Callable[[torch.Tensor], object] = lambda eye: eye) -> Match:
        return Match(InstanceDependent(Relative(0.9)), transitions=Transitions(Given(make)))

    check_method(own)
    with pytest.raises(AssertionError, match=rf"^own: Given\.forward must return T\(x\),? ?{sentence}"):
        check_method(own, make=make)


@pytest.mark.parametrize("of", ["each row", "the batch"])
def test_check_method_finds_a_matrix_that_goes_by_the_other_rows(of: str) -> None:
    class Around(Transition):
        """A matrix a row, or one for all, from what the batch is on average."""

        def forward(self, features, x):
            around = torch.sigmoid(features - features.mean(0) if of == "each row" else features.mean(0))[..., :1]
            sure = around.unsqueeze(-1) * torch.eye(4, device=x.device)
            return sure + (1 - around.unsqueeze(-1) if of == "each row" else 1 - around) / 4

    def own(p: Problem) -> Match:
        return Match(InstanceDependent(Relative(0.9)), transitions=Transitions(Around()))

    with pytest.raises(AssertionError, match=r"^own: Around\.forward must return T\(x\) of each row by itself"):
        check_method(own)


# -- one table --------------------------------------------------------------------------------------------------------

TRUTH = torch.tensor([[0.8, 0.15, 0.05], [0.05, 0.9, 0.05], [0.1, 0.15, 0.75]])


def problem() -> Problem:
    def network(outputs: int) -> torch.nn.Module:
        return build("mlp", shape=(4,), classes=outputs, width=8)

    return Problem(classes=3, features=4, unlabelled=100, steps=100, network=network)


@pytest.mark.parametrize("name", [name for name in TRANSITIONS if name != "identity"])
def test_every_estimator_recovers_a_matrix_it_is_shown(name: str) -> None:
    """Sixty pairs in the proportions of TRUTH, and its rows as the posteriors of three anchor points."""
    counts = (20 * TRUTH).round().long().flatten()
    y = torch.arange(3).repeat_interleave(3).repeat_interleave(counts)
    called = torch.arange(3).repeat(3).repeat_interleave(counts)
    torch.manual_seed(0)
    transitions = Transitions(build_transition(name, problem()))
    x = torch.ones(len(y) + 3, 4)
    seen = sight(TRUTH.tolist(), [0, 1, 2])
    optimizer = torch.optim.SGD([*transitions.parameters(), torch.nn.Parameter(torch.zeros(1))], lr=0.5, momentum=0.9)
    first = transitions(x, x, len(y))[0].detach().clone()
    for _ in range(500):
        optimizer.zero_grad()
        matrix, used = transitions(x, x, len(y))
        loss, state = transitions.fit(matrix, y, called, seen, STEP)
        if loss.requires_grad:
            loss.backward()
        commit(transitions.estimator, state)
        optimizer.step()
    for matrix in (first, used):
        torch.testing.assert_close(matrix.sum(-1), torch.ones(matrix.shape[:-1]))
        assert float(matrix.detach().min()) > 0
    assert float((first - TRUTH).abs().max()) > 0.1
    assert float((used - TRUTH).abs().max()) < 0.02


# -- each by hand -----------------------------------------------------------------------------------------------------


def test_transition_matrix_as_released() -> None:
    matrix = TransitionMatrix(10)(torch.zeros(1, 4), torch.zeros(1, 4))
    off = 1 / (1 + math.exp(2))  # sigmoid(-2) = .1192; a row is 5 + off, then nine times off
    torch.testing.assert_close(matrix.diagonal(), torch.full((10,), (5 + off) / (5 + 10 * off)))
    torch.testing.assert_close(matrix.sum(1), torch.ones(10))
    assert TransitionMatrix(100).scale == 10


def test_transition_head_starts_near_the_identity_and_fits_its_loss() -> None:
    head = TransitionHead(3, 4, start=0.9)
    features = torch.randn(6, 3)
    matrix = head(features, features)
    torch.testing.assert_close(matrix.diagonal(dim1=1, dim2=2), torch.full((6, 4), 0.9))
    torch.testing.assert_close(matrix.sum(2), torch.ones(6, 4))
    # all of class 1 are called 2: the loss starts at -log((1 - .9) / 3) and its descent moves T[1, 2] up
    y, predicted = torch.full((6,), 1), torch.full((6,), 2)
    loss = head.loss(matrix, y, predicted)
    assert float(loss.detach()) == pytest.approx(-LOG(0.1 / 3), rel=1e-5)
    optimizer = torch.optim.SGD(head.parameters(), lr=1.0)
    for _ in range(200):
        optimizer.zero_grad()
        head.loss(head(features, features), y, predicted).backward()
        optimizer.step()
    learnt = head(features, features)
    assert float(learnt[:, 1, 2].min()) > 0.9
    torch.testing.assert_close(learnt[:, 0], matrix[:, 0].detach(), msg="rows without data stay where they were")


@pytest.mark.parametrize("make", [TransitionHead, PartDependent])
def test_t_of_a_sample_is_the_same_in_any_batch(make: Callable[[int, int], Transition]) -> None:
    estimator = make(3, 2)
    for parameter in estimator.parameters():
        parameter.data = torch.arange(float(parameter.numel())).cos().view_as(parameter)
    features = torch.tensor([[1.0, -2.0, 3.0], [10.0, 20.0, 5.0]])
    torch.testing.assert_close(estimator(features, features)[:1], estimator(features[:1], features[:1]))


def test_a_head_of_many_classes_decays_less() -> None:
    assert [TransitionHead(2, classes).decay for classes in (2, 10, 20, 50)] == [0.1, 0.1, 1 / 20, 1 / 50]


def test_transition_head_depends_on_the_instance() -> None:
    """Two kinds of samples of class 0, one mislabelled as 1 and one not: T(x) must tell them apart."""
    head = TransitionHead(2, 2)
    features = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).repeat(8, 1)
    y, predicted = torch.zeros(16, dtype=torch.long), torch.tensor([0, 1]).repeat(8)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.5)
    for _ in range(300):
        optimizer.zero_grad()
        head.loss(head(features, features), y, predicted).backward()
        optimizer.step()
    learnt = head(features[:2], features[:2])
    assert float(learnt[0, 0, 0]) > 0.95
    assert float(learnt[1, 0, 1]) > 0.95


def test_inflow_is_a_column() -> None:
    matrices = torch.arange(18.0).view(2, 3, 3)
    assert inflow(matrices, torch.tensor([0, 2])).tolist() == [[0, 3, 6], [11, 14, 17]]
    assert inflow(matrices[0], torch.tensor([1, 1])).tolist() == [[1, 4, 7], [1, 4, 7]]


def test_the_numbers_that_the_document_prints() -> None:
    volmin, parts = build_transition("volmin", problem()), build_transition("parts", problem())
    assert isinstance(volmin, VolumeMinimal)
    assert isinstance(parts, PartDependent)
    assert (volmin.volume, len(parts.part)) == (1e-4, 10)
    anchor, dual_t = build_transition("anchor", problem()), build_transition("dual_t", problem())
    assert isinstance(anchor, AnchorPoints)
    assert isinstance(dual_t, DualT)
    assert (anchor.fade, dual_t.anchors.fade, dual_t.momentum) == (0.99, 0.99, 0.99)


def test_volume_minimal_by_hand() -> None:
    volmin = VolumeMinimal(2, volume=0.5)
    matrix = volmin(torch.zeros(1, 4), torch.zeros(1, 4))
    torch.testing.assert_close(matrix.detach(), torch.tensor([[0.95, 0.05], [0.05, 0.95]]))
    # det = .95^2 - .05^2 = .9
    assert float(volmin.penalty(matrix).detach()) == pytest.approx(0.5 * LOG(0.9))
    # d log det / dT of [[a, b], [c, d]] is [[d, -c], [-b, a]] / (a d - b c); here a d - b c = .54 - .04 = .5
    free = torch.tensor([[0.9, 0.1], [0.4, 0.6]], requires_grad=True)
    log_volume(free).backward()
    torch.testing.assert_close(free.grad, torch.tensor([[0.6, -0.4], [-0.1, 0.9]]) / 0.5)
    # whatever w is, no entry of a row exceeds its diagonal: N(1, 1, 1) at the far end
    crowded = VolumeMinimal(3)
    torch.nn.init.constant_(crowded.weight, 20.0)
    torch.testing.assert_close(crowded(free, free).detach(), torch.full((3, 3), 1 / 3))


def test_volume_term_prefers_the_smaller_of_two_explanations() -> None:
    """Without pairs nothing holds T but its volume, and descent makes that smaller."""
    volmin = VolumeMinimal(3, volume=1.0)
    before = volmin.penalty(volmin(STEP, STEP))
    before.backward()
    with torch.no_grad():
        volmin.weight -= 0.5 * volmin.weight.grad
    assert float(volmin.penalty(volmin(STEP, STEP)).detach()) < float(before.detach()) - 1e-3


@pytest.mark.parametrize("labelled", [True, False])
def test_the_penalty_joins_whatever_trains_the_matrix(labelled: bool) -> None:
    transitions = Transitions(VolumeMinimal(2, volume=0.5), labelled=labelled)
    matrix, used = transitions(torch.zeros(2, 1), torch.zeros(2, 1), 1)
    assert used.requires_grad is not labelled  # the unsupervised loss trains it only where its own does not
    loss, _ = transitions.fit(matrix, torch.tensor([0]), torch.tensor([0]), sight([[0.9, 0.1]], [0]), STEP)
    assert float(loss.detach()) == pytest.approx(0.5 * LOG(0.9) - labelled * LOG(0.95), rel=1e-4)


class OfTheFeature(Transition):
    """T(x) has the feature itself on its diagonal; it detaches nothing."""

    def forward(self, features, x):
        return torch.stack([features, 1 - features, 1 - features, features], dim=1).view(-1, 2, 2)


def test_t_is_of_the_right_rows_and_teaches_no_features() -> None:
    """One labelled row of T_kk = .9 before two unlabelled ones of .8 and .6."""
    transitions = Transitions(OfTheFeature())
    features = torch.tensor([[0.9], [0.8], [0.6]], requires_grad=True)
    matrix, used = transitions(features, features, 1)
    assert not matrix.requires_grad
    torch.testing.assert_close(used[:, 0, 0], torch.tensor([0.8, 0.6]))
    seen = sight([[0.9, 0.1]] * 2, other=[0, 0])
    loss, _ = transitions.fit(matrix, torch.tensor([1]), torch.tensor([0]), seen, STEP)
    assert float(loss) == pytest.approx(-LOG(0.1))  # the labelled row alone


def test_one_matrix_has_a_row_of_every_class_for_a_single_label() -> None:
    transitions = Transitions(VolumeMinimal(3, volume=0.0))  # .95 on the diagonal
    matrix, used = transitions(torch.zeros(2, 1), torch.zeros(2, 1), 1)
    assert matrix.shape == used.shape == (3, 3)
    loss, _ = transitions.fit(matrix, torch.tensor([2]), torch.tensor([2]), sight([[0.9, 0.1, 0.0]], [0]), STEP)
    assert float(loss.detach()) == pytest.approx(-LOG(0.95), rel=1e-4)


def test_the_loss_is_plain_without_correction_and_in_the_warm_up() -> None:
    """p = (.7, .3) called 0, column (.9, .2): plain -log .7, corrected -log(.9 * .7 + .2 * .3)."""
    given = torch.tensor([[0.7, 0.3]]).log(), torch.tensor([[0.9, 0.2]]), torch.tensor([[1.0, 0.0]])
    plain, corrected = pytest.approx(-LOG(0.7)), pytest.approx(-LOG(0.9 * 0.7 + 0.2 * 0.3))
    assert float(Transitions(Identity(2), correct=False).consistency(*given, STEP)) == plain
    assert float(Transitions(Identity(2)).consistency(*given, STEP)) == corrected
    warm = Transitions(Identity(2), warmup=5)
    assert [float(warm.consistency(*given, torch.tensor(step))) for step in (4, 5)] == [plain, corrected]


def test_part_dependent_by_hand() -> None:
    parts = PartDependent(2, 2, parts=2, start=0.5)  # start .5: no identity added
    with torch.no_grad():
        parts.share.weight.copy_(torch.tensor([[LOG(3.0), 0.0], [0.0, 0.0]]))
        parts.part.copy_(torch.tensor([[0.8, 0.2, 0.3, 0.7], [0.4, 0.6, 0.1, 0.9]]).log())
    # layer_norm((1, -1)) is itself: h = softmax(log 3, 0) = (3/4, 1/4); for (-1, 1) it is (1/4, 3/4)
    features = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    one = [[0.75 * 0.8 + 0.25 * 0.4, 0.75 * 0.2 + 0.25 * 0.6], [0.75 * 0.3 + 0.25 * 0.1, 0.75 * 0.7 + 0.25 * 0.9]]
    two = [[0.25 * 0.8 + 0.75 * 0.4, 0.25 * 0.2 + 0.75 * 0.6], [0.25 * 0.3 + 0.75 * 0.1, 0.25 * 0.7 + 0.75 * 0.9]]
    torch.testing.assert_close(parts(features, features).detach(), torch.tensor([one, two]), rtol=1e-4, atol=1e-5)


def test_parts_tell_two_kinds_of_samples_apart() -> None:
    torch.manual_seed(0)
    parts = PartDependent(2, 2, parts=2)
    features = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).repeat(8, 1)
    y, called = torch.zeros(16, dtype=torch.long), torch.tensor([0, 1]).repeat(8)
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.5, momentum=0.9)
    for _ in range(200):
        optimizer.zero_grad()
        parts.loss(parts(features, features), y, called).backward()
        optimizer.step()
    learnt = parts(features[:2], features[:2])
    assert float(learnt[0, 0, 0].detach()) > 0.9
    assert float(learnt[1, 0, 1].detach()) > 0.9


def test_the_identity_leaves_a_margin_test() -> None:
    """tau = kappa + T_kk P_s + sum of T_ik P_i over the others = kappa + P_s; and CE(k, T'p) = CE(k, p)."""
    matrix = Identity(3)(torch.zeros(2, 4), STEP)
    column = inflow(matrix, torch.tensor([0, 2]))
    torch.testing.assert_close(column, torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    probs = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    torch.testing.assert_close(instance_margin(probs, column), torch.tensor([0.2, 0.3]))
    torch.testing.assert_close(forward_corrected(probs.log(), column), -torch.tensor([0.7, 0.6]).log())


def test_what_no_data_speaks_of_is_forgotten() -> None:
    """SGD with decay d and rate r leaves (1 - r d) of a weight without gradient; the head's own d is 0.1."""
    for options, decay in (({}, 0.1), ({"transition": "matrix"}, 0.0), ({"transition_decay": 0.5}, 0.5)):
        assert build_method("instant", problem(), **options).own_decay == decay
    assert build_method("instant_released", problem()).own_decay == 0.0
    recipe, split = points("instant", **{"method.transition_decay": "0.5", "method.transition_lr": "0.1"})
    optimizer = build_program(recipe, split).optimizers[1]
    weight = optimizer.param_groups[0]["params"][0]
    torch.nn.init.ones_(weight)
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
    torch.testing.assert_close(weight, torch.full_like(weight, 1 - 0.1 * 0.5))


def test_anchor_points_by_hand() -> None:
    anchors = AnchorPoints(2, fade=0.9)
    commit(anchors, anchors.observe(sight([[0.7, 0.3], [0.9, 0.1], [0.4, 0.6]], [0, 0, 1])))
    torch.testing.assert_close(anchors(STEP, STEP), torch.tensor([[0.9, 0.1], [0.4, 0.6]]))
    # records .9 and .6 fade to .81 and .54: .8 is below the first, .55 above the second and so the new anchor
    commit(anchors, anchors.observe(sight([[0.8, 0.2], [0.45, 0.55]], [0, 1])))
    torch.testing.assert_close(anchors(STEP, STEP), torch.tensor([[0.9, 0.1], [0.45, 0.55]]))
    torch.testing.assert_close(anchors.best, torch.tensor([0.81, 0.55]))


def test_dual_t_by_hand() -> None:
    dual = DualT(2, momentum=0.75, start=0.8)
    torch.testing.assert_close(dual(STEP, STEP), torch.tensor([[0.68, 0.32], [0.32, 0.68]]))  # start^2 + .2^2 = .68
    commit(dual, dual.observe(sight([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6]], [0, 0, 1, 1])))
    # counts: intermediate 0 three times, called 0, 0, 1; intermediate 1 once, called 1, over 4 rows; then
    # .75 * (.4, .1) + .25 * (.5, .25) = (.425, .1375) and .75 * (.1, .4) + .25 * (0, .25) = (.075, .3625)
    spade = torch.tensor([[0.425 / 0.5625, 0.1375 / 0.5625], [0.075 / 0.4375, 0.3625 / 0.4375]])
    club = torch.tensor([[0.9, 0.1], [0.4, 0.6]])
    torch.testing.assert_close(dual(STEP, STEP), club @ spade)


def test_dual_t_keeps_a_class_that_is_never_called() -> None:
    dual = DualT(2, momentum=0.0)
    commit(dual, dual.observe(sight([[0.9, 0.1]], [0])))
    assert bool(torch.isfinite(dual(STEP, STEP)).all())
    torch.testing.assert_close(dual(STEP, STEP).sum(1), torch.ones(2))


# -- confident samples ------------------------------------------------------------------------------------------------


def test_well_above_takes_a_share_and_nothing_below_its_threshold() -> None:
    above = torch.tensor([0.4, 0.1, -0.2, 0.3, 0.2, -0.1])
    assert well_above(above, 0.5).tolist() == [1, 0, 0, 1, 1, 0]
    assert well_above(above, 1.0).tolist() == [1, 1, 0, 1, 1, 0]
    assert well_above(above, 0.01).tolist() == [1, 0, 0, 0, 0, 0]
    assert well_above(-above.abs(), 0.5).tolist() == [0] * 6


def test_confident_samples_join_the_loss() -> None:
    """Two labelled rows called right; of four unlabelled ones the surest two join, one of them called otherwise."""
    estimator = VolumeMinimal(2, volume=0.0)  # .95 on the diagonal
    transitions = Transitions(estimator, confident=0.5, from_step=10)
    matrix, _ = transitions(torch.zeros(6, 1), torch.zeros(6, 1), 2)
    y, called = torch.tensor([0, 1]), torch.tensor([0, 1])
    seen = sight([[0.9, 0.1]] * 4, other=[1, 0, 1, 1], label=[0, 0, 0, 0], above=[0.3, 0.2, 0.1, -0.1])
    loss, _ = transitions.fit(matrix, y, called, seen, torch.tensor(10))
    # the mean over four: three agree (-log .95), the first unlabelled row does not (-log .05)
    assert float(loss.detach()) == pytest.approx(-(3 * LOG(0.95) + LOG(0.05)) / 4, rel=1e-4)
    early, _ = transitions.fit(matrix, y, called, seen, torch.tensor(9))
    assert float(early.detach()) == pytest.approx(-LOG(0.95), rel=1e-4)


def test_confident_samples_keep_t_from_the_identity() -> None:
    """Labels that are fitted drive T to the identity; rows whose other view disagrees hold it back."""
    learnt = []
    for share in (0.0, 1.0):
        transitions = Transitions(TransitionHead(1, 2), confident=share)
        optimizer = torch.optim.SGD(transitions.parameters(), lr=0.5)
        y = torch.tensor([0, 1])
        seen = sight([[0.9, 0.1]] * 4, other=[1, 0, 0, 0], label=[0] * 4, above=[0.1] * 4)
        for _ in range(300):
            optimizer.zero_grad()
            matrix, used = transitions(torch.zeros(6, 1), torch.zeros(6, 1), 2)
            transitions.fit(matrix, y, y, seen, STEP)[0].backward()
            optimizer.step()
        learnt.append(float(used[0, 0, 0]))
    assert learnt[0] > 0.98
    assert learnt[1] == pytest.approx(4 / 5, abs=0.01)  # of five rows of class 0 four are called 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"confident": 1.5}, r"confident=1\.5 must lie in \[0, 1\]"),
        ({"confident_from": -1}, r"confident_from=-1 must lie"),
        ({"confident": 0.5, "transition": "anchor"}, "anchor only watches"),
        ({"trained_on": "unlabelled", "transition": "dual_t"}, "dual_t only watches"),
        ({"confident": 0.5, "trained_on": "unlabelled"}, "set trained_on=labelled"),
        ({"confident_from": 0.25}, "of no samples; set confident"),
        ({"correct": False, "trained_on": "unlabelled"}, "takes T out of the unlabelled loss; set trained_on=labelled"),
        ({"relative": False, "kappa": "unlabelled"}, "relative=false has none; leave one out"),
        ({"align": False, "align_target": "labelled"}, "align=false is none; leave one out"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        build_method("instant", problem(), **options)


def test_confident_samples_join_after_their_share_of_the_run() -> None:
    method = build_method("instant", problem(), confident=1.0, confident_from=0.25)
    assert method.transitions.from_step == 25


def test_a_sample_at_its_threshold_does_not_join() -> None:
    assert well_above(torch.tensor([0.0, 0.1]), 1.0).tolist() == [0, 1]


def test_a_network_of_its_own_looks_at_the_sample() -> None:
    estimator = build_transition("network", problem()).eval()
    matrix = estimator(torch.zeros(2, 4), torch.tensor([[0.0, 0, 0, 0], [1, -2, 3, 1]]))
    assert not torch.allclose(matrix[0], matrix[1])


def test_the_scale_of_the_features_does_not_matter_to_the_head() -> None:
    head = TransitionHead(4, 3)
    torch.nn.init.normal_(head.linear.weight)
    features = torch.tensor([[1.0, -2, 3, 0.5]])
    torch.testing.assert_close(head(5 * features + 1, features), head(features, features), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["head", "network"])
def test_too_many_classes_for_a_matrix_of_each_sample(name: str) -> None:
    """Not minutes a step, and then more than memory holds."""
    many = Problem(classes=1000, features=256, unlabelled=1, steps=1, network=lambda outputs: pytest.fail("built"))
    with pytest.raises(
        InputError, match=rf"transition={name} needs 256,000,000 weights .* use method\.transition=matrix"
    ):
        build_transition(name, many)
    assert build_transition("matrix", many) is not None
