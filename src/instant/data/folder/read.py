"""Files of your own as a source: listed, surveyed, decoded once, with every problem noted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from instant.data.files import exists
from instant.data.folder.array_file import ARRAYS, read_arrays
from instant.data.folder.cache import decoded
from instant.data.folder.decode import Unreadable, open_image
from instant.data.folder.labels import class_order, note_gaps, note_single
from instant.data.folder.listing import Listing, list_images, list_unlabelled
from instant.data.folder.names import Names
from instant.data.folder.problems import Flaw, shown
from instant.data.folder.survey import Survey, survey
from instant.data.folder.table import TABLES
from instant.data.source import Source
from instant.data.sources import default_root
from instant.data.store import Store
from instant.errors import InputError

OWN = "own"  # the name of the source in a recipe, whose `data` is the path
SIDES = range(8, 513)


def read_own(
    path: Path,
    label_file: Path | None,
    side: int | Callable[[Survey], int],
    problems: list[Flaw],
    *,
    progress: bool = True,
) -> Source:
    """A folder of images, a table of their paths, or arrays; `side` is that of the squares images become."""
    for file in (path, label_file):
        if file is not None and not exists(file):
            raise InputError(f"{file} is not there; check the path.")
    if path.is_file() and path.suffix.lower() in ARRAYS:
        return read_arrays(path, label_file, problems)
    if path.is_file() and path.suffix.lower() not in TABLES:
        raise InputError(
            f"{path}: expected a folder of images, a table of their paths ({', '.join(TABLES)}) or arrays "
            f"({', '.join(ARRAYS)}). Name the folder that holds your images."
        )
    with _keeping() as home:
        return _read_images(path, label_file, side, problems, home, progress)


def read_again(path: Path, label_file: Path | None, side: int) -> Source:
    """The files of a run, from where its folder says they are; if they are not, how to say where they are now."""
    is_file = path.suffix.lower() in (*ARRAYS, *TABLES)
    gone = {} if exists(path) else {path: f"data={'FILE' if is_file else 'FOLDER'}"}
    if label_file is not None and not exists(label_file):
        gone[label_file] = "--labels FILE"
    if gone:
        raise InputError(
            f"{' and '.join(map(str, gone))} {'is' if len(gone) == 1 else 'are'} not there, where the run looks for "
            f"its data. Say where they are now: instant train --resume RUN {' '.join(gone.values())}"
        )
    return read_own(path, label_file, side, [])


class New(NamedTuple):
    """Images nobody has labelled, what they are called, and what changes whenever one of them does."""

    store: Store
    names: Names
    key: str


def read_new(path: Path, shape: tuple[int, ...], problems: list[Flaw], *, progress: bool = True) -> New:
    """The images of a folder, or of a table of paths, in the shape a run was trained on."""
    if len(shape) != 3 or shape[1] != shape[2]:
        what = "vectors" if len(shape) == 1 else f"images of {shape[1]} x {shape[2]}, which are no squares"
        raise InputError(f"{path}: the run was trained on {what}; bring samples like them as a .npy or .npz.")
    with _keeping() as home:
        listing = list_unlabelled(path, problems)
        found = decoded(listing, home, side=shape[1], channels=shape[0], progress=progress)
    problems += [Flaw(name, reason) for name, reason in found.bad.items()]
    if len(found.images) == 0:
        raise _none_readable(path, listing, found.bad.values())
    names = Names(shown(name) for name in listing.names if name not in found.bad)
    return New(Store(found.images, str(path)), names, listing.key)


def _none_readable(path: Path, listing: Listing, reasons: Iterable[str]) -> InputError:
    first = next(iter(reasons), "nothing is wrong with it by now; start again")
    return InputError(f"{path}: none of the {len(listing.names):,} image files can be read. Of the first: {first}.")


@contextmanager
def _keeping() -> Iterator[Path]:
    """Where decoded images are kept; what is wrong with a file of the user's is a problem, not an error."""
    try:
        yield default_root() / "folders"
    except OSError as error:
        raise InputError(
            f"the decoded images cannot be kept in {default_root()} ({error.strerror or error}). Name a folder with "
            "space by the environment variable INSTANT_DATA, then start again."
        ) from error


def _read_images(
    path: Path,
    label_file: Path | None,
    side: int | Callable[[Survey], int],
    problems: list[Flaw],
    home: Path,
    progress: bool,
) -> Source:
    listing = list_images(path, label_file, problems)
    seen = survey(listing, home)
    if seen is None:
        flaws = list(_reasons(listing))
        problems += flaws
        raise _none_readable(path, listing, (flaw.reason for flaw in flaws))
    chosen = side(seen) if callable(side) else side
    if chosen not in SIDES:
        raise InputError(f"side={chosen} must be from {SIDES[0]} to {SIDES[-1]} pixels.")
    found = decoded(listing, home, side=chosen, channels=seen.channels, progress=progress)
    problems += [Flaw(name, reason) for name, reason in found.bad.items()]
    names = Names(name for name in listing.names if name not in found.bad)
    labels = {name: label for name, label in listing.labels.items() if name not in found.bad}
    note_single(labels, problems)
    classes = tuple(sorted(set(labels.values()), key=class_order))
    note_gaps(classes, problems)
    for lost in sorted(set(listing.labels.values()) - set(classes)):
        problems.append(Flaw(lost, f"no labelled image of class {lost!r} can be read; the class is left out"))
    if len(classes) < 2:
        raise InputError(
            f"{path}: only {len(labels)} labelled images can be read, of {len(classes)} classes; expected two classes "
            "or more. Repair or label some more."
        )
    number = {name: k for k, name in enumerate(classes)}
    targets = np.fromiter((number[labels[name]] if name in labels else -1 for name in names), np.int64)
    called = path.resolve().stem if path.is_file() else path.resolve().name
    return Source(
        name=called,
        train=Store(found.images, called),
        targets=targets,
        test=Store(found.images[:0], f"{called} test"),
        test_targets=np.empty(0, np.int64),
        classes=classes,
        mean=found.mean,
        std=found.std,
        files=Names(map(shown, names)),
        key=listing.key,
    )


def _reasons(listing: Listing) -> Iterator[Flaw]:
    """Why no header can be read."""
    for name in listing.names:
        try:
            open_image(listing.root / name).close()
        except Unreadable as reason:
            yield Flaw(name, str(reason))
