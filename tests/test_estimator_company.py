"""What is around the estimator: a terminal, signals, threads, what the caller has told torch."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed
from runs import blobs
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from instant import InstanTClassifier, SemiSupervisedClassifier, SemiSupervisedKFold
from instant.engine import build
from instant.engine.plain import plain_torch
from instant.progress import ProgressBar


def test_a_bar_when_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    x, _, y = blobs()
    InstanTClassifier(steps=20, random_state=0).fit(x, y)
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    InstanTClassifier(steps=20, random_state=0, verbose=True).fit(x, y)
    assert "20/20" in capsys.readouterr().out
    with pytest.raises(ValueError, match="stopped being a finite number"):
        InstanTClassifier(steps=20, random_state=0, verbose=True, settings={"optim.lr": 1e9}).fit(x, y)
    assert "\x1b[?25h" in capsys.readouterr().out  # the cursor is back: the bar has let go of the terminal


def test_ctrl_c_ends_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other exception scikit-learn takes for a setting that fails, and goes on with the next."""
    x, _, y = blobs()
    monkeypatch.setattr(ProgressBar, "step", lambda self, step: signal.raise_signal(signal.SIGINT))
    model = InstanTClassifier(random_state=0, verbose=True)
    with pytest.raises(KeyboardInterrupt, match="stopped after step 1"):
        GridSearchCV(model, {"steps": [20, 30]}, cv=SemiSupervisedKFold(2)).fit(x, y)


def test_ctrl_c_in_the_last_step_ends_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _, y = blobs()
    monkeypatch.setattr(ProgressBar, "step", lambda self, step: step == 3 and signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt, match="stopped after step 3"):
        InstanTClassifier(steps=3, random_state=0, verbose=True).fit(x, y)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None])
def test_a_signal_that_the_caller_deals_with_is_the_callers(handler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, _, y = blobs()
    monkeypatch.setattr(ProgressBar, "step", lambda self, step: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, handler)
    try:
        InstanTClassifier(steps=3, random_state=0, verbose=True).fit(x, y)
        assert signal.getsignal(signal.SIGINT) == handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_seed_repeats_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has one generator for all: who seeds it must draw from it before the next one seeds."""
    x, _, y = blobs()
    model = InstanTClassifier(steps=1, random_state=0)
    expected = clone(model).fit(x, y).predict_proba(x)
    network = build._network

    def slow(*given: Any) -> Any:
        time.sleep(0.1)
        return network(*given)

    monkeypatch.setattr(build, "_network", slow)
    for one in Parallel(n_jobs=2, backend="threading")(delayed(clone(model).fit)(x, y) for _ in range(2)):
        np.testing.assert_array_equal(one.predict_proba(x), expected)


@contextmanager
def float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def another_device() -> torch.device:
    return torch.device("meta")


def shortened() -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16)


@pytest.mark.parametrize("around", [float64_by_default, torch.no_grad, torch.inference_mode, another_device, shortened])
@pytest.mark.parametrize("method", ["instant", "freematch"])
def test_what_torch_was_told_before_changes_nothing(around: Any, method: str) -> None:
    x, _, y = blobs()
    expected = SemiSupervisedClassifier(method, steps=10, random_state=0).fit(x, y)
    with around():
        told = _told()
        model = SemiSupervisedClassifier(method, steps=10, random_state=0).fit(x, y)
        assert _told() == told
        with pytest.raises(ValueError, match="finite number"):
            SemiSupervisedClassifier(method, steps=10, random_state=0, settings={"optim.lr": 1e30}).fit(x, y)
        assert _told() == told
        found = model.decide(x)
    weights = model.judge_.network.state_dict()
    for name, value in expected.judge_.network.state_dict().items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=0, msg=name)
    np.testing.assert_array_equal(model.thresholds_, expected.thresholds_)
    np.testing.assert_array_equal(found.tau, expected.decide(x).tau)


def _told() -> tuple[Any, ...]:
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
    return torch.get_default_dtype(), torch.get_default_device(), *modes


def test_the_last_to_leave_brings_back_the_default_dtype() -> None:
    """It is one for all threads: the first to be done must not take it from the other."""
    with float64_by_default():
        first, last = plain_torch(), plain_torch()
        first.__enter__()
        last.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_default_dtype() == torch.float32
        last.__exit__(None, None, None)
        assert torch.get_default_dtype() == torch.float64


def test_what_float32_does_not_hold_is_a_sentence_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"x: row 0, column 0 is 1e\+308, more than float32 holds"):
            InstanTClassifier(steps=5).fit([[1e308], [-1e308], [0.0]], [0, 1, -1])


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        (np.ma.masked_array(np.ones((8, 2)), np.eye(8, 2) == 1), "X: 2 values are masked; fill them in first"),
        (np.where(np.eye(8, 2) == 1, np.datetime64("NaT"), np.datetime64("2026-01-01")), "X contains NaT, a time that"),
    ],
    ids=["masked", "NaT"],
)
def test_what_is_hidden_or_unknown_in_x_is_refused(X: np.ndarray, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        InstanTClassifier(steps=5).fit(X, [0, 1] * 4)
