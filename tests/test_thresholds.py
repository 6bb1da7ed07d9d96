"""Thresholds for any classifier: the paper's formulas by hand, both kinds of array, and every mistake a sentence."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from instant import instance_thresholds
from instant.errors import InputError
from instant.labelling import probabilities
from instant.labelling.reasons import Parts, reason
from instant.labelling.thresholds import Thresholds, confusion
from instant.rules import InstanceDependent, Relative
from instant.types import Evidence

T = np.array([[0.8, 0.1, 0.1], [0.05, 0.9, 0.05], [0.2, 0.1, 0.7]])
LABELLED = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.0, 0.1, 0.9]])  # mean confidence 0.8
Y = np.array([0, 1, 2])


def random_probs(rows: int, classes: int = 3, seed: int = 0, sharp: float = 0.1) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(classes, sharp), size=rows)


def test_the_parts_by_hand() -> None:
    """kappa = 0.5 * 0.8. First row, k = 0, s = 1: stay .8 * .1, inflow .05 * .1 + .2 * .05. Second, k = 2, s = 0."""
    found = instance_thresholds(
        LABELLED, Y, np.array([[0.85, 0.1, 0.05], [0.4, 0.1, 0.5]]), transition=T, beta=0.5
    )  # fmt: skip
    assert found.label.tolist() == [0, 2]
    assert found.runner_up.tolist() == [1, 0]
    assert found.confidence == pytest.approx([0.85, 0.5])
    assert found.kappa == pytest.approx([0.4, 0.4])
    assert found.stay == pytest.approx([0.8 * 0.1, 0.7 * 0.4])
    assert found.inflow == pytest.approx([0.05 * 0.1 + 0.2 * 0.05, 0.1 * 0.4 + 0.05 * 0.1])
    assert found.mistaken == pytest.approx([0.015 / 0.15, 0.045 / 0.5])
    assert found.tau == pytest.approx([0.4 + 0.08 + 0.015, 0.4 + 0.28 + 0.045])
    assert found.accepted.tolist() == [True, False]


def test_it_is_the_rule_that_trains() -> None:
    """The same thresholds and choices as InstanceDependent(Relative(0.9)) gives a step with these rows."""
    probs = random_probs(500)
    found = instance_thresholds(LABELLED, Y, probs, transition=T)
    tensor = torch.from_numpy(probs)
    inflow = torch.from_numpy(T).t()[tensor.argmax(1)]
    rule = InstanceDependent(Relative(0.9))
    where = torch.arange(500), torch.tensor(0)
    (weight, tau), _ = rule(Evidence(tensor, torch.from_numpy(LABELLED), torch.from_numpy(Y), *where, inflow))
    assert found.tau == pytest.approx(tau.numpy())
    assert found.accepted.tolist() == weight.bool().tolist()
    assert 50 < found.accepted.sum() < 450


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_torch_in_torch_out(dtype: torch.dtype) -> None:
    probs = random_probs(50, sharp=1.0)
    expected = instance_thresholds(LABELLED, Y, probs)
    found = instance_thresholds(torch.from_numpy(LABELLED), torch.from_numpy(Y), torch.from_numpy(probs).to(dtype))
    close = {torch.float32: 1e-6, torch.float64: 1e-12, torch.float16: 1e-3}[dtype]
    for name in Thresholds.__dataclass_fields__:
        column = getattr(found, name)
        assert isinstance(column, torch.Tensor)
        assert column.dtype != torch.float16
        if column.is_floating_point():
            assert column.numpy() == pytest.approx(getattr(expected, name), abs=close * 10), name
    assert found.tau.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert type(expected.tau) is np.ndarray


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    probs, per_sample = random_probs(100), random_probs(300, seed=1, sharp=1.0).reshape(100, 3, 3)
    for transition in (T, per_sample):
        for align in (None, "uniform"):
            whole = instance_thresholds(LABELLED, Y, probs, transition=transition, align=align)
            with monkeypatch.context() as patch:
                patch.setattr(probabilities, "ENTRIES", 21)  # 7 rows at a time, or 2
                parts = instance_thresholds(LABELLED, Y, probs, transition=transition, align=align)
            for name in Thresholds.__dataclass_fields__:
                assert getattr(parts, name) == pytest.approx(getattr(whole, name), abs=1e-12), name


def test_one_matrix_a_sample() -> None:
    probs = random_probs(20)
    per_sample = np.stack([T, np.eye(3)] * 10)
    found = instance_thresholds(LABELLED, Y, probs, transition=per_sample)
    for start, matrix in ((0, T), (1, "identity")):
        expected = instance_thresholds(LABELLED, Y, probs, transition=matrix)
        assert found.tau[start::2] == pytest.approx(expected.tau[start::2])


def test_the_identity_is_a_margin_test() -> None:
    """T = I: nothing flows in and the runner-up's whole probability is asked: tau = P_s + kappa."""
    probs = random_probs(50, sharp=1.0)
    found = instance_thresholds(LABELLED, Y, probs, transition=None, beta=0.1)
    top = np.sort(probs, axis=1)
    assert found.tau == pytest.approx(top[:, -2] + 0.1 * 0.8)
    assert found.inflow == pytest.approx(0, abs=1e-12)
    assert (found.inflow >= 0).all()
    tie = instance_thresholds(LABELLED, Y, np.array([[0.5, 0.5, 0.0]]), transition=None, beta=0.0)
    assert (tie.tau.item(), tie.accepted.item()) == (0.5, False)  # strictly above, as the paper has it


def test_the_counted_matrix_is_the_default() -> None:
    """Class 0 was called 0, 0, 1: (2 + 1/3) / 4, (1 + 1/3) / 4, (0 + 1/3) / 4; class 2 has no sample: uniform."""
    probs_l = np.array([[0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.2, 0.7, 0.1]])
    y = np.array([0, 0, 0, 1])
    counted = [[7 / 12, 4 / 12, 1 / 12], [1 / 6, 4 / 6, 1 / 6], [1 / 3, 1 / 3, 1 / 3]]
    assert confusion(torch.tensor([0, 0, 1, 1]), torch.from_numpy(y), 3).numpy() == pytest.approx(np.array(counted))
    probs = random_probs(30)
    found = instance_thresholds(probs_l, y, probs)
    assert found.tau == pytest.approx(instance_thresholds(probs_l, y, probs, transition=np.array(counted)).tau)


def test_alignment_moves_the_mean() -> None:
    """One step of P_j target_j / mean_j, normalised: by hand for two rows, mean (.8, .2), target (.5, .5)."""
    probs = np.array([[0.9, 0.1], [0.7, 0.3]])
    labelled = np.array([[0.9, 0.1], [0.2, 0.8]])
    found = instance_thresholds(labelled, [0, 1], probs, transition="identity", align="uniform")
    first, second = 0.9 * 0.5 / 0.8, 0.1 * 0.5 / 0.2
    assert found.confidence[0] == pytest.approx(first / (first + second), abs=1e-5)
    first, second = 0.7 * 0.5 / 0.8, 0.3 * 0.5 / 0.2
    assert (found.label[1], found.confidence[1]) == (1, pytest.approx(second / (first + second), abs=1e-5))
    assert found.kappa[0] == pytest.approx(0.9 * 0.85)  # labelled confidences stay as they are
    same = instance_thresholds(labelled, [0, 1], probs, transition="identity", align=[0.8, 0.2])
    assert same.confidence == pytest.approx([0.9, 0.7], abs=1e-5)


def test_read_only_lists_and_single_rows() -> None:
    probs = random_probs(5)
    expected = instance_thresholds(LABELLED, Y, probs)
    probs.setflags(write=False)
    with warnings.catch_warnings(action="error"):
        assert instance_thresholds(LABELLED, Y, probs).tau == pytest.approx(expected.tau)
    assert instance_thresholds(LABELLED.tolist(), [0, 1, 2], probs.tolist()).tau == pytest.approx(expected.tau)
    assert len(instance_thresholds(LABELLED, Y, probs[:1])) == 1
    certain = instance_thresholds(LABELLED, Y, np.array([[1.0, 0.0, 0.0]]), transition=T)
    assert (certain.mistaken.tolist(), certain.accepted.tolist()) == ([0.0], [True])


def test_how_often_a_sure_sample_is_mistaken_is_no_rounding() -> None:
    """Every class is called every other one in 0.5 %, however little float32 leaves of 1 - P."""
    T = np.full((3, 3), 0.005) + np.eye(3) * 0.985
    logits = torch.tensor([[20.0, 2.0, 1.0], [3.0, 19.0, 0.0], [0.0, 1.0, 17.5]])
    found = instance_thresholds(LABELLED, Y, torch.softmax(logits, 1).numpy(), transition=T)
    assert (1 - found.confidence).max() < 1e-6
    assert found.mistaken == pytest.approx([0.005] * 3, rel=1e-4)
    assert found.inflow == pytest.approx(0.005 * torch.softmax(logits.double(), 1).sort(1).values[:, :2].sum(1).numpy())


def test_numbers_of_other_types_do_too() -> None:
    """bfloat16 keeps eight bits: (0.9, 0.1) becomes (230/256, 205/2048), which sums to 0.9985."""
    probs = torch.tensor([[0.9, 0.1]], dtype=torch.bfloat16)
    found = instance_thresholds(torch.eye(2), torch.arange(2), probs, beta=np.float32(0.5), transition=None)
    assert found.tau.tolist() == [0.5 + 205 / 2048]


GOOD: dict[str, Any] = {"probs_labelled": LABELLED, "y_labelled": Y, "probs_unlabelled": LABELLED}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"probs_unlabelled": 3 * LABELLED}, "probs_unlabelled: row 0 sums to 3, expected probabilities"),
        ({"probs_labelled": np.array([[0.5, 0.5, 0], [1.5, -0.5, 0]]), "y_labelled": [0, 1]}, "row 1 has a negative"),
        ({"probs_unlabelled": np.where(LABELLED == 0.9, np.nan, LABELLED)}, "row 2 sums to nan"),
        ({"probs_unlabelled": LABELLED[:, :2]}, "probs_labelled has 3 classes and probs_unlabelled 2"),
        ({"probs_unlabelled": LABELLED[0]}, r"got float64 of shape \(3,\)"),
        ({"probs_unlabelled": LABELLED[:0]}, r"of shape \(0, 3\)"),
        ({"probs_unlabelled": [["a", "b"]]}, "expected probabilities of shape"),
        ({"y_labelled": [0, 1]}, "y_labelled: expected 3 whole numbers"),
        ({"y_labelled": [0.5, 1, 2]}, "y_labelled: expected 3 whole numbers"),
        ({"y_labelled": [0, 1, 3]}, "row 2 is 3, expected a class from 0 to 2"),
        ({"y_labelled": [0, -1, 2]}, "row 1 is -1, expected a class from 0 to 2"),
        ({"beta": 1.5}, "beta=1.5 must be a number from 0 to 1"),
        ({"transition": "confusoin"}, "did you mean 'confusion'"),
        ({"transition": np.eye(4)}, r"got \(4, 4\)"),
        ({"transition": np.ones((3, 3))}, "a row with the sum 3"),
        ({"transition": np.array([[1, 0, 0], [0, 1, 0], [0, 0.5, 0.25]])}, "a row with the sum 0.75"),
        ({"transition": np.full((3, 3, 3), np.nan)}, "a row with the sum nan"),
        ({"transition": np.array([[1.5, -0.5, 0], [0, 1, 0], [0, 0, 1]])}, "the smallest entry -0.5"),
        ({"align": "unifrom"}, "align='unifrom' is not known"),
        ({"align": [0.5, 0.5]}, "align: expected 3 shares"),
        ({"align": [0.5, 0.5, 0.5]}, "with the sum 1.5"),
        ({"align": [0.5, 0.25, 0.0]}, "with the sum 0.75"),
        ({"align": [1.5, -0.5, 0.0]}, "shares from 0 that sum to 1"),
        ({"align": ["a", "b", "c"]}, "align: expected 'uniform', or a number for every class, got <U1"),
        ({"transition": [["a"] * 3] * 3}, "transition: expected numbers, or 'confusion'"),
        ({"transition": [[1], [0, 1]]}, "transition: expected an array, its rows of one length"),
        ({"probs_labelled": [[1], [0, 1]]}, "probs_labelled: expected an array, its rows of one length"),
        ({"y_labelled": [[1], [0, 1]]}, "y_labelled: expected an array, its rows of one length"),
        ({"probs_unlabelled": np.ma.masked_greater(LABELLED, 0.8)}, "probs_unlabelled: 1 values are masked"),
    ],
)
def test_mistakes_are_sentences(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        instance_thresholds(**(GOOD | wrong))


def test_a_class_may_be_wanted_by_nobody() -> None:
    """P_0 * 1 / m_0 beside P_1 * 0 / m_1: all are called 0, however unsure the classifier was."""
    probs = np.array([[0.2, 0.8], [0.6, 0.4]])
    assert instance_thresholds(probs, [0, 1], probs, align=[1.0, 0.0]).label.tolist() == [0, 0]


# --- reasons --------------------------------------------------------------------------------------------------


def test_every_sample_says_why() -> None:
    probs = np.array([[0.86, 0.1, 0.04], [0.42, 0.1, 0.48]])
    found = instance_thresholds(LABELLED, Y, probs, transition=T, beta=0.5)
    names = ("cat", "dog", "fox")
    assert found.reason(0, names) == (
        "accepted: 0.86 > 0.49; everyone is asked 0.40, the runner-up 'dog' asks 0.08 more, and samples like this are "
        "called 'cat' 9 % of the time when they are not, which asks 0.01 more"
    )
    assert found.reason(1, names).startswith("refused: 0.48 < 0.74; everyone is asked 0.40, the runner-up 'cat' asks")
    assert "called 'fox' 9 % of the time" in found.reason(1, names)
    assert "the runner-up '1'" in found.reason(0)  # class numbers where there are no names
    cut = instance_thresholds(LABELLED, Y, probs, transition=T, beta=1.0)
    assert cut.reason(1).startswith("refused: 0.48 < 1.00, cut from 1.14; everyone is asked 0.80")


@pytest.mark.parametrize(
    ("confidence", "tau", "accepted", "said"),
    [
        (0.97, 0.95, True, "accepted: 0.97 > 0.95"),
        (0.95, 0.95, True, "accepted: 0.95 >= 0.95"),
        (0.95, 0.95, False, "refused: 0.95 is not above 0.95"),
        (0.9499, 0.95, False, "refused: 0.9499 < 0.9500"),
        (0.95, 0.94996, True, "accepted: 0.95000 > 0.94996"),
        (0.97, 0.95, False, "refused: confidence 0.97, threshold 0.95; this rule does not go by the confidence alone"),
        (0.9, 0.95, True, "accepted: confidence 0.90, threshold 0.95; this rule does not go by the confidence alone"),
    ],
)
def test_digits_tell_confidence_and_threshold_apart(confidence: float, tau: float, accepted: bool, said: str) -> None:
    assert reason(Parts("a", "b", confidence, tau, tau, 0.0, 0.0, 0.0, accepted)) == said


def test_parts_that_are_too_small_to_matter_are_left_out() -> None:
    def said(stay: float, inflow: float) -> str:
        return reason(Parts("a", "b", 0.99, 0.9 + stay + inflow, 0.9, stay, inflow, 0.004, True))

    runner_up = "everyone is asked 0.90, and the runner-up 'b' asks 0.003 more"
    assert said(0.003, 0.0004) == f"accepted: 0.99 > 0.90; {runner_up}"
    called = "samples like this are called 'a' less than 1 % of the time when they are not, which asks 0.001 more"
    assert said(0.0004, 0.0011) == f"accepted: 0.99 > 0.90; everyone is asked 0.90, and {called}"
    assert said(0.0004, 0.0004) == "accepted: 0.99 > 0.90"
