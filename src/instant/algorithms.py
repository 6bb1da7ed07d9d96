"""The family on one screen: each method is a short function that names its parts.

A method is a function of a `Problem` (its sizes) and keyword options, which the command line sets as
`method.threshold=0.9`. The table row named in each docstring is the published accuracy it must reproduce
(top-1 %, three seeds); "C10-40" is CIFAR-10 with 40 labels, "WRN" Table 2 of the InstanT paper (WRN-28-2, 2^20
steps), "ViT" its Table 1 (pretrained ViT, 204,800 steps).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from instant.alignment import Alignment
from instant.errors import InputError, nearest
from instant.fairness import Fairness
from instant.kinds import fits
from instant.losses import sharpen, squared_error
from instant.match import Match, Supervised
from instant.mixmatch import MixMatch
from instant.rules import (
    Curriculum,
    Decaying,
    Fixed,
    InstanceDependent,
    Relative,
    Rule,
    SelfAdaptive,
    TruncatedGaussian,
)
from instant.transition import Transition, Transitions
from instant.transition.registry import build_transition
from instant.types import Evidence, MethodFunction, Problem, Wants
from instant.vat import VAT


def supervised(p: Problem) -> Supervised:
    """Cross-entropy on the labelled samples alone: the reference every method must beat."""
    return Supervised()


def fully_supervised(p: Problem) -> Supervised:
    """Cross-entropy on all training labels: the upper reference, not a semi-supervised method."""
    return Supervised(all_labels=True)


def pseudo_label(p: Problem, *, threshold: float = 0.95, ramp: float = 0.4) -> Match:
    """Pseudo-Label (Lee 2013): hard target through the same weak logits, weight ramped over 0.4 of the run.

    ViT: C10-40 88.21, C100-400 73.13, STL-40 57.16.
    """
    return Match(Fixed(threshold), ramp=round(ramp * p.steps), wants=Wants(second="none"))


def pi_model(p: Problem, *, weight: float = 10.0, ramp: float = 0.4) -> Match:
    """Pi-model (Laine 2017): squared error between the softmaxes of two weak views, one of them detached.

    Not in the paper's tables.
    """
    return _two_weak_views(p, weight, ramp)


def mean_teacher(p: Problem, *, weight: float = 50.0, ramp: float = 0.4) -> Match:
    """MeanTeacher (Tarvainen 2017): as the Pi-model, the target being the averaged teacher's (decay: `ema`).

    ViT: C10-40 87.15, C100-400 69.42, STL-40 66.80.
    """
    return _two_weak_views(p, weight, ramp, from_teacher=True)


def vat(
    p: Problem,
    *,
    eps: float = 6.0,
    xi: float = 1e-2,
    entropy: float = 0.06,
    weight: float = 1.0,
    ramp: float = 0.4,
) -> VAT:
    """VAT (Miyato 2018): KL under an adversarial perturbation, one power iteration, plus entropy.

    The published xi is 1e-6, which float32 cannot resolve (see `instant.vat`).
    ViT: C10-40 93.33, C100-400 75.33, STL-40 65.18.
    """
    return VAT(eps=eps, xi=xi, entropy=entropy, weight=weight, ramp=round(ramp * p.steps))


def mixmatch(
    p: Problem,
    *,
    weight: float = 100.0,
    temperature: float = 0.5,
    alpha: float = 0.5,
    ramp: float = 0.4,
) -> MixMatch:
    """MixMatch (Berthelot 2019): weight 100 (150 on CIFAR-100, 10 with a pretrained net: the recipes set it).

    ViT: C10-40 97.16, C100-400 72.26, STL-40 27.58.
    """
    return MixMatch(temperature=temperature, alpha=alpha, weight=weight, ramp=round(ramp * p.steps))


def uda(p: Problem, *, threshold: float = 0.8, temperature: float = 0.4) -> Match:
    """UDA (Xie 2020): soft target softmax(z / 0.4) where p >= 0.8.

    WRN: C10-40 91.60, C10-250 94.44, C100-400 40.60. ViT: C10-40 97.92.
    """
    return Match(Fixed(threshold), target=_soft(temperature))


def fixmatch(p: Problem, *, threshold: float = 0.95) -> Match:
    """FixMatch (Sohn 2020): hard target where p >= 0.95.

    WRN: C10-40 91.45, C10-250 94.87, C100-400 45.08. ViT: C10-40 97.44.
    """
    return Match(Fixed(threshold))


def dash(
    p: Problem,
    *,
    gamma: float = 1.27,
    scale: float = 1.0001,
    floor: float = 0.05,
    temperature: float = 0.5,
    warmup: int = 5120,
    period: int = 10240,
) -> Match:
    """Dash (Xu 2021): keep rows whose loss is below a decaying bar; soft targets until its floor.

    `warmup` and `period` are shortened in proportion when the run is shorter than 204,800 steps.
    WRN: C10-40 84.67, C10-250 94.78, C100-400 45.26. ViT: C10-40 96.63.
    """
    if not warmup > 0:
        raise InputError(f"method.warmup={warmup} leaves no step to measure the labelled loss in; it must be above 0.")
    rule = Decaying(
        warmup=p.scaled(warmup),
        period=p.scaled(period),
        gamma=gamma,
        scale=scale,
        floor=floor,
        temperature=temperature,
    )
    return Match(rule, target=rule.target)


def flexmatch(p: Problem, *, threshold: float = 0.95) -> Match:
    """FlexMatch (Zhang 2021): a class's bar follows how much of the pool it has claimed.

    WRN: C10-40 94.53, C10-250 94.85, C100-400 47.81. ViT: C10-40 97.78.
    """
    return Match(Curriculum(p.classes, p.unlabelled, threshold))


def adamatch(p: Problem, *, threshold: float = 0.95, momentum: float = 0.999) -> Match:
    """AdaMatch (Berthelot 2022): relative threshold, alignment with the labelled predictions.

    WRN: C10-40 94.64, C10-250 94.76, C100-400 52.02. ViT: C10-40 97.94.
    """
    return Match(Relative(threshold), align=Alignment(p.classes, learn_target=True, momentum=momentum))


def freematch(p: Problem, *, momentum: float = 0.999, fairness: float = 0.001) -> Match:
    """FreeMatch (Wang 2023): self-adaptive global and class thresholds, class fairness.

    WRN (USB's own results): C10-40 95.03, C10-250 95.15, C100-400 50.76.
    """
    return Match(
        SelfAdaptive(p.classes, momentum=momentum),
        fairness=Fairness(p.classes, weight=fairness, momentum=momentum),
    )


def softmatch(p: Problem, *, momentum: float = 0.999, sigmas: float = 2.0) -> Match:
    """SoftMatch (Chen 2023): truncated Gaussian weights of uniformly aligned predictions. Not in the paper's tables."""
    return Match(
        TruncatedGaussian(p.classes, sigmas=sigmas, momentum=momentum),
        align=Alignment(p.classes, momentum=momentum),
        align_labels=False,
    )


def instant(
    p: Problem,
    *,
    base: float = 0.9,
    transition: str = "head",
    relative: bool = True,
    align: bool = True,
    align_target: str = "uniform",
    momentum: float = 0.999,
    kappa: str = "labelled",
    clip: float = 1.0,
    resoftmax: float | None = None,
    correct: bool = True,
    trained_on: str = "labelled",
    warmup: int = 0,
    weight: float = 1.0,
    transition_lr: float = 0.01,
    transition_decay: float | None = None,
    confident: float = 0.0,
    confident_from: float = 0.0,
) -> Match:
    """InstanT (Li 2023): the paper's method. Each sample's bar is min(1, m(x) + kappa_t).

    base           beta, the share of the mean confidence that makes kappa_t
    transition     estimator of T(x): "head" on the classifier's detached features, "network" of its own, "parts";
                   of one T for all samples: "matrix", "volmin", "dual_t", "anchor", "identity" (docs/transition.md)
    relative       False: a fixed base instead of kappa_t (ablations I and III)
    align          False: no distribution alignment (ablations I and II)
    align_target   "uniform", or "labelled": the running mean of labelled predictions (release)
    kappa          base times the mean confidence of the "labelled" batch, or of the "unlabelled" one (release), or
                   "self_adaptive": FreeMatch's running mean of the latter, by class
    clip           upper end of the threshold: 1, or 0.99 (release)
    resoftmax      None: plain probabilities in m(x); 0.5: softmax(probabilities / 0.5) (release)
    correct        forward correction of the unsupervised loss
    trained_on     what trains T: its own loss on "labelled" data, or the "unlabelled" loss (release)
    warmup         steps with threshold kappa_t and the plain loss: 0, or 10,240 (release)
    weight         lambda: 1, or 2 (what the release's second backward pass amounts to)
    transition_lr  learning rate of the estimator (SGD, momentum 0.9)
    transition_decay  its weight decay; none: what suits the estimator, 0.1 for "head" (at most 1 / K), 0 for the others
    confident      share of the unlabelled rows that T is fitted on too: those furthest above their threshold
    confident_from share of the run after which they are

    WRN: C10-40 94.83, C10-250 94.72, C10-4000 95.57, C100-400 53.94, C100-2500 67.09, C100-10000 72.30.
    ViT: C10-10 87.32, C10-40 97.93, C100-400 78.80, STL-40 85.09.
    """
    _choice("align_target", align_target, ("uniform", "labelled"))
    _choice("kappa", kappa, ("labelled", "unlabelled", "self_adaptive"))
    _choice("trained_on", trained_on, ("labelled", "unlabelled"))
    if not fits(resoftmax, float | None) or (resoftmax is not None and not resoftmax > 0):
        raise InputError(f"method.resoftmax={resoftmax!r} must be none or a positive number, for example 0.5")
    if not fits(transition_decay, float | None):
        raise InputError(f"method.transition_decay={transition_decay!r} must be none or a number, for example 0.1")
    estimator = build_transition(transition, p)
    if confident_from and not confident:
        raise InputError(f"method.confident_from={confident_from} says from when on, but of no samples; set confident.")
    if trained_on == "unlabelled" and not correct:
        raise InputError("method.correct=false takes T out of the unlabelled loss; set trained_on=labelled.")
    if kappa != "labelled" and not relative:
        raise InputError(f"method.kappa={kappa} says how kappa_t is made, and relative=false has none; leave one out.")
    if align_target != "uniform" and not align:
        raise InputError(f"method.align_target={align_target} needs alignment, and align=false is none; leave one out.")
    _check_trained(transition, estimator, trained_on, confident)
    steps = p.scaled(warmup) if warmup else 0
    threshold: Rule
    if not relative:
        threshold = Fixed(base)
    elif kappa == "self_adaptive":
        threshold = SelfAdaptive(p.classes, base=base, momentum=momentum)
    else:
        threshold = Relative(base, of_unlabelled=kappa == "unlabelled")
    return Match(
        InstanceDependent(threshold, clip=clip, resoftmax=resoftmax, warmup=steps),
        align=Alignment(p.classes, learn_target=align_target == "labelled", momentum=momentum) if align else None,
        transitions=Transitions(
            estimator,
            labelled=trained_on == "labelled",
            correct=correct,
            warmup=steps,
            confident=confident,
            from_step=round(confident_from * p.steps),
        ),
        weight=weight,
        own_lr=transition_lr,
        own_decay=estimator.decay if transition_decay is None else transition_decay,
    )


instant_1 = partial(instant, relative=False, align=False)
instant_1.__doc__ = """InstanT-I: no relative threshold, no alignment (fixed base + m). Ablation, STL-40: 79.92."""

instant_2 = partial(instant, align=False)
instant_2.__doc__ = """InstanT-II: relative threshold only. Ablation, STL-40: 81.49."""

instant_3 = partial(instant, relative=False)
instant_3.__doc__ = """InstanT-III: alignment only. Ablation, STL-40: 82.97."""

instant_class = partial(instant, transition="matrix")
instant_class.__doc__ = """InstanT with one K x K matrix for all samples (section 4.1). Not in the paper's tables."""

instant_released = partial(
    instant,
    transition="matrix",
    align_target="labelled",
    kappa="unlabelled",
    clip=0.99,
    resoftmax=0.5,
    trained_on="unlabelled",
    warmup=10_240,
    weight=2.0,
)
instant_released.__doc__ = """InstanT as the authors' code has it, not as the paper describes it; same table rows."""


METHODS: dict[str, MethodFunction] = {
    "supervised": supervised,
    "fully_supervised": fully_supervised,
    "pseudo_label": pseudo_label,
    "pi_model": pi_model,
    "mean_teacher": mean_teacher,
    "vat": vat,
    "mixmatch": mixmatch,
    "uda": uda,
    "fixmatch": fixmatch,
    "dash": dash,
    "flexmatch": flexmatch,
    "adamatch": adamatch,
    "freematch": freematch,
    "softmatch": softmatch,
    "instant": instant,
    "instant_1": instant_1,
    "instant_2": instant_2,
    "instant_3": instant_3,
    "instant_class": instant_class,
    "instant_released": instant_released,
}


REFERENCES = ("supervised", "fully_supervised")
"""They look at labelled samples alone."""


def _two_weak_views(p: Problem, weight: float, ramp: float, *, from_teacher: bool = False) -> Match:
    """Every row counts; the softmax of one weak view is the target of the other, in squared error."""
    return Match(
        Fixed(0.0),
        target=_soft(1.0),
        loss=squared_error,
        weight=weight,
        ramp=round(ramp * p.steps),
        wants=Wants(second="weak"),
        from_teacher=from_teacher,
    )


def _soft(temperature: float) -> Callable[[Tensor, Evidence], Tensor]:
    """A target: the weak prediction, sharpened."""

    def target(probs: Tensor, seen: Evidence) -> Tensor:
        return probs if temperature == 1.0 else sharpen(probs, temperature)

    return target


def _check_trained(name: str, estimator: Transition, trained_on: str, confident: float) -> None:
    """Refuse what would be ignored: an estimator that only counts is not trained on anything."""
    if not confident and trained_on == "labelled":
        return
    if not list(estimator.parameters()):
        given = f"confident={confident}" if confident else f"trained_on={trained_on}"
        raise InputError(
            f"method.{given} needs a transition that is trained, but {name} only watches the predictions; leave it out."
        )
    if confident and trained_on == "unlabelled":
        raise InputError(
            f"method.confident={confident} adds samples to T's own loss, which trained_on=unlabelled leaves out; set "
            "trained_on=labelled."
        )


def _choice(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"method.{option}={value!r} is not known; {nearest(value, allowed)}")
