"""The scikit-learn face: `fit(X, y)` with y = -1 where the label is not known.

It builds a Recipe and calls the one `fit`; there is no second way of training.
"""

from __future__ import annotations

import dataclasses
import warnings
from contextlib import nullcontext
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from instant.config import Recipe, refuse_ignored
from instant.data.feed import Normalise
from instant.data.sources import arrays
from instant.data.split import Split, make_split
from instant.data.store import Store, batches
from instant.engine.fit import Trained, fit
from instant.engine.interrupt import Interrupted
from instant.engine.plain import plain_torch
from instant.estimator_labels import read_given
from instant.estimator_samples import origin_of, read_samples, seen_from
from instant.labelling.decisions import Decisions, decide_rows, mean_transition
from instant.labelling.inputs import as_store
from instant.labelling.judge import Judge, reference_of
from instant.match import Match
from instant.progress import ProgressBar
from instant.recipes import images as images_recipe
from instant.recipes import vectors as vectors_recipe
from instant.report.warnings import Watch

DATA = "data and labels are X and y"
# What `settings` does not take, and what is there instead: it would silently beat a parameter, or do nothing
INSTEAD = dict.fromkeys(("source", "data", "label_file", "side", "labels", "validation", "draw", "recipe"), DATA) | {
    "method": "use SemiSupervisedClassifier(method)",
    "seed": "use the parameter random_state",
    **{name: f"use the parameter {name}" for name in ("steps", "batch", "ratio", "mirror", "device")},
}


class SemiSupervisedClassifier(ClassifierMixin, BaseEstimator):
    """Any of the methods (`instant list methods`) as a scikit-learn classifier.

    Parameters
    ----------
    method : name of the method
    steps : training steps
    batch : labelled samples a step; fewer where there are fewer samples
    ratio : unlabelled samples for every labelled one
    settings : settings of `instant train` that are no parameters here, as in {"noise": 0.1, "method.base": 0.9}
    mirror : images only: whether a mirrored image shows the same thing
    random_state : None, an int or a RandomState
    device : "auto" takes a GPU where there is one; "cpu", "cuda", "cuda:1"
    warm_start : go on from the weights of the last fit, and its mean and deviation of the features; classes and
        features must be the same
    verbose : show a progress bar

    Attributes
    ----------
    classes_, n_features_in_ : as everywhere in scikit-learn
    transduction_ : label of every training row, the given one where there was one
    thresholds_, accepted_ : the bar of every training row, and whether its label passed it; None for a method without
    transition_ : (K, K) mean over training rows of T(x), P(called j | truly i); None for a method without
    history_ : what `metrics.jsonl` would hold
    recipe_ : the settings it was trained with

    X is (n, d) vectors, or images as (n, h, w), (n, h, w, c) or (n, c, h, w), bytes or floats in [0, 1]; numpy, pandas
    or torch. y holds numbers with -1 for unlabelled, or names with None, NaN or "".

    >>> rng = np.random.default_rng(0)
    >>> truth = np.repeat(["low", "high"], 60)
    >>> X = rng.normal(size=(120, 2)) + 4 * (truth == "high")[:, None]
    >>> y = np.where(np.arange(120) % 60 < 3, truth, "")  # three labels a class
    >>> model = SemiSupervisedClassifier("fixmatch", steps=60, random_state=0).fit(X, y)
    >>> model.predict([[0.0, 0.2], [4.1, 3.9]]).tolist()
    ['low', 'high']
    >>> bool((model.transduction_ == truth).mean() > 0.95)
    True
    """

    n_features_in_: int
    _origin: np.ndarray | None
    _seen: tuple[int, ...]  # the shape of a sample, as it is given
    _scale: tuple[tuple[float, ...], tuple[float, ...]]  # mean and deviation
    _decisions: Decisions | None

    def __init__(
        self,
        method: str = "fixmatch",
        *,
        steps: int = 600,
        batch: int = 32,
        ratio: int = 4,
        settings: dict[str, Any] | None = None,
        mirror: bool = True,
        random_state: Any = None,
        device: str = "auto",
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.steps = steps
        self.batch = batch
        self.ratio = ratio
        self.settings = settings
        self.mirror = mirror
        self.random_state = random_state
        self.device = device
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from all rows; y says which class the labelled ones are of.

        >>> model = InstanTClassifier(steps=30, random_state=0)
        >>> model.fit([[0.0], [0.1], [1.0], [1.1]], ["low", "", "high", ""]).transduction_.tolist()
        ['low', 'low', 'high', 'high']
        """
        self._check_parameters()
        before = dict(self.__dict__)
        try:
            return self._fit(X, y)
        except BaseException:  # the last model stays, and what it expects
            self.__dict__ = before
            raise

    def _fit(self, X: Any, y: Any) -> Self:
        samples = read_samples(X, self, reset=True)
        labels, known = read_given(y)
        check_consistent_length(samples, labels)
        classes, numbers = np.unique(labels[known], return_inverse=True)
        if len(classes) < 2:
            found = (
                f"labelled rows are all of one class, {classes.tolist()[0]!r}" if len(classes) else "no row is labelled"
            )
            raise ValueError(f"y: {found}; {type(self).__name__} needs labels of two classes or more.")
        targets = np.full(len(labels), -1)
        targets[known] = numbers
        going_on = self.warm_start and hasattr(self, "judge_")
        origin = self._origin if going_on and samples.shape[1:] == self._seen else origin_of(samples)
        source = arrays(
            seen_from(origin, samples), targets, classes=[str(name) for name in classes], mirror=self.mirror
        )
        recipe = self._recipe(source.train)
        weights = self._last_weights(classes, source.train.shape, recipe) if going_on else None
        if weights is not None:  # the same weights are the same function only of samples brought to the same scale
            mean, std = self._scale
            source = dataclasses.replace(source, mean=mean, std=std)
        split = make_split(source, labels=None, seed=recipe.seed)
        trained = self._train(recipe, split, weights)
        self.classes_ = classes
        self.recipe_ = recipe
        self.history_ = trained.history
        self.shape_ = source.train.shape
        self._origin = origin
        self._seen = samples.shape[1:]
        self._scale = source.mean, source.std
        self._index = getattr(X, "index", None) if hasattr(X, "iloc") else None  # a frame's names of the rows
        self._remember(trained, split, labels, known)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row.

        >>> model = InstanTClassifier(steps=30, random_state=0).fit([[0.0], [0.1], [1.0], [1.1]], [5, -1, 7, -1])
        >>> model.predict([[-0.1], [1.2]]).tolist()
        [5, 7]
        """
        check_is_fitted(self, "judge_")
        return self.classes_[self.predict_proba(X).argmax(1)]

    @plain_torch()
    @torch.no_grad()
    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, K), the classes in the order of `classes_`.

        >>> model = InstanTClassifier(steps=30, random_state=0).fit([[0.0], [0.1], [1.0], [1.1]], [5, -1, 7, -1])
        >>> (model.predict_proba([[-0.1], [1.2]]) > 0.5).tolist()
        [[True, False], [False, True]]
        """
        check_is_fitted(self, "judge_")
        store = self._store(X)
        # In float32 the seventh digit of a row depends on how many are asked about, which scikit-learn does not allow
        judge = self.judge_ if store.is_images else self.judge_.classifier().double()
        blocks = batches(store, judge.step.device)
        probs = torch.cat([judge.classify(block) for block in blocks]).double().numpy()
        return probs / probs.sum(1, keepdims=True)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy over the labelled rows: what is not known cannot be scored.

        >>> model = InstanTClassifier(steps=30, random_state=0).fit([[0.0], [0.1], [1.0], [1.1]], [5, -1, 7, -1])
        >>> model.score([[-0.1], [1.2], [0.9]], [5, 7, -1])
        1.0
        """
        check_is_fitted(self, "judge_")
        labels, known = read_given(y)
        called = self.predict(X)
        check_consistent_length(called, labels, sample_weight)
        if not known.any():
            raise ValueError("y: no row is labelled; there is nothing to score.")
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(labels[known], called[known], sample_weight=weights))

    @plain_torch()
    def decide(self, X: Any) -> Decisions:
        """Label, confidence, threshold with its parts and reason, for any rows; as `instant label` has them.

        >>> model = InstanTClassifier(steps=30, random_state=0).fit([[0.0], [0.1], [1.0], [1.1]], [5, -1, 7, -1])
        >>> found = model.decide([[-0.1], [1.2]])
        >>> found.label.tolist(), ((found.confidence > found.tau) == found.accepted).all()  # numbers into classes_
        ([0, 1], np.True_)
        """
        check_is_fitted(self, "judge_")
        self._require_rule()
        store = self._store(X)
        return decide_rows(self.judge_, store, np.arange(len(store)), self._names())

    def labels_frame(self) -> Any:
        """The decision table of the training rows as a pandas DataFrame, with the reason of each in words.

        Its index is that of X, where X was a DataFrame.

        >>> model = InstanTClassifier(steps=30, random_state=0).fit([[0.0], [0.1], [1.0], [1.1]], [5, -1, 7, -1])
        >>> model.labels_frame()[["label", "given"]].values.tolist()
        [[5, True], [5, False], [7, True], [7, False]]
        """
        import pandas as pd

        check_is_fitted(self, "judge_")
        self._require_rule()
        found = self._decisions
        assert found is not None
        columns = ("confidence", "tau", "kappa", "stay", "inflow")
        other = found.accepted & ~self._of_label(found)
        return pd.DataFrame(
            {
                "label": self.transduction_,
                "given": self._known,
                "called": self.classes_[found.label],
                **{column: getattr(found, column) for column in columns},
                "accepted": self.accepted_,
                "runner_up": self.classes_[found.runner_up],
                "reason": [
                    f"refused: {name} would be accepted, which is not its label" if other[row] else found.reason(row)
                    for row, name in enumerate(self.classes_[found.label])
                ],
            },
            index=self._index,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _store(self, X: Any) -> Store:
        """Samples as the network was trained on."""
        return as_store(seen_from(self._origin, read_samples(X, self, reset=False)), self.shape_)

    def _recipe(self, train: Store) -> Recipe:
        """The recipe for vectors or images with our parameters on top; no step asks for more rows than there are."""
        for name in self._settings:
            if name in INSTEAD:
                raise ValueError(f"settings: {name!r} is not taken there; {INSTEAD[name]}.")
        refuse_ignored(self._settings, "X", images=train.is_images)
        base = images_recipe if train.is_images else vectors_recipe
        given = {
            "steps": self.steps,
            "batch": self.batch,
            "ratio": self.ratio,
            "seed": int(check_random_state(self.random_state).randint(2**31)),
            "device": self.device,
        }
        recipe = base(method=self.method).override(given | self._settings)
        batch = min(recipe.batch, len(train))
        return dataclasses.replace(recipe, batch=batch, ratio=max(1, min(recipe.ratio, len(train) // batch)))

    @property
    def _settings(self) -> dict[str, Any]:
        return dict(self.settings or {})

    def _check_parameters(self) -> None:
        """What `Recipe` does not check, because it never sees it."""
        if not isinstance(self.method, str) or not self.method:
            raise ValueError(f"method={self.method!r} must be the name of a method, as 'instant' or 'fixmatch'.")
        if not isinstance(self.mirror, bool | np.bool_):
            raise ValueError(f"mirror={self.mirror!r} must be True or False.")
        if not isinstance(self.settings, dict | None) or not all(isinstance(name, str) for name in self._settings):
            raise ValueError(f"settings={self.settings!r} must be None or a dict, as {{'optim.lr': 0.05}}.")

    def _train(self, recipe: Recipe, split: Split, weights: dict[str, torch.Tensor] | None) -> Trained:
        said: list[str] = []
        with ProgressBar(self.method) if self.verbose else nullcontext() as bar:
            try:
                watching = [Watch(said.append), *([] if bar is None else [bar])]
                trained = fit(recipe, split, callbacks=watching, weights=weights)
            except Interrupted as stop:
                # Any other exception is to a search a setting that fails: it would go on with the next
                raise KeyboardInterrupt(str(stop)) from None
        for sentence in said:
            warnings.warn(sentence, UserWarning, stacklevel=4)  # of the line that calls fit(X, y)
        return trained

    def _last_weights(self, classes: np.ndarray, shape: tuple[int, ...], recipe: Recipe) -> dict[str, torch.Tensor]:
        before = _kind(self.classes_, self.shape_, self.recipe_)
        if (now := _kind(classes, shape, recipe)) != before:
            raise ValueError(
                f"warm_start=True needs {before} as before, got {now}; set warm_start=False to start anew."
            )
        return self.judge_.network.state_dict()

    @plain_torch()
    @torch.no_grad()
    def _remember(self, trained: Trained, split: Split, labels: np.ndarray, known: np.ndarray) -> None:
        """Keep what predicts and decides, on the CPU, and what it says about the training rows."""
        learner = trained.learner.cpu()
        network, method = learner.judged, learner.method
        normalise = Normalise(split.mean, split.std, images=split.train.is_images)
        rests_on = reference_of(network, method, split, normalise)
        rule = method if isinstance(method, Match) else None
        self.judge_ = Judge(network, normalise, rule, rests_on, step=trained.recipe.steps - 1, pool=len(split.pool))
        rows = np.arange(len(split.train))
        self._known = known
        self._decisions = decide_rows(self.judge_, split.train, rows, self._names(), rows) if rule else None
        blocks = batches(split.train, self.judge_.step.device)
        called = torch.cat([self.judge_.classify(block).argmax(1) for block in blocks])
        self.transduction_ = np.where(known, labels, self.classes_[called.numpy()])
        self.thresholds_ = None if self._decisions is None else self._decisions.tau
        self.accepted_ = None if self._decisions is None else self._decisions.accepted & self._of_label(self._decisions)
        self.transition_ = mean_transition(self.judge_, split.train, rows)

    def _of_label(self, found: Decisions) -> np.ndarray:
        """Where a decision is about the row's label: alignment may call a row otherwise, and so may who labelled it."""
        return self.classes_[found.label] == self.transduction_

    def _names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.classes_)

    def _require_rule(self) -> None:
        if not self.judge_.decides:
            raise ValueError(
                f"method={self.method!r} has no threshold and decides nothing; use one that has, as instant."
            )


class InstanTClassifier(SemiSupervisedClassifier):
    """InstanT (NeurIPS 2023): a threshold of its own for every unlabelled sample.

    Parameters and attributes are those of `SemiSupervisedClassifier`.

    >>> from sklearn.datasets import load_wine
    >>> X, truth = load_wine(return_X_y=True)
    >>> y = np.where(np.arange(len(truth)) % 15 == 0, truth, -1)  # twelve labels
    >>> model = InstanTClassifier(steps=100, random_state=0).fit(X, y)
    >>> bool(model.score(X, truth) > 0.9), model.transition_.shape
    (True, (3, 3))
    >>> model.labels_frame()["reason"][50].split(":")[0] in ("accepted", "refused")
    True
    """

    thresholds_: np.ndarray  # never None: InstanT has a threshold, and a T
    accepted_: np.ndarray
    transition_: np.ndarray

    def __init__(
        self,
        *,
        steps: int = 600,
        batch: int = 32,
        ratio: int = 4,
        settings: dict[str, Any] | None = None,
        mirror: bool = True,
        random_state: Any = None,
        device: str = "auto",
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            "instant", steps=steps, batch=batch, ratio=ratio, settings=settings, mirror=mirror,
            random_state=random_state, device=device, warm_start=warm_start, verbose=verbose,
        )  # fmt: skip


def _kind(classes: np.ndarray, shape: tuple[int, ...], recipe: Recipe) -> str:
    """What must be the same for weights to fit."""
    network = " ".join([recipe.backbone, *(f"{name}={value}" for name, value in recipe.backbone_options.items())])
    return f"the classes {classes.tolist()}, samples of shape {shape} and the network {network}"
