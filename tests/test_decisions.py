"""What a finished run says about samples equals what its method, still in memory, works out by hand."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from runs import points, small
from torch import Tensor

import instant
from instant.algorithms import METHODS
from instant.alignment import Alignment
from instant.data.split import Split
from instant.data.store import Store
from instant.engine.checkpoint import save_tensors
from instant.engine.fit import Trained, fit
from instant.errors import InputError
from instant.export import export_onnx
from instant.labelling.decisions import Decisions, decide
from instant.labelling.stream import label
from instant.match import Match
from instant.rules import Curriculum, InstanceDependent, Relative, Rule, SelfAdaptive
from instant.run import Run
from instant.run_files import CHECKPOINT
from instant.types import Evidence, MethodFunction, Problem, State

WITHOUT_RULE = {"supervised", "fully_supervised", "vat", "mixmatch"}


def train(folder: Path, method: str, **settings: str) -> tuple[Run, Trained]:
    run = Run(folder / method)
    return run, fit(*points(method, **settings), run=run)


def own(folder: Path, method: MethodFunction, **settings: str) -> tuple[Run, Trained]:
    run = Run(folder / "own")
    return run, fit(*points(**{"steps": "60", "optim.lr": "0.03"} | settings), run=run, method=method)


def looked_at(trained: Trained, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, probabilities and features of training samples, from the judged network in memory."""
    split = trained.split
    x = (torch.from_numpy(split.train.samples[rows]) - torch.tensor(split.mean)) / torch.tensor(split.std)
    with torch.no_grad():
        out = trained.learner.judged.eval()(x.float())
    return x.float(), torch.softmax(out.logits, 1), out.features


def method_of(trained: Trained) -> Match:
    method = trained.learner.method
    assert isinstance(method, Match)
    return method


def test_instant_by_hand(tmp_path: Path) -> None:
    """T(x) from its head, alignment from its running mean, kappa from all labelled samples; row by row in numpy."""
    run, trained = train(tmp_path, "instant", **{"method.base": "0.3"})
    split, method = trained.split, method_of(trained)
    x, probs, features = looked_at(trained, split.pool)
    assert method.align is not None
    assert method.transitions is not None
    aligned = probs * (method.align.target + 1e-6) / (method.align.model + 1e-6)
    aligned = (aligned / aligned.sum(1, keepdim=True)).numpy()
    with torch.no_grad():
        T = method.transitions.estimator(features, x).numpy()
    kappa = 0.3 * looked_at(trained, split.labelled)[1].amax(1).mean().item()
    found = decide(run, split)
    assert found.ids.tolist() == split.pool.tolist()
    assert found.probs == pytest.approx(aligned, abs=1e-5)
    assert found.kappa == pytest.approx(np.full(len(found), kappa), abs=1e-5)
    for row in range(len(found)):
        s, k = np.argsort(aligned[row])[-2:]
        others = [i for i in range(3) if i != k]
        stay, flow = T[row, k, k] * aligned[row, s], sum(T[row, i, k] * aligned[row, i] for i in others)
        assert (found.label[row], found.runner_up[row]) == (k, s)
        assert (found.stay[row], found.inflow[row]) == (pytest.approx(stay, abs=1e-5), pytest.approx(flow, abs=1e-5))
        assert found.mistaken[row] == pytest.approx(flow / (1 - aligned[row, k]), rel=0.01, abs=1e-5)
        assert found.tau[row] == pytest.approx(min(1, kappa + stay + flow), abs=1e-5)
        assert found.accepted[row] == (found.confidence[row] > found.tau[row])
    assert 0 < found.accepted.sum() < len(found)


@pytest.mark.parametrize("method", sorted(METHODS.keys() - WITHOUT_RULE))
def test_every_method_with_a_rule(method: str, tmp_path: Path) -> None:
    run, trained = train(tmp_path, method)
    found = decide(run, trained.split)
    assert len(found) == 120
    clip = 0.99 if method == "instant_released" else 1.0
    assert np.minimum(clip, found.kappa + found.stay + found.inflow) == pytest.approx(found.tau, abs=1e-5)
    called = looked_at(trained, trained.split.pool)[1] if method == "softmatch" else torch.from_numpy(found.probs)
    assert found.label.tolist() == called.argmax(1).tolist()
    assert found.confidence == pytest.approx(found.probs[np.arange(120), found.label])
    assert (found.confidence >= found.tau)[found.accepted].all()
    for row in range(0, 120, 10):
        said = found.reason(row)
        assert said.startswith("accepted: " if found.accepted[row] else "refused: ")
        assert ("the runner-up" in said) == method.startswith("instant")
        assert f"'{found.classes[found.label[row]]}'" in said or not method.startswith("instant")
    parts = decide(run, trained.split, batch=7)
    for field in dataclasses.fields(Decisions):
        if field.name not in ("classes", "accepted", "label", "runner_up"):  # ties may turn on a rounding
            assert getattr(parts, field.name) == pytest.approx(getattr(found, field.name), abs=1e-5), field.name


def thresholds_of(trained: Trained, probs: Tensor) -> Tensor:
    """The published formulas, from the state the rule ended with."""
    rule, label = method_of(trained).rule, probs.argmax(1)
    state = dict(rule.named_buffers())
    if trained.recipe.method == "fixmatch":
        return torch.tensor(0.95)
    if trained.recipe.method == "freematch":
        return (state["tau"] * state["model"] / state["model"].max())[label]
    counts = torch.bincount(state["last"] + 1, minlength=4).float()
    status = counts[1:] / counts.max()
    return (0.95 * status / (2 - status))[label]


@pytest.mark.parametrize("method", ["fixmatch", "freematch", "flexmatch"])
def test_running_thresholds_stand_where_training_left_them(method: str, tmp_path: Path) -> None:
    run, trained = train(tmp_path, method, steps="60", **{"optim.lr": "0.03"})
    _, probs, _ = looked_at(trained, trained.split.pool)
    expected = thresholds_of(trained, probs).expand(120).numpy()
    found = decide(run, trained.split)
    assert found.tau == pytest.approx(expected, abs=1e-6)
    assert found.accepted.tolist() == (found.confidence >= expected).tolist()
    assert (found.tau > 0).any()
    if method == "flexmatch":
        assert len(np.unique(found.tau)) > 1


def test_the_release_takes_kappa_from_all_samples(tmp_path: Path) -> None:
    run, trained = train(tmp_path, "instant_released")
    found = decide(run, trained.split)
    assert found.kappa == pytest.approx(np.full(120, 0.9 * found.confidence.mean()), abs=1e-5)


def test_a_kappa_by_class_says_whom_it_is_asked_of(tmp_path: Path) -> None:
    run, trained = train(tmp_path, "instant", **{"method.kappa": "self_adaptive", "method.base": "0.9"})
    rule = method_of(trained).rule.base
    found = decide(run, trained.split)
    bars = 0.9 * rule.tau * rule.model / rule.model.max()
    assert found.kappa == pytest.approx(bars.numpy()[found.label], abs=1e-5)
    assert len(np.unique(found.kappa)) > 1
    assert f"everyone called {found.classes[int(found.label[0])]!r} is asked {found.kappa[0]:.2f}" in found.reason(0)
    alone = decide(run, trained.split, trained.split.train.take(found.ids[:1]))
    assert f"everyone called {alone.classes[int(alone.label[0])]!r} is asked" in alone.reason(0)


def test_soft_weights_count_from_their_mean(tmp_path: Path) -> None:
    run, trained = train(tmp_path, "softmatch")
    mu = float(method_of(trained).rule.get_buffer("mu"))
    found = decide(run, trained.split)
    assert found.tau == pytest.approx(np.full(120, mu), abs=1e-6)
    assert found.accepted.tolist() == (found.confidence >= np.float32(mu)).tolist()


def test_other_samples_than_the_pool(tmp_path: Path) -> None:
    """A store of anybody's: the same samples get the same decisions, and more samples than the pool has are fine."""
    run, trained = train(tmp_path, "flexmatch")
    split = trained.split
    again = Store(np.concatenate([split.train.samples[split.pool]] * 2), "twice")
    pool, twice = decide(run, split), decide(run, split, again)
    assert twice.ids.tolist() == list(range(240))
    assert twice.tau == pytest.approx(np.concatenate([pool.tau] * 2), abs=1e-6)
    assert twice.probs == pytest.approx(np.concatenate([pool.probs] * 2), abs=1e-5)


def test_a_transition_network_and_images(tmp_path: Path) -> None:
    """T from a network of its own, with batch statistics, on images; chunks do not mix."""
    recipe, split = small("instant", **{"method.transition": "network", "steps": "4"})
    run = Run(tmp_path / "run")
    fit(recipe, split, run=run)
    whole, parts = decide(run, split, split.test), decide(run, split, split.test, batch=50)
    assert len(whole) == 360
    assert parts.tau == pytest.approx(whole.tau, abs=1e-5)


@pytest.mark.parametrize("method", sorted(WITHOUT_RULE))
def test_methods_without_a_rule_say_so(method: str, tmp_path: Path) -> None:
    run, trained = train(tmp_path, method, steps="2")
    with pytest.raises(InputError, match=f"method={method}, which has no threshold"):
        decide(run, trained.split)


def test_what_does_not_fit_is_a_sentence(finished: Run, tmp_path: Path) -> None:
    split: Split = small()[1]
    with pytest.raises(InputError, match="expected samples of shape"):
        decide(finished, split, Store(np.zeros((4, 1, 8, 8), np.uint8), "mine"))
    other = small(seed="1")[1]
    with pytest.raises(InputError, match="have changed since it was begun"):
        decide(finished, other)
    folder = tmp_path / "run"
    shutil.copytree(finished.path, folder)
    (folder / CHECKPOINT).unlink()
    with pytest.raises(InputError, match="it holds the thresholds the run ended with"):
        decide(Run(folder), split)
    (folder / "summary.json").unlink()
    with pytest.raises(InputError, match="the run did not finish"):
        decide(Run(folder), split)


def test_a_reference_of_another_run_is_a_sentence(tmp_path: Path) -> None:
    recipe, split = points("instant")
    fit(recipe, split, run=(run := Run(tmp_path / "run")))
    reference = run.reference()
    for changed in (
        {name: value for name, value in reference.items() if name != "probs_l"},
        reference | {"probs_l": reference["probs_l"][:3]},
        reference | {"probs_l": reference["probs_l"].flatten()},
    ):
        save_tensors(run.path / "reference.safetensors", {k: v.contiguous() for k, v in changed.items()}, {})
        with pytest.raises(InputError, match=r"reference\.safetensors is not of this run"):
            decide(run, split)


def test_a_method_given_as_a_function_is_not_another(tmp_path: Path) -> None:
    """The recipe names instant, what was trained is another: the folder says which, and its state fits no other."""
    recipe, split = points("instant")
    ours, own = Run(tmp_path / "ours"), Run(tmp_path / "own")
    fit(recipe, split, run=ours, method=METHODS["freematch"])
    assert ours.recipe().method == "freematch"
    assert len(decide(ours, split).label) == len(split.pool)
    with pytest.raises(InputError, match="was begun with method=freematch, not instant; leave it out"):
        decide(ours, split, method="instant")
    with pytest.raises(InputError, match="was begun with method=freematch, not instant"):
        decide(ours, split, method=METHODS["instant"])
    assert len(decide(ours, split, method=METHODS["freematch"]).label) == len(split.pool)

    def mine(problem: Problem) -> Match:
        return Match(SelfAdaptive(problem.classes))

    fit(recipe, split, run=own, method=mine)
    assert own.recipe().method.startswith("test_decisions:")
    with pytest.raises(InputError, match="which is code"):
        decide(own, split)
    assert len(decide(own, split, method=mine).label) == len(split.pool)


class Following(Rule):
    """A bar that follows the batch; its momentum is a buffer, as its mean is."""

    momentum: Tensor
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("momentum", torch.tensor(0.9))
        self.register_buffer("mean", torch.tensor(0.25))

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        mean = self.mean.lerp(seen.probs.amax(1).mean(), 1 - self.momentum)
        return mean, {"mean": mean}


def test_a_momentum_that_is_a_buffer_stands_still_too(tmp_path: Path) -> None:
    def mine(problem: Problem) -> Match:
        return Match(Following())

    run, trained = own(tmp_path, mine)
    mean = float(method_of(trained).rule.get_buffer("mean"))
    assert mean > 0.26
    assert decide(run, trained.split, method=mine).tau == pytest.approx(np.full(120, mean), abs=1e-6)


class Halved(InstanceDependent):
    """InstanT's rule with half its threshold."""

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        tau, state = super().threshold(seen)
        return tau / 2, state


@pytest.mark.parametrize("parent", ["instant", "instant_released"])
def test_a_rule_derived_from_ours_is_asked_itself(parent: str, tmp_path: Path) -> None:
    def ours(problem: Problem) -> Match:
        method = METHODS[parent](problem)
        assert isinstance(method, Match)
        return method

    def mine(problem: Problem) -> Match:
        method = ours(problem)
        rule = method.rule
        assert isinstance(rule, InstanceDependent)
        method.rule = Halved(rule.base, clip=rule.clip, resoftmax=rule.resoftmax, warmup=rule.warmup)
        return method

    run, trained = own(tmp_path, mine)
    found, whole = decide(run, trained.split, method=mine), decide(run, trained.split, method=ours)
    assert found.tau == pytest.approx(whole.tau / 2, abs=1e-6)
    assert found.accepted.tolist() == (found.confidence > found.tau).tolist()
    assert found.accepted.sum() > whole.accepted.sum()
    assert found.kappa.tolist() == found.tau.tolist()  # its parts are not told: half of which would they be?
    assert not found.stay.any()
    assert found.reason(0) == f"accepted: {found.confidence[0]:.2f} > {found.tau[0]:.2f}"
    assert decide(run, trained.split, method=mine, batch=7).tau == pytest.approx(found.tau, abs=1e-6)


class Milder(Alignment):
    """The geometric mean of what is aligned and what is not."""

    def forward(self, probs: Tensor, probs_l: Tensor) -> tuple[Tensor, State]:
        whole, state = super().forward(probs, probs_l)
        return torch.softmax((whole.log() + probs.log()) / 2, 1), state


def test_an_alignment_of_ones_own_is_asked_itself(tmp_path: Path) -> None:
    def mine(problem: Problem) -> Match:
        return Match(Relative(0.9, of_unlabelled=True), align=Milder(problem.classes, momentum=0.9))

    run, trained = own(tmp_path, mine)
    align = method_of(trained).align
    assert align is not None
    assert align.momentum == 0.9  # the trained method is left as it was
    raw = looked_at(trained, trained.split.pool)[1]
    scaled = (raw * raw * (align.target + 1e-6) / (align.model + 1e-6)).sqrt()
    expected = (scaled / scaled.sum(1, keepdim=True)).numpy()
    found = decide(run, trained.split, method=mine)
    assert found.probs == pytest.approx(expected, abs=1e-5)
    assert found.tau == pytest.approx(np.full(120, 0.9 * expected.max(1).mean()), abs=1e-5)
    assert decide(run, trained.split, method=mine, batch=1).probs == pytest.approx(found.probs, abs=1e-5)


def test_a_rule_of_ones_own_may_call_a_number_bar(tmp_path: Path) -> None:
    class Constant(Rule):
        bar = 0.5

        def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
            return torch.full_like(seen.probs[:, 0], self.bar), {}

    def mine(problem: Problem) -> Match:
        return Match(Constant())

    run, trained = own(tmp_path, mine)
    found = decide(run, trained.split, method=mine)
    assert found.tau.tolist() == [0.5] * 120
    assert not found.by_class


class PerSample(Rule):
    """The bar of each sample is the running mean of its own confidence."""

    own: Tensor

    def __init__(self, unlabelled: int) -> None:
        super().__init__()
        self.register_buffer("own", torch.full((unlabelled,), 0.5))

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        bar = self.own[seen.index]
        return bar, {"own": self.own.scatter(0, seen.index, bar.lerp(seen.probs.amax(1), 0.3))}


@pytest.mark.parametrize("inside", [False, True], ids=["itself", "as a part of InstanT's rule"])
def test_a_bar_of_each_sample_is_for_the_pool_alone(inside: bool, tmp_path: Path) -> None:
    def mine(problem: Problem) -> Match:
        method = METHODS["instant" if inside else "fixmatch"](problem)
        assert isinstance(method, Match)
        rule = PerSample(problem.unlabelled)
        method.rule = InstanceDependent(rule) if inside else rule
        return method

    run, trained = own(tmp_path, mine, validation="6")  # so that a place in the pool is not one in the data
    split = trained.split
    assert len(split.pool) == 114
    rule = method_of(trained).rule
    bars = rule.get_buffer("base.own" if inside else "own").numpy()
    assert len(np.unique(bars)) > 100
    for batch in (None, 7):
        assert decide(run, split, method=mine, batch=batch).kappa.tolist() == bars.tolist()
    label(run, tmp_path / "labels.parquet", pool=lambda: split, method=mine, block=50)
    assert pd.read_parquet(tmp_path / "labels.parquet")["tau_everyone"].tolist() == bars.tolist()
    model = instant.load(run.path, method=mine)
    assert len(model.predict(split.train.samples)) == 120
    with pytest.raises(InputError, match="as instant label does without a path"):
        label(run, tmp_path / "other.parquet", path=tmp_path / "samples.npy", method=mine)
    assert not list(tmp_path.glob("other*"))
    for ask in (
        lambda: model.decide(split.train.samples),
        lambda: decide(run, split, split.test, method=mine),
        lambda: export_onnx(run, tmp_path / "model.onnx", method=mine),
    ):
        with pytest.raises(InputError, match="goes by a sample's position in the pool, which other samples do not"):
            ask()


def test_state_of_each_sample_binds_no_bar_to_it(tmp_path: Path) -> None:
    """FlexMatch's rule keeps something by index and asks by class: one derived from it takes any samples."""

    class Higher(Curriculum):
        def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
            tau, state = super().threshold(seen)
            return tau.sqrt(), state

    def mine(problem: Problem) -> Match:
        return Match(Higher(problem.classes, problem.unlabelled))

    run, trained = own(tmp_path, mine)
    split = trained.split
    pool = decide(run, split, method=mine)
    assert (pool.tau > 0).any()
    assert decide(run, split, split.train.take(split.pool), method=mine).tau.tolist() == pool.tau.tolist()
