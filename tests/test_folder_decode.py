"""One file to one square: formats, modes, rotation, transparency, sixteen bits, and files that are no images."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from folders import BLUE, GREEN, RED, WHITE, plain
from PIL import Image

from instant.data.folder import decode as decoding
from instant.data.folder.decode import ORIENTATION, Unreadable, decode


def saved(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


def corners(pixels: np.ndarray) -> list[tuple[int, ...]]:
    """Top left, top right, bottom left, bottom right."""
    return [tuple(int(v) for v in pixels[:, y, x]) for y in (0, -1) for x in (0, -1)]


def quarters() -> Image.Image:
    """Red and green above blue and white."""
    pixels = np.empty((16, 16, 3), np.uint8)
    pixels[:8, :8], pixels[:8, 8:], pixels[8:, :8], pixels[8:, 8:] = RED, GREEN, BLUE, WHITE
    return Image.fromarray(pixels)


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.bmp", "a.gif", "a.tif"])
def test_formats(tmp_path: Path, name: str) -> None:
    found = decode(saved(plain((200, 100, 50), (30, 20)), tmp_path / name), 8, 3)
    assert (found.shape, found.dtype) == ((3, 8, 8), np.uint8)
    assert np.abs(found.astype(int) - np.array([200, 100, 50])[:, None, None]).max() <= 3  # JPEG and WebP are lossy


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (plain(77, mode="L"), (77, 77, 77)),
        (plain(1, mode="1"), WHITE),
        (plain((77, 255), mode="LA"), (77, 77, 77)),
        (plain(RED).convert("P", palette=Image.Palette.ADAPTIVE), RED),
        (plain((0, 0, 255, 0), mode="RGBA"), WHITE),  # wholly transparent
        (plain((0, 0, 0, 51), mode="RGBA"), (204, 204, 204)),  # 255 - 51
        (plain(65535, mode="I;16"), WHITE),
        (plain(257 * 100, mode="I;16"), (100, 100, 100)),
    ],
    ids=["grey", "bits", "grey with alpha", "palette", "clear", "a fifth black", "16 bits white", "16 bits"],
)
def test_modes(tmp_path: Path, image: Image.Image, expected: tuple[int, ...]) -> None:
    found = decode(saved(image, tmp_path / "a.png"), 8, 3)
    assert set(corners(found)) == {expected}
    assert decode(tmp_path / "a.png", 8, 1).shape == (1, 8, 8)


def test_a_transparent_colour_of_a_palette_is_white(tmp_path: Path) -> None:
    image = plain(RED).convert("P", palette=Image.Palette.ADAPTIVE)
    path = saved(image, tmp_path / "a.png", transparency=image.getpixel((0, 0)))
    assert set(corners(decode(path, 8, 3))) == {WHITE}


def test_a_transparent_level_of_sixteen_bits_is_white(tmp_path: Path) -> None:
    """The level alone: one beside it, which has the same eight bits, stays what it is."""
    levels = np.full((16, 16), 257 * 100, np.uint16)
    levels[:8, :8], levels[:8, 8:] = 0, 1
    path = saved(Image.fromarray(levels), tmp_path / "a.png", transparency=0)
    assert corners(decode(path, 16, 1)) == [(255,), (0,), (100,), (100,)]


def test_a_large_photograph_is_what_all_its_pixels_make(tmp_path: Path) -> None:
    """JPEG is unpacked at twice the square's size. That is off by 3 levels of a deviation of 43, at its size by 13."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    path = saved(noise.resize((512, 512), Image.Resampling.BICUBIC), tmp_path / "a.jpg", quality=95)
    with Image.open(path) as image:
        whole = np.asarray(image.resize((64, 64), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert np.abs(decode(path, 64, 3).astype(int) - whole).mean() < 6


def test_print_colours(tmp_path: Path) -> None:
    path = saved(plain((0, 0, 0, 0), mode="CMYK"), tmp_path / "a.jpg")
    assert set(corners(decode(path, 8, 3))) == {WHITE}


# What a viewer shows for each value of the tag: the corners of `quarters`, moved
TURNED = {
    1: [RED, GREEN, BLUE, WHITE],
    2: [GREEN, RED, WHITE, BLUE],
    3: [WHITE, BLUE, GREEN, RED],
    4: [BLUE, WHITE, RED, GREEN],
    5: [RED, BLUE, GREEN, WHITE],
    6: [BLUE, RED, WHITE, GREEN],
    7: [WHITE, GREEN, BLUE, RED],
    8: [GREEN, WHITE, RED, BLUE],
}


@pytest.mark.parametrize("kind", ["png", "tif"])
@pytest.mark.parametrize("orientation", TURNED)
def test_the_camera_s_rotation_is_applied(tmp_path: Path, orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    path = saved(quarters(), tmp_path / f"a.{kind}", exif=exif)
    assert corners(decode(path, 16, 3)) == TURNED[orientation]


def test_the_middle_square_is_kept(tmp_path: Path) -> None:
    """Of 30 x 10 columns 10 to 19 stay: red | green | blue leaves green alone."""
    pixels = np.repeat(np.array([RED, GREEN, BLUE], np.uint8), 10, axis=0)[None].repeat(10, axis=0)
    path = saved(Image.fromarray(pixels), tmp_path / "a.png")
    assert set(corners(decode(path, 10, 3))) == {GREEN}
    upright = saved(Image.fromarray(pixels.transpose(1, 0, 2)), tmp_path / "b.png")
    assert set(corners(decode(upright, 10, 3))) == {GREEN}


def bomb() -> bytes:
    """A PNG of a few bytes that says it is 20,000 x 20,000."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


def jpeg() -> bytes:
    file = BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    Image.fromarray(noise).save(file, "JPEG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"just some text, renamed", "no image of a known format"),
        (jpeg()[: len(jpeg()) // 2], "cut short or damaged"),
        (bomb(), "pixels"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no image of a known format"),  # would start a program
    ],
    ids=["empty", "text", "cut short", "bomb", "program"],
)
def test_what_is_no_image_says_why(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(Unreadable, match=reason):
        decode(tmp_path / "a.jpg", 8, 3)


def test_pillow_s_own_limit_is_not_the_only_one(tmp_path: Path) -> None:
    head = bytearray(bomb())
    head[16:24] = struct.pack(">II", 12_000, 12_000)  # 144 million, Pillow refuses from 179 million on
    head[29:33] = struct.pack(">I", zlib.crc32(bytes(head[12:29])))
    (tmp_path / "a.png").write_bytes(bytes(head))
    with pytest.raises(Unreadable, match="12,000 x 12,000"):
        decode(tmp_path / "a.png", 8, 3)


def test_numbers_that_are_no_grey_levels_are_refused(tmp_path: Path) -> None:
    path = saved(Image.fromarray(np.full((9, 9), 0.5, np.float32)), tmp_path / "a.tif")
    with pytest.raises(Unreadable, match="floating-point"):
        decode(path, 8, 1)
    for value in (70_000, 200):  # of the second nobody knows what is white: 255, 65,535 or more
        path = saved(Image.fromarray(np.full((9, 9), value, np.int32)), tmp_path / "b.tif")
        with pytest.raises(Unreadable, match="32 bits"):
            decode(path, 8, 1)


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm", "signed.tif"])
def test_sixteen_bits_in_whatever_mode_pillow_has_them(tmp_path: Path, name: str) -> None:
    levels = Image.fromarray(np.full((9, 9), 257 * 100, np.uint16))
    path = saved(levels, tmp_path / name, **({"tiffinfo": {339: 2}} if name == "signed.tif" else {}))
    with Image.open(path) as image:
        assert image.mode == "I" or name in ("a.png", "a.tif")  # there it depends on Pillow's version
    assert set(corners(decode(path, 8, 1))) == {(100,)}


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="cannot be read: No such file"):
        decode(tmp_path / "gone.jpg", 8, 3)


@pytest.mark.parametrize(("system", "passing"), [("posix", False), ("nt", True)])
def test_what_may_not_be_read_stays_so_but_on_windows(
    system: str, passing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There another program may have it open, and closing that changes nothing by which it would be tried again."""
    error = PermissionError(errno.EACCES, "Permission denied")
    with monkeypatch.context() as other:
        other.setattr(os, "name", system)
        found = decoding._for_now(error)
    assert found is not None
    assert found.passing == passing
