"""Are the options of a backbone those it has, each of the kind that its hint says?"""

from __future__ import annotations

import types
import typing
from typing import Any

from instant.errors import InputError, nearest
from instant.kinds import fits

KINDS = {int: "a whole number, for example 64", float: "a number, for example 0.1"}
KINDS |= {bool: "true or false", str: "a text", type(None): "none"}


def check_options(name: str, args: dict[str, Any], kinds: dict[str, Any]) -> None:
    """Every argument must be one of those that there are, and of its kind."""
    for argument, value in args.items():
        if argument not in kinds:
            hint = nearest(argument, kinds) if kinds else "it has none"
            raise InputError(f"{name} has no argument {argument!r}: {hint}")
        if not _fits(value, kinds[argument]):
            raise InputError(f"backbone.{argument}={value!r} of {name} must be {_in_words(kinds[argument])}.")


def _fits(value: Any, kind: Any) -> bool:
    """An enum or a path comes as the text that its owner makes one of."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return any(_fits(value, part) for part in typing.get_args(kind))
    if isinstance(kind, type) and kind not in (*KINDS, list, dict) and not typing.get_origin(kind):
        return True
    try:
        return fits(value, kind)
    except TypeError:  # a hint that no value of a file has, such as a tuple: its owner judges it
        return True


def _in_words(kind: Any) -> str:
    """What a hint asks for.

    >>> _in_words(int | None), _in_words(typing.Literal["mean", "max"])
    ('a whole number, for example 64 or none', 'mean or max')
    """
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(map(str, typing.get_args(kind)))
    union = typing.get_origin(kind) in (types.UnionType, typing.Union)
    parts = typing.get_args(kind) if union else (kind,)
    return " or ".join(KINDS.get(part, getattr(part, "__name__", str(part))) for part in parts)
