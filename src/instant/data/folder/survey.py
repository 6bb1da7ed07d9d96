"""What the images are like before they are decoded: their sizes, and whether all are grey."""

from __future__ import annotations

import json
import statistics
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from instant.data.files import atomic
from instant.data.folder.decode import GREY, Unreadable, open_image
from instant.data.folder.listing import Listing

LOOKED_AT = 128


class Survey(NamedTuple):
    median: int  # of the shorter sides
    equal: bool  # all the same square
    grey: bool

    @property
    def channels(self) -> int:
        return 1 if self.grey else 3


class _Header(NamedTuple):
    width: int
    height: int
    grey: bool


def survey(listing: Listing, home: Path) -> Survey | None:
    """From the headers of some hundred files, evenly apart; None where none can be read. Kept below `home`.

    A set counts as grey, or as of one size, only if every file is: where those few are, the others are looked at too,
    up to the first that differs.
    """
    kept = home / listing.key / "survey.json"
    with suppress(OSError, ValueError, TypeError):  # not there, or damaged: it is made anew
        return Survey(**json.loads(kept.read_text(encoding="utf-8")))
    every = max(1, len(listing.names) // LOOKED_AT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's remarks on metadata
        headers = list(_headers(listing, listing.names[::every])) or list(_headers(listing, listing.names))
        if not headers:
            return None
        width, height, _ = headers[0]
        grey, equal = True, width == height
        for header in chain(headers, _headers(listing, listing.names)):
            grey, equal = grey and header.grey, equal and header[:2] == (width, height)
            if not (grey or equal):
                break
    median = round(statistics.median(min(header.width, header.height) for header in headers))
    found = Survey(median=median, equal=equal, grey=grey)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with atomic(kept, "w") as file:
        json.dump(found._asdict(), file)
    return found


def _headers(listing: Listing, names: Iterable[str]) -> Iterator[_Header]:
    for name in names:
        try:
            with open_image(listing.root / name) as image:
                yield _Header(*image.size, image.mode in GREY)
        except Unreadable:
            continue  # decoding will say so
