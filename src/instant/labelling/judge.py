"""A finished run as one module: samples in, decisions out, each row by itself.

Normalisation, the judged network (averaged weights where the recipe has them), alignment, T(x) and the rule, with all
they had learnt by the last step. In training some rules look at the whole batch; here what they take from it is fixed
(`standing`), so a sample's decision does not depend on who else is asked about.
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from instant.alignment import Alignment, rescaled
from instant.backbones.registry import BackboneFunction, build, without_weights
from instant.data.feed import Normalise
from instant.data.split import Split
from instant.engine.metrics import predict
from instant.engine.plain import plain_torch
from instant.errors import InputError
from instant.labelling.thresholds import margin_parts
from instant.match import Match
from instant.methods import build_method, method_options, name_of
from instant.rules import Curriculum, Fixed, InstanceDependent, Relative, Rule, SelfAdaptive, TruncatedGaussian
from instant.run import Run
from instant.transition import inflow
from instant.types import Evidence, Method, MethodFunction, Prediction, Problem, State

LOOKED_AT = 4096  # positions of the pool, spread evenly, that a rule is asked about


class Verdict(NamedTuple):
    """Decisions about B samples; the columns are those of `Thresholds`, with the probabilities they rest on."""

    label: Tensor
    runner_up: Tensor
    confidence: Tensor
    tau: Tensor
    kappa: Tensor
    stay: Tensor
    inflow: Tensor
    mistaken: Tensor
    accepted: Tensor
    probs: Tensor  # (B, K) aligned where the method aligns


class ByClass(Rule):
    """A bar for every class, which no longer moves."""

    bar: Tensor

    def __init__(self, bar: Tensor) -> None:
        super().__init__()
        self.register_buffer("bar", bar)

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        return self.bar[seen.probs.argmax(1)], {}


class Judge(nn.Module):
    """`judge(samples) -> Verdict`, for uint8 images (B, C, H, W) or float32 vectors (B, D) as they were trained on.

    `index` are the samples' positions in the run's pool of `pool` samples; others have none (`require_stranger`).
    """

    step: Tensor
    probs_l: Tensor
    y_l: Tensor

    def __init__(
        self,
        network: nn.Module,
        normalise: Normalise,
        method: Match | None,
        reference: State,
        *,
        step: int = 0,
        pool: int = 1,
    ) -> None:
        super().__init__()
        self.pool = pool
        self.network = network
        self.normalise = normalise
        self.align = self.estimator = self.rule = None
        self.align_labels = True
        self.register_buffer("step", torch.tensor(step))
        if method is not None:
            self.align = standing_alignment(method.align)
            self.align_labels = method.align_labels
            self.estimator = None if method.transitions is None else method.transitions.estimator
            self.register_buffer("probs_l", reference["probs_l"])
            self.register_buffer("y_l", reference["y_l"])
            self.rule = standing(method.rule, self._evidence(torch.eye(self.probs_l.shape[1])), reference)
        self.eval().requires_grad_(False)

    @property
    def decides(self) -> bool:
        """False: the method has no threshold; there are classes and probabilities, and nobody is accepted."""
        return self.rule is not None

    @property
    def by_class(self) -> bool:
        """Whether the bar that everyone is asked, beside m(x), differs between classes."""
        asked = self.rule.base if type(self.rule) is InstanceDependent else self.rule
        return isinstance(asked, ByClass) and bool((asked.bar != asked.bar[0]).any())

    def classify(self, samples: Tensor) -> Tensor:
        """(B, K): what the network says, as `instant evaluate` measures it."""
        return F.softmax(self._look(samples)[1].logits.float(), dim=1)

    def classifier(self) -> Judge:
        """A copy that can do nothing but `classify`: T(x), which it does not need, may be far larger."""
        return Judge(copy.deepcopy(self.network), copy.deepcopy(self.normalise), None, {})

    def transition(self, samples: Tensor) -> Tensor:
        """T of each sample, (B, K, K), or (K, K) where it is the same for all."""
        assert self.estimator is not None, "this method has no T"
        x, out = self._look(samples)
        return self.estimator(out.features.float(), x)

    @cached_property
    def by_index(self) -> bool:
        """Whether the same sample gets another answer at another position in the pool."""
        assert self.rule is not None, "without a rule there is nothing to ask"
        where, classes = self.step.device, self.probs_l.shape[1]
        rows = min(self.pool, LOOKED_AT)
        label = torch.arange(rows, device=where) % classes
        sure = torch.linspace(0, 1, rows, device=where)[:, None]
        probs = sure * F.one_hot(label, classes) + (1 - sure) / classes  # of every class, from unsure to sure
        column = None if self.estimator is None else inflow(torch.eye(classes, device=where), label)
        spread = torch.arange(rows, device=where) * self.pool // rows
        with torch.no_grad():
            nobody, all_over = (self.rule(self._evidence(probs, column, index))[0] for index in (None, spread))
        return any(not torch.allclose(a.float(), b.float(), equal_nan=True) for a, b in zip(nobody, all_over))

    def require_stranger(self) -> None:
        """That the rule can decide about samples which are not at a position in the run's pool."""
        if self.by_index:
            raise InputError(
                "the method's rule goes by a sample's position in the pool, which other samples do not have; it can "
                "only decide about the run's own pool, as instant label does without a path."
            )

    def forward(self, samples: Tensor, index: Tensor | None = None) -> Verdict:
        assert self.rule is not None, "without a rule there is nothing to decide"
        x, out = self._look(samples)
        raw = probs = F.softmax(out.logits.float(), dim=1)
        if self.align is not None:
            probs = aligned(self.align, raw, self.probs_l)
        column = None
        if self.estimator is not None:
            column = inflow(self.estimator(out.features.float(), x), probs.argmax(1))
        seen = self._evidence(probs, column, index)
        selection, _ = self.rule(seen)
        kappa, posterior = selection.threshold, probs
        if type(self.rule) is InstanceDependent:
            kappa = self.rule.base.threshold(seen)[0].expand_as(kappa)
            posterior = probs if self.rule.resoftmax is None else F.softmax(probs / self.rule.resoftmax, dim=1)
        else:
            column = None  # a rule that does not look at T has no margin; what another makes of T, it alone knows
        parts = margin_parts(posterior, torch.zeros_like(probs) if column is None else column)
        label, runner_up = (parts.label, parts.runner_up) if self.align_labels else raw.topk(2, dim=1).indices.T
        confidence = probs.gather(1, label[:, None]).squeeze(1)
        accepted = selection.weight >= 1
        if not self.align_labels:  # what counted may have been the probability of another class
            accepted &= confidence >= selection.threshold
        return Verdict(
            label=label,
            runner_up=runner_up,
            confidence=confidence,
            tau=selection.threshold,
            kappa=kappa,
            stay=parts.stay,
            inflow=parts.inflow,
            mistaken=parts.mistaken,
            accepted=accepted,
            probs=probs,
        )

    def _look(self, samples: Tensor) -> tuple[Tensor, Prediction]:
        x = self.normalise(samples)
        return x, self.network(x)

    def _evidence(self, probs: Tensor, column: Tensor | None = None, index: Tensor | None = None) -> Evidence:
        if index is None:  # of nobody in the pool: only state is kept by it
            index = torch.zeros_like(probs[:, 0], dtype=torch.int64)
        return Evidence(probs, self.probs_l, self.y_l, index, self.step, column)


def standing(rule: Rule, seen: Evidence, reference: State) -> Rule:
    """The rule with what it takes from a batch, or moves by it, fixed; `seen` holds one sure sample of every class.

    All our rules but Dash's, which is a row's own already, hold a sample against a bar that depends on its class alone,
    beside m(x). A rule of your own, also one derived from ours, is asked as it is, with its momentum at 1: it may look
    at a row and at its buffers.
    """
    if type(rule) is InstanceDependent:
        base = standing(rule.base, seen, reference)
        return InstanceDependent(base, clip=rule.clip, resoftmax=rule.resoftmax, warmup=rule.warmup)
    hold(rule)
    classes = len(seen.probs)
    if type(rule) is Relative and rule.of_unlabelled:
        return ByClass((rule.base * reference["pool_confidence"]).expand(classes).clone())
    if type(rule) is TruncatedGaussian:
        return ByClass(rule.mu.expand(classes).clone())
    if type(rule) in (Fixed, Relative, Curriculum, SelfAdaptive):
        return ByClass(rule.threshold(seen)[0].expand(classes).clone())
    for module in list(rule.modules()):
        for name, part in module.named_children():
            if type(part) is Relative and part.of_unlabelled:  # no momentum holds the mean of a batch
                setattr(module, name, standing(part, seen, reference))
    return rule


def standing_alignment(align: Alignment | None) -> Alignment | None:
    """A copy whose running means no longer move; one of your own is held by its momentum, as a rule is."""
    align = copy.deepcopy(align)
    if align is not None:
        hold(align.eval())
    return align


def aligned(align: Alignment, probs: Tensor, probs_l: Tensor) -> Tensor:
    """Probabilities as a standing alignment has them: by our formula, or by what is written in its place."""
    return rescaled(probs, align.target, align.model) if type(align) is Alignment else align(probs, probs_l)[0]


@torch.no_grad()
def hold(part: nn.Module) -> None:
    """Set every momentum in it to 1: running means that keep this share of themselves stand still."""
    for module in part.modules():
        kept = getattr(module, "momentum", None)
        if isinstance(kept, Tensor):  # a buffer takes no number in its place
            kept.fill_(1.0)
        elif kept is not None:
            setattr(module, "momentum", 1.0)  # noqa: B010 (any module's, typed or not)


@torch.no_grad()
def reference_of(network: nn.Module, method: Method, split: Split, normalise: Normalise) -> State:
    """What the thresholds of a run rest on, kept with it so that deciding needs none of its data.

    Probabilities of the labelled samples; where the rule asks for it, the mean confidence over the whole pool, aligned.
    """
    if not isinstance(method, Match):
        return {}
    where = normalise.mean.device
    align = standing_alignment(method.align)

    def mean_confidence() -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=where)
        for start in range(0, len(split.pool), 1024):
            rows = split.train.take(split.pool[start : start + 1024])
            probs = predict(network, rows, normalise, device=where)
            if align is not None:
                probs = aligned(align, probs, found["probs_l"])
            total += probs.amax(1).double().sum()
        return (total / len(split.pool)).float()

    labelled = split.train.take(split.labelled)
    found = {
        "probs_l": predict(network, labelled, normalise, device=where),
        "y_l": torch.from_numpy(split.targets),
    }
    if any(isinstance(part, Relative) and part.of_unlabelled for part in method.rule.modules()):
        found["pool_confidence"] = mean_confidence()
    return found


@plain_torch()
def load_judge(
    run: Run, method: str | MethodFunction | None = None, backbone: str | BackboneFunction | None = None
) -> tuple[Judge, tuple[str, ...], tuple[int, ...]]:
    """The judge of a finished run on the CPU, its classes and the shape of a sample. Nothing that is read runs code."""
    recipe = run.recipe()
    run.require_named(method, backbone)
    method = method or recipe.method
    network, card = run.load_model(backbone)
    classes, shape = tuple(card["classes"]), tuple(card["shape"])
    normalise = Normalise(card["mean"], card["std"], images=len(shape) == 3)

    def second(outputs: int) -> nn.Module:
        options = without_weights(card["backbone"], card["backbone_options"])
        return build(backbone or card["backbone"], shape=shape, classes=outputs, **options)

    problem = Problem(
        classes=len(classes),
        features=network.num_features,  # type: ignore[arg-type]
        unlabelled=run.split_record()["pool"],
        steps=recipe.steps,
        network=second,
    )
    began = {name: value for name, value in run.code().options.items() if name in method_options(method)}
    built = build_method(method, problem, **began | recipe.method_options)
    if not isinstance(built, Match):
        return Judge(network, normalise, None, {}), classes, shape
    try:
        built.load_state_dict(run.method_state())
    except RuntimeError as error:
        named = method if isinstance(method, str) else name_of(method)
        raise InputError(
            f"{run}: its checkpoint does not fit method={named}; was another function trained? ({error})"
        ) from error
    rests_on = run.reference()
    probs, y = rests_on.get("probs_l"), rests_on.get("y_l")
    if probs is None or y is None or probs.shape != (len(y), len(classes)):
        raise InputError(
            f"{run}/reference.safetensors is not of this run; put the file back as it was, or train again."
        )
    judge = Judge(network, normalise, built, rests_on, step=recipe.steps - 1, pool=problem.unlabelled)
    return judge, classes, shape


def require_rule(judge: Judge, run: Run) -> None:
    if not judge.decides:
        raise InputError(
            f"{run} was trained with method={run.recipe().method}, which has no threshold and accepts nobody in "
            "particular; train with a method that has one, such as instant, or give its probabilities to "
            "instance_thresholds."
        )
