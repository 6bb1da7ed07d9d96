"""Who is labelled: the paper's splits, per class and seeded, with the rest of the truth sealed away."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from instant.data.source import Source
from instant.data.store import Store
from instant.errors import InputError, nearest

Draw = Literal["seeded", "usb"]
SPREAD = 1024


class Oracle:
    """Ground truth of the unlabelled pool, sealed: only `instant.engine.metrics` may open it.

    Training never sees it; shuffling it changes no weight (tests/test_split.py).
    """

    def __init__(self, targets: np.ndarray) -> None:
        self._targets = targets

    def open_for_metrics(self) -> np.ndarray:
        """Class numbers in the order of the pool, -1 where the truth is not known, or was given as a label."""
        return self._targets


@dataclass(frozen=True, eq=False, kw_only=True)
class Split:
    """A source with its labelled samples chosen; all that training may look at."""

    source: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    mirror: bool
    train: Store
    labelled: np.ndarray  # positions in `train`
    targets: np.ndarray  # their classes
    pool: np.ndarray  # positions in `train` of the unlabelled pool; labelled samples stay in it
    validation: np.ndarray  # positions in `train`, labelled too and kept out of the pool
    validation_targets: np.ndarray
    test: Store
    test_targets: np.ndarray
    oracle: Oracle
    spare: int  # labels that the source has and the split does not give
    seed: int
    draw: Draw = "seeded"
    files: Sequence[str] = ()  # of the samples in `train`, where each was a file
    key: str | None = None  # of those files, changes whenever one of them does; no part of what a run keeps

    @property
    def budget(self) -> dict[str, int]:
        """How many labels a person had to give: those trained on and those of the validation part."""
        return {
            "training": len(self.labelled),
            "validation": len(self.validation),
            "total": len(self.labelled) + len(self.validation),
        }

    @property
    def spread(self) -> np.ndarray:
        """Positions in `train`, evenly over the pool and at most SPREAD: enough to see one class flood the others."""
        return self.pool[:: -(-len(self.pool) // SPREAD)]

    @property
    def hash(self) -> str:
        """Identifies the choice of labelled, validation and pool samples, the labels given, and the names of files."""
        return self.hashed(self.source)

    def hashed(self, source: str) -> str:
        """The hash where the folder or file was called so: it may have been renamed since."""
        given = (self.labelled, self.targets, self.validation, self.validation_targets, self.pool)
        return identify(source, self.classes, len(self.train), given, self.files)

    @property
    def content(self) -> str | None:
        return content_of(self.train, self.files)

    @property
    def tested(self) -> str:
        """Identifies the test part, by its classes alone where samples are files."""
        digest = hashlib.sha256(np.ascontiguousarray(self.test_targets, dtype="<i8").tobytes())
        digest.update((content_of(self.test, self.files) or "").encode())
        return digest.hexdigest()[:16]

    def record(self) -> dict[str, object]:
        """What a run folder keeps of the split."""
        return {
            "source": self.source,
            "seed": self.seed,
            "draw": self.draw,
            "hash": self.hash,
            "content": self.content,
            "test": self.tested,
            "classes": list(self.classes),
            "labelled": self.labelled.tolist(),
            "targets": self.targets.tolist(),
            "validation": self.validation.tolist(),
            "validation_targets": self.validation_targets.tolist(),
            "pool": len(self.pool),
            "budget": self.budget,
        }


def identify(source: str, classes: Sequence[str], size: int, given: Sequence[Any], files: Sequence[str]) -> str:
    """The hash of a split; `given` are its positions and labels."""
    digest = hashlib.sha256(f"{source}|{'|'.join(classes)}|{size}".encode())
    for part in given:
        digest.update(np.ascontiguousarray(part, dtype="<i8").tobytes())
        digest.update(b"|")
    for name in files:  # one for another leaves every position as it was
        digest.update(name.encode() + b"\0")
    return digest.hexdigest()[:16]


def content_of(train: Store, files: Sequence[str]) -> str | None:
    """A fingerprint of the samples; None for image files, which another version of Pillow may decode otherwise."""
    return None if files else train.fingerprint()


def make_split(
    source: Source, *, labels: int | None, validation: int = 0, seed: int = 0, draw: Draw = "seeded"
) -> Split:
    """Choose `labels` labelled samples, equally many a class; None takes every label the source has.

    `validation` further labelled samples a person must pay for are taken in the same way and leave the pool. With
    draw="usb" they are the ones that the benchmark USB labels for this seed, and with it the paper's code.
    """
    classes = len(source.classes)
    if classes < 2:
        raise InputError(
            f"all labelled samples of {source.name} are of one class, {source.classes[0]!r}; expected two classes or "
            "more. Label a few samples of each class."
        )
    known = [np.flatnonzero(source.targets == k) for k in range(classes)]
    seed = _whole("seed", seed)
    if seed < 0:
        raise InputError(f"seed={seed} must be 0 or more.")
    rng = _generator(draw, seed)
    shuffled = [rng.permutation(members) for members in known]
    most = min(len(members) for members in known) * classes
    held = per_class("validation", validation, classes, most)
    if labels is None:
        wanted = [len(members) - held for members in shuffled]
    else:
        wanted = [per_class("labels", labels, classes, most)] * classes
    for k, members in enumerate(shuffled):
        if len(members) == 0:
            raise InputError(
                f"class {source.classes[k]!r} of {source.name} has no labelled sample; every class needs at least one. "
                "Label one, or leave the class out."
            )
        if wanted[k] < 1 or wanted[k] + held > len(members):
            need = f"{max(wanted[k], 1)} labelled" + (f" and {held} validation" if held else "")
            raise InputError(
                f"class {source.classes[k]!r} of {source.name} has {len(members)} samples with a known label, "
                f"expected at least {need}; ask for fewer {'of either' if held else 'labels'}."
            )
    labelled = np.concatenate([members[: wanted[k]] for k, members in enumerate(shuffled)])
    held_out = np.concatenate([members[wanted[k] : wanted[k] + held] for k, members in enumerate(shuffled)])
    pool = np.setdiff1d(np.arange(len(source.train)), held_out)
    truth = source.targets[pool]
    truth[np.isin(pool, labelled)] = -1  # what is trained on cannot say how many pseudo-labels are right
    return Split(
        source=source.name,
        classes=source.classes,
        mean=source.mean,
        std=source.std,
        mirror=source.mirror,
        train=source.train,
        labelled=labelled,
        targets=source.targets[labelled],
        pool=pool,
        validation=held_out,
        validation_targets=source.targets[held_out],
        test=source.test,
        test_targets=source.test_targets,
        oracle=Oracle(truth),
        spare=int((truth >= 0).sum()),
        seed=seed,
        draw=draw,
        files=source.files,
        key=source.key,
    )


def _generator(draw: str, seed: int) -> np.random.Generator | np.random.RandomState:
    if draw == "seeded":
        return np.random.default_rng([seed, 0x5EED])
    if draw != "usb":
        raise InputError(f"draw={draw!r} is not known; {nearest(draw, get_args(Draw))}")
    if seed >= 2**32:
        raise InputError(f"seed={seed} must be below 2^32 with draw=usb: USB's generator takes no larger one.")
    return np.random.RandomState(seed)  # whose stream never changes; its permutation of an array is a shuffled copy


def _whole(setting: str, value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{setting}={value!r} must be a whole number.") from None


def per_class(setting: str, total: int, classes: int, most: int | None = None) -> int:
    """How many of a class a number of labels is, of which there are `most` as far as that is known."""
    total = _whole(setting, total)
    if total < 0 or (setting == "labels" and total < classes):
        raise InputError(
            f"{setting}={total} is fewer than one a class: there are {classes} classes, ask for at least {classes}."
        )
    if total % classes:
        most = total + classes if most is None else max(most, classes)
        below = min(total // classes * classes, most)
        choices = " or ".join(str(number) for number in (below, below + classes) if 0 < number <= most)
        raise InputError(
            f"{setting}={total} is not divisible by the {classes} classes; the split takes equally many a class. "
            f"Ask for {choices}."
        )
    return total // classes
