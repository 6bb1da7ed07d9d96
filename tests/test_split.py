"""Who is labelled: per class, seeded, counted; and the truth of the rest is sealed."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import instant
from instant import recipes
from instant.algorithms import METHODS
from instant.data.source import Source
from instant.data.sources import arrays, load
from instant.data.split import Oracle, Split, make_split
from instant.engine.build import split_for
from instant.engine.fit import fit
from instant.errors import InputError
from instant.run import Run

DIGITS = load("digits")


def vectors(per_class: tuple[int, ...] = (10, 20, 30), unknown: int = 15, seed: int = 0) -> Source:
    """Points around one centre a class, so many of each, and some of unknown class in between."""
    y = np.repeat([*range(len(per_class)), -1], [*per_class, unknown])
    rng = np.random.default_rng(seed)
    y = rng.permutation(y)
    x = rng.normal(size=(len(y), 4)).astype(np.float32) + 3 * y[:, None]
    return arrays(x, y, classes=[f"c{k}" for k in range(len(per_class))])


# --- the choice -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [10, 40, 250])
def test_equally_many_a_class_with_their_own_labels(labels: int) -> None:
    split = make_split(DIGITS, labels=labels)
    assert len(np.unique(split.labelled)) == labels
    assert np.bincount(split.targets).tolist() == [labels // 10] * 10
    assert (DIGITS.targets[split.labelled] == split.targets).all()


def test_a_seed_decides_the_split() -> None:
    one, again, other = (make_split(DIGITS, labels=40, seed=seed) for seed in (3, 3, 4))
    assert (one.labelled == again.labelled).all()
    assert one.hash == again.hash
    assert one.record() == again.record()
    assert set(one.labelled) != set(other.labelled)
    assert one.hash != other.hash


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_usb_draws_with_one_generator_class_after_class(seed: int) -> None:
    """Its own steps: seed numpy's generator of old, shuffle the places of each class, take the first."""
    generator = np.random.RandomState(seed)
    expected = []
    for k in range(10):
        places = np.where(DIGITS.targets == k)[0]
        generator.shuffle(places)
        expected.append(places[:4])
    split = make_split(DIGITS, labels=40, seed=seed, draw="usb")
    assert split.labelled.tolist() == np.concatenate(expected).tolist()
    assert make_split(DIGITS, labels=40, validation=100, seed=seed, draw="usb").labelled.tolist() == (
        split.labelled.tolist()
    ), "a validation part leaves the labelled samples as they are"


def test_usb_draws_what_numpy_has_shuffled_with_seed_0_since_ever() -> None:
    """np.random.seed(0), and np.random.shuffle of 0 to 9: 2 8 4 9 1 6 7 3 0 5."""
    source = arrays(np.zeros((20, 2), np.float32), np.repeat([0, 1], 10))
    assert make_split(source, labels=8, draw="usb").labelled[:4].tolist() == [2, 8, 4, 9]


def test_usb_draws_otherwise_than_we_do() -> None:
    ours, theirs = (make_split(DIGITS, labels=40, draw=draw) for draw in ("seeded", "usb"))
    assert set(ours.labelled) != set(theirs.labelled)
    assert ours.hash != theirs.hash


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"draw": "uzb"}, r"draw='uzb' is not known; did you mean 'usb'"),
        ({"draw": "usb", "seed": 2**32}, r"seed=4294967296 must be below 2\^32 with draw=usb"),
    ],
)
def test_a_draw_that_cannot_be_made_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_split(DIGITS, labels=40, **settings)


def test_the_settings_of_the_paper_have_its_labels() -> None:
    found = {name: recipe().draw for name, recipe in recipes.RECIPES.items()}
    published = ("classic_", "fast_", "pretrained_")
    assert found == {name: "usb" if name.startswith(published) else "seeded" for name in found}


def test_a_recipe_decides_the_draw() -> None:
    recipe = recipes.resolve("digits", {"draw": "usb", "seed": "2"})
    drawn = make_split(DIGITS, labels=40, seed=2, draw="usb")
    assert split_for(recipe, DIGITS).hash == drawn.hash


@pytest.mark.parametrize("change", [{"seed": 3}, {"draw": "usb"}, {"validation": 10}, {"labels": 20}])
def test_a_run_folder_takes_the_split_of_its_recipe(change: dict[str, Any], tmp_path: Path) -> None:
    """Later commands draw it again by the recipe, and would find that the samples have changed."""
    recipe = recipes.digits().override({"steps": 1, "method": "fixmatch"})
    drawn: dict[str, Any] = {"labels": 40, "seed": 0}
    other = make_split(DIGITS, **(drawn | change))
    ((name, value),) = change.items()
    with pytest.raises(InputError, match=rf"the split has {name}={value} and the recipe {name}="):
        fit(recipe, other, run=Run(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    assert fit(recipe, other).summary["split_hash"] == other.hash  # without a folder, nobody will look for it
    fit(recipe.override(change), other, run=Run(tmp_path / "run"))
    assert Run(tmp_path / "run").is_of(split_for(Run(tmp_path / "run").recipe(), DIGITS))


def test_fewer_labels_are_among_more() -> None:
    """Accuracy over label counts is then a curve of one choice, not of many."""
    few, many = (set(make_split(DIGITS, labels=n, seed=1).labelled) for n in (10, 40))
    assert few < many


def test_the_hash_follows_every_part_of_the_choice() -> None:
    split = make_split(DIGITS, labels=20, validation=10)
    changed = [
        {"labelled": split.labelled[::-1].copy()},
        {"targets": (split.targets + 1) % 10},
        {"validation": split.validation[::-1].copy()},
        {"validation_targets": (split.validation_targets + 1) % 10},
        {"pool": split.pool[1:]},
        {"classes": tuple(reversed(split.classes))},
        {"source": "others"},
    ]
    hashes = {split.hash} | {dataclasses.replace(split, **change).hash for change in changed}
    assert len(hashes) == 1 + len(changed)


def test_labelled_samples_stay_in_the_pool() -> None:
    split = make_split(DIGITS, labels=40)
    assert (split.pool == np.arange(1437)).all()
    assert set(split.labelled) <= set(split.pool)
    assert split.budget == {"training": 40, "validation": 0, "total": 40}


def test_validation_leaves_the_pool_and_is_paid_for() -> None:
    split = make_split(DIGITS, labels=40, validation=20)
    assert np.bincount(split.validation_targets).tolist() == [2] * 10
    assert (DIGITS.targets[split.validation] == split.validation_targets).all()
    assert not set(split.validation) & set(split.pool)
    assert not set(split.validation) & set(split.labelled)
    assert len(split.pool) == 1437 - 20
    assert split.budget == {"training": 40, "validation": 20, "total": 60}
    assert split.record()["budget"] == split.budget
    assert len(split.oracle.open_for_metrics()) == len(split.pool)


def test_no_number_takes_every_known_label() -> None:
    source = vectors()
    split = make_split(source, labels=None)
    assert sorted(split.labelled) == np.flatnonzero(source.targets >= 0).tolist()
    assert split.budget["training"] == 60
    held = make_split(source, labels=None, validation=6)
    assert held.budget == {"training": 54, "validation": 6, "total": 60}
    assert np.bincount(held.targets).tolist() == [8, 18, 28]


def test_samples_of_unknown_class_are_never_chosen_but_are_in_the_pool() -> None:
    source = vectors()
    for seed in range(20):
        split = make_split(source, labels=30, seed=seed)  # all of the smallest class
        assert (source.targets[split.labelled] >= 0).all()
        assert len(split.pool) == 75
    given = np.isin(np.arange(75), split.labelled)
    assert (split.oracle.open_for_metrics() == np.where(given, -1, source.targets)).all()
    assert split.spare == 30


def test_a_sample_that_is_trained_on_says_nothing_about_pseudo_labels() -> None:
    """Three known labels are left out; with the thirty that are given they would be a tenth of what is counted."""
    source = dataclasses.replace(vectors(), targets=np.where(np.arange(75) < 33, np.arange(75) % 3, -1))
    split = make_split(source, labels=30)
    known = split.oracle.open_for_metrics() >= 0
    assert known.sum() == split.spare == 3
    assert not np.isin(split.pool[known], split.labelled).any()
    assert make_split(source, labels=None).spare == 0


def test_the_upper_reference_wants_every_label() -> None:
    source = vectors()
    recipe = recipes.vectors(method="fully_supervised").override({"steps": "2", "batch": "8"})
    with pytest.raises(
        InputError, match=r"trains on every label there is, and the split leaves 30 of them out; make it"
    ):
        fit(recipe, make_split(source, labels=30))
    assert fit(recipe, make_split(source, labels=None)).summary["label_budget"]["total"] == 60


# --- what cannot be split -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"labels": 9}, "labels=9 is fewer than one a class: there are 10 classes, ask for at least 10."),
        ({"labels": 0}, "labels=0 is fewer than one a class: there are 10 classes, ask for at least 10."),
        ({"labels": -5}, "labels=-5 is fewer than one a class: there are 10 classes, ask for at least 10."),
        ({"labels": "40"}, "labels='40' must be a whole number."),
        ({"labels": 40.0}, "labels=40.0 must be a whole number."),
        ({"labels": 40, "seed": -1}, "seed=-1 must be 0 or more."),
        ({"labels": 40, "seed": 0.5}, "seed=0.5 must be a whole number."),
        (
            {"labels": 45},
            "labels=45 is not divisible by the 10 classes; the split takes equally many a class. Ask for 40 or 50.",
        ),
        (
            {"labels": 1395},
            "labels=1395 is not divisible by the 10 classes; the split takes equally many a class. Ask for 1390.",
        ),
        (
            {"labels": 1405},
            "labels=1405 is not divisible by the 10 classes; the split takes equally many a class. Ask for 1390.",
        ),
        (
            {"labels": 10, "validation": 3},
            "validation=3 is not divisible by the 10 classes; the split takes equally many a class. Ask for 10.",
        ),
        (
            {"labels": 1400},
            "class '8' of digits has 139 samples with a known label, expected at least 140 labelled; ask for fewer "
            "labels.",
        ),
        (
            {"labels": 1380, "validation": 20},
            "class '8' of digits has 139 samples with a known label, expected at least 138 labelled and 2 validation; "
            "ask for fewer of either.",
        ),
        (
            {"labels": None, "validation": 1400},
            "class '8' of digits has 139 samples with a known label, expected at least 1 labelled and 140 validation; "
            "ask for fewer of either.",
        ),
    ],
)
def test_the_sentence(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        make_split(DIGITS, **asked)
    assert str(error.value) == sentence


@pytest.mark.parametrize("labels", [3, None])
def test_a_class_without_labelled_samples(labels: int | None) -> None:
    with pytest.raises(InputError) as error:
        make_split(vectors((10, 0, 30)), labels=labels)
    assert str(error.value) == (
        "class 'c1' of arrays has no labelled sample; every class needs at least one. Label one, or leave the class "
        "out."
    )


def test_one_class_is_no_problem_to_learn() -> None:
    with pytest.raises(InputError, match="all labelled samples of arrays are of one class, 'c0'; expected two"):
        make_split(vectors((10,)), labels=None)


# --- the seal -------------------------------------------------------------------------------------------------


def test_only_the_metrics_open_the_oracle() -> None:
    root = Path(instant.__file__).parent
    opened, peeked = set(), set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                place = path.relative_to(root).as_posix()
                opened |= {place} if node.attr == "open_for_metrics" else set()
                peeked |= {place} if node.attr == "_targets" else set()
    assert opened == {"engine/metrics.py"}
    assert peeked == {"data/split.py"}


def lie(split: Split) -> Split:
    """Another truth for every sample that is not labelled."""
    truth = split.oracle.open_for_metrics().copy()
    free = ~np.isin(split.pool, split.labelled)
    truth[free] = (truth[free] + 1) % len(split.classes)
    return dataclasses.replace(split, oracle=Oracle(truth))


def test_the_truth_of_unlabelled_digits_changes_no_weight() -> None:
    recipe = recipes.digits(labels=10).override({"steps": "10", "batch": "8", "ratio": "2", "method.base": "0.1"})
    split = make_split(DIGITS, labels=10)
    told, lied = fit(recipe, split), fit(recipe, lie(split))
    assert_equal_weights(told.learner, lied.learner)
    # It did reach the metrics, so it was another truth
    assert told.summary["pseudo_label_accuracy"] != lied.summary["pseudo_label_accuracy"]


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"fully_supervised"}))  # which has no unlabelled ones
def test_the_truth_of_unlabelled_vectors_changes_no_weight(method: str) -> None:
    recipe = recipes.vectors(labels=6, method=method).override({"steps": "4", "batch": "6", "ratio": "2"})
    split = make_split(vectors(), labels=6)
    assert_equal_weights(fit(recipe, split).learner, fit(recipe, lie(split)).learner)


def assert_equal_weights(one: torch.nn.Module, other: torch.nn.Module) -> None:
    expected = other.state_dict()
    for name, value in one.state_dict().items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize(("samples", "apart"), [(1024, 1), (1025, 2), (2500, 3)])
def test_positions_spread_over_the_pool_are_evenly_apart(samples: int, apart: int) -> None:
    source = arrays(np.arange(float(samples))[:, None], np.arange(samples) % 2)
    assert make_split(source, labels=4).spread.tolist() == list(range(0, samples, apart))
