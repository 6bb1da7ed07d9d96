"""The gallery: a few of the surest, the borderline and the refused images, with the reason for each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

from instant.data.split import Split
from instant.labelling.decisions import Decisions
from instant.report.charts import png

EACH = 12  # images a group
SIDE = 64  # pixels: what a picture is made smaller to; the page shows smaller ones larger


class Picture(NamedTuple):
    """One image, what it was called and why."""

    image: str  # a data address
    name: str
    label: str
    reason: str


class Group(NamedTuple):
    title: str
    meaning: str
    pictures: tuple[Picture, ...]


def gallery(decisions: Decisions, split: Split) -> tuple[Group, ...]:
    """Three groups of images of the pool nobody labelled; none for vectors."""
    if not split.train.is_images:
        return ()
    unlabelled = np.flatnonzero(~np.isin(decisions.ids, split.labelled))
    above = (decisions.confidence - decisions.tau)[unlabelled]
    accepted = decisions.accepted[unlabelled].astype(bool)
    order = np.argsort(-above, kind="stable")
    near = np.argsort(np.abs(above), kind="stable")
    groups = (
        ("The surest", "accepted, furthest above their threshold", order[accepted[order]]),
        ("The borderline", "nearest to their threshold, on either side", near),
        ("The refused", "furthest below their threshold", order[::-1][~accepted[order[::-1]]]),
    )
    return tuple(
        Group(title, meaning, tuple(_picture(decisions, split, int(row)) for row in unlabelled[rows[:EACH]]))
        for title, meaning, rows in groups
    )


def _picture(decisions: Decisions, split: Split, row: int) -> Picture:
    sample = int(decisions.ids[row])
    return Picture(
        image=png(_small(np.asarray(split.train.samples[sample]))),
        name=split.files[sample] if split.files else f"training sample {sample}",
        label=decisions.classes[int(decisions.label[row])],
        reason=decisions.reason(row),
    )


def _small(image: np.ndarray) -> np.ndarray:
    """(C, H, W) bytes to (H, W) or (H, W, 3), no side above SIDE."""
    pixels = np.ascontiguousarray(image[0] if image.shape[0] == 1 else image.transpose(1, 2, 0))
    if max(pixels.shape[:2]) <= SIDE:
        return pixels
    picture = Image.fromarray(pixels)
    picture.thumbnail((SIDE, SIDE))
    return np.asarray(picture)
