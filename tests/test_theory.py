"""The theorems: the printed one fails on its counter-example, the corrected one on no random draw."""

from __future__ import annotations

import numpy as np
import pytest

from instant.errors import InputError
from instant.theory import Binary, accept, identifiability, kruskal, kruskal_rank


def draws(classes: int, samples: int = 10_000) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Random T, from the identity to pure noise, clean posterior, error bound, and a posterior off by up to it."""
    rng = np.random.default_rng(classes)
    share = rng.uniform(size=(samples, 1, 1))
    T = share * np.eye(classes) + (1 - share) * rng.dirichlet(np.full(classes, 0.5), size=(samples, classes))
    clean = rng.dirichlet(np.ones(classes), size=samples)
    bound = rng.uniform(0, 0.3, size=samples)
    error = bound[:, None] * rng.uniform(-1, 1, size=(samples, classes))
    return T, clean, bound, np.einsum("nij,ni->nj", T, clean) + error


def test_the_counter_example_to_the_theorem_as_printed() -> None:
    """One kind of sample, no estimation error, a clean margin of 0.8: the printed bound would be 1, the truth is 0.

    Noisy posterior (.4 * .9 + 0 * .1, .6 * .9 + 1 * .1) = (.36, .64), so k = 1 while the Bayes label is 0.
    """
    done = accept(np.array([[[0.4, 0.6], [0.0, 1.0]]]), np.array([[0.9, 0.1]]))
    assert (done.label.item(), done.bayes.item()) == (1, 0)
    assert done.margin.item() == pytest.approx(0.8)
    assert done.tau.item() == pytest.approx(1.0 * 0.9 + 0.6 * 0.9)
    right_and_accepted = done.accepted & (done.label == done.bayes)
    right_and_refused = ~done.accepted & (done.label == done.bayes)
    assert right_and_accepted.mean() == 0
    assert 1 - right_and_refused.mean() == 1  # the step P[A, B] = 1 - P[A, not B] of the printed proof: 0 = 1
    assert not done.wrong.any()  # what the corrected statement bounds by 0


@pytest.mark.parametrize("classes", [2, 3, 5, 10])
def test_the_corrected_theorem_on_random_draws(classes: int) -> None:
    T, clean, bound, estimated = draws(classes)
    done = accept(T, clean, estimated)
    assert done.wrong.sum() > 300  # the event happens
    assert (done.accepted & ~done.wrong).sum() > 3000
    assert (done.margin <= bound / done.stay + 1e-12)[done.wrong].all()
    reached = done.margin * done.stay / bound
    assert reached[done.wrong].max() > 0.9  # the bound is nearly met, a smaller one would not hold


@pytest.mark.parametrize("kappa", [0.05, 0.15])
def test_kappa_shrinks_the_accepted_set_and_shields_from_smaller_errors(kappa: float) -> None:
    """Accepted with kappa means T_kk (P_s - P_k) <= eps - kappa: below eps = kappa nothing accepted is wrong."""
    T, clean, bound, estimated = draws(4)
    plain, raised = accept(T, clean, estimated), accept(T, clean, estimated, kappa=kappa)
    assert not (raised.accepted & ~plain.accepted).any()
    assert raised.wrong.sum() > 20
    assert (plain.wrong & (bound < kappa)).sum() > 10
    assert not (raised.wrong & (bound < kappa)).any()
    assert (raised.margin <= (bound - kappa) / raised.stay + 1e-12)[raised.wrong].all()


def test_two_classes_need_half_as_much() -> None:
    """|P - 1/2| is half the margin: accepted and wrong implies |P - 1/2| <= eps / (2 T_kk)."""
    T, clean, bound, estimated = draws(2)
    done = accept(T, clean, estimated)
    off = np.abs(clean[:, 0] - 0.5)
    assert done.margin == pytest.approx(2 * off)
    assert (off <= bound / (2 * done.stay) + 1e-12)[done.wrong].all()


def test_the_bound_where_c_and_alpha_are_known() -> None:
    """P uniform on (0, 1): the margin |2 P - 1| is uniform, so C = alpha = 1, and P[accepted and wrong] <= eps / t.

    The error is the worst there is, eps against the Bayes label; with T = I it attains the bound.
    """
    clean = (np.arange(20_000) + 0.5) / 20_000  # a grid: shares are exact
    clean = np.stack([clean, 1 - clean], axis=1)
    worst = np.where(clean > 0.5, -0.1, 0.1)
    for matrix, attained in ((np.eye(2), 1.0), (np.array([[0.8, 0.2], [0.3, 0.7]]), 0.3)):
        done = accept(np.broadcast_to(matrix, (20_000, 2, 2)), clean, clean @ matrix + worst)
        bound = 0.1 / matrix.diagonal().min()
        assert attained * bound - 1e-4 <= done.wrong.mean() <= bound


def test_without_error_nothing_accepted_is_wrong() -> None:
    T, clean, _, _ = draws(5)
    done = accept(T, clean)
    assert 0.2 < done.accepted.mean() < 1
    assert (done.label != done.bayes).sum() > 1000
    assert not done.wrong.any()


def test_lists_do_too_and_other_shapes_do_not() -> None:
    assert accept([[[1, 0], [0, 1]]], [[1, 0]]).tau.tolist() == [0.0]  # type: ignore[arg-type]
    for T, clean, estimated, sentence in (
        (np.eye(2), [[0.9, 0.1]], None, r"got \(2, 2\) beside \(1, 2\)"),
        (np.eye(2)[None], [0.9, 0.1], None, r"got \(1, 2, 2\) beside \(2,\)"),
        (np.eye(2)[None], [[0.9, 0.1]], [[1.0]], r"estimated: expected shape \(1, 2\)"),
        (np.full((1, 2, 2), 3), [[0.9, 0.1]], None, "T: expected probabilities"),
        (np.eye(2)[None], [[1.9, -0.9]], None, "clean: expected probabilities"),
    ):
        with pytest.raises(InputError, match=sentence):
            accept(T, clean, estimated)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="kappa='x' must be a number"):
        accept(np.eye(2)[None], np.array([[0.9, 0.1]]), kappa="x")  # type: ignore[arg-type]


def test_who_reaches_the_threshold_is_accepted() -> None:
    """Of a T that is the identity tau is the second probability: half and half is just reached."""
    assert accept(np.eye(2)[None], np.array([[0.5, 0.5]])).accepted.tolist() == [True]
    assert accept(np.eye(2)[None], np.array([[0.5, 0.5]]), kappa=1e-9).accepted.tolist() == [False]


# --- Theorem 2 ------------------------------------------------------------------------------------------------


def test_two_labels_cannot_tell_the_two_sets_apart_and_three_can() -> None:
    """P(+) = .7 * .8 + .3 * .2, P(++) = .7 * .64 + .3 * .04, P(--) = .7 * .04 + .3 * .64; the other set agrees."""
    first, printed = Binary(0.7, 0.2, 0.2), Binary(0.8, 0.242, 0.07)
    assert first.law(1)[1] == pytest.approx(0.62)
    assert first.law(2)[[2, 0]].tolist() == pytest.approx([0.46, 0.22])
    assert printed.law(2) == pytest.approx(first.law(2), abs=1e-3)  # printed with three digits
    exact = first.twin(0.8)
    assert exact == pytest.approx(printed, abs=1e-3)
    assert exact.law(2) == pytest.approx(first.law(2), abs=1e-12)
    assert first.law(3)[3] == pytest.approx(0.7 * 0.8**3 + 0.3 * 0.2**3)
    assert exact.law(3)[3] == pytest.approx(0.347764, abs=1e-6)  # against 0.3608
    turned = Binary(0.7, 0.9, 0.9)  # its twin is turned too: the other signs lead out of [0, 1]
    assert turned.twin(0.65) == pytest.approx(Binary(0.65, 0.929015, 0.8396), abs=1e-5)
    assert turned.twin(0.65).law(2) == pytest.approx(turned.law(2), abs=1e-12)
    for prior in (0.05, 0.95):  # .62 + sqrt(.0756 * 19) and .62 - sqrt(.0756 * 19) are no probabilities, nor turned
        with pytest.raises(InputError, match="no twin"):
            first.twin(prior)
    for prior in (0, 1, 2):
        with pytest.raises(InputError, match=f"prior={prior} must be above 0 and below 1"):
            first.twin(prior)


def test_the_law_of_some_labels_has_an_entry_for_each_count_and_sums_to_one() -> None:
    """Two labels: both, one in either of two orders, none."""
    law = Binary(0.7, 0.1, 0.2).law(2)
    assert law == pytest.approx([0.7 * 0.01 + 0.3 * 0.64, 2 * (0.7 * 0.09 + 0.3 * 0.16), 0.7 * 0.81 + 0.3 * 0.04])
    assert Binary(0.7, 0.1, 0.2).law(5).sum() == pytest.approx(1)


def test_kruskal_ranks_by_hand() -> None:
    with pytest.raises(InputError, match="views=0 must be a whole number from 1"):
        kruskal(np.eye(2), 0)
    with pytest.raises(InputError, match="views='x' must be a whole number from 1"):
        kruskal(np.eye(2), "x")  # type: ignore[arg-type]
    assert kruskal_rank(np.eye(5)) == (5, True)
    assert kruskal_rank(np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])) == (1, True)  # two rows alike
    assert kruskal_rank(np.array([[0.0, 0.0], [1.0, 0.0]])) == (0, True)  # a row of zeros is dependent by itself
    middle = np.vstack([np.eye(5)[:4], np.full(5, 0.25)])
    middle[4, 4] = 0  # the mean of the other four: any four rows are independent, the five are not
    assert kruskal_rank(middle) == (4, True)


def test_kruskal_rank_of_many_classes_is_a_lower_bound() -> None:
    matrix = np.vstack([np.eye(40)[:39], np.full(40, 1 / 39)])
    matrix[39, 39] = 0
    assert kruskal_rank(matrix) == (4, False)  # 102,090 sets of up to four rows, with five over 200,000
    assert kruskal_rank(np.vstack([np.eye(40)[:39], np.eye(40)[:1]])) == (1, True)


def test_kruskal_holds_from_three_views_on() -> None:
    """3 K >= 2 K + 2, never 2 K >= 2 K + 1; five classes may even do with rank 4: 12 >= 12."""
    for classes in (2, 3, 10):
        assert [kruskal(np.eye(classes), views).holds for views in (1, 2, 3, 4)] == [False, False, True, True]
    T = np.vstack([np.eye(5)[:4], np.full(5, 0.25)])
    T[4, 4] = 0
    assert (kruskal(T).total, kruskal(T).needed, kruskal(T).holds) == (12, 12, True)


def test_identifiability_says_what_holds(recwarn: pytest.WarningsRecorder) -> None:
    good = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.0, 0.3, 0.7]])
    found = identifiability([3, 5, 40], good)
    assert found.identifiable
    assert (found.labels, found.rank, found.problems) == (3, 3, ())
    assert found.condition == pytest.approx(np.linalg.cond(good))
    assert not recwarn.list


def test_identifiability_warns() -> None:
    alike = np.array([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.0, 0.3, 0.7]])
    with pytest.warns(UserWarning, match="Theorem 2") as seen:
        found = identifiability([4, 1, 2], alike)
    assert [str(warning.message) for warning in seen] == [
        "Theorem 2 does not apply: class 1 has 1 label, three are needed.",
        "Theorem 2 does not apply: T has rank 2 with 3 classes: some classes are called alike.",
    ]
    assert not found.identifiable
    assert str(found) == (
        "T is not known to be identifiable (Kruskal: 1 x 1 = 1 < 6): class 1 has 1 label, three are needed; "
        "T has rank 2 with 3 classes: some classes are called alike."
    )
    with pytest.warns(UserWarning, match="a class has 2 labels, three are needed"):
        assert not identifiability(2, np.eye(3)).identifiable
    with pytest.warns(UserWarning, match="class 0 has 0 labels, three are needed"):
        assert not identifiability([0, 3, 3], np.eye(3)).identifiable


@pytest.mark.parametrize(
    ("labels", "matrix", "sentence"),
    [
        (3, np.ones((2, 3)) / 3, r"T: expected a \(K, K\) matrix .* got shape \(2, 3\)"),
        (3, np.array([[0.9, 0.2], [0.2, 0.8]]), r"rows summing to \[1.1, 1.0\]"),
        (3, np.array([[np.nan, 1], [0, 1]]), "rows summing to"),
        (3, np.array([[1.5, -0.5], [0, 1]]), "T: expected"),
        ([3, 3, 3], np.eye(2), "or 2 of them, one a class of T, got \\[3, 3, 3\\]"),
        (2.5, np.eye(2), "labels_per_class: expected a whole number"),
        (-1, np.eye(2), "labels_per_class: expected a whole number"),
        ([3, -1], np.eye(2), "labels_per_class: expected a whole number"),
        ([[1], [1, 2]], np.eye(2), "labels_per_class: expected an array, its rows of one length"),
        (3, [["a", "b"], ["c", "d"]], "T: expected numbers, got <U1"),
    ],
)
def test_identifiability_of_what_is_no_matrix(labels: object, matrix: np.ndarray, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        identifiability(labels, matrix)  # type: ignore[arg-type]
