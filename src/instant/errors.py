"""The one error type that is the user's to mend; everything else that escapes is a defect of ours."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """A setting, a file or an array that cannot be used: what, where, expected, got, and what to do.

    The command prints the sentence alone and exits with code 2.
    """


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error sentence that names the closest valid word.

    >>> nearest("fixmach", ["fixmatch", "uda"])
    "did you mean 'fixmatch'?"
    >>> nearest("UDA", ["fixmatch", "uda"])
    "did you mean 'uda'?"
    >>> nearest("zzz", ["fixmatch", "uda"])
    'choose one of: fixmatch, uda'
    """
    names = sorted(known)
    spelt = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), spelt, n=1, cutoff=0.6)
    return f"did you mean {spelt[close[0]]!r}?" if close else f"choose one of: {', '.join(names)}"
