"""Which images there are: a folder walked, or a table of paths; never a file outside the folder."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from instant.data.folder.labels import alike, match_labels, merge_spellings, ways
from instant.data.folder.names import Names
from instant.data.folder.problems import Flaw
from instant.data.folder.table import FILE, LABEL, FileTable, as_name, read_table
from instant.errors import InputError

IMAGES = frozenset(  # what the formats that are decoded are called; browsers and Windows save JPEG as .jfif
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".bmp", ".dib", ".gif", ".tif", ".tiff"}
    | {".pbm", ".pgm", ".ppm", ".pnm"}
)
UNREAD = frozenset(
    {".heic", ".heif", ".avif", ".jxl", ".jp2", ".psd", ".svg"}
    | {".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf", ".raf", ".rw2"}
)
SYSTEMS = frozenset(("$RECYCLE.BIN", "System Volume Information"))  # of a Windows drive: deleted photos are none
LABELLED = ("labelled", "labeled")


class Listing(NamedTuple):
    """The images of a folder by their names from it, sorted, and the labels people gave."""

    root: Path
    names: Names
    labels: dict[str, str]
    key: str  # changes whenever a file does


def list_images(path: Path, label_file: Path | None, problems: list[Flaw]) -> Listing:
    """A folder with a table of labels, a folder with labelled/CLASS/, or a table of paths and labels."""
    listing, table = _find(path, problems)
    labels = merge_spellings(_labels(path, listing.root, listing.names, table, label_file, problems), problems)
    if len(set(labels.values())) < 2:
        what = "no file has a label" if not labels else f"all labels are {next(iter(labels.values()))!r}"
        where = label_file or path
        raise InputError(
            f"{where}: {what} (empty, NaN and -1 are unlabelled); expected labels of two classes or more. Label a few "
            "files of each class."
        )
    return listing._replace(labels=labels)


def list_unlabelled(path: Path, problems: list[Flaw]) -> Listing:
    """A folder, or a table of paths, whose labels nobody asks for."""
    listing, table = _find(path, problems)
    if table is not None and table.files is not None:
        match_labels(table.files, [""] * len(table.files), listing.names, listing.root, problems)  # for what is missing
    return listing


def _find(path: Path, problems: list[Flaw]) -> tuple[Listing, FileTable | None]:
    """The images that are there, without labels yet, and the table that names them."""
    known = len(problems)
    if path.is_dir():
        root, table = path, None
        names, key = _take(root, _walk(root, problems), problems)
    else:
        root, table = path.parent, read_table(path)
        if table.files is None:
            raise InputError(f"{path}: expected a column file with the paths of the images, from the table's folder.")
        names, key = _take(root, iter(sorted(_named(table.files, root, problems))), problems)
    if not names:
        if table is not None and table.files is not None:
            match_labels(table.files, [""] * len(table.files), names, root, problems)  # for why none can be used
        if flaw := next(iter(problems[known:]), None):
            remedy = "Put the table into a folder above all of its images, or name the folder of the images instead."
            if table is None:
                remedy = "Bring images that can be read, or name another folder."
            raise InputError(
                f"{path}: none of its files can be used; the first is {flaw.file!r}: {flaw.reason}. {remedy}"
            )
        raise InputError(
            f"{path} holds no image files ({', '.join(sorted(IMAGES))}); name the folder or table of your images."
        )
    return Listing(root, names, {}, key), table


def _named(files: Sequence[str], root: Path, problems: list[Flaw]) -> set[str]:
    """What is there of the files of a table; where nothing is as it is written, what is alike, if that is one file."""
    there: set[str] = set()
    absent = []
    for file in files:
        if file.strip():
            meant = ways(file, root)
            if way := next((way for way in meant if os.path.lexists(root / way)), None):
                there.add(way)
            else:
                absent.append([alike(way) for way in meant])
    asked = {way for meant in absent for way in meant}
    above = {way[:end] for way in asked for end, mark in enumerate(way) if mark == "/"}
    fits: defaultdict[str, list[str]] = defaultdict(list)
    for name in _those_alike(root, asked, above, problems) if asked else ():
        fits[alike(name)].append(name)
    for meant in absent:
        found = next((fits[way] for way in meant if way in fits), [])
        there.update(found if len(found) == 1 else ())
    return there


def _those_alike(root: Path, asked: set[str], above: set[str], problems: list[Flaw], below: str = "") -> Iterator[str]:
    """Names of the files that are alike those asked for; of the folders only those above them are looked into."""
    try:
        found, folders, links = _look(root / below)
    except OSError as error:
        problems.append(Flaw(below or ".", f"the folder cannot be read: {error.strerror or error}"))
        return
    for last in found:
        name = f"{below}/{last}" if below else last
        if last not in folders and last not in links:
            if alike(name) in asked:
                yield name
        elif alike(name) in above:
            yield from _those_alike(root, asked, above, problems, name)


def _labels(
    path: Path,
    root: Path,
    names: Names,
    table: FileTable | None,
    label_file: Path | None,
    problems: list[Flaw],
) -> dict[str, str]:
    if label_file is not None:
        if table is not None and table.labels is not None:
            raise InputError(f"{path} has labels of its own; leave --labels out, or leave the label column out.")
        if table is not None and table.files is not None:
            match_labels(table.files, [""] * len(table.files), names, root, problems)  # for what is not there
        table = read_table(label_file)
        if table.files is None or table.labels is None:
            absent = FILE if table.files is None else LABEL
            raise InputError(
                f"{label_file}: expected the columns file and label, there is no column {absent[0]}, and none called "
                f"{' or '.join(absent[1:])}. Rename the one that is meant."
            )
        if part := next((above[0] for _, above in _labelled_part(names) if len(above) > 1), None):
            problems.append(Flaw(part, "the classes its folders are named for are not used: --labels says the labels"))
    if table is not None and table.files is not None:
        if table.labels is None:
            raise InputError(f"{path}: expected a column label beside the paths, or --labels FILE.")
        found = match_labels(table.files, table.labels, names, root, problems)
        given = [file for file, label in zip(table.files, table.labels) if label]
        if given and not found:
            raise InputError(
                f"{label_file or path}: none of its {len(given):,} labels can be used; the first is of {given[0]!r}. "
                f"Write the paths of the images as they are in {root}."
            )
        return found
    found = {}
    for name, above in _labelled_part(names):
        if len(above) > 1 and (label := as_name(above[1])):
            found[name] = label
        elif len(above) > 1:
            problems.append(Flaw(name, f"{above[1]!r} stands for no label; it counts as unlabelled"))
        else:
            problems.append(Flaw(name, f"it lies in {above[0]}/ but in no class's folder; it counts as unlabelled"))
    if not found:
        raise InputError(
            f"{path}: nothing says which images are labelled. Add --labels FILE, a table with the columns file and "
            "label, or put the labelled images into labelled/CLASS/."
        )
    return found


def _labelled_part(names: Names) -> Iterator[tuple[str, list[str]]]:
    """The names below labelled/, in whatever case that is written, each with the folders above it."""
    for name in names:
        above = name.split("/")[:-1]
        if above and above[0].casefold() in LABELLED:
            yield name, above


def _walk(root: Path, problems: list[Flaw], below: str = "") -> Iterator[str]:
    """Names of all files that look like images, in order; links to folders are not followed, hidden files not seen."""
    try:
        found, folders, links = _look(root / below)
    except OSError as error:
        if not below:
            raise InputError(f"{root} cannot be read ({error.strerror or error}); check its permissions.") from error
        problems.append(Flaw(below, f"the folder cannot be read: {error.strerror or error}"))
        return
    for last in found:
        name = f"{below}/{last}" if below else last
        if last in folders:
            yield from _walk(root, problems, name)
        elif last in links:
            problems.append(Flaw(name, "it is a link to a folder, which is not followed"))
        elif (suffix := os.path.splitext(last)[1].lower()) in IMAGES:
            yield name
        elif suffix in UNREAD:
            problems.append(Flaw(name, "images of this format are not read; save it as JPEG or PNG"))


def _look(folder: Path) -> tuple[list[str], set[str], set[str]]:
    """What is in it, in order; which of that are folders, and which links to folders.

    Names alone are kept, as an entry of the system takes four times their memory.
    """
    found, folders, links = [], set(), set()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name in SYSTEMS:
                continue
            found.append(entry.name)
            if entry.is_dir(follow_symlinks=False):
                folders.add(entry.name)
            elif entry.is_symlink() and os.path.isdir(entry):
                links.add(entry.name)
    found.sort()
    return found, folders, links


def _take(root: Path, names: Iterator[str], problems: list[Flaw]) -> tuple[Names, str]:
    """Those that are plain files within the folder, also by way of links; and the key of them all."""
    home = os.path.realpath(root)
    digest = hashlib.sha256()
    kept = Names()
    for name in names:
        path = os.path.join(home, name)
        try:
            real = os.path.realpath(path, strict=True)
            if os.path.commonpath((home, real)) != home:
                problems.append(Flaw(name, "it is a link that leaves the folder; it is not read"))
                continue
            found = os.stat(real)
        except (OSError, ValueError) as error:
            problems.append(Flaw(name, f"the file cannot be read: {getattr(error, 'strerror', None) or error}"))
            continue
        if not stat.S_ISREG(found.st_mode):
            problems.append(Flaw(name, "it is no file but a folder, pipe or device; it is not read"))
            continue
        digest.update(repr((name, found.st_size, found.st_mtime_ns, found.st_ctime_ns)).encode())
        kept.append(name)
    return kept, digest.hexdigest()[:32]
