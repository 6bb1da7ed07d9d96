"""Code of the user's own, `package.module:function`: imported where the caller names it, never where a file does."""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from instant.errors import InputError

TIMM = "timm:"  # of a backbone: what follows is the name of a model, and nothing that could be imported
OPENED = ("pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir")  # what timm may unpickle
NOT_THEIRS = tuple(f"{Path(package).parent}{os.sep}" for package in (__file__, torch.__file__))


def is_own(name: str) -> bool:
    """Does a method's or a backbone's name say what to import?

    >>> is_own("my_rule:my_method"), is_own("fixmatch"), is_own("timm:resnet18")
    (True, False, False)
    """
    return ":" in name and not name.startswith(TIMM)


def import_own(setting: str, name: str, form: str) -> Callable[..., Any]:
    """The function that `setting=name` names; `form` is how it will be called."""
    module, _, attribute = name.partition(":")
    try:
        if not module or module.startswith("."):
            raise ImportError("it names no module")
        found = attrgetter(attribute)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        file = "a module rather than a file: leave out .py and folders, " if ".py" in module or "/" in module else ""
        raise InputError(
            f"{setting}={name!r} cannot be imported ({error}); expected {file}package.module:function with the module "
            "on PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:  # the module is somebody's own, and may do anything
        raise InputError(f"{setting}={name!r} cannot be imported ({mishap(error)}); mend {module} first.") from error
    if not callable(found):
        raise InputError(f"{setting}={name!r} is a {type(found).__name__}, expected a {form}")
    return found


def mishap(error: BaseException) -> str:
    """What went wrong in somebody's own code, and the last line of it that was reached."""
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return said  # says where itself
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith((*NOT_THEIRS, "<frozen"))]
    return f"{said}, {theirs[-1].filename} line {theirs[-1].lineno}" if theirs else said


def own_name(function: Callable[..., Any]) -> str:
    """What a run folder calls a function of the user's own: `package.module:function`, importable or not.

    >>> own_name(partial(is_own, name="mlp"))  # what a partial gives is a default of its signature
    'instant.own_code:is_own'
    """
    while isinstance(function, partial):
        function = function.func
    return f"{function.__module__}:{getattr(function, '__qualname__', type(function).__name__)}"


def require_named(folder: object, setting: str, trained: str, named: str | None) -> None:
    """Code is named by the caller, the folder's word for it is not taken; what is ours stays what it was."""
    if named not in (None, trained) and not (is_own(named) and is_own(trained)):  # code may have moved
        raise InputError(f"{folder} was begun with {setting}={trained}, not {named}; leave it out, or name that one.")
    if named is None and is_own(trained):
        how = (
            f"name it yourself with {setting}={trained} (in commands about a finished run --{setting} {trained})."
            if "<" not in trained  # a lambda, or a function within another
            else f"give it in Python, where it has no name to import it by: instant.load(RUN, {setting}=FUNCTION)."
        )
        raise InputError(
            f"{folder} was trained with a {setting} of its own, {trained}, which is code, and a run folder is not "
            f"trusted to run any; if you know it, {how}"
        )


def require_unopened(backbone: str, options: dict[str, Any]) -> None:
    """Before training what a folder says: timm would open a file of the folder's choice, and a pickle is code."""
    opened = [name for name in OPENED if name in options]
    if opened and backbone.startswith(TIMM):
        raise InputError(
            f"backbone.{opened[0]}={options[opened[0]]!r} has timm open a file that can run code, and this would be on "
            "the word of a run folder, which is not trusted to run any; train with pretrained=FILE instead."
        )
