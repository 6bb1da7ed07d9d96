"""Strong views on the way to a neighbour: who is near whom, and what a step then sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from runs import points
from torch import Tensor

from instant.augment.vectors import between, for_vectors
from instant.data import neighbours as search
from instant.data.feed import Feed
from instant.data.neighbours import neighbours
from instant.data.sources import arrays
from instant.data.split import Split, make_split
from instant.engine.build import build_program
from instant.random import root
from instant.types import Views, Wants


def on_a_line(*places: float, scale: float = 1.0, **settings: int) -> Split:
    x = np.array([[place, scale * place] for place in places])
    return make_split(arrays(x, np.arange(len(places)) % 2), labels=2, **settings)


def at(feed: Feed, step: int) -> Views:
    feed.prepare(step)
    return feed(torch.tensor(step))


def feed_of(split: Split, near: Tensor | None, *, streamed: bool = False, wants: Wants | None = None) -> Feed:
    weak, strong = for_vectors(0.0)
    strong.drop = 0.0
    return Feed(
        split, batch=2, ratio=3, wants=wants or Wants(), weak=weak, strong=strong, seed=0, near=near, streamed=streamed
    )  # fmt: skip


def test_the_nearest_by_hand() -> None:
    # 0, 1 and 3 are near each other, 10 and 14 are; 3 is nearer to 1 than to 0, 10 nearer to 14 than to 3
    found = neighbours(on_a_line(0, 1, 3, 10, 14), 2)
    assert [sorted(row) for row in found.tolist()] == [[1, 2], [0, 2], [0, 1], [2, 4], [2, 3]]
    assert found[:, 0].tolist() == [1, 0, 1, 4, 3]


def test_features_count_alike_whatever_their_unit() -> None:
    x = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1000.0], [1.0, 1100.0]])
    split = make_split(arrays(x, [0, 1, 0, 1]), labels=2)
    # Deviations are 0.5 and 526: rows 0 and 1 are 2 apart, 0 and 2 1.90, 1 and 3 2.09, 2 and 3 2.01
    assert neighbours(split, 1).flatten().tolist() == [2, 0, 0, 2]


def test_validation_rows_are_nobodys_neighbours_and_few_rows_have_few() -> None:
    split = on_a_line(*range(12), validation=4)
    found = neighbours(split, 50)
    assert found.shape == (8, 7)
    for place, row in zip(split.pool, found.tolist(), strict=True):
        assert sorted([*row, place]) == split.pool.tolist()


def test_of_a_large_pool_a_part_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "AMONG", 20)
    monkeypatch.setattr(search, "BLOCK", 7)
    split = on_a_line(*range(100))
    found = neighbours(split, 2)
    assert found.shape == (100, 2)
    assert len(found.unique()) <= 20
    assert not (found == torch.arange(100)[:, None]).any()
    candidates = found.unique()
    for place in range(0, 100, 9):
        others = candidates[candidates != place]
        assert (found[place, 0] - place).abs() == (others - place).abs().min()


def test_between_is_on_the_way() -> None:
    start, end = torch.zeros(1000, 2), torch.tensor([2.0, 6.0]).expand(1000, 2)
    found = between(start, end, root(0))
    torch.testing.assert_close(found[:, 1], 3 * found[:, 0])
    assert 0 <= found.min() < 0.01
    assert 5.9 < found.max() < 6
    assert found[:, 0].mean().item() == pytest.approx(1, abs=0.05)


def test_strong_views_go_towards_a_neighbour_and_weak_ones_stay() -> None:
    split = on_a_line(0, 1, 3, 10, 14, 15)
    near = neighbours(split, 1)
    feed = feed_of(split, near)
    x = feed.normalise(torch.from_numpy(split.train.samples))
    moved = []
    for step in range(20):
        views = at(feed, step)
        own, other = x[views.index], x[near[views.index, 0]]
        torch.testing.assert_close(views.x_w, own)
        share = (views.x_s - own) / (other - own)
        torch.testing.assert_close(share[:, 0], share[:, 1])
        moved.append(share[:, 0])
    shares = torch.cat(moved)
    assert -1e-5 <= shares.min() < 0.1
    assert 0.9 < shares.max() <= 1 + 1e-5


def test_every_neighbour_has_its_turn() -> None:
    split = on_a_line(*range(8))
    draw = feed_of(split, neighbours(split, 3)).draw
    seen: dict[int, set[int]] = {}
    for step in range(60):
        draw.prepare(step)
        _, index, rows = draw(torch.tensor(step))
        for place, other in zip(index.tolist(), rows[-len(index) :].tolist(), strict=True):
            seen.setdefault(place, set()).add(other)
    assert all(seen[place] == set(row) for place, row in enumerate(neighbours(split, 3).tolist()))


def test_streamed_views_are_the_resident_ones() -> None:
    split = on_a_line(*range(30), validation=4)
    near = neighbours(split, 3)
    one, other = (feed_of(split, near, streamed=streamed) for streamed in (False, True))
    for step in (0, 1, 2, 17):
        for found, expected in zip(at(other, step), at(one, step), strict=True):
            assert torch.equal(found, expected)
    other.close()


def test_only_strong_views_of_vectors_have_neighbours() -> None:
    assert build_program(*points(neighbours="4")).feed.draw.near is not None
    assert build_program(*points(neighbours="0")).feed.draw.near is None
    for method in ("supervised", "pi_model", "pseudo_label"):
        assert build_program(*points(method, neighbours="4")).feed.draw.near is None
