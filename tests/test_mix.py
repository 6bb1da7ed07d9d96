"""Strong views of two images: the picture against Pillow, the feed's choice, and the loss by hand."""

from __future__ import annotations

import copy
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from runs import StopAt, assert_same_run, small
from sklearn.datasets import load_sample_images
from test_feed import at, make_feed, numbered, shown
from test_match import SUPERVISED, problem, run, views
from torch import Tensor

from instant import random, recipes
from instant.algorithms import METHODS
from instant.augment.mix import paste, resize_mix
from instant.config import Recipe
from instant.data.sources import arrays
from instant.data.split import make_split
from instant.engine.build import build_program
from instant.engine.features import features_recipe
from instant.engine.fit import Interrupted, fit
from instant.errors import InputError
from instant.fairness import Fairness
from instant.match import Match
from instant.methods import build_method
from instant.report.baseline import baseline_recipe, train_baseline
from instant.rules import Fixed, InstanceDependent, Rule
from instant.run import Run
from instant.testing import no_waiting
from instant.testing.method import make_learner, make_views
from instant.testing.shared import backend, close
from instant.transition import DualT, TransitionHead, Transitions
from instant.types import Evidence, Method, MethodFunction, Network, Output, Selection, State, Views, Wants

LOG = math.log


# --- the picture ------------------------------------------------------------------------------------------------------


def photos(height: int, width: int) -> Tensor:
    """Two pairs of pieces of photographs, (4, 3, height, width)."""
    pieces = [photo[top : top + height, :width] for photo in load_sample_images().images for top in (100, 200)]
    return torch.from_numpy(np.stack(pieces)).permute(0, 3, 1, 2).float()


@pytest.mark.parametrize(("height", "width"), [(32, 32), (24, 40)])
def test_a_copy_is_pillows_box_resize_in_its_place(height: int, width: int) -> None:
    images = photos(height, width)
    whole, others = images[:2], images[2:]
    size = torch.tensor([height / 2, height / 8]), torch.tensor([width / 4, width / 2])
    place = torch.tensor([3.0, height * 7 / 8]), torch.tensor([0.0, 5.0])
    mixed = paste(whole, others, *size, *place)
    for number in range(2):
        tall, wide, down, right = (int(part[number]) for part in (*size, *place))
        expected = whole[number].clone()
        for channel in range(3):
            small = Image.fromarray(others[number, channel].numpy()).resize((wide, tall), Image.Resampling.BOX)
            expected[channel, down : down + tall, right : right + wide] = torch.from_numpy(np.array(small))
        torch.testing.assert_close(mixed[number], expected, rtol=0, atol=1e-3)


def test_a_copy_of_no_whole_factor_by_hand() -> None:
    """Three pixels in a row shown on two: each is one and a half of them."""
    mixed = paste(torch.zeros(1, 1, 1, 3), torch.tensor([[[[0.0, 3.0, 6.0]]]]), *map(torch.tensor, ([1.0], [2.0])),
                  *map(torch.tensor, ([0.0], [1.0])))  # fmt: skip
    torch.testing.assert_close(mixed[0, 0], torch.tensor([[0.0, (0 + 3 / 2) / 1.5, (3 / 2 + 6) / 1.5]]))


def test_copies_have_the_stated_sizes_and_lie_everywhere_within() -> None:
    mixed, kept = resize_mix(torch.zeros(20_000, 1, 20, 10), torch.ones(20_000, 1, 20, 10), random.root(0))
    assert bool(((mixed == 0) | ((mixed - 1).abs() < 1e-5)).all())
    torch.testing.assert_close(mixed.mean((1, 2, 3)), 1 - kept, rtol=0, atol=1e-5)
    tall, wide = (mixed[:, 0].amax(2) > 0.5).sum(1), (mixed[:, 0].amax(1) > 0.5).sum(1)
    assert (int(tall.min()), int(tall.max()), int(wide.min()), int(wide.max())) == (2, 16, 1, 8)
    assert float(tall.float().mean()) == pytest.approx(20 * 0.45, abs=0.1)
    covered = mixed.mean((0, 1))
    assert float(covered.min()) > 0.01, "the corners are covered too"
    torch.testing.assert_close(covered, covered.flip(0, 1), rtol=0.1, atol=0.01)


def test_a_copy_in_a_tiny_image_has_a_pixel_at_least() -> None:
    """A tenth of four pixels is none."""
    mixed, kept = resize_mix(torch.zeros(500, 1, 4, 4), torch.ones(500, 1, 4, 4), random.root(0))
    assert float(kept.max()) == 1 - 1 / 16
    torch.testing.assert_close(mixed.mean((1, 2, 3)), 1 - kept)


def test_the_picture_is_a_function_of_the_key_and_never_waits() -> None:
    images = photos(16, 16)
    first, again, other = (resize_mix(images, images.roll(1, 0), random.root(key)) for key in (0, 0, 1))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[1], other[1])
    with no_waiting("resize_mix"):
        resize_mix(images, images, random.root(0))


# --- the feed ---------------------------------------------------------------------------------------------------------


def test_some_strong_views_have_the_one_before_in_them_and_nothing_else_changes() -> None:
    split = numbered()
    plain, mixing = (make_feed(split, mix=share) for share in (0.0, 0.5))
    for step in (0, 3):
        one, two = at(plain, step), at(mixing, step)
        assert (len(one.kept), len(two.kept)) == (0, 6)
        for name in ("x_l", "y_l", "x_w", "index", "key"):
            assert torch.equal(getattr(one, name), getattr(two, name)), name
        assert torch.equal(two.x_s[:6], one.x_s[:6])
        own, before = shown(one.x_s), shown(one.x_s.roll(1, 0))
        for row, kept in zip(range(6, 12), two.kept.tolist()):
            pixels = two.x_s[row].round().long().flatten()
            assert set(pixels.tolist()) == {int(own[row]), int(before[row])}
            assert float((pixels == own[row]).float().mean()) == pytest.approx(kept)


def test_mixing_may_begin_later() -> None:
    split = numbered()
    plain, mixing, late = make_feed(split), make_feed(split, mix=0.5), make_feed(split, mix=0.5, mix_after=3)
    for step in (0, 2):
        assert torch.equal(at(late, step).x_s, at(plain, step).x_s)
        assert at(late, step).kept.tolist() == [1.0] * 6
    for name in ("x_s", "kept"):
        assert torch.equal(getattr(at(late, 3), name), getattr(at(mixing, 3), name)), name
    assert float(at(late, 3).kept.max()) < 1


def test_the_smaller_one_is_a_strong_view_too_and_lies_elsewhere_in_every_step() -> None:
    def turned(samples: Tensor, key: Tensor) -> Tensor:
        return 255 - samples

    feed = make_feed(numbered(), strong=turned, mix=0.5)
    first, later = at(feed, 0), at(feed, 3)
    assert float(first.x_s.min()) >= 255 - 60
    assert not torch.equal(first.kept, later.kept)


def test_one_strong_view_stays_whole_and_none_is_mixed_where_none_is_wanted() -> None:
    assert len(at(make_feed(numbered(), mix=0.99), 0).kept) == 11
    assert len(at(make_feed(numbered(), mix=0.5, wants=Wants(weak=False, second="none")), 0).kept) == 0


# --- the loss; the model is the identity ------------------------------------------------------------------------------


def test_a_view_of_two_samples_learns_both_labels_if_both_count() -> None:
    """Rows 1 to 3 have the row before in them: 0 in 1 and 1 in 2 count; 3 is refused, and so is 2 in 3."""
    weak = [[0.96, 0.04], [0.03, 0.97], [0.98, 0.02], [0.6, 0.4]]
    strong = [[0.7, 0.3], [0.2, 0.8], [0.6, 0.4], [0.1, 0.9]]
    given = views([[0.6, 0.4]], [0], weak, strong)._replace(kept=torch.tensor([0.75, 0.5, 0.9]))
    out = run(build_method("fixmatch", problem()), given)
    first = -LOG(0.7)
    second = -0.75 * LOG(0.8) - 0.25 * LOG(0.2)  # its own label is 1, that of the one before 0
    third = -0.5 * LOG(0.6) - 0.5 * LOG(0.4)  # 0, and 1
    assert float(out.loss) == pytest.approx(SUPERVISED + (first + second + third) / 4, rel=1e-5)
    assert out.decision.weight.tolist() == [1, 1, 1, 0], "mixing decides about no sample"

    refused_before = views([[0.6, 0.4]], [0], weak[::-1], strong)._replace(kept=torch.tensor([0.9, 0.5, 0.5]))
    out = run(build_method("fixmatch", problem()), refused_before)  # 0 is refused now, and so 1, with 0 in it
    third = -0.5 * LOG(0.4) - 0.5 * LOG(0.6)  # labels are 0, 0, 1, 0
    fourth = -0.5 * LOG(0.1) - 0.5 * LOG(0.9)
    assert float(out.loss) == pytest.approx(SUPERVISED + (third + fourth) / 4, rel=1e-5)


def test_a_view_that_is_whole_learns_its_own_label_whether_the_other_counts_or_not() -> None:
    weak = [[0.6, 0.4], [0.03, 0.97], [0.98, 0.02], [0.99, 0.01]]
    strong = [[0.7, 0.3], [0.2, 0.8], [0.6, 0.4], [0.1, 0.9]]
    given = views([[0.6, 0.4]], [0], weak, strong)
    method = build_method("fixmatch", problem())
    whole = run(method, given._replace(kept=torch.ones(3)))
    assert float(whole.loss) == pytest.approx(float(run(method, given).loss), rel=1e-6)
    assert float(whole.loss) == pytest.approx(SUPERVISED - (LOG(0.8) + LOG(0.6) + LOG(0.1)) / 4, rel=1e-5)


class Halves(Rule):
    """Weights .5 and .8."""

    def forward(self, seen: Evidence) -> tuple[Selection, State]:
        return Selection(torch.tensor([0.5, 0.8]), torch.zeros(2)), {}


def test_weights_are_multiplied_and_soft_targets_stay_soft() -> None:
    given = views([[0.6, 0.4]], [0], [[0.96, 0.04], [0.1, 0.9]], [[0.7, 0.3], [0.2, 0.8]])
    given = given._replace(kept=torch.tensor([0.75]))
    soft = Match(Halves(), target=lambda probs, seen: probs)
    own = -0.1 * LOG(0.2) - 0.9 * LOG(0.8)
    other = -0.96 * LOG(0.2) - 0.04 * LOG(0.8)
    first = -0.96 * LOG(0.7) - 0.04 * LOG(0.3)
    expected = (0.5 * first + 0.5 * 0.8 * (0.75 * own + 0.25 * other)) / 2
    assert float(run(soft, given).metrics["loss_unsupervised"]) == pytest.approx(expected, rel=1e-5)


def test_the_corrected_loss_takes_each_label_through_its_own_column() -> None:
    """DualT starts with .95 twice: T = [[.905, .095], [.095, .905]]."""
    stay = 0.95**2 + 0.05**2
    method = Match(Fixed(0.5), transitions=Transitions(DualT(2)))
    given = views([[0.6, 0.4]], [0], [[0.96, 0.04], [0.03, 0.97]], [[0.7, 0.3], [0.2, 0.8]])
    out = run(method, given._replace(kept=torch.tensor([0.75])))

    def corrected(p: float) -> float:
        return -LOG(stay * p + (1 - stay) * (1 - p))

    expected = (corrected(0.7) + 0.75 * corrected(0.8) + 0.25 * corrected(0.2)) / 2
    assert float(out.metrics["loss_unsupervised"]) == pytest.approx(expected, rel=1e-5)


def test_what_is_seen_in_a_view_of_two_is_not_said_of_one() -> None:
    """Neither T's counts nor fairness look at it: the class of the other would be a mistake of the one."""
    whole = views([[0.6, 0.4]], [0], [[0.96, 0.04], [0.03, 0.97]], [[0.7, 0.3], [0.2, 0.8]])
    mixed = whole._replace(x_s=torch.tensor([[0.7, 0.3], [0.9, 0.1]]).log(), kept=torch.tensor([0.5]))
    method = Match(Fixed(0.5), transitions=Transitions(DualT(2)))
    alone = whole._replace(x_w=whole.x_w[:1], x_s=whole.x_s[:1], index=whole.index[:1])
    counts = "transitions.estimator.counts"
    torch.testing.assert_close(run(method, mixed).state[counts], run(method, alone).state[counts])

    fair = Match(Fixed(0.5), fairness=Fairness(2, weight=1.0, momentum=0.0))
    changed = mixed._replace(x_s=torch.tensor([[0.7, 0.3], [0.1, 0.9]]).log())
    assert float(run(fair, mixed).metrics["loss_fairness"]) == float(run(fair, changed).metrics["loss_fairness"])
    mean = torch.tensor([0.96 + 0.03, 0.04 + 0.97]) / 2
    torch.testing.assert_close(run(fair, mixed).state["fairness.model"], mean)  # of all weak views


def test_t_is_not_fitted_on_views_of_two() -> None:
    """The second sample is the surer one; its second view calls it otherwise, but has the first in it."""

    class Strict(TransitionHead):
        def loss(self, matrix: Tensor, y: Tensor, predicted: Tensor, weight: Tensor | None = None) -> Tensor:
            assert len(matrix) == len(y) == len(predicted)
            return super().loss(matrix, y, predicted, weight)

    estimator = Strict(2, 2)
    torch.nn.init.ones_(estimator.linear.weight[0])
    method = Match(InstanceDependent(Fixed(0.4)), transitions=Transitions(estimator, confident=0.5))
    given = views([[0.6, 0.4]], [0], [[0.9, 0.1], [0.99, 0.01], [0.2, 0.8]], [[0.7, 0.3], [0.2, 0.8], [0.1, 0.9]])
    mixed = given._replace(kept=torch.tensor([0.5, 0.5]))
    alone = given._replace(x_w=given.x_w[:1], x_s=given.x_s[:1], index=given.index[:1])
    found = run(method, mixed).metrics["loss_transition"]
    torch.testing.assert_close(found, run(method, alone).metrics["loss_transition"])
    assert not torch.allclose(found, run(method, given).metrics["loss_transition"])


# --- the setting ------------------------------------------------------------------------------------------------------


class Own(Match):
    """Does not know that views may be of two samples."""

    def forward(self, model: Network, teacher: Network, views: Views) -> Output:
        assert not len(views.kept)
        return super().forward(model, teacher, views)


class Weak(Method):
    wants = Wants(second="weak")
    takes_mixed = True


@pytest.mark.parametrize(
    "method", [lambda p: Own(Fixed(0.5)), lambda p: Weak(), lambda p: Match(Fixed(0.5), wants=Wants(second="weak"))]
)
def test_a_method_of_ones_own_is_asked_first(method: MethodFunction) -> None:
    recipe, split = small(mix="0.5")
    with pytest.raises(InputError, match="does not learn from such; set mix=0"):
        build_program(recipe, split, method=method)


def test_the_recipe_does_not_mix_for_a_method_of_ones_own() -> None:
    assert recipes.fast_cifar10(method="own:mine").mix == 0


def test_a_share_that_is_no_view_is_refused() -> None:
    recipe, split = small(mix="0.01")
    with pytest.raises(InputError, match=r"mix=0\.01 of the 16 strong views of a step is none of them; raise mix"):
        build_program(recipe, split)


def test_mixing_that_would_never_begin_is_refused() -> None:
    recipe, split = small(mix_after="0.5")
    with pytest.raises(
        InputError, match=r"mix_after=0\.5 is when mixing begins, and mix=0 is none; set mix too, or mix_after=0"
    ):
        build_program(recipe, split)


def test_when_mixing_begins_is_a_share_of_the_steps() -> None:
    """24 of them; the last one mixes whatever the share."""
    for share, first in (("0", 0), ("0.25", 6), ("0.65", 16), ("0.999", 23)):
        assert build_program(*small(mix="0.5", mix_after=share)).feed.mix_after == first
    assert build_program(*small(mix="0.5", mix_after="0.25", steps="12")).feed.mix_after == 3


def test_who_turns_mixing_off_need_not_say_when_it_would_have_begun() -> None:
    recipe = recipes.fast_cifar10()
    assert round(recipe.mix_after * recipe.steps) == 50_000
    plain = recipe.override({"mix": "0"})
    assert (plain.mix, plain.mix_after) == (0, 0)
    assert recipe.override({"mix": "0.8", "steps": "2000"}).mix_after == recipe.mix_after
    assert recipe.suited("mean_teacher").mix_after == 0
    for method in ("mean_teacher", "fixmatch"):  # of which one has nothing to mix and the other has
        switched = recipes.fast_cifar10(method=method).override({"mix": "0"}).suited("instant")
        assert (switched.mix, switched.mix_after) == (0, 0), method
    assert recipe.override({"mix": "0", "mix_after": "0.5"}).mix_after == 0.5  # who asks for both is told


def test_the_baseline_of_a_run_that_mixes(tmp_path: Path) -> None:
    recipe, split = small(mix="0.5", mix_after="0.2")
    run = Run(tmp_path / "run")
    fit(recipe, split, run=run)
    assert train_baseline(run, split).finished
    assert baseline_recipe(Recipe.from_json(recipes.fast_cifar10().to_json())).mix == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_method_takes_views_of_two_if_and_only_if_it_has_strong_ones(method: str) -> None:
    built = build_method(method, problem())
    assert built.takes_mixed == (built.wants.second == "strong" and isinstance(built, Match))
    assert (recipes.fast_cifar10(method=method).mix > 0) == built.takes_mixed
    recipe, split = small(method, mix="0.5")
    if built.takes_mixed:
        assert build_program(recipe, split).feed.mixed == recipe.batch * recipe.ratio // 2
    else:
        with pytest.raises(InputError, match=f"mix=0.5 makes strong views of two images, and method={method} does not"):
            build_program(recipe, split)


def test_vectors_are_not_mixed() -> None:
    split = make_split(arrays(np.eye(8, dtype=np.float32), [0, 1] * 4), labels=2)
    recipe = recipes.vectors().override({"mix": 0.5, "batch": 2, "ratio": 2})
    with pytest.raises(InputError, match="mix= is for images, and arrays has vectors; leave it out"):
        build_program(recipe, split)


def test_features_are_learnt_from_whole_images() -> None:
    recipe, split = small(mix="0.5", mix_after="0.3", contrast="4")
    assert features_recipe(recipe, split).mix == 0
    assert fit(recipe, split).summary["steps"] == 24


@pytest.mark.parametrize("after", ["0", "0.5"])
def test_a_run_that_mixes_is_resumed_as_it_was(after: str, tmp_path: Path) -> None:
    recipe, split = small(mix="0.5", mix_after=after)
    whole, parts = Run(tmp_path / "whole"), Run(tmp_path / "parts")
    fit(recipe, split, run=whole)
    with pytest.raises(Interrupted):
        fit(recipe, split, run=parts, callbacks=[StopAt(9)])
    fit(parts.recipe(), split, run=parts, resume=True)
    assert_same_run(parts, whole)


@pytest.mark.parametrize(
    ("method", "half"), [("instant", backend()), *((name, "aot_eager") for name in ("freematch", "dash", "softmatch"))]
)
def test_a_step_of_views_of_two_compiles_to_the_same_and_never_waits(method: str, half: str) -> None:
    """To machine code once; what the others add is compiled as far as a trap may lie."""
    found = []
    for way in (lambda learner: learner, partial(torch.compile, backend=half)):
        learner = make_learner(method)
        views = make_views(learner.method)._replace(kept=torch.tensor([0.9, 0.5, 0.4, 0.8]))
        twin = copy.deepcopy(learner)
        with no_waiting(method):
            twin(views).loss.backward()
        output = way(learner)(views)
        output.loss.backward()
        found.append({name: p.grad for name, p in learner.named_parameters() if p.grad is not None} | output.state)
    close(found[1], found[0], f"{method}: compiled differs", rtol=1e-4, atol=1e-5)


def test_a_compiled_feed_mixes_the_same() -> None:
    feed = make_feed(numbered(), mix=0.5, mix_after=1)
    feed.prepare(1)
    step = torch.tensor(1)
    close(torch.compile(feed.forward)(step)._asdict(), feed(step)._asdict(), "views", rtol=1e-5, atol=1e-4)
