"""One image file to a uint8 square, whatever its format, mode, size and rotation.

What is done, always the same: a rotation noted by the camera is applied; transparent parts show white; 16 bits are
scaled to 8 by dividing by 257; the largest square in the middle is kept and resized, with the antialiased bilinear
filter. Of an animation the first picture counts. This module is imported by worker processes: it must not need torch.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

# Only these are tried: other formats of Pillow start programs (EPS) or are not what people label
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM")
LIMIT = 2**27  # pixels: half a GB as RGBA; a small file that unpacks to more is a trap, not a photograph
GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N"})
ORIENTATION = 274  # of EXIF
BITS = 258  # of TIFF
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Unreadable(Exception):
    """A file that gives no image; the message is the reason. What is `passing` may be over when it is tried again."""

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


def open_image(path: Path) -> Image.Image:
    """The image with only its header read."""
    try:
        if path.stat().st_size == 0:
            raise Unreadable("the file is empty (0 bytes)")
        image = Image.open(path, formats=FORMATS)
    except UnidentifiedImageError:
        raise Unreadable("the content is no image of a known format") from None
    except Image.DecompressionBombError:
        raise Unreadable(f"it unpacks to more than {LIMIT:,} pixels") from None
    except (OSError, MemoryError) as error:
        raise _for_now(error) or Unreadable(f"the file cannot be read: {error}") from error
    except Unreadable:
        raise
    except Exception as error:  # a damaged header makes Pillow's readers fail in many ways
        raise Unreadable(f"the header is damaged ({error})") from error
    if image.width * image.height > LIMIT:
        image.close()
        raise Unreadable(f"it unpacks to {image.width:,} x {image.height:,}, more than {LIMIT:,} pixels")
    return image


def decode(path: Path, side: int, channels: int) -> np.ndarray:
    """uint8 (channels, side, side)."""
    with open_image(path) as image:
        try:
            image.draft(None, (2 * side, 2 * side))  # JPEG unpacks at half, a quarter or an eighth where that will do
            image.load()
            pixels = np.asarray(_square(image, side, channels))
        except Unreadable:
            raise
        except Exception as error:  # as above; one bad file must not end the run
            raise _for_now(error) or Unreadable(f"the image is cut short or damaged ({error})") from error
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def _for_now(error: Exception) -> Unreadable | None:
    """What says nothing about the file: the memory is full, the disk has gone. Pillow's own errors have no number."""
    if isinstance(error, MemoryError):
        return Unreadable("there was not enough memory to open it", passing=True)
    if isinstance(error, OSError) and error.errno is not None:
        # until a chmod, which changes the key of the listing; on Windows another program may just have it open
        lasts = os.name != "nt" and error.errno in (errno.EACCES, errno.EPERM)
        return Unreadable(f"the file cannot be read: {error.strerror}", passing=not lasts)
    return None


def _square(image: Image.Image, side: int, channels: int) -> Image.Image:
    turn = TURNS.get(_orientation(image))
    plain = _plain(image, "L" if channels == 1 else "RGB")
    width, height = plain.size
    short = min(width, height)
    left, top = (width - short) / 2, (height - short) / 2
    box = (left, top, left + short, top + short)
    small = plain.resize((side, side), Image.Resampling.BILINEAR, box=box, reducing_gap=3.0)
    return small if turn is None else small.transpose(turn)  # the middle square stays the middle one when turned


def _orientation(image: Image.Image) -> int:
    try:
        return image.getexif().get(ORIENTATION, 1)
    except Exception:  # damaged EXIF is no reason to do without the picture
        return 1


def _bits(image: Image.Image) -> int:
    """Of a pixel of mode I, which Pillow also has for 16 bits; only TIFF holds more of them."""
    tags = getattr(image, "tag_v2", {})
    return max(tags.get(BITS, (16,)))


def _plain(image: Image.Image, mode: str) -> Image.Image:
    """L or RGB of eight bits, without transparency."""
    if image.mode == "F":
        raise Unreadable("its pixels are floating-point numbers; save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        if _bits(image) > 16 or values.min() < 0 or values.max() > 65535:
            raise Unreadable("its pixels have 32 bits; save it with 8 or 16 bits")
        if isinstance(clear := image.info.get("transparency"), int):
            values[values == clear] = 65535
        image = Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))
    elif image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        if image.mode in ("La", "RGBa"):  # premultiplied; Pillow goes back by one way only
            image = image.convert("LA" if image.mode == "La" else "RGBA")
        above = image.convert("RGBA")
        image = Image.new("RGBA", above.size, "white")
        image.alpha_composite(above)
    return image if image.mode == mode else image.convert(mode)
