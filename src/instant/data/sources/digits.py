"""Digits: the 1,797 grey images of 8 x 8 that scikit-learn carries (Alpaydin and Kaynak, UCI, 1998).

They are enlarged to 16 x 16: a rotation by nearest pixels needs a few to move.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from instant.data.source import Source
from instant.data.sources.base import Place, image_statistics
from instant.data.store import Store
from instant.random import bits, root

_SEED = 1797
_HELD_OUT = 360


def read(place: Place) -> Source:
    """1,437 images to train and 360 to test, always the same, with every class in proportion."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = enlarged(digits.images * (255 / 16))
    targets = digits.target.astype(np.int64)
    held = held_out(targets)
    mean, std = image_statistics(images[~held])
    return Source(
        name="digits",
        train=Store(images[~held], "digits train"),
        targets=targets[~held],
        test=Store(images[held], "digits test"),
        test_targets=targets[held],
        classes=tuple(str(digit) for digit in range(10)),
        mean=mean,
        std=std,
        mirror=False,
    )


def enlarged(images: np.ndarray) -> np.ndarray:
    """(N, 8, 8) grey levels to uint8 (N, 1, 16, 16), bicubic."""
    grown = F.interpolate(torch.from_numpy(images)[:, None], scale_factor=2, mode="bicubic", align_corners=False)
    return grown.round().clamp(0, 255).to(torch.uint8).numpy()


def held_out(targets: np.ndarray) -> np.ndarray:
    """True for the test images: evenly spaced in an order by class and, within a class, by chance."""
    order = np.lexsort((bits(root(_SEED), len(targets)).numpy(), targets))
    held = np.zeros(len(targets), bool)
    held[order[(2 * np.arange(_HELD_OUT) + 1) * len(targets) // (2 * _HELD_OUT)]] = True
    return held
