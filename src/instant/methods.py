"""Methods by name, ours and anybody's, with a look at their options before they are built."""

from __future__ import annotations

import inspect

from instant.algorithms import METHODS
from instant.errors import InputError, nearest
from instant.own_code import import_own, is_own, mishap, own_name
from instant.types import Method, MethodFunction, Problem

SHARES = ("threshold", "base", "momentum", "confident", "confident_from")
POSITIVE = ("temperature", "alpha", "sigmas", "gamma", "period", "xi")
FORM = "function(problem, **options)"


def find_method(name: str | MethodFunction) -> MethodFunction:
    """The function called `name`, ours or anybody's as `package.module:function`; a function is itself."""
    if not isinstance(name, str):
        return name
    if not is_own(name):
        if name not in METHODS:
            raise InputError(
                f"method={name!r} is not known; {nearest(name, METHODS)} "
                "(a method of your own is given as package.module:function)"
            )
        return METHODS[name]
    found = import_own("method", name, FORM)
    if not _takes_something(found):
        raise InputError(f"method={name!r} is a {type(found).__name__} that takes no argument, expected a {FORM}")
    return found


def name_of(function: MethodFunction) -> str:
    """What a run folder calls it: ours by its name, anybody's `package.module:function`, importable or not."""
    for name, ours in METHODS.items():
        if function is ours:
            return name
    return own_name(function)


def _takes_something(function: MethodFunction) -> bool:
    try:
        return len(inspect.signature(function).parameters) > 0
    except ValueError:  # some functions written in C do not say
        return False


def method_options(name: str | MethodFunction) -> dict[str, object]:
    """The options of a method and their defaults."""
    return {p.name: p.default for p in _parameters(name) if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def options_of_ours(name: str) -> dict[str, object]:
    """Of one of our methods; what an option of another's means only its author knows, and its code is not loaded."""
    return method_options(name) if name in METHODS else {}


def takes_any_option(name: str | MethodFunction) -> bool:
    """Does it end in `**options`, as a method does that hands them on to another?"""
    return any(p.kind is p.VAR_KEYWORD for p in _parameters(name))


def _parameters(name: str | MethodFunction) -> list[inspect.Parameter]:
    """All but the first, which is the problem."""
    return list(inspect.signature(find_method(name)).parameters.values())[1:]


def build_method(name: str | MethodFunction, problem: Problem, **options: object) -> Method:
    """The method called `name`, sized for a problem; an unknown option names the nearest valid one."""
    known = method_options(name)
    shown = name if isinstance(name, str) else getattr(name, "__name__", "the method")
    ours = find_method(name) in METHODS.values()
    for option, value in options.items():
        if option in known:
            _check_kind(option, value, known[option])
            if ours:
                _check_range(option, value)
        elif not takes_any_option(name):
            hint = nearest(option, known) if known else "it has none"
            raise InputError(f"method.{option} is not an option of {shown}; {hint}")
    try:
        method = find_method(name)(problem, **options)
    except Exception as error:
        if ours or isinstance(error, InputError):
            raise
        raise InputError(
            f"method={shown} could not be built ({mishap(error)}); expected a {FORM} "
            "that returns an instant.types.Method. Its options are given as method.NAME=VALUE."
        ) from error
    if not isinstance(method, Method):
        raise InputError(f"method={shown} returned a {type(method).__name__}, expected an instant.types.Method")
    return method


def _check_range(option: str, value: object) -> None:
    """The numbers that our methods take are never below 0, and some are bound further."""
    if not isinstance(value, int | float):
        return
    if option in SHARES and not 0 <= value <= 1:
        raise InputError(f"method.{option}={value} must lie in [0, 1].")
    if option in POSITIVE and not value > 0:
        raise InputError(f"method.{option}={value} must be above 0.")
    if not value >= 0:  # in this form it holds for NaN too
        raise InputError(f"method.{option}={value} must be 0 or more.")


def _check_kind(option: str, value: object, default: object) -> None:
    """A number where the default is one, a word where it is a word; what has no default is the method's to judge."""
    if isinstance(default, bool):
        fine, must = isinstance(value, bool), "true or false"
    elif isinstance(default, int | float):
        fine = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**31
        must = f"a number, for example {default}"
    else:
        fine, must = isinstance(value, str) or not isinstance(default, str), f"a word, for example {default}"
    if not fine:
        raise InputError(f"method.{option}={value!r} must be {must}")
