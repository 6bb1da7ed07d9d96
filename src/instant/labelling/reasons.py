"""Why a sample was accepted or refused, in one sentence, from the additive parts of its threshold."""

from __future__ import annotations

from typing import NamedTuple


class Parts(NamedTuple):
    """One sample's decision: tau = kappa + stay + inflow, cut at the rule's upper end."""

    label: str  # k, the class it was called
    runner_up: str  # s
    confidence: float  # P_k
    tau: float
    kappa: float  # asked of everyone, or of everyone called k
    stay: float  # T_kk P_s, asked on account of the runner-up
    inflow: float  # sum_{i != k} T_ik P_i, asked because other classes are called k
    mistaken: float  # the same over 1 - P_k: how often a sample like this is called k when it is not
    accepted: bool
    by_class: bool = False  # kappa differs between classes


WORTH_SAYING = 0.001  # of a threshold; smaller parts are in the table of labels


def reason(parts: Parts) -> str:
    """The sentence; parts of the threshold that are too small to matter are left out.

    >>> reason(Parts("cat", "dog", 0.93, 0.97, 0.916, 0.05, 0.004, 0.06, False))  # doctest: +NORMALIZE_WHITESPACE
    "refused: 0.93 < 0.97; everyone is asked 0.92, the runner-up 'dog' asks 0.05 more, and samples like this are
    called 'cat' 6 % of the time when they are not, which asks 0.004 more"
    >>> reason(Parts("cat", "dog", 0.96, 0.95, 0.95, 0.0, 0.0, 0.0, True))
    'accepted: 0.96 > 0.95'
    """
    verdict = f"{'accepted' if parts.accepted else 'refused'}: {_comparison(parts)}"
    more = []
    if parts.stay >= WORTH_SAYING:
        more.append(f"the runner-up {parts.runner_up!r} asks {_amount(parts.stay)} more")
    if parts.inflow >= WORTH_SAYING:
        share = f"{100 * parts.mistaken:.0f} %" if parts.mistaken >= 0.01 else "less than 1 %"
        more.append(
            f"samples like this are called {parts.label!r} {share} of the time when they are not, which asks "
            f"{_amount(parts.inflow)} more"
        )
    if not more:
        return verdict
    asked = parts.kappa + parts.stay + parts.inflow
    cut = f", cut from {asked:.2f}" if asked > parts.tau + 1e-6 else ""
    everyone = f"everyone called {parts.label!r}" if parts.by_class else "everyone"
    *first, last = f"{everyone} is asked {parts.kappa:.2f}", *more
    return f"{verdict}{cut}; {', '.join(first)}, and {last}"


def _comparison(parts: Parts) -> str:
    """Confidence against threshold with as many digits as it takes to tell them apart."""
    confidence, tau = parts.confidence, parts.tau
    if confidence == tau:
        return f"{confidence:.2f} {'>=' if parts.accepted else 'is not above'} {tau:.2f}"
    if parts.accepted != (confidence > tau):
        return f"confidence {confidence:.2f}, threshold {tau:.2f}; this rule does not go by the confidence alone"
    digits = next(d for d in range(2, 18) if f"{confidence:.{d}f}" != f"{tau:.{d}f}" or d == 17)
    return f"{confidence:.{digits}f} {'>' if parts.accepted else '<'} {tau:.{digits}f}"


def _amount(value: float) -> str:
    """Two decimals, or three of what is smaller."""
    return f"{value:.2f}" if value >= 0.01 else f"{value:.3f}"
