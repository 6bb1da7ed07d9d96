"""Is a value that was read from a file of the kind that a type hint says?"""

from __future__ import annotations

import types
import typing
from typing import Any, Literal


def fits(value: Any, kind: Any) -> bool:
    """Whether a value of JSON is a `kind`, and all that is in it; a whole number is a number too, true is none.

    >>> fits([1, 2.5], list[float]), fits([True], list[float]), fits({"a": None}, dict[str, int | None])
    (True, False, True)
    """
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if origin in (types.UnionType, typing.Union):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is list:
        return isinstance(value, list) and all(fits(each, parts[0]) for each in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(each, parts[1]) for each in value.values())
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def misfit(values: dict[str, Any], kinds: dict[str, Any]) -> str | None:
    """The first of the names in both whose value is of another kind, with the start of that value."""
    wrong = (name for name, kind in kinds.items() if name in values and not fits(values[name], kind))
    return next((f"{name} {values[name]!r:.40}" for name in wrong), None)
