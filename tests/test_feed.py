"""From a split to a step's views: which samples, which views, which numbers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor

from instant import random
from instant.augment import for_images
from instant.data import sampler
from instant.data.feed import Feed, Normalise
from instant.data.sampler import Sampler
from instant.data.sources import arrays, load
from instant.data.split import Split, make_split
from instant.errors import InputError
from instant.testing import no_waiting
from instant.types import Views, Wants

KEY = random.root(0)


def walk(n: int, batch: int, steps: int, key: Tensor = KEY) -> Tensor:
    """The batches of the first steps, (steps, batch)."""
    drawn, source = [], Sampler(n, batch, key)
    for step in range(steps):
        source.prepare(step)
        drawn.append(source(torch.tensor(step)))
    return torch.stack(drawn)


def assert_epochs(drawn: Tensor, n: int) -> None:
    """Every n draws in a row, from the first on, are all of range(n)."""
    whole = drawn.reshape(-1)[: drawn.numel() // n * n].view(-1, n)
    assert torch.equal(whole.sort(dim=1).values, torch.arange(n).expand_as(whole))


# --- the sampler ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "batch"), [(12, 4), (7, 3), (7, 7), (4, 10), (1, 3), (5, 1), (100, 64)])
@pytest.mark.parametrize("window", [1, 20, 65_536])
def test_every_epoch_is_covered_exactly_once(n: int, batch: int, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "WINDOW", window)
    drawn = walk(n, batch, 60)
    assert_epochs(drawn, n)
    if n > 6:
        assert len(torch.unique(drawn.reshape(-1)[: n * (60 * batch // n)].view(-1, n), dim=0)) > 1


def test_the_window_changes_nothing_and_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = walk(7, 3, 50)
    monkeypatch.setattr(sampler, "WINDOW", 14)
    assert torch.equal(walk(7, 3, 50), wide)
    small = Sampler(7, 4, KEY)
    assert len(small.order) == 21
    starts = []
    for step in range(10):
        small.prepare(step)
        starts.append(int(small.start))
    # 21 draws hold the batches of steps 0 to 4; the sixth, 20 to 23, starts in the epoch from 14 on; and so on
    assert starts == [0, 0, 0, 0, 0, 14, 14, 14, 28, 28]


@pytest.mark.parametrize("batch", [5, 6, 7])
def test_steps_that_warm_up_find_their_samples_wherever_a_run_begins(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "WINDOW", 14)
    walked = walk(7, batch, 50)
    for step in range(40):
        begun = Sampler(7, batch, KEY)
        begun.prepare(step)
        for later in range(step, step + sampler.WARM_UP):
            assert torch.equal(begun(torch.tensor(later)), walked[later])


def test_a_jump_to_any_step_equals_walking_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "WINDOW", 14)
    walked = walk(7, 3, 50)
    jumper = Sampler(7, 3, KEY)
    for step in (49, 0, 20, 21, 3, 48):
        jumper.prepare(step)
        assert torch.equal(jumper(torch.tensor(step)), walked[step])


def test_a_key_decides_the_order() -> None:
    assert not torch.equal(walk(50, 10, 5), walk(50, 10, 5, random.root(1)))


# --- the feed -------------------------------------------------------------------------------------------------


def numbered(n: int = 60) -> Split:
    """Images that show their own position, in three classes, six of them labelled."""
    images = np.broadcast_to(np.arange(n, dtype=np.uint8)[:, None, None], (n, 4, 4))
    return make_split(arrays(images, np.arange(n) % 3, mean=[0.0], std=[1 / 255]), labels=6)


def refuse(samples: Tensor, key: Tensor) -> Tensor:
    raise AssertionError("a view nobody wants was made")


def as_it_is(samples: Tensor, key: Tensor) -> Tensor:
    return samples


def make_feed(split: Split, *, batch: int = 4, ratio: int = 3, wants: Wants | None = None, **changes: object) -> Feed:
    settings = {"weak": as_it_is, "strong": as_it_is, "seed": 0} | changes
    return Feed(split, batch=batch, ratio=ratio, wants=wants or Wants(), **settings)  # type: ignore[arg-type]


def at(feed: Feed, step: int) -> Views:
    feed.prepare(step)
    return feed(torch.tensor(step))


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (lambda samples, key: samples[1:], r"must return .* \(12, 1, 4, 4\), on cpu, got shape \(11,"),
        (lambda samples, key: None, "got a NoneType; it must change samples, not their number"),
        (lambda samples, key: samples.to("meta"), "on meta"),
        (lambda samples: samples, r"the strong policy <lambda> must be a function of two arguments, \(samples, key\)"),
        (5, "the strong policy int must be a function of two arguments"),
    ],
)
def test_a_policy_that_makes_no_view_is_a_sentence(policy: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        at(make_feed(numbered(), strong=policy), 0)


def shown(x: Tensor) -> Tensor:
    """The positions that numbered images show."""
    assert (x == x[:, :, :1, :1]).all()
    return x[:, 0, 0, 0].round().long()


def test_labels_belong_to_their_images_and_the_pool_to_its_positions() -> None:
    split = numbered()
    feed = make_feed(split)
    seen = []
    for step in range(20):
        views = at(feed, step)
        assert set(shown(views.x_l).tolist()) <= set(split.labelled.tolist())
        assert torch.equal(views.y_l, shown(views.x_l) % 3)
        assert torch.equal(torch.from_numpy(split.pool)[views.index], shown(views.x_w))
        assert torch.equal(views.x_s, views.x_w)
        assert int(views.step) == step
        assert views.x_l.shape == (4, 1, 4, 4)
        assert views.x_w.shape == (12, 1, 4, 4)
        seen.append(views.index)
    assert_epochs(torch.cat(seen), 60)


def test_positions_count_in_the_pool_not_in_the_data() -> None:
    source = arrays(
        np.broadcast_to(np.arange(60, dtype=np.uint8)[:, None, None], (60, 4, 4)),
        np.arange(60) % 3,
        mean=[0.0],
        std=[1 / 255],
    )
    split = make_split(source, labels=6, validation=15)
    feed = make_feed(split)
    for step in range(10):
        views = at(feed, step)
        assert torch.equal(torch.from_numpy(split.pool)[views.index], shown(views.x_w))
        assert not set(shown(views.x_w).tolist()) & set(split.validation.tolist())


def test_some_labelled_rows_are_in_strong_views_and_nothing_else_changes() -> None:
    def marked(samples: Tensor, key: Tensor) -> Tensor:
        return samples + 128

    split = numbered()
    plain, hard = (make_feed(split, strong=marked, strong_labels=share) for share in (0.0, 0.5))
    for step in (0, 3):
        one, two = at(plain, step), at(hard, step)
        for name in ("y_l", "x_w", "x_s", "index", "key"):
            assert torch.equal(getattr(one, name), getattr(two, name)), name
        assert two.y_weak.tolist() == one.y_weak.tolist()[:2] == one.y_l.tolist()[:2]
        assert shown(two.x_l).tolist() == (shown(one.x_l) + torch.tensor([0, 0, 128, 128])).tolist()


def test_one_labelled_row_stays_weak_for_the_thresholds() -> None:
    views = at(make_feed(numbered(), strong_labels=0.99), 0)
    assert (len(views.y_l), len(views.y_weak)) == (4, 1)


def test_a_batch_may_be_larger_than_the_labelled_set() -> None:
    views = at(make_feed(numbered(), batch=20), 0)
    assert torch.bincount(shown(views.x_l)).max() <= 4  # 20 draws of 6: three whole epochs and a part
    assert len(torch.unique(shown(views.x_l))) == 6


def test_images_are_normalised_after_the_augmentation() -> None:
    images = np.zeros((6, 2, 2, 3), np.uint8)
    images[:, 0, 0] = (255, 51, 102)
    split = make_split(arrays(images, [0, 1] * 3, mean=[0.5, 0.2, 0.0], std=[0.25, 0.1, 1.0]), labels=2)

    def half(samples: Tensor, key: Tensor) -> Tensor:
        assert samples.dtype == torch.uint8
        return samples // 2

    views = at(make_feed(split, batch=2, ratio=1, strong=half), 0)
    # (1 - 0.5) / 0.25, (51/255 - 0.2) / 0.1, 102/255; black is -0.5 / 0.25, -0.2 / 0.1, 0
    torch.testing.assert_close(views.x_w[0, :, 0, 0], torch.tensor([2.0, 0.0, 0.4]))
    torch.testing.assert_close(views.x_l[1, :, 1, 1], torch.tensor([-2.0, -2.0, 0.0]))
    # 255 // 2 = 127, 51 // 2 = 25, 102 // 2 = 51
    expected = torch.tensor([(127 / 255 - 0.5) / 0.25, (25 / 255 - 0.2) / 0.1, 51 / 255])
    torch.testing.assert_close(views.x_s[0, :, 0, 0], expected)


def test_vectors_are_standardised_before_the_augmentation() -> None:
    """Noise of 0.1 must be small against every feature, and 0 must be its mean."""
    x = np.array([[1000.0, -0.002], [3000.0, 0.002], [1000.0, 0.002], [3000.0, -0.002]])
    split = make_split(arrays(x, [0, 1, 0, 1]), labels=2)
    given = []

    def keep(samples: Tensor, key: Tensor) -> Tensor:
        given.append(samples)
        return samples * 0

    views = at(make_feed(split, batch=1, ratio=4, strong=keep), 0)
    torch.testing.assert_close(given[0].abs(), torch.ones(4, 2))
    assert torch.equal(views.x_s, torch.zeros(4, 2))
    torch.testing.assert_close(views.x_w.abs(), torch.ones(4, 2))


def test_normalise_by_hand() -> None:
    images = Normalise([0.5], [0.25], images=True)(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1))
    assert images.flatten().tolist() == [-2.0, 2.0]
    vectors = Normalise([1.0, 2.0], [2.0, 0.5], images=False)(torch.tensor([[3.0, 2.5]]))
    assert vectors.tolist() == [[1.0, 1.0]]


def test_a_method_gets_the_views_it_wants_and_no_other_is_made() -> None:
    split = numbered()
    keys = []

    def noted(samples: Tensor, key: Tensor) -> Tensor:
        keys.append((len(samples), tuple(key.tolist())))
        return samples

    views = at(make_feed(split, wants=Wants(second="none"), weak=noted, strong=refuse), 0)
    assert views.x_s.shape == (0, 1, 4, 4)
    assert [rows for rows, _ in keys] == [4 + 12]
    keys.clear()

    views = at(make_feed(split, wants=Wants(second="weak"), weak=noted, strong=refuse), 0)
    assert len(views.x_s) == len(views.x_w) == 12
    assert [rows for rows, _ in keys] == [4 + 12, 12]
    assert keys[0][1] != keys[1][1]
    keys.clear()

    views = at(make_feed(split, wants=Wants(weak=False, second="none"), weak=noted, strong=refuse), 0)
    assert len(views.x_w) == len(views.x_s) == len(views.index) == 0
    assert [rows for rows, _ in keys] == [4]


# --- randomness -----------------------------------------------------------------------------------------------


def digits_feed(seed: int = 0) -> Feed:
    weak, strong = for_images(1, mirror=False)
    split = make_split(load("digits"), labels=10)
    return make_feed(split, batch=8, ratio=4, weak=weak, strong=strong, seed=seed)


def test_views_are_a_function_of_seed_and_step() -> None:
    walker, jumper, other = digits_feed(), digits_feed(), digits_feed(seed=1)
    walked = [at(walker, step) for step in range(6)]
    for step in (5, 2):
        for one, same in zip(walked[step], at(jumper, step), strict=True):
            assert torch.equal(one, same)
    for name in ("x_l", "x_w", "x_s", "index", "key"):
        assert not torch.equal(getattr(walked[5], name), getattr(walked[4], name))
        assert not torch.equal(getattr(walked[5], name), getattr(at(other, 5), name))


def test_the_two_views_of_a_sample_differ_and_so_do_those_of_another_epoch() -> None:
    split = numbered(30)
    weak, strong = for_images(1, mirror=True)
    feed = make_feed(split, batch=1, ratio=30, weak=weak, strong=strong)
    first, second = at(feed, 0), at(feed, 1)
    order = first.index.argsort(), second.index.argsort()
    assert not torch.equal(first.x_s[order[0]], second.x_s[order[1]])
    assert not torch.equal(first.x_w, first.x_s)


def test_a_draw_never_waits_for_the_device() -> None:
    feed = digits_feed()
    with no_waiting("feed"):
        at(feed, 3)

    def waits(samples: Tensor, key: Tensor) -> Tensor:
        return samples * (samples.sum().item() > 0)

    with pytest.raises(AssertionError, match="waits for the device"), no_waiting("feed"):
        at(make_feed(numbered(), strong=waits), 3)


def test_arrays_that_may_not_be_written_to_are_read_in_silence() -> None:
    x = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    x.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(at(make_feed(make_split(arrays(x, [0, 1, 2] * 4), labels=3), ratio=1), 0).x_w) == 4


# --- too little data ------------------------------------------------------------------------------------------


def test_a_batch_larger_than_the_data() -> None:
    with pytest.raises(InputError) as error:
        make_feed(numbered(), batch=8, ratio=8)
    assert str(error.value) == (
        "batch=8 with ratio=8 asks for 64 unlabelled samples a step, but arrays has 60; lower batch or ratio."
    )
    make_feed(numbered(), batch=10, ratio=6)
    make_feed(numbered(), batch=60, ratio=8, wants=Wants(weak=False, second="none"))
    with pytest.raises(InputError) as error:
        make_feed(numbered(), batch=61, wants=Wants(weak=False, second="none"))
    assert str(error.value) == "batch=61 asks for more samples a step than arrays has: 60; lower batch."
