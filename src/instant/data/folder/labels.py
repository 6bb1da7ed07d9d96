"""Which file has which label: names of a table matched with files that are there, classes that are spelt twice."""

from __future__ import annotations

import os
import posixpath
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from instant.data.folder.problems import Flaw

ERRORS = ("#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NULL!", "#NUM!")  # what spreadsheets show for a failed formula
GAPS = ("n/a", "na", "null", "unknown", "unlabelled", "unlabeled", "?", "-")  # as some write that a label is not known


def inside(name: str, root: Path) -> str | None:
    """The name relative to the folder, without leaving it; None where it leads outside. It need not exist.

    >>> [inside(name, Path("/photos")) for name in ("./a/../b.jpg", "/photos/b.jpg", "../b.jpg", "/etc/passwd")]
    ['b.jpg', 'b.jpg', None, None]
    """
    plain = posixpath.normpath(name)
    if posixpath.isabs(plain):
        for base in dict.fromkeys((str(root), str(root.resolve()))):
            if plain.startswith(base.rstrip("/") + "/"):
                return plain[len(base.rstrip("/")) + 1 :]
        return None
    return None if plain == ".." or plain.startswith("../") else plain


def ways(file: str, root: Path) -> list[str]:
    """The names within the folder that a table may mean by a path, the likeliest first; none where it leads outside.

    As it stands, without spaces around it, with slashes where another system writes backslashes, and from the folder's
    own name on, wherever that stands in it.

    >>> ways("C:\\\\me\\\\photos\\\\a\\\\1.jpg", Path("/data/photos"))[-1]
    'a/1.jpg'
    """
    plain = file.strip()
    slashed = plain.replace("\\", "/")
    spelt = [file, plain, file.replace("\\", "/"), slashed]
    home, tail = f"/{os.path.basename(os.path.abspath(root))}/", f"/{slashed}"
    while home in tail:
        tail = tail[tail.index(home) + len(home) - 1 :]  # from its last slash on, which the next may begin with
        spelt.append(tail[1:])
    found = (inside(way, root) for way in dict.fromkeys(spelt))
    return list(dict.fromkeys(name for name in found if name is not None))


def match_labels(
    files: Sequence[str], labels: Sequence[str], names: Sequence[str], root: Path, problems: list[Flaw]
) -> dict[str, str]:
    """The label of every file that has one.

    A file in a subfolder may be called by its last name, and any in other case or with letters composed otherwise, as
    other systems have it, where that fits one file only.
    """
    # what is asked for is kept, not what is there: a table has a few names where a folder may have a million
    asked = {alike(way) for file in files for way in ways(file, root)}
    whole: defaultdict[str, list[str]] = defaultdict(list)
    last: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        key = alike(name)
        if key in asked:
            whole[key].append(name)
        if "/" in key and (end := posixpath.basename(key)) in asked:
            last[end].append(name)
    found: dict[str, str] = {}
    disputed: set[str] = set()
    for file, label in zip(files, labels):
        if not file.strip():
            if label:
                problems.append(Flaw(file, f"a row of the table has the label {label!r} but no file; it is not used"))
            continue  # else an empty row, which spreadsheets leave behind
        meant = ways(file, root)
        if not meant:
            problems.append(Flaw(file, "the table names a file outside the folder; its row is not used"))
            continue
        fits = _fits(meant, whole, last)
        if len(fits) != 1:
            reason = (
                f"the name fits {len(fits)} files ({', '.join(fits[:3])}); write the path from the folder"
                if fits
                else f"there is no image of this name in the folder; its {'label' if label else 'row'} is not used"
            )
            problems.append(Flaw(file, reason))
            continue
        name = fits[0]
        if not label:
            continue
        if name in disputed:
            continue
        if name in found and class_alike(found[name]) != class_alike(label):
            disputed.add(name)
            problems.append(Flaw(name, f"it has two labels, {found[name]!r} and {label!r}; neither is used"))
        elif name in found:
            problems.append(Flaw(name, f"its label {label!r} is given twice; it counts once"))
        else:
            found[name] = label
    return {name: label for name, label in found.items() if name not in disputed}


def _fits(meant: Sequence[str], *known: dict[str, list[str]]) -> list[str]:
    """The name that is there as it is written, or all that are alike; of whole names first, then of last ones."""
    for way in meant:
        if way in known[0].get(alike(way), ()):
            return [way]
    return next((by[key] for by in known for key in map(alike, meant) if key in by), [])


def alike(text: str) -> str:
    """The same for names that differ in case, spaces or composed letters only."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def class_alike(name: str) -> str:
    """As `alike`; and 1.0, as programs write a 1 beside gaps, is 1."""
    return re.sub(r"^([+-]?\d+)\.0*$", r"\1", alike(name))


def merge_spellings(labels: dict[str, str], problems: list[Flaw]) -> dict[str, str]:
    """Names that differ in case, spaces, composed letters or a point zero only are one class, spelt as most have it."""
    labels = _without_errors(labels, problems)
    counts = Counter(labels.values())
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for label in sorted(counts):
        classes[class_alike(label)].append(label)
    kept = {label: max(group, key=lambda one: counts[one]) for group in classes.values() for label in group}
    for name, label in labels.items():
        if kept[label] != label:
            problems.append(Flaw(name, f"its class {label!r} is taken as {kept[label]!r}: two spellings of one class"))
    return {name: kept[label] for name, label in labels.items()}


def _without_errors(labels: dict[str, str], problems: list[Flaw]) -> dict[str, str]:
    """Labels that are no error of a spreadsheet."""
    for name, label in labels.items():
        if label in ERRORS:
            reason = f"its label {label!r} is the error of a formula; it counts as unlabelled, write the class instead"
            problems.append(Flaw(name, reason))
    return {name: label for name, label in labels.items() if label not in ERRORS}


def spelt_alike(names: Iterable[str], classes: Iterable[str]) -> list[str]:
    """The names as these classes are spelt, where they differ in what `merge_spellings` overlooks only.

    >>> spelt_alike(["Cat", "cow", "2.0", ""], ["cat", "2"])
    ['cat', 'cow', '2', '']
    """
    known = {class_alike(name): name for name in classes}
    return [known.get(class_alike(name), name) for name in names]


def note_single(labels: dict[str, str], problems: list[Flaw]) -> None:
    """A class with one label can be trained on, but nothing about it can be checked."""
    counts = Counter(labels.values())
    for name, label in labels.items():
        if counts[label] == 1:
            problems.append(Flaw(name, f"it is the only labelled file of class {label!r}; label some more"))


def note_gaps(classes: Iterable[str], problems: list[Flaw]) -> None:
    """A class that is called as others call a missing label may be meant as one."""
    for name in classes:
        if alike(name) in GAPS:
            reason = f"{name!r} is taken as a class; leave the cell empty where the label is not known"
            problems.append(Flaw(name, reason))


def class_order(name: str) -> tuple[bool, int, str]:
    """A key that puts numbers by their value before words: 2, 10, cat."""
    number = name.isascii() and name.isdecimal()
    return not number, int(name) if number else 0, name
