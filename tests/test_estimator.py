"""The scikit-learn face: its promises, its ways of taking data, and that it trains as everything else does."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import Parallel, delayed
from runs import blobs
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from torch import Tensor

from instant import InstanTClassifier, SemiSupervisedClassifier, SemiSupervisedKFold, arrays, fit, load, make_split
from instant.cli import main
from instant.estimator_samples import origin_of, seen_from
from instant.labelling.judge import Judge
from instant.match import Match
from instant.recipes import vectors
from instant.rules import Rule
from instant.run import Run
from instant.transition import Transition
from instant.types import Evidence, Problem, State

QUICK = {"steps": 60, "random_state": 0}
# scikit-learn exempts its own semi-supervised estimators by name: there -1 is a class
EXEMPT = {"check_classifiers_classes": "-1 means unlabelled"}


@pytest.mark.parametrize("model", [InstanTClassifier(steps=20), SemiSupervisedClassifier("freematch", steps=20)])
@pytest.mark.filterwarnings("ignore")
def test_what_scikit_learn_asks_of_every_estimator(model: Any) -> None:
    found = estimator_checks.check_estimator(model, expected_failed_checks=EXEMPT, on_skip=None)
    assert {entry["check_name"] for entry in found if entry["status"] == "xfail"} == set(EXEMPT)
    estimator_checks.check_classifiers_classes("SelfTrainingClassifier", model)  # with scikit-learn's own exemption


def test_what_is_known_after_fit() -> None:
    x, _, y = blobs()
    model = InstanTClassifier(**QUICK).fit(x, y)
    assert model.n_features_in_ == 2
    assert model.thresholds_.shape == model.accepted_.shape == (150,)
    assert 0 < model.accepted_.mean() <= 1
    np.testing.assert_allclose(model.transition_.sum(1), 1, atol=1e-5)
    assert model.transition_.shape == (3, 3)
    assert model.history_[-1]["step"] == 60
    frame = model.labels_frame()
    assert len(frame) == 150
    assert frame["given"].sum() == 12
    assert (frame["tau"] == model.thresholds_).all()
    assert frame["reason"].str.startswith(("accepted", "refused")).all()
    assert (frame["accepted"] == (frame["confidence"] > frame["tau"])).all()


def test_a_method_without_a_threshold() -> None:
    x, _, y = blobs()
    model = SemiSupervisedClassifier("mixmatch", **QUICK).fit(x, y)
    assert model.thresholds_ is None
    assert model.transition_ is None
    assert len(model.predict_proba(x)) == 150
    with pytest.raises(ValueError, match="method='mixmatch' has no threshold"):
        model.labels_frame()


def test_it_trains_as_everything_else_does() -> None:
    """The same recipe through `fit` gives the same weights."""
    x, _, y = blobs()
    model = InstanTClassifier(**QUICK, settings={"optim.lr": 0.05}).fit(x, y)
    assert model.recipe_.optim.lr == 0.05
    split = make_split(arrays(x, y, classes=["0", "1", "2"]), labels=None, seed=model.recipe_.seed)
    trained = fit(model.recipe_, split)
    expected = trained.learner.judged.state_dict()
    for name, value in model.judge_.network.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0, msg=name)


def test_images_in_every_order_of_axes() -> None:
    digits = load_digits()
    grey = (digits.images[:300] / 16).astype(np.float32)
    y = np.where(np.arange(300) < 60, digits.target[:300], -1)
    settings = {"steps": 30, "random_state": 0, "mirror": False, "batch": 16}
    expected = None
    for images in (grey, grey[:, None], grey[..., None], torch.from_numpy(grey)):
        model = InstanTClassifier(**settings).fit(images, y)
        probs = model.predict_proba(images)
        assert model.n_features_in_ == 64
        expected = probs if expected is None else expected
        np.testing.assert_allclose(probs, expected, atol=1e-6)
    with pytest.raises(ValueError, match="X has 49 features, but InstanTClassifier is expecting 64"):
        model.predict(grey[:, :7, :7])


def test_frames_and_tensors() -> None:
    x, _, y = blobs()
    expected = InstanTClassifier(**QUICK).fit(x, y).predict_proba(x)
    frame = pd.DataFrame(x, columns=["length", "width"])
    model = InstanTClassifier(**QUICK).fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["length", "width"]
    np.testing.assert_array_equal(model.predict_proba(frame), expected)
    tensors = InstanTClassifier(**QUICK).fit(torch.from_numpy(x), torch.from_numpy(y))
    np.testing.assert_array_equal(tensors.predict_proba(torch.from_numpy(x)), expected)


def test_the_company_it_keeps() -> None:
    """Pipeline, clone, cross-validation, grid search, pickle, joblib."""
    x, truth, y = blobs()
    model = InstanTClassifier(**QUICK)
    assert make_pipeline(StandardScaler(), clone(model)).fit(x, y).score(x, truth) > 0.95
    folds = SemiSupervisedKFold(2, random_state=0)
    assert cross_val_score(model, x, y, cv=folds).mean() > 0.9
    search = GridSearchCV(model, {"steps": [20, 60]}, cv=folds).fit(x, y)
    assert search.best_score_ > 0.9
    fitted = model.fit(x, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(x), fitted.predict_proba(x))
    both = Parallel(n_jobs=2)(delayed(clone(model).fit)(x, y) for _ in range(2))
    for one in both:
        np.testing.assert_allclose(one.predict_proba(x), fitted.predict_proba(x), atol=1e-5)


def test_warm_start_goes_on() -> None:
    x, _, y = blobs()
    model = InstanTClassifier(steps=40, random_state=0, warm_start=True, settings={"optim.lr": 1e-9}).fit(x, y)
    before = model.predict_proba(x)
    np.testing.assert_allclose(model.fit(x, y).predict_proba(x), before, atol=1e-4)
    fresh = InstanTClassifier(steps=40, random_state=1, settings={"optim.lr": 1e-9}).fit(x, y).predict_proba(x)
    assert np.abs(fresh - before).max() > 0.01
    elsewhere = model.fit(3 * x + 50, y).predict_proba(x)  # other samples are no other function
    np.testing.assert_allclose(elsewhere, before, atol=1e-4)
    with pytest.raises(ValueError, match="warm_start=True needs the classes"):
        model.fit(x, np.where(y == 2, 7, y))
    with pytest.raises(ValueError, match=r"and the network mlp as before, got .* the network mlp width=64"):
        model.set_params(settings={"backbone.width": 64}).fit(x, y)


def test_a_fit_that_fails_leaves_the_last_model() -> None:
    x, _, y = blobs()
    model = InstanTClassifier(steps=20, random_state=0).fit(x, y)
    before = model.predict_proba(x)
    with pytest.raises(ValueError, match="no row is labelled"):
        model.fit(x[:, :1], np.full(len(x), -1))
    np.testing.assert_array_equal(model.predict_proba(x), before)


def test_a_seed_repeats_and_another_does_not() -> None:
    x, _, y = blobs()
    one, two, other = (InstanTClassifier(steps=20, random_state=seed).fit(x, y).predict_proba(x) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - other).max() > 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x, y: (x, np.full(len(y), -1)), "no row is labelled"),
        (lambda x, y: (x, np.where(y == 0, 0, -1)), "all of one class"),
        (lambda x, y: (np.where(x == x[0, 0], np.nan, x), y), "contains NaN"),
        (lambda x, y: (x[:, 0], y), "Expected 2D array"),
        (lambda x, y: (x, y[:-1]), "inconsistent numbers of samples"),
        (lambda x, y: (x, y + 0.5), "Unknown label type"),
        (lambda x, y: (x, None), "requires y to be passed"),
        (lambda x, y: (np.zeros((5, 4, 4, 4, 4)), y), "dim 5"),
        (lambda x, y: ([[1.0, 2.0], [1.0]] * 75, y), "X: its rows differ in shape"),
        (lambda x, y: (np.full((150, 4, 4), np.nan), y), "contains NaN"),
    ],
)
def test_what_cannot_be_fitted(change: Any, sentence: str) -> None:
    x, _, y = blobs()
    model = InstanTClassifier(**QUICK)
    with pytest.raises(ValueError, match=sentence):
        model.fit(*change(x, y))
    with pytest.raises(NotFittedError):
        model.predict(x)


def test_what_cannot_be_predicted_or_set() -> None:
    x, _, y = blobs()
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        InstanTClassifier(**QUICK).fit(sparse.csr_matrix(x), y)
    model = InstanTClassifier(**QUICK).fit(x, y)
    with pytest.raises(ValueError, match="X has 3 features, but InstanTClassifier is expecting 2"):
        model.predict(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="did you mean 'fixmatch'"):
        SemiSupervisedClassifier("fixmach").fit(x, y)
    with pytest.raises(ValueError, match=r"did you mean 'optim\.lr'"):
        InstanTClassifier(settings={"lr": 0.1}).fit(x, y)
    with pytest.raises(ValueError, match="steps=0"):
        InstanTClassifier(steps=0).fit(x, y)


def test_a_second_fit_forgets_the_names_of_the_first() -> None:
    x, _, y = blobs()
    model = InstanTClassifier(steps=1, random_state=0).fit(pd.DataFrame(x, columns=["length", "width"]), y)
    model.fit(np.zeros((150, 4, 4)), y)
    assert not hasattr(model, "feature_names_in_")


def test_features_that_vary_little_far_from_zero() -> None:
    """Seconds since 1970 within a minute: in float32 they would be 128 apart."""
    x, _, y = blobs()
    model = InstanTClassifier(**QUICK).fit(x, y)
    late = InstanTClassifier(**QUICK).fit(x + [1.7e9, 0], y)
    assert (late.predict(x + [1.7e9, 0]) == model.predict(x)).mean() > 0.98
    np.testing.assert_array_equal(late.decide(x + [1.7e9, 0]).tau, late.thresholds_)
    # Left as they are: a span of the size of the numbers themselves, and one that is rounding alone
    for samples in (x * 1e8 + 4.2e9, np.where(x > 1, 0.3, 0.1 + 0.2)):
        assert InstanTClassifier(steps=1, random_state=0).fit(samples, y)._origin is None

    # One row apart from many others makes the span long, and the others would still be lost
    apart = np.append(2e6, np.arange(20000) % 6000)[:, None] + 1e10
    origin = origin_of(apart)
    assert origin is not None
    assert origin.tolist() == [1e10]
    assert arrays(seen_from(origin, apart), np.arange(20001) % 2).mean[0] == pytest.approx((apart - 1e10).mean())

    with pytest.raises(ValueError, match=r"X: expected vectors of shape \(2,\), .* got \(2, 1\)"):
        late.predict(np.zeros((3, 2, 1)))


def test_a_label_is_accepted_for_what_it_is() -> None:
    """Alignment may call a row another class than the classifier does, whose word `transduction_` is."""
    x, truth = make_classification(
        600, 8, n_informative=4, n_classes=3, weights=[0.9, 0.08, 0.02], class_sep=0.7, random_state=0
    )
    y = np.full(600, -1)
    for k in range(3):
        y[np.flatnonzero(truth == k)[:6]] = k
    low = {"method.threshold": 0.3}
    model = SemiSupervisedClassifier("adamatch", steps=40, random_state=0, settings=low).fit(x, y)
    frame = model.labels_frame()
    other = (frame["label"] != frame["called"]) & (frame["confidence"] >= frame["tau"])
    assert other.any()
    assert not frame["accepted"][other].any()
    assert frame["reason"][other].str.fullmatch(r"refused: \d would be accepted, which is not its label").all()
    assert (frame["accepted"] == model.accepted_).all()
    assert (frame["called"] == frame["label"])[model.accepted_].all()
    assert frame["reason"][model.accepted_].str.startswith("accepted").all()


@pytest.mark.parametrize(
    ("samples", "settings", "sentence"),
    [
        (np.zeros((150, 8, 8)), {"noise": 5}, "noise= is for vectors, and X has images; leave it out"),
        (np.zeros((150, 4)), {"shift": 0.4}, "shift= is for images, and X has vectors; leave it out"),
    ],
)
def test_a_setting_that_would_do_nothing(samples: np.ndarray, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        InstanTClassifier(steps=1, settings=settings).fit(samples, blobs()[2])


def test_predicting_copies_no_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    """T(x) of 100 classes has fifty times the weights of the classifier."""
    x, _, y = blobs()
    model = InstanTClassifier(**QUICK).fit(x, y)
    copied: list[type] = []
    plain = copy.deepcopy
    monkeypatch.setattr(copy, "deepcopy", lambda value, *more: copied.append(type(value)) or plain(value, *more))
    model.predict(x)
    assert copied
    assert Judge not in copied
    assert not any(issubclass(kind, Transition) for kind in copied)


def test_images_as_objects() -> None:
    """What can be fitted can be predicted."""
    images = np.random.default_rng(0).random((60, 4, 4)).astype(object)
    model = InstanTClassifier(steps=1, random_state=0).fit(images, np.arange(60) % 2)
    np.testing.assert_array_equal(model.predict(images), model.predict(images.astype(float)))


def test_half_precision_tensors() -> None:
    x, truth, y = blobs()
    assert InstanTClassifier(**QUICK).fit(torch.from_numpy(x).bfloat16(), y).score(x, truth) > 0.95


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"batch": 0}, "batch=0 must be at least 1"),
        ({"ratio": -1}, "ratio=-1 must be at least 1"),
        ({"batch": "many"}, "batch='many' must be a whole number"),
        ({"settings": ["noise"]}, "must be None or a dict"),
        ({"settings": {1: 2}}, "must be None or a dict"),
        ({"settings": {"labels": 4}}, "'labels' is not taken there; data and labels are X and y"),
        ({"settings": {"method": "fixmatch"}}, r"'method' is not taken there; use SemiSupervisedClassifier\(method\)"),
        ({"settings": {"seed": 9}}, "'seed' is not taken there; use the parameter random_state"),
        ({"settings": {"noise": 0.1, "steps": 3}}, "'steps' is not taken there; use the parameter steps"),
        ({"settings": {"batch": 8}}, "'batch' is not taken there; use the parameter batch"),
        ({"settings": {"ratio": 2}}, "'ratio' is not taken there; use the parameter ratio"),
        ({"settings": {"device": "cpu"}}, "'device' is not taken there; use the parameter device"),
        ({"settings": {"draw": "usb"}}, "'draw' is not taken there"),
        ({"settings": {"noise": -1}}, "noise=-1.0 must be 0 or more"),
        ({"mirror": "no"}, "mirror='no' must be True or False"),
        ({"device": "tpu"}, "device='tpu' is not known"),
    ],
)
def test_parameters_that_make_no_sense(parameters: dict[str, Any], sentence: str) -> None:
    x, _, y = blobs()
    with pytest.raises(ValueError, match=sentence):
        InstanTClassifier(**parameters).fit(x, y)


def test_a_method_has_a_name() -> None:
    x, _, y = blobs()
    with pytest.raises(ValueError, match="method=None must be the name of a method"):
        SemiSupervisedClassifier(None).fit(x, y)  # type: ignore[arg-type]


def test_the_command_gives_the_same_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`instant train FILE.npz` with the estimator's settings."""
    x, _, y = blobs()
    np.savez(tmp_path / "blobs.npz", x=x, y=y)
    model = InstanTClassifier(steps=40, random_state=0).fit(x, y)
    recipe = model.recipe_
    same = {name: getattr(recipe, name) for name in ("steps", "batch", "ratio", "seed", "noise", "ema", "backbone")}
    same |= {f"optim.{name}": getattr(recipe.optim, name) for name in ("lr", "weight_decay", "cycles")}
    same |= {f"method.{name}": value for name, value in recipe.method_options.items()}
    settings = [f"{name}={value}" for name, value in (same | {"validation": 0, "device": "cpu"}).items()]
    assert main(["train", str(tmp_path / "blobs.npz"), *settings, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    weights, _ = Run(tmp_path / "run").load_model()
    found = weights.state_dict()
    for name, value in model.judge_.network.state_dict().items():
        torch.testing.assert_close(value, found[name], rtol=0, atol=0, msg=name)
    np.testing.assert_allclose(load(tmp_path / "run").predict_proba(x), model.predict_proba(x), atol=1e-6)


def test_the_recipe_for_vectors_leaves_the_release_as_it_is() -> None:
    own = vectors(method="instant").method_options
    assert (own["base"], own["transition_lr"]) == (0.95, 0.001)
    assert vectors(method="instant_released").method_options == {"momentum": 0.98}
    assert vectors(method="supervised").method_options == {}


class PerSample(Rule):
    """Every sample of the pool has a bar of its own, which only its index tells."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.register_buffer("own", torch.linspace(0.1, 0.9, samples))

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        return self.own[seen.index], {}


def per_sample(p: Problem) -> Match:
    return Match(PerSample(p.unlabelled))


def test_training_rows_have_the_bar_of_their_index() -> None:
    x, _, y = blobs()
    model = SemiSupervisedClassifier("test_estimator:per_sample", steps=2, batch=4, random_state=0).fit(x, y)
    assert model.thresholds_ == pytest.approx(np.linspace(0.1, 0.9, len(x)), abs=1e-6)
    with pytest.raises(ValueError, match="goes by a sample's position in the pool"):
        model.decide(x)


def test_the_table_of_labels_has_the_index_of_a_frame() -> None:
    pd = pytest.importorskip("pandas")
    rows = pd.DataFrame({"size": [0.0, 0.1, 1.0, 1.1]}, index=["d", "b", "c", "a"])
    model = InstanTClassifier(steps=30, random_state=0).fit(rows, [5, -1, 7, -1])
    assert rows.join(model.labels_frame())["label"].to_dict() == {"d": 5, "b": 5, "c": 7, "a": 7}
    model.fit(rows.to_numpy(), [5, -1, 7, -1])
    assert model.labels_frame().index.tolist() == [0, 1, 2, 3]


def test_what_goes_wrong_is_a_warning_at_the_line_of_the_caller() -> None:
    """What the command prints while it trains: here three quarters of the labels are of one class."""
    x, truth, _ = blobs()
    y = np.where((np.arange(150) < 80) & (truth != 2), truth, -1)
    y[np.flatnonzero(y == 1)[6:]] = -1
    model = InstanTClassifier(steps=2, random_state=0)
    with pytest.warns(UserWarning, match="makes classes equally common, but the labels are not: .* of '0'") as found:
        model.fit(x, y)
    assert [warning.filename for warning in found] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(settings={"method.align_target": "labelled"}).fit(x, y)
        InstanTClassifier(**QUICK).fit(*blobs()[::2])
