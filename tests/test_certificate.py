"""The certificate: exact binomial facts, coverage by enumeration and by simulation, and refusals with numbers."""

from __future__ import annotations

import json
from math import comb
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import hypergeom

from instant import certify
from instant.errors import InputError
from instant.labelling.certificate import Certificate, checks_needed, lower_bound


def audit(checked: int, errors: int, **options: Any) -> Certificate:
    """Of 10,000 accepted labels, all alike, so many were checked."""
    said = np.full(10_000, -1)
    said[:checked] = 7
    said[:errors] = 3
    return certify(np.full(10_000, 7), said, **options)


def test_no_errors_have_a_closed_form() -> None:
    """0 errors in n: p^n = 0.05."""
    for checks, wanted in ((10, 0.741), (38, 0.924), (40, 0.928), (100, 0.970)):
        assert audit(checks, 0).lower == pytest.approx(0.05 ** (1 / checks))
        assert audit(checks, 0).lower == pytest.approx(wanted, abs=6e-4)


@pytest.mark.parametrize(("checks", "errors"), [(93, 1), (236, 1), (60, 5), (12, 11)])
def test_the_bound_solves_its_equation(checks: int, errors: int) -> None:
    """Under the bound itself, at most so many errors have probability 5 %."""
    p = audit(checks, errors).lower
    tail = sum(comb(checks, e) * (1 - p) ** e * p ** (checks - e) for e in range(errors + 1))
    assert tail == pytest.approx(0.05)


def test_all_wrong_certifies_nothing() -> None:
    assert audit(5, 5).lower == 0


def test_a_target_that_is_just_reached_is_certified() -> None:
    """All twenty are known and one is wrong: the precision is 19 / 20, neither more nor less."""
    known = certify([0] * 20, [1] + [0] * 19, target=0.95, complete=True)
    assert (known.lower, known.certified, known.refusal) == (0.95, True, None)
    assert known.budget == {"training": 0, "checks": 20, "total": 20}
    # were two wrong, nineteen checks would miss one of them in 1 of 10 cases: all twenty are needed
    early = certify([0] * 20, [1] + [0] * 9 + [-1] * 10, target=0.95, complete=True)
    assert early.refusal is not None
    assert early.refusal.endswith("95 % needs 20 with 1 error")


def test_the_ends_of_what_may_be_asked() -> None:
    assert lower_bound(1, confidence=0.5) == pytest.approx(0.5)  # p^1 = 1 - .5
    assert lower_bound(5, 5) == 0
    assert lower_bound(20, 1, population=20) == 0.95
    with pytest.raises(InputError, match="checked=21 cannot be more than population=20"):
        lower_bound(21, population=20)
    with pytest.raises(InputError, match="precision=0 must be above 0"):
        checks_needed(0)


def test_checks_needed() -> None:
    precisions = (0.90, 0.95, 0.98, 0.99)
    assert [checks_needed(p) for p in precisions] == [29, 59, 149, 299]
    assert [checks_needed(p, 1) for p in precisions] == [46, 93, 236, 473]
    assert checks_needed(0.95, confidence=0.99) == 90  # 0.95^90 = 0.0099, 0.95^89 = 0.0104
    assert checks_needed(0.95, candidates=10) == 104  # 0.95^104 = 0.0048, 0.95^103 = 0.0051
    for errors in (0, 1, 7):
        n = checks_needed(0.9, errors)
        assert audit(n, errors).lower >= 0.9 > audit(n - 1, errors).lower


@pytest.mark.parametrize("population", [20, 60])
def test_without_replacement_the_bound_errs_on_the_safe_side(population: int) -> None:
    """Every true number of right labels and every sample size: P(bound > precision) is at most 5 %, exactly."""
    worst = 0.0
    for checks in range(1, population + 1, 3):
        bounds = np.array([certify([0] * checks, [1] * e + [0] * (checks - e)).lower for e in range(checks + 1)])
        for right in range(population + 1):
            chance = hypergeom.pmf(checks - np.arange(checks + 1), population, right, checks)
            worst = max(worst, chance[bounds > right / population + 1e-12].sum())
    assert 0.01 < worst <= 0.05


@pytest.mark.parametrize("population", [20, 60])
def test_of_a_known_number_the_bound_is_as_safe_and_never_lower(population: int) -> None:
    worst = 0.0
    for checks in range(1, population + 1, 3):
        given = [0] * population
        said = [[1] * e + [0] * (checks - e) + [-1] * (population - checks) for e in range(checks + 1)]
        bounds = np.array([certify(given, each, complete=True).lower for each in said])
        usual = np.array([certify(given, each).lower for each in said])
        assert (bounds >= usual - 1 / population).all()  # it is a number of labels, out of so many
        for right in range(population + 1):
            chance = hypergeom.pmf(checks - np.arange(checks + 1), population, right, checks)
            worst = max(worst, chance[bounds > right / population + 1e-12].sum())
    assert 0.01 < worst <= 0.05


def test_who_has_checked_them_all_knows() -> None:
    certificate = certify(["a"] * 30 + ["b"] * 18, ["a"] * 30 + ["b"] * 17 + ["a"], target=0.95, complete=True)
    assert certificate.lower == 47 / 48
    assert [bound.lower for bound in certificate.classes] == [1.0, 17 / 18]
    assert certificate.certified
    assert not certify(["a"] * 48, ["a"] * 48, target=0.95).certified  # there may be more of them


def test_checks_needed_of_a_known_number() -> None:
    assert checks_needed(0.95, population=10**7) == checks_needed(0.95) == 59
    for errors in (0, 1, 2):
        n = checks_needed(0.95, errors, population=100)
        found = [
            certify([0] * 100, [1] * errors + [0] * (k - errors) + [-1] * (100 - k), complete=True) for k in (n - 1, n)
        ]
        assert found[0].lower < 0.95 <= found[1].lower
    assert checks_needed(0.95, 5, population=100) == 100  # 5 of 100: only all of them tell
    assert checks_needed(0.95, 6, population=100) == 101
    refused = certify([0] * 100, [1] * 6 + [0] * 50 + [-1] * 44, target=0.95, complete=True)
    assert "needs 101 with 6 errors, more than the 100 there are" in str(refused.refusal)


# --- simulated audits -----------------------------------------------------------------------------------------

AUDITS = 5000


def sampled(truth: np.ndarray, checks: int, rng: np.random.Generator) -> np.ndarray:
    said = np.full(len(truth), -1)
    drawn = rng.choice(len(truth), checks, replace=False)
    said[drawn] = truth[drawn]
    return said


@pytest.mark.parametrize("precision", [0.80, 0.96])
def test_five_thousand_audits_fail_no_more_often_than_they_say(precision: float) -> None:
    """400 accepted labels of four classes; overall, and by label all together, at most 5 % of bounds are too high."""
    rng = np.random.default_rng(round(100 * precision))
    given = np.arange(400) % 4
    truth = np.where(rng.permutation(400) < 400 * precision, given, (given + 1) % 4)
    actual = [(truth == given)[given == k].mean() for k in range(4)]
    overall = together = 0
    for _ in range(AUDITS):
        found = certify(given, sampled(truth, 80, rng))
        overall += found.lower > precision
        together += any(bound.lower > actual[int(bound.name)] for bound in found.classes)
    assert 0.01 * AUDITS < overall <= 0.05 * AUDITS
    assert together <= 0.05 * AUDITS
    assert together > 0 or precision > 0.9  # twenty checks a class cannot claim as much as that


def test_choosing_the_best_of_ten_thresholds_needs_the_correction() -> None:
    """Ten thresholds of equal precision are audited, the best bound is kept: 5 % becomes over 20 %, or is corrected."""
    rng = np.random.default_rng(0)
    errors = rng.binomial(100, 0.1, size=(AUDITS, 10)).min(1)  # the luckiest
    plain = {e: audit(100, e).lower for e in np.unique(errors)}
    corrected = {e: audit(100, e, candidates=10).lower for e in np.unique(errors)}
    assert np.mean([plain[e] > 0.9 for e in errors]) > 0.2
    assert np.mean([corrected[e] > 0.9 for e in errors]) <= 0.05


# --- what it says ---------------------------------------------------------------------------------------------


def test_the_correction_is_a_share_of_the_error() -> None:
    assert audit(100, 2, candidates=5).lower == audit(100, 2, confidence=0.99).lower
    two = certify(["a"] * 60 + ["b"] * 40, ["a"] * 60 + ["b"] * 39 + ["a"])
    assert [(b.name, b.accepted, b.checked, b.errors) for b in two.classes] == [("a", 60, 60, 0), ("b", 40, 40, 1)]
    assert two.classes[0].lower == pytest.approx(0.025 ** (1 / 60))
    assert two.classes[1].lower == pytest.approx(certify([0] * 40, [1] + [0] * 39, 0.975).lower)


def test_tensors_do_too() -> None:
    assert certify(torch.tensor([0, 0, 1]), torch.tensor([0, -1, 1])) == certify([0, 0, 1], [0, -1, 1])
    options = {"confidence": np.float32(0.75), "candidates": np.int64(2), "target": np.float32(0.5)}
    found = certify([0, 0, 1], [0, -1, 1], **options)  # type: ignore[arg-type]
    assert found == certify([0, 0, 1], [0, -1, 1], 0.75, candidates=2, target=0.5)
    json.dumps(found.to_json())


def test_a_class_nobody_checked_has_no_bound() -> None:
    found = certify([0, 0, 1, 1], [0, 0, -1, -1])
    assert [bound.lower for bound in found.classes] == [pytest.approx(0.025**0.5), 0.0]


def test_it_refuses_with_numbers() -> None:
    refused = audit(38, 0, target=0.95)
    assert not refused.certified
    assert refused.refusal == "38 checks with 0 errors support at most 92.4 %; 95 % needs 59 with 0 errors"
    assert f"95 % precision: NOT certified: {refused.refusal}." in str(refused)
    assert audit(59, 1, target=0.95).refusal == (
        "59 checks with 1 error support at most 92.2 %; 95 % needs 93 with 1 error"
    )
    assert audit(59, 0, target=0.95, candidates=2).refusal == (
        "59 checks with 0 errors support at most 93.9 %; 95 % needs 72 with 0 errors"
    )
    few = certify([0] * 40, [0] * 40, target=0.95)
    assert few.refusal is not None
    assert few.refusal.endswith("95 % needs 59 with 0 errors, more than the 40 there are")


def test_it_certifies_in_words() -> None:
    found = audit(59, 0, target=0.95, labels_spent=10, candidates=1)
    assert (found.certified, found.refusal) == (True, None)
    assert str(found).splitlines() == [
        "Of 10,000 accepted labels at least 95.0 % are right, with 95 % confidence: 59 checked, 0 wrong.",
        "95 % precision: certified.",
        "Labels spent: 10 to train + 59 to check = 69.",
        "This holds if the checked samples were drawn at random from the accepted ones, all that were drawn were "
        "checked, their number was settled before anybody looked, and the person who checked is right.",
    ]
    assert "95 % confidence, corrected for a choice among 3:" in str(audit(80, 0, candidates=3))
    assert audit(59, 0).certified  # no target, nothing to refuse
    kept = json.loads(json.dumps(audit(38, 0, target=0.95, labels_spent=40).to_json()))
    assert kept["budget"] == {"training": 40, "checks": 38, "total": 78}
    assert (kept["certified"], kept["classes"][0]["name"]) == (False, "7")
    assert kept["assumption"].startswith("the checked samples were drawn at random")


def test_a_bound_is_rounded_down() -> None:
    """0.05^(1/40) = 0.92784, 0.05^(1/59) = 0.95049."""
    assert "at least 92.7 %" in str(audit(40, 0))
    assert "at least 95.0 %" in str(audit(59, 0))


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        (([True, False], [0, -1]), {}, r"got true and false. Pass label\[accepted\]"),
        (([0, 1], [0]), {}, "expected 2 entries, one for each of accepted, got 1"),
        (([0, -1], [0, -1]), {}, "accepted: row 1 has no label"),
        (([0, 1], [-1, -1]), {}, "nobody has looked at a sample yet"),
        ((["a", "b"], [0, 1]), {}, "expected class names as in accepted, got class numbers"),
        (([0, 1], [0, 1]), {"confidence": 95}, "confidence=95 must be from 0.5 to below 1"),
        (([0, 1], [0, 1]), {"confidence": 1.0}, "confidence=1.0 must be"),
        (([0, 1], [0, 1]), {"candidates": 0}, "candidates=0 must be a whole number from 1"),
        (([0, 1], [0, 1]), {"target": 1.0}, "target=1.0 must be above 0 and below 1"),
        (([0, 1], [0, 1]), {"labels_spent": -1}, "labels_spent=-1 must be"),
        (([[0], [0, 1]], [0, 1]), {}, "accepted: expected an array, its rows of one length"),
    ],
)
def test_mistakes_are_sentences(arguments: tuple[Any, Any], options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        certify(*arguments, **options)


def test_gaps_that_became_text_are_refused() -> None:
    with pytest.raises(InputError, match="'-1' stands among names as text; put '' or None where nobody looked"):
        certify(np.array(["a"] * 100), np.array(["a"] * 60 + [-1] * 40))
    assert certify(["nan"] * 60, ["nan"] * 60).checked == 60  # a class may be called so


@pytest.mark.parametrize("gap", ["-1.0", "NaN", "NaT"])
def test_gaps_of_any_spelling_are_refused(gap: str) -> None:
    with pytest.raises(InputError, match=f"'{gap}' stands among names as text"):
        certify(["a"] * 100, ["a"] * 60 + [gap] * 40)


def test_a_name_in_another_spelling_is_no_error_of_the_classifier() -> None:
    for other in ("cat", "Cat "):
        with pytest.raises(
            InputError, match=f"'{other}' would count as another class than 'Cat' in accepted; spell it"
        ):
            certify(["Cat"] * 60, ["Cat"] * 50 + [other] * 10)


def test_what_is_masked_was_not_checked() -> None:
    masked = np.ma.masked_array(np.zeros(100, int), mask=np.arange(100) >= 60)
    assert certify(np.zeros(100, int), masked).checked == 60


def test_mistakes_in_asking_how_many() -> None:
    with pytest.raises(InputError, match="errors=10 cannot be more than checked=5"):
        lower_bound(5, 10)
    with pytest.raises(InputError, match="no sample certifies that all are right"):
        checks_needed(1.0)
    for population in (0, -3, 5.5, "x", True):
        with pytest.raises(InputError, match=rf"population={population!r} must be a whole number from 1"):
            checks_needed(0.9, population=population)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=rf"population={population!r} must be a whole number from 1"):
            lower_bound(0, population=population)  # type: ignore[arg-type]
    for errors in (-1, 1.5, "1"):
        with pytest.raises(InputError, match=rf"errors={errors!r} must be a whole number from 0"):
            checks_needed(0.9, errors)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=rf"checked={errors!r} must be a whole number from 0"):
            lower_bound(errors)  # type: ignore[arg-type]
