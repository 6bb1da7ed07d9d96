"""The rows behind `instant list`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from instant.algorithms import METHODS
from instant.backbones import BACKBONES
from instant.config import Recipe, described
from instant.data.sources import SOURCES
from instant.methods import method_options
from instant.published import CELLS
from instant.recipes import DEFAULTS, RECIPES, command_of, recipe_of

Rows = list[dict[str, Any]]


def summary(function: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((function.__doc__ or "").split("\n\n")[0].split())


def methods() -> Rows:
    return [
        {
            "method": name,
            "what": summary(function),
            "options": [f"{option}={default}" for option, default in method_options(name).items()],
        }
        for name, function in METHODS.items()
    ]


def recipes() -> Rows:
    """Every recipe by itself, then every cell of the paper's tables with its command."""
    own: Rows = [
        {"recipe": name, "where": summary(function), "published %": "", "command": _plain_command(name, function())}
        for name, function in RECIPES.items()
    ]
    cells: Rows = [
        {
            "recipe": recipe_of(cell),
            "where": f"{cell.table}, {cell.source} ({cell.labels}), {cell.method}",
            "published %": f"{cell.accuracy:.2f} ± {cell.interval}",
            "command": command_of(cell),
        }
        for cell in CELLS
    ]
    return own + cells


def _plain_command(name: str, recipe: Recipe) -> str:
    if recipe.source not in SOURCES:
        return f"(from Python, with instant.recipes.{name})"
    chosen = "" if DEFAULTS[recipe.source] == name else f"recipe={name} "
    weights = "pretrained=FILE " if name.startswith("pretrained_") else ""
    return f"instant train {recipe.source} {chosen}{weights}labels={recipe.labels} method={recipe.method}"


def backbones() -> Rows:
    return [
        {"backbone": name, "what": info.summary, "options": list(info.options)} for name, info in BACKBONES.items()
    ] + [{"backbone": "timm:NAME", "what": "any classifier of timm (pip install 'instant-ssl[timm]')", "options": []}]


def sources() -> Rows:
    return [
        {
            "source": info.name,
            "what": info.about,
            "classes": info.classes,
            "shape": list(info.shape),
            "download MB": round(info.download_bytes / 1e6, 1),
            "from": info.origin,
        }
        for info in SOURCES.values()
    ]


def settings() -> Rows:
    """The values are those of a recipe that says nothing about them."""
    rows = [
        ("recipe", "", "which settings to begin with: instant list recipes; else the one that fits the source"),
        *described(),
        ("method.OPTION", "", "an option of the method: instant list methods"),
        ("backbone.OPTION", "", "an option of the backbone: instant list backbones"),
    ]
    return [{"setting": key, "if no recipe says": _written(default), "what": what} for key, default, what in rows]


def _written(value: Any) -> str:
    """As it would be given."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


LISTINGS: dict[str, Callable[[], Rows]] = {
    "methods": methods,
    "recipes": recipes,
    "backbones": backbones,
    "sources": sources,
    "settings": settings,
}
