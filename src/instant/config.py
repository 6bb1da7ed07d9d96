"""The settings of a run: one frozen dataclass, overridden leaf by leaf as `key=value`."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from instant.data.files import expanded
from instant.data.split import Draw
from instant.engine.optim import Optim
from instant.errors import InputError, nearest
from instant.kinds import misfit
from instant.methods import options_of_ours

Step = Literal["auto", "eager", "compiled", "captured"]
Precision = Literal["auto", "float32", "bfloat16"]

UNSAVED = ("suggested", "suggest", "suits")
APART = ("source", "label_file", "optim", "method_options", "backbone_options", *UNSAVED)  # no leaves of their own


def no_suggestion(method: str) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides a run; built by a function of `instant.recipes`, saved in the run folder."""

    source: str = "digits"
    data: Annotated[str | None, "folder with the source's files; none: the cache folder"] = None
    label_file: str | None = None  # of source "own": the table or array of labels beside data
    side: Annotated[int | None, "images of your own become squares of so many pixels a side"] = None
    labels: Annotated[int | None, "labelled samples in all; all: every label there is"] = 40
    validation: Annotated[int, "further labelled samples, held out; they count in the label budget"] = 0
    seed: Annotated[int, "of the draw of labelled samples, the first weights and the views"] = 0
    draw: Annotated[Draw, "of the labelled samples; usb: those of USB and the paper's code for this seed"] = "seeded"

    method: Annotated[str, "instant list methods; or code of your own, package.module:function"] = "instant"
    method_options: dict[str, Any] = field(default_factory=dict)  # method.NAME=value
    suggested: dict[str, Any] = field(default_factory=dict, compare=False)  # settings for it that nobody asked for
    suggest: Callable[[str], dict[str, Any]] = field(default=no_suggestion, compare=False, repr=False)
    suits: str = field(default="", compare=False, repr=False)  # the method that the suggested ones are for
    backbone: Annotated[str, "instant list backbones; or code of your own, package.module:function"] = "wrn_28_2"
    backbone_options: dict[str, Any] = field(default_factory=dict)  # backbone.NAME=value
    pretrained: Annotated[str | None, "weights to start from: .safetensors, or .pth of tensors only"] = None

    contrast: Annotated[int, "images: steps of learning features without labels, before the others"] = 0
    steps: Annotated[int, "of training"] = 2**20
    batch: Annotated[int, "labelled samples a step"] = 64
    ratio: Annotated[int, "unlabelled samples a step for every labelled one"] = 7
    optim: Optim = field(default_factory=Optim)
    ema: Annotated[float, "decay of the averaged weights that are evaluated; 0: none"] = 0.999
    clip: Annotated[float, "largest gradient norm; 0: no clipping"] = 0.0
    weak_gradient: Annotated[bool, "true: weak views go through the backward pass too, slower"] = False

    strong_labels: Annotated[float, "share of a step's labelled samples in strong views instead of weak ones"] = 0.0
    shift: Annotated[float, "weak views of an image: the largest shift, as a share of its side"] = 1 / 8
    operations: Annotated[int, "strong views of an image: through how many of the 14 operations each goes"] = 3
    mirror: Annotated[bool | None, "may a view be mirrored, left to right? none: as the source says"] = None

    mix: Annotated[float, "share of the strong views of images that have another one, made smaller, in them"] = 0.0
    mix_after: Annotated[float, "share of the steps before the first of those: till then views are of one image"] = 0.0

    noise: Annotated[
        float, "weak views of a vector: deviation of the noise, in standardised features; strong: 2.5 x"
    ] = 0.1
    neighbours: Annotated[int, "strong views of a vector: part of the way to one of so many nearest; 0: in place"] = 0

    log_every: Annotated[int, "steps from one line of the curves to the next"] = 256
    evaluate_every: Annotated[int, "steps from one accuracy on the test data to the next"] = 5120
    checkpoint_every: Annotated[int, "steps from one checkpoint to the next"] = 5120

    device: Annotated[str, "auto, cpu, cuda, cuda:1, ..."] = "auto"
    step: Annotated[Step, "how a step runs; auto: captured as a CUDA graph, eager on a CPU"] = "auto"
    precision: Annotated[Precision, "auto: bfloat16 on GPUs that multiply it, from Ampere on"] = "auto"
    memory: Annotated[float | None, "MiB that samples may take on the device, else streamed; none: half the free"] = (
        None
    )

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "ratio", "operations", "log_every", "evaluate_every", "checkpoint_every"):
            if not 1 <= getattr(self, name) < 2**31:
                raise InputError(f"{name}={getattr(self, name)} must be at least 1 and below 2^31.")
        if self.operations > 100:
            raise InputError(f"operations={self.operations} must be at most 100: each is done to every strong view.")
        if not self.noise <= 100:
            raise InputError(f"noise={self.noise} must lie in [0, 100]: it is a deviation in standardised features.")
        if not 0 <= self.ema < 1:
            raise InputError(f"ema={self.ema} must lie in [0, 1); 0 means no averaging.")
        if not 0 <= self.strong_labels < 1:
            raise InputError(
                f"strong_labels={self.strong_labels} must be at least 0 and below 1: it is the share of labelled rows "
                "in strong views, and thresholds are relative to the others."
            )
        if not 0 <= self.mix < 1:
            raise InputError(
                f"mix={self.mix} must be at least 0 and below 1: it is the share of strong views that show two images."
            )
        if not 0 <= self.mix_after < 1:
            raise InputError(f"mix_after={self.mix_after} must be at least 0 and below 1: it is a share of the steps.")
        if not 0 <= self.shift <= 0.5:
            raise InputError(f"shift={self.shift} must lie in [0, 0.5]: it is a share of the image's side.")
        for name in ("validation", "contrast", "clip", "noise", "neighbours"):
            if not getattr(self, name) >= 0:  # in this form it holds for NaN too
                raise InputError(f"{name}={getattr(self, name)} must be 0 or more.")
        if self.contrast >= 2**31:
            raise InputError(f"contrast={self.contrast} must be 0 or more and below 2^31.")
        if self.memory is not None and not self.memory >= 0:
            raise InputError(f"memory={self.memory} must be 0 or more MiB, or none for half of what is free.")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed={self.seed} must be 0 or more and below 2^63.")
        if self.optim.warmup >= self.steps:
            raise InputError(
                f"optim.warmup={self.optim.warmup} must be below the {self.steps} steps of the run; lower it, or "
                "train for more steps."
            )

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in UNSAVED}

    def leaves(self) -> dict[str, Any]:
        """All that is saved, by the names that the command line uses: {"optim.lr": 0.01, "steps": 600}."""
        nested = {"optim": "optim", "method_options": "method", "backbone_options": "backbone"}
        values = self.to_json()
        inner = {f"{short}.{key}": value for name, short in nested.items() for key, value in values[name].items()}
        return {name: value for name, value in values.items() if name not in nested} | inner

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Recipe:
        known = {f.name for f in dataclasses.fields(cls)} - set(UNSAVED)
        for name in values:
            if name not in known:
                raise InputError(f"recipe: {name!r} is not a setting; {nearest(name, known)}")
        kinds = typing.get_type_hints(cls) | {"optim": dict[str, Any]}
        wrong = misfit(values, kinds) or misfit(values.get("optim", {}), typing.get_type_hints(Optim))
        if wrong is not None:
            raise InputError(f"recipe: a setting is of the wrong kind: {wrong}.")
        try:
            return cls(**{**values, "optim": Optim(**values.get("optim", {}))})
        except TypeError as error:
            raise InputError(f"recipe: optim has a setting that is not known ({error}).") from error

    def override(self, settings: Mapping[str, Any]) -> Recipe:
        """A copy with leaves replaced, as the command line writes them: {"optim.lr": "0.01", "steps": 600}."""
        settings = {key: str(value) for key, value in settings.items()}
        changes: dict[str, Any] = {}
        optim: dict[str, Any] = {}
        for key, text in settings.items():
            head, _, rest = key.partition(".")
            if rest and head in ("method", "backbone"):
                options = f"{head}_options"
                changes[options] = {**changes.get(options, getattr(self, options)), rest: literal(text)}
            elif rest and head == "optim":
                optim |= _leaf(Optim, rest, text, key)
            else:
                changes |= _leaf(Recipe, key, text, key, method=settings.get("method", self.method))
        asked = set(settings)
        if changes.get("mix") == 0 and "mix_after" not in settings:
            changes["mix_after"] = 0.0  # of a recipe that mixes: nothing is left to begin
            asked.add("mix_after")
        changes["suggested"] = {key: value for key, value in self.suggested.items() if key not in asked}
        # All at once: settings are checked together, whatever their order
        changed = dataclasses.replace(self, optim=dataclasses.replace(self.optim, **optim), **changes)
        return changed.suited(changed.method)

    def located(self) -> Recipe:
        """With whole paths: they are saved with the run, which may be looked at from another folder."""

        def whole(path: str | None) -> str | None:
            return None if path is None else str(expanded(path).resolve())

        return dataclasses.replace(self, data=whole(self.data), pretrained=whole(self.pretrained))

    def named(self, method: str | None, backbone: str | None) -> Recipe:
        """With method and backbone as the caller calls them, who is trusted to name code; None: as they are."""
        return dataclasses.replace(self, method=method or self.method, backbone=backbone or self.backbone)

    def suited(self, method: str) -> Recipe:
        """For a method, whichever it was made for: with what the recipe suggests for this one, and what was asked for.

        The same recipe for the same method has the same settings, however the method is given.
        """
        if method == self.suits:
            return self
        now = self.leaves()
        replaced = [key for key, value in self.suggested.items() if now.get(key) == value]  # nobody asked for these
        options = {key: value for key, value in self.method_options.items() if f"method.{key}" not in replaced}
        suggested: dict[str, Any] = {}
        changes: dict[str, Any] = {}
        for key, value in self.suggest(method).items():
            head, _, option = key.partition(".")
            if option and option not in options:
                suggested[key] = value
                options = {option: value, **options}
            elif not option and key in replaced:
                suggested[key] = changes[head] = value
        changes |= {"method": method, "method_options": options, "suggested": suggested, "suits": method}
        return dataclasses.replace(self, **changes)


def refuse_ignored(settings: Collection[str], source: str, *, images: bool) -> None:
    """Settings of the views of vectors do nothing to images, and the other way round."""
    for key in ("noise", "neighbours") if images else ("shift", "operations", "mirror", "mix", "mix_after", "contrast"):
        if key in settings:
            here, there = ("images", "vectors") if images else ("vectors", "images")
            raise InputError(f"{key}= is for {there}, and {source} has {here}; leave it out.")


def keys() -> list[str]:
    """Every key that may be given as key=value."""
    return ["recipe", *(key for key, _, _ in described()), "method.OPTION", "backbone.OPTION"]


def described() -> list[tuple[str, Any, str]]:
    """Every setting that may be given, its value where no recipe says another, and what it means."""
    owners: list[tuple[str, type]] = [("", Recipe), ("optim.", Optim)]
    return [
        (head + leaf.name, leaf.default, hints[leaf.name].__metadata__[0])
        for head, owner in owners
        for hints in (typing.get_type_hints(owner, include_extras=True),)
        for leaf in dataclasses.fields(owner)
        if owner is not Recipe or leaf.name not in APART
    ]


def literal(text: str) -> Any:
    """A method's or backbone's option: a number, true, false, none, or the text itself.

    >>> [literal(text) for text in ("0.9", "7", "true", "none", "head")]
    [0.9, 7, True, None, 'head']
    """
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    if word in ("none", "null", ""):
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _leaf(owner: type, name: str, text: str, key: str, method: str = "") -> dict[str, Any]:
    hints = typing.get_type_hints(owner)
    if name not in hints or (owner is Recipe and name in APART):
        known = {*keys(), *(f"method.{option}" for option in options_of_ours(method))}
        inner = next((word for word in (f"optim.{key}", f"method.{key}") if word in known), None)
        raise InputError(f"{key!r} is not a setting; {f'did you mean {inner!r}?' if inner else nearest(key, keys())}")
    return {name: _parse(hints[name], text, key)}


def _parse(kind: Any, text: str, key: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is types.UnionType:
        inner = next(part for part in typing.get_args(kind) if part is not type(None))
        if text.strip().lower() in ("none", "null") or (inner is int and text.strip().lower() == "all"):
            return None
        return _parse(inner, text, key)
    if origin is Literal:
        allowed = typing.get_args(kind)
        if text not in allowed:
            raise InputError(f"{key}={text!r} is not known; {nearest(text, allowed)}")
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise InputError(f"{key}={text!r} must be true or false")
        return text.lower() == "true"
    try:
        return _whole(text) if kind is int else kind(text)
    except ValueError as error:
        article = {int: "a whole number", float: "a number"}.get(kind, str(kind))
        raise InputError(f"{key}={text!r} must be {article}") from error


def _whole(text: str) -> int:
    """A whole number, also written as 1e5 or 600.0; exact however large."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)
