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
from torch.utils._python_dispatch import TorchDispatchMode

from instant import random
from instant.augment import Strong, StrongVector, Weak, WeakVector, for_images, for_vectors, tables
from instant.augment import images as ops
from instant.augment.policies import draw_operation
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


PILLOW = {
    "autocontrast": lambda image, v: ImageOps.autocontrast(image),
    "brightness": lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    "color": lambda image, v: ImageEnhance.Color(image).enhance(v),
    "contrast": lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    "equalize": lambda image, v: ImageOps.equalize(image),
    "identity": lambda image, v: image,
    "posterize": lambda image, v: ImageOps.posterize(image, int(v)),
    "rotate": lambda image, v: image.rotate(v),
    "sharpness": lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    "shear_x": _affine(lambda v, image: (1, v, 0, 0, 1, 0)),
    "shear_y": _affine(lambda v, image: (1, 0, 0, v, 1, 0)),
    "solarize": lambda image, v: ImageOps.solarize(image, v),
    "translate_x": _affine(lambda v, image: (1, 0, v * image.width, 0, 1, 0)),
    "translate_y": _affine(lambda v, image: (1, 0, 0, 0, 1, v * image.height)),
}
RANGES = {
    "brightness": (0.05, 0.95),
    "color": (0.05, 0.95),
    "contrast": (0.05, 0.95),
    "posterize": (4, 9),
    "rotate": (-30, 30),
    "sharpness": (0.05, 0.95),
    "shear_x": (-0.3, 0.3),
    "shear_y": (-0.3, 0.3),
    "solarize": (0, 256),
    "translate_x": (-0.3, 0.3),
    "translate_y": (-0.3, 0.3),
}
STRENGTHS = (0, 1, 9_999, 13_107, 13_108, 20_000, 27_000, 32_767, 32_768, 41_234, 50_000, 59_999, 65_535)


def _number(name: str, count: int) -> Tensor:
    return torch.full((count,), ops.OPERATIONS.index(name))


@pytest.mark.parametrize("images", SETS.values(), ids=SETS.keys())
@pytest.mark.parametrize("name", ops.OPERATIONS)
def test_operation_equals_pillow_exactly(name: str, images: Tensor):
    for strength in STRENGTHS if name in RANGES else STRENGTHS[:1]:
        # The magnitude as a tensor holds it, so that both sides work from the same number.
        held = ops.between(torch.tensor(strength), *RANGES.get(name, (0, 0))).item()
        expected = torch.stack([_from_pillow(PILLOW[name](_to_pillow(image), held)) for image in images])
        got = ops.apply(images, _number(name, len(images)), torch.full((len(images),), strength))
        assert got.dtype == torch.uint8
        assert (got.int() - expected.int()).abs().max() == 0, f"{name}({held})"


@pytest.mark.parametrize("photo", load_sample_images().images, ids=["china", "flower"])
def test_grey_conversion_equals_pillow_on_every_pixel(photo: np.ndarray):
    image = torch.from_numpy(photo).permute(2, 0, 1).unsqueeze(0)
    expected = _from_pillow(Image.fromarray(photo).convert("L"))
    assert torch.equal(tables.luma(image)[0], expected)


def test_autocontrast_equals_pillow_on_every_darkest_and_lightest_level():
    # 255 / (high - low) rounds differently for every pair; the whole ramp shows every entry of the table.
    ramp = torch.arange(256).view(1, 16, 16)
    pairs = [(low, high) for low in range(0, 256, 5) for high in range(low, 256, 7)]
    images = torch.stack([ramp.clamp(low, high) for low, high in pairs]).to(torch.uint8)
    expected = torch.stack([_from_pillow(ImageOps.autocontrast(_to_pillow(image))) for image in images])
    number = _number("autocontrast", len(images))
    assert torch.equal(ops.apply(images, number, torch.zeros_like(number)), expected)


@pytest.mark.parametrize("kind", ["rgb", "digits"])
def test_mixed_batch_gives_each_image_its_own_operation(kind: str):
    images = SETS[kind][:8].repeat_interleave(len(ops.OPERATIONS), 0)
    number = torch.arange(len(ops.OPERATIONS)).repeat(8)
    strength = torch.tensor(STRENGTHS[:8]).repeat_interleave(len(ops.OPERATIONS))
    alone = [ops.apply(*(part[i : i + 1] for part in (images, number, strength))) for i in range(len(images))]
    assert torch.equal(ops.apply(images, number, strength), torch.cat(alone))


def test_strengths_cover_the_range_evenly():
    strength = torch.arange(ops.STRENGTHS)
    for low, high in set(RANGES.values()):
        linear = low + (high - low) * strength.double() / ops.STRENGTHS
        assert (ops.between(strength, low, high) - linear).abs().max() < 2**-13
    bits = ops.amounts(_number("posterize", len(strength)), strength, 8, 8).bits
    assert bits.unique(return_counts=True)[1].tolist() == [13_108, 13_107, 13_107, 13_107, 13_107]
    assert bits.aminmax() == (4, 8)


def _windows(image: np.ndarray, pad: int, mirror: bool) -> set[bytes]:
    """Every view the weak policy may give of a one-channel image, by numpy's own reflection."""
    height, width = image.shape
    padded = np.pad(image, pad, mode="reflect")
    crops = [
        padded[top : top + height, left : left + width] for top in range(2 * pad + 1) for left in range(2 * pad + 1)
    ]
    flipped = [crop[:, ::-1] for crop in crops] if mirror else []
    return {crop.tobytes() for crop in crops + flipped}


# No two pixels are equal, so every view tells its offset and whether it was mirrored.
DISTINCT = torch.arange(256, dtype=torch.uint8).view(1, 16, 16)


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("strong", [False, True])
def test_crops_are_all_the_reflected_windows_equally_often(mirror: bool, strong: bool):
    policy = Strong(mirror, 1, rounds=0, cutout=0.0) if strong else Weak(mirror)
    views = policy(DISTINCT.expand(5000, 1, 16, 16), random.root(1))
    seen = Counter(view.numpy().tobytes() for view in views)
    allowed = _windows(DISTINCT[0].numpy(), pad=2, mirror=mirror)
    assert len(allowed) == (50 if mirror else 25)
    assert set(seen) == allowed
    expected = len(views) / len(allowed)
    # The 0.9999 quantile of chi-square with 24 and 49 degrees of freedom.
    assert sum((count - expected) ** 2 for count in seen.values()) / expected < (95.0 if mirror else 58.6)


@pytest.mark.parametrize("name", [name for name in ops.OPERATIONS if name != "solarize"])
def test_no_operation_mirrors(name: str):
    # The left half is black and stays the darker one (solarize may invert both): a mirrored digit is another digit.
    image = torch.zeros(1, 1, 32, 32, dtype=torch.uint8)
    image[..., 16:] = 200
    view = ops.apply(image, _number(name, 1), torch.tensor([20_000])).float()
    assert view[..., :16].mean() < view[..., 16:].mean()


def test_oblong_images_are_padded_per_side():
    image = torch.arange(8 * 24, dtype=torch.uint8).view(1, 8, 24)
    views = Weak(mirror=False)(image.expand(500, 1, 8, 24), random.root(2))
    padded = np.pad(image[0].numpy(), ((1, 1), (3, 3)), mode="reflect")
    allowed = {padded[top : top + 8, left : left + 24].tobytes() for top in range(3) for left in range(7)}
    assert {view.numpy().tobytes() for view in views} == allowed


def test_operations_are_drawn_uniformly_and_independently():
    words = random.bits(random.root(3), 3, 2, 20_000)
    drawn = [draw_operation(pair) for pair in words]
    for operation, strength in drawn:
        counts = torch.bincount(operation, minlength=14).double()
        assert len(counts) == 14
        # The 0.9999 quantile of chi-square with 13 degrees of freedom.
        assert ((counts - 20_000 / 14) ** 2 / (20_000 / 14)).sum() < 41.0
        # Within each operation the strengths are uniform: deviation 12**-0.5, hence the error of a mean.
        share = strength.double() / ops.STRENGTHS
        means = torch.zeros(14, dtype=torch.float64).index_add(0, operation, share) / counts
        assert ((means - 0.5).abs() < 4 * 12**-0.5 / counts.sqrt()).all()
    together = torch.bincount(drawn[0][0] * 14 + drawn[1][0], minlength=196).double()
    # The same quantile with 13 * 13 degrees of freedom, margins being near uniform.
    assert ((together - 20_000 / 196) ** 2 / (20_000 / 196)).sum() < 270.0


def test_cutout_by_hand():
    images = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    side = torch.tensor([4.0, 4.0, 0.0, 3.0])
    centre_x = torch.tensor([4.0, 0.0, 4.0, 7.5])
    centre_y = torch.tensor([3.0, 8.0, 4.0, 2.5])
    holes = ops.cutout(images, side, centre_x, centre_y, (125, 123, 114))
    expected = images.clone()
    fill = torch.tensor([125, 123, 114], dtype=torch.uint8).view(3, 1, 1)
    expected[0, :, 1:5, 2:6] = fill
    expected[1, :, 6:8, 0:2] = fill
    expected[3, :, 1:4, 6:8] = fill
    assert torch.equal(holes, expected)


@pytest.mark.parametrize(("channels", "fill"), [(1, [123]), (3, [125, 123, 114])])
def test_cutout_of_the_policy_has_the_stated_sizes_and_colour(channels: int, fill: list[int]):
    policy = Strong(False, channels, rounds=0)
    views = policy(torch.zeros(4000, channels, 32, 32, dtype=torch.uint8), random.root(4))
    hole = views[:, 0] == fill[0]
    for channel, level in enumerate(fill):
        assert torch.equal(views[:, channel], hole.to(torch.uint8) * level)
    area = hole.double().mean(dim=(1, 2))
    # Side t W, t uniform on (0, 1/2): a side cut by the border has mean W (t - t^2 / 4), so the share of the area
    # has mean 2 * integral of (t - t^2 / 4)^2 = 0.0685; the standard error of 4000 views is about 0.001.
    assert area.mean().item() == pytest.approx(0.0685, abs=0.004)
    assert area.max() <= 0.25
    rows = hole.any(2).sum(1)
    assert rows.max() == 16
    # Centres are uniform: the mean hole covers the middle more than the corner, alike on both axes.
    cover = hole.double().mean(0)
    assert cover[16, 16] > 1.8 * cover[0, 0] > 0
    assert torch.allclose(cover.mean(0), cover.mean(1), atol=0.02)


def test_cutout_finds_its_place_in_a_wide_image():
    views = Strong(False, 1, rounds=0)(torch.zeros(2000, 1, 8, 32, dtype=torch.uint8), random.root(4))
    cover = (views == 123).double().mean(dim=(0, 1))
    assert cover.mean(0).min() > 0.1 * cover.mean(0).max() > 0  # no column is left out, and no row
    assert cover.mean(1).min() > 0.5 * cover.mean(1).max()
    assert (views == 123).flatten(1).any(1).double().mean() > 0.9  # a centre outside would leave most images whole


def test_copies_of_one_image_get_different_strong_views():
    image = SETS["rgb"][5]
    views = Strong(True, 3)(image.expand(64, 3, 32, 32), random.root(5))
    assert len({view.numpy().tobytes() for view in views}) >= 60


def _policies() -> dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Tensor]]:
    vectors = torch.from_numpy(np.random.default_rng(0).standard_normal((12, 30), dtype=np.float32))
    return {
        "weak": (Weak(True), SETS["rgb"][:12]),
        "strong": (Strong(True, 3), SETS["rgb"][:12]),
        "strong grey": (Strong(False, 1), SETS["digits"][:12]),
        "weak vector": (WeakVector(), vectors),
        "strong vector": (StrongVector(), vectors),
    }


@pytest.mark.parametrize(("policy", "samples"), _policies().values(), ids=_policies().keys())
def test_policy_is_a_function_of_samples_and_key(policy, samples: Tensor):
    before = samples.clone()
    view = policy(samples, random.root(6))
    assert view.shape == samples.shape
    assert view.dtype == samples.dtype
    assert torch.equal(samples, before)
    assert torch.equal(view, policy(samples, random.root(6)))
    assert not torch.equal(view, policy(samples, random.root(7)))
    # A sample's view does not depend on its neighbours.
    others = samples.clone()
    others[1:] = samples[:-1]
    assert torch.equal(policy(others, random.root(6))[0], view[0])
    assert policy(samples[:0], random.root(6)).shape == samples[:0].shape


def test_memory_layout_does_not_matter():
    images, strong = SETS["rgb"], Strong(True, 3)
    view = strong(images.to(memory_format=torch.channels_last), random.root(6))
    assert torch.equal(view, strong(images, random.root(6)))


def test_strong_has_its_own_crop_under_the_key_of_the_weak_view():
    images = DISTINCT.expand(200, 1, 16, 16)
    weak, strong = Weak(False), Strong(False, 1, rounds=0, cutout=0.0)
    same = (weak(images, random.root(8)) == strong(images, random.root(8))).flatten(1).all(1)
    assert same.double().mean() < 0.15


def test_factories():
    weak, strong = for_images(3, mirror=True)
    assert weak.mirror
    assert strong.weak.mirror
    assert not for_images(1, mirror=False)[1].weak.mirror
    assert [type(policy) for policy in for_vectors()] == [WeakVector, StrongVector]


def test_image_policies_are_those_of_the_paper_where_nothing_else_is_said():
    weak, strong = for_images(3, True)
    assert (weak.pad, weak.mirror, strong.weak.pad, strong.weak.mirror) == (1 / 8, True, 1 / 8, True)
    assert (strong.rounds, strong.cutout) == (3, 0.5)
    assert (Weak(True).pad, Strong(True, 3).weak.pad, Strong(True, 3).rounds) == (1 / 8, 1 / 8, 3)
    ends = Weak(False, pad=0.0), Weak(False, pad=0.5), Strong(False, 1, rounds=0, cutout=0.0)
    assert [ends[0].pad, ends[1].pad, ends[2].cutout, Strong(False, 1, cutout=1.0).cutout] == [0, 0.5, 0, 1]


def test_the_largest_cutout_at_the_smallest_place_takes_a_quarter_of_itself():
    """Its side is just below 0.5 * 8 pixels, its middle at the corner (0, 0): two pixels each way are inside."""
    words = torch.zeros(6, 1, dtype=torch.long)
    words[3] = 2**32 - 1
    found = Strong(False, 1, rounds=0, pad=0.0).view(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), words)
    expected = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    expected[..., :2, :2] = 123
    assert torch.equal(found, expected)


def test_the_noise_of_both_vector_policies_and_its_ends():
    weak, strong = for_vectors(0.2)
    assert (weak.scale, strong.noise.scale, strong.drop) == (0.2, 0.5, 0.2)
    samples = torch.full((3, 4), 2.0)
    for policy, found in ((WeakVector(0.0), 2), (StrongVector(0.0, 0.0), 2), (StrongVector(0.0, 1.0), 0)):
        assert torch.equal(policy(samples, random.root(9)), torch.full((3, 4), float(found)))


def test_vector_noise_and_dropout():
    samples = torch.full((400, 50), 3.0)
    noise = WeakVector(0.1)(samples, random.root(9)) - 3
    assert noise.std().item() == pytest.approx(0.1, rel=0.03)
    assert noise.mean().item() == pytest.approx(0, abs=0.004)
    strong = StrongVector(0.25, 0.2)(samples, random.root(9))
    kept = strong[strong != 0]
    assert (strong == 0).float().mean().item() == pytest.approx(0.2, abs=0.015)
    assert kept.std().item() == pytest.approx(0.25, rel=0.03)
    assert kept.mean().item() == pytest.approx(3, abs=0.01)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: Weak(True, pad=0.6), "pad"),
        (lambda: Strong(True, 4), "channels"),
        (lambda: Strong(True, 3, rounds=-1), "rounds"),
        (lambda: Strong(True, 3, cutout=1.5), "cutout"),
        (lambda: StrongVector(drop=1.5), "drop"),
        (lambda: WeakVector(scale=-1), "scale"),
        (lambda: Weak(True)(torch.zeros(2, 3, 8, 8), random.root(0)), "uint8"),
        (lambda: Weak(True)(SETS["rgb"][0], random.root(0)), "shape"),
        (lambda: Strong(True, 3)(SETS["digits"], random.root(0)), "channel"),
    ],
)
def test_wrong_use_says_what_is_wrong(wrong: Callable[[], object], sentence: str):
    with pytest.raises(InputError, match=sentence):
        wrong()


class _Recorder(TorchDispatchMode):
    """The names of all operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


# Reads by the host, shapes that depend on data, and constants copied from the host.
FORBIDDEN = {"_local_scalar_dense", "nonzero", "bincount", "unique", "masked_select", "lift_fresh", "is_nonzero"}


@pytest.mark.parametrize(("policy", "samples"), _policies().values(), ids=_policies().keys())
def test_policy_never_waits_for_the_device(policy, samples: Tensor):
    # Without values, any read by the host raises; on a device that is not the CPU, any CPU tensor does.
    with FakeTensorMode() as mode:
        assert policy(mode.from_tensor(samples), mode.from_tensor(random.root(10))).shape == samples.shape
    samples, key = samples.to("meta"), random.root(10).to("meta")
    with _Recorder() as recorder:
        assert policy(samples, key).device.type == "meta"
    assert recorder.names
    assert not recorder.names & FORBIDDEN


def test_a_pass_over_the_images_that_need_it_equals_passes_over_all():
    samples = SETS["rgb"][:28]
    operation = torch.arange(28) % 14
    strength = random.integers(random.root(12), ops.STRENGTHS, 28)
    amounts = ops.amounts(operation, strength, *samples.shape[-2:])
    expected = samples
    for change in ops.PASSES:
        expected = change(expected, amounts)
    assert torch.equal(ops.perform(samples, amounts), expected)
    assert [int((amounts.passed == number).sum()) for number in (-1, 0, 1, 2)] == [2, 8, 8, 10]


def test_compiled_strong_view_equals_eager():
    images = SETS["rgb"][:28]
    strong = Strong(True, 3, rounds=1)
    compiled = torch.compile(strong.view, fullgraph=True)
    for seed in range(10):
        words = random.bits(random.root(seed), 8, len(images))
        assert torch.equal(compiled(images, words), strong.view(images, words))


def test_strong_policy_is_one_graph():
    images, key = SETS["rgb"][:28], random.root(11)
    strong = Strong(True, 3)
    traced = torch.compile(strong, fullgraph=True, backend="aot_eager")
    assert torch.equal(traced(images, key), strong(images, key))
