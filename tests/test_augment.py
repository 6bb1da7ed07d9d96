"""Augmentation: every operation against Pillow on real images, every policy against what it promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from instant import random
from instant.augment import NoAugment, Strong, StrongVector, Weak, WeakVector, for_images, for_vectors
from instant.augment import images as ops
from instant.augment.policies import draw_operations
from instant.errors import InputError


def _tiles(height: int, width: int, every: int) -> Tensor:
    """Tiles of china.jpg and flower.jpg, (B, 3, height, width)."""
    cut = [
        photo[top : top + height, left : left + width]
        for photo in load_sample_images().images
        for top in range(0, photo.shape[0] - height, height)
        for left in range(0, photo.shape[1] - width, width)
    ]
    return torch.from_numpy(np.stack(cut[::every])).permute(0, 3, 1, 2).contiguous()


def _digits(count: int) -> Tensor:
    """Handwritten digits with levels 0-255, (B, 1, 8, 8)."""
    return torch.from_numpy((load_digits().images[:count] * (255 / 16)).astype(np.uint8)).unsqueeze(1)


SETS = {
    "rgb": _tiles(32, 32, every=16),
    "oblong": _tiles(24, 40, every=32),
    "grey": _tiles(32, 32, every=32)[:, 1:2].contiguous(),
    "digits": _digits(24),
    "tiny": _tiles(32, 32, every=64)[:, :, :2, :5].contiguous(),
    "flat": torch.tensor([0, 1, 77, 255], dtype=torch.uint8).view(4, 1, 1, 1).expand(4, 3, 6, 6).contiguous(),
}


def _to_pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy())


def _from_pillow(image: Image.Image) -> Tensor:
    pixels = torch.from_numpy(np.array(image))
    return pixels.unsqueeze(0) if pixels.dim() == 2 else pixels.permute(2, 0, 1)


def _affine(coefficients: Callable[[float, Image.Image], Sequence[float]]):
    return lambda image, v: image.transform(image.size, Image.Transform.AFFINE, coefficients(v, image))


FACTORS = (0.0, 0.05, 0.1, 0.3, 0.37, 0.5, 0.7, 0.9, 0.95, 1.0)
SHARES = (-0.3, -0.2501, -0.1, -1 / 64, 0.0, 0.0113, 0.1, 0.125, 0.2, 0.3)
PILLOW = {
    "autocontrast": (lambda image, v: ImageOps.autocontrast(image), None),
    "brightness": (lambda image, v: ImageEnhance.Brightness(image).enhance(v), (*FACTORS, 1.7)),
    "color": (lambda image, v: ImageEnhance.Color(image).enhance(v), (*FACTORS, 1.7)),
    "contrast": (lambda image, v: ImageEnhance.Contrast(image).enhance(v), (*FACTORS, 1.7)),
    "equalize": (lambda image, v: ImageOps.equalize(image), None),
    "identity": (lambda image, v: image, None),
    "posterize": (lambda image, v: ImageOps.posterize(image, v), (1, 4, 5, 6, 7, 8)),
    "rotate": (lambda image, v: image.rotate(v), (-30.0, -29.3, -15, -1.1, 0.0, 0.4, 7.7, 22.5, 29.99, 30)),
    "sharpness": (lambda image, v: ImageEnhance.Sharpness(image).enhance(v), (*FACTORS, 1.7)),
    "shear_x": (_affine(lambda v, image: (1, v, 0, 0, 1, 0)), SHARES),
    "shear_y": (_affine(lambda v, image: (1, 0, 0, v, 1, 0)), SHARES),
    "solarize": (lambda image, v: ImageOps.solarize(image, v), (0, 0.5, 1, 77.7, 128, 200, 255, 255.5, 256)),
    "translate_x": (_affine(lambda v, image: (1, 0, v * image.width, 0, 1, 0)), SHARES),
    "translate_y": (_affine(lambda v, image: (1, 0, 0, 0, 1, v * image.height)), SHARES),
}


def _run(name: str, images: Tensor, magnitude: Tensor | None) -> Tensor:
    operation = getattr(ops, name)
    return operation(images) if magnitude is None else operation(images, magnitude)


@pytest.mark.parametrize("images", SETS.values(), ids=SETS.keys())
@pytest.mark.parametrize("name", ops.OPERATIONS)
def test_operation_equals_pillow_exactly(name: str, images: Tensor):
    pillow, magnitudes = PILLOW[name]
    for value in magnitudes or [None]:
        magnitude = None if value is None else torch.full((len(images),), value)
        # The magnitude as the tensor holds it, so that both sides work from the same number.
        held = None if magnitude is None else magnitude[0].item()
        expected = torch.stack([_from_pillow(pillow(_to_pillow(image), held)) for image in images])
        got = _run(name, images, magnitude)
        assert got.dtype == torch.uint8
        assert (got.int() - expected.int()).abs().max() == 0, f"{name}({value})"
