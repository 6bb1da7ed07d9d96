"""Which file has which label: names of a table matched with files that are there, classes that are spelt twice."""

from __future__ import annotations

import posixpath
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from instant.data.folder.problems import Flaw


def inside(name: str, root: Path) -> str | None:
    """The name relative to the folder, without leaving it; None where it leads outside. It need not exist.

    >>> [inside(name, Path("/photos")) for name in ("./a/../b.jpg", "/photos/b.jpg", "../b.jpg", "/etc/passwd")]
    ['b.jpg', 'b.jpg', None, None]
    """
    plain = posixpath.normpath(name.strip())
    if posixpath.isabs(plain):
        for base in dict.fromkeys((str(root), str(root.resolve()))):
            if plain.startswith(base.rstrip("/") + "/"):
                return plain[len(base.rstrip("/")) + 1 :]
        return None
    return None if plain == ".." or plain.startswith("../") else plain


def match_labels(
    files: Sequence[str], labels: Sequence[str], names: Sequence[str], root: Path, problems: list[Flaw]
) -> dict[str, str]:
    """The label of every file that has one. A file in a subfolder may be called by its last name if that is unique."""
    # what is asked for is kept, not what is there: a table has a few names where a folder may have a million
    asked = {way for file in files if (within := inside(file, root)) is not None for way in (within, _slashed(within))}
    there: set[str] = set()
    by_last: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        if name in asked:
            there.add(name)
        if (last := posixpath.basename(name)) in asked:
            by_last[last].append(name)
    found: dict[str, str] = {}
    disputed: set[str] = set()
    for file, label in zip(files, labels):
        within = inside(file, root)
        if within is None:
            problems.append(Flaw(file, "the table names a file outside the folder; its row is not used"))
            continue
        name = within if within in there else _slashed(within)
        if name not in there:
            same = by_last.get(name, [])
            if len(same) != 1:
                reason = (
                    f"the name fits {len(same)} files ({', '.join(same[:3])}); write the path from the folder"
                    if same
                    else "there is no image of this name in the folder; its label is not used"
                )
                problems.append(Flaw(file, reason))
                continue
            name = same[0]
        if not label:
            continue
        if name in found and found[name] != label:
            disputed.add(name)
            problems.append(Flaw(name, f"it has two labels, {found[name]!r} and {label!r}; neither is used"))
        elif name in found:
            problems.append(Flaw(name, f"its label {label!r} is given twice; it counts once"))
        found[name] = label
    return {name: label for name, label in found.items() if name not in disputed}


def _slashed(name: str) -> str:
    """As another system writes it: with slashes where it has backslashes."""
    return posixpath.normpath(name.replace("\\", "/")) if "\\" in name else name


def merge_spellings(labels: dict[str, str], problems: list[Flaw]) -> dict[str, str]:
    """Names that differ in case, spaces or composed letters only are one class, spelt as most of its files have it."""
    counts = Counter(labels.values())
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for label in sorted(counts):
        classes[" ".join(unicodedata.normalize("NFC", label).casefold().split())].append(label)
    kept = {label: max(group, key=lambda one: counts[one]) for group in classes.values() for label in group}
    for name, label in labels.items():
        if kept[label] != label:
            problems.append(Flaw(name, f"its class {label!r} is taken as {kept[label]!r}: two spellings of one class"))
    return {name: kept[label] for name, label in labels.items()}


def note_single(labels: dict[str, str], problems: list[Flaw]) -> None:
    """A class with one label can be trained on, but nothing about it can be checked."""
    counts = Counter(labels.values())
    for name, label in labels.items():
        if counts[label] == 1:
            problems.append(Flaw(name, f"it is the only labelled file of class {label!r}; label some more"))


def class_order(name: str) -> tuple[bool, int, str]:
    """A key that puts numbers by their value before words: 2, 10, cat."""
    number = name.isascii() and name.isdecimal()
    return not number, int(name) if number else 0, name
