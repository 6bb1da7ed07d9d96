"""Settings: every leaf from text, sentences for what is not one, and the paper's own by hand."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from instant import recipes
from instant.algorithms import METHODS
from instant.choose import prepare
from instant.config import Recipe, keys
from instant.data.sources import SOURCES
from instant.engine.optim import Optim
from instant.errors import InputError
from instant.listing import LISTINGS
from instant.published import CELLS, Cell
from instant.recipes import RECIPES, command_of, recipe_of, resolve

# --- leaves ---------------------------------------------------------------------------------------------------

LEAVES: list[tuple[str, str, object]] = [
    ("data", "some/folder", "some/folder"),
    ("data", "none", None),
    ("data", "all", "all"),  # a folder may be called so
    ("side", "64", 64),
    ("labels", "250", 250),
    ("labels", "1e3", 1000),
    ("labels", "all", None),
    ("labels", "All", None),
    ("labels", "none", None),
    ("validation", "20", 20),
    ("draw", "usb", "usb"),
    ("seed", "9007199254740993", 9007199254740993),  # 2^53 + 1, which no float holds
    ("method", "fixmatch", "fixmatch"),
    ("backbone", "mlp", "mlp"),
    ("pretrained", "vit.pth", "vit.pth"),
    ("pretrained", "none", None),
    ("contrast", "100", 100),
    ("steps", "600.0", 600),
    ("batch", "8", 8),
    ("ratio", "2", 2),
    ("ema", "0", 0.0),
    ("clip", "1.5", 1.5),
    ("weak_gradient", "true", True),
    ("strong_labels", "0.5", 0.5),
    ("shift", "0", 0.0),
    ("operations", "2", 2),
    ("mirror", "false", False),
    ("mix", "0.5", 0.5),
    ("mix_after", "0.25", 0.25),
    ("noise", "0.2", 0.2),
    ("neighbours", "5", 5),
    ("log_every", "7", 7),
    ("evaluate_every", "7", 7),
    ("checkpoint_every", "7", 7),
    ("device", "cpu", "cpu"),
    ("step", "compiled", "compiled"),
    ("precision", "float32", "float32"),
    ("memory", "512", 512.0),
]


@pytest.mark.parametrize(("key", "text", "value"), LEAVES)
def test_a_leaf(key: str, text: str, value: object) -> None:
    before = Recipe(pretrained="old", data="old", step="eager", precision="bfloat16")
    after = before.override({key: text})
    assert getattr(after, key) == value
    assert type(getattr(after, key)) is type(value)
    assert dataclasses.replace(after, **{key: getattr(before, key)}) == before


OPTIM: list[tuple[str, str, object]] = [
    ("name", "adamw", "adamw"),
    ("lr", "1e-4", 1e-4),
    ("momentum", "0.8", 0.8),
    ("nesterov", "false", False),
    ("weight_decay", "0", 0.0),
    ("layer_decay", "0.65", 0.65),
    ("warmup", "100", 100),
    ("cycles", "0.5", 0.5),
    ("hold", "0.5", 0.5),
    ("power", "2", 2.0),
]


@pytest.mark.parametrize(("key", "text", "value"), OPTIM)
def test_a_leaf_of_the_optimizer(key: str, text: str, value: object) -> None:
    assert getattr(Recipe().override({f"optim.{key}": text}).optim, key) == value


def test_every_leaf_is_tested() -> None:
    tested = {key for key, _, _ in LEAVES} | {f"optim.{key}" for key, _, _ in OPTIM}
    assert tested == set(keys()) - {"recipe", "method.OPTION", "backbone.OPTION"}


def test_options_of_methods_and_backbones() -> None:
    recipe = Recipe(method_options={"weight": 150.0}).override(
        {"method.base": "0.8", "method.align": "false", "backbone.width": "64", "method.transition": "matrix"}
    )
    assert recipe.method_options == {"weight": 150.0, "base": 0.8, "align": False, "transition": "matrix"}
    assert recipe.backbone_options == {"width": 64}
    assert Recipe().override({"method.resoftmax": "none"}).method_options == {"resoftmax": None}


def test_settings_may_be_what_they_are_in_python() -> None:
    plain = {"labels": 10, "method.base": 0.8, "optim.lr": 0.5, "weak_gradient": True, "memory": None, "method": "dash"}
    text = {key: str(value) for key, value in plain.items()}
    assert Recipe().override(plain) == Recipe().override(text)


def test_settings_are_checked_together_in_any_order() -> None:
    """Applied one by one, each of these pairs passes through a recipe that is refused."""
    start = Recipe(steps=10_000, optim=Optim(warmup=5000))
    for pair in ({"optim.momentum": "0", "optim.nesterov": "false"}, {"steps": "100", "optim.warmup": "50"}):
        assert start.override(pair) == start.override(dict(reversed(pair.items())))


# --- sentences ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        ("lables", "40", "'lables' is not a setting; did you mean 'labels'?"),
        ("optim.lrr", "1", "'optim.lrr' is not a setting; did you mean 'optim.lr'?"),
        ("lr", "1", "'lr' is not a setting; did you mean 'optim.lr'?"),
        ("transition", "dual_t", "'transition' is not a setting; did you mean 'method.transition'?"),
        ("base", "0.9", "'base' is not a setting; did you mean 'method.base'?"),
        ("recip", "digits", "'recip' is not a setting; did you mean 'recipe'?"),
        ("optim", "sgd", "'optim' is not a setting; did you mean 'optim.lr'?"),
        ("method_options", "1", "'method_options' is not a setting; did you mean 'method.OPTION'?"),
        ("steps", "abc", "steps='abc' must be a whole number"),
        ("steps", "1.5", "steps='1.5' must be a whole number"),
        ("steps", "inf", "steps='inf' must be a whole number"),
        ("steps", "nan", "steps='nan' must be a whole number"),
        ("labels", "forty", "labels='forty' must be a whole number"),
        ("ema", "high", "ema='high' must be a number"),
        ("optim.lr", "fast", "optim.lr='fast' must be a number"),
        ("optim.nesterov", "yes", "optim.nesterov='yes' must be true or false"),
        ("step", "compield", "step='compield' is not known; did you mean 'compiled'?"),
        ("precision", "float16", "precision='float16' is not known; did you mean 'bfloat16'?"),
        ("steps", "0", "steps=0 must be at least 1 and below 2^31."),
        ("steps", "1e30", f"steps={int(1e30)} must be at least 1 and below 2^31."),
        ("batch", "-1", "batch=-1 must be at least 1 and below 2^31."),
        ("ratio", "0", "ratio=0 must be at least 1 and below 2^31."),
        ("ema", "1", "ema=1.0 must lie in [0, 1); 0 means no averaging."),
        ("ema", "nan", "ema=nan must lie in [0, 1); 0 means no averaging."),
        (
            "strong_labels",
            "1",
            "strong_labels=1.0 must be at least 0 and below 1: it is the share of labelled rows in strong views, and "
            "thresholds are relative to the others.",
        ),
        (
            "mix",
            "1",
            "mix=1.0 must be at least 0 and below 1: it is the share of strong views that show two images.",
        ),
        ("clip", "nan", "clip=nan must be 0 or more."),
        ("noise", "inf", "noise=inf must lie in [0, 100]: it is a deviation in standardised features."),
        ("memory", "nan", "memory=nan must be 0 or more MiB, or none for half of what is free."),
        ("validation", "-10", "validation=-10 must be 0 or more."),
        ("contrast", "-1", "contrast=-1 must be 0 or more."),
        ("mix_after", "-1", "mix_after=-1.0 must be at least 0 and below 1: it is a share of the steps."),
        ("mix_after", "50000", "mix_after=50000.0 must be at least 0 and below 1: it is a share of the steps."),
        ("contrast", "3e9", "contrast=3000000000 must be 0 or more and below 2^31."),
        ("seed", "-1", "seed=-1 must be 0 or more and below 2^63."),
        ("seed", "1e30", f"seed={int(1e30)} must be 0 or more and below 2^63."),
        ("optim.name", "adam", "optim.name 'adam' is not known: did you mean 'adamw'?"),
        ("optim.lr", "nan", "optim.lr must be positive, got nan"),
        (
            "optim.warmup",
            "1048576",
            "optim.warmup=1048576 must be below the 1048576 steps of the run; lower it, or train for more steps.",
        ),
    ],
)
def test_the_sentence(key: str, text: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        Recipe().override({key: text})
    assert str(error.value) == sentence


def test_paths_are_whole_because_a_run_is_looked_at_from_elsewhere() -> None:
    recipe = resolve("cifar10", {"data": "some/folder", "pretrained": "~/vit.pth"})
    assert recipe.data == str(Path.cwd() / "some" / "folder")
    assert recipe.pretrained == str(Path.home() / "vit.pth")
    assert resolve("cifar10", {"data": "none"}).data is None


def test_recipes_and_sources_that_are_not_there() -> None:
    for source, settings, sentence in (
        ("digit", {}, "source 'digit' is not known; did you mean 'digits'?"),
        ("digits", {"recipe": "digts"}, "recipe='digts' is not known; did you mean 'digits'?"),
        ("stl10", {"recipe": "classic_cifar10"}, "recipe=classic_cifar10 is for cifar10, not for stl10"),
        ("cifar10", {"recipe": "pretrained_cifar10"}, "add pretrained=FILE"),
    ):
        with pytest.raises(InputError) as error:
            resolve(source, settings)
        assert sentence in str(error.value)


@pytest.mark.parametrize("given", [("labels", 41, "Ask for 40 or 50."), ("labels", 0, "10"), ("validation", 7, "10")])
def test_a_number_of_labels_that_cannot_be_is_told_before_anything_is_downloaded(given: tuple[str, int, str]) -> None:
    setting, number, sentence = given
    with pytest.raises(InputError, match=rf"^{setting}={number} is .* 10 classes.*{sentence}"):
        resolve("cifar10", {setting: str(number)})
    resolve("cifar10", {"labels": "40", "validation": "0"})


# --- json -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("method", ["instant", "mixmatch", "mean_teacher"])
def test_a_recipe_survives_json(name: str, method: str) -> None:
    recipe = RECIPES[name](method=method)
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"labelz": 5}, "recipe: 'labelz' is not a setting; did you mean 'labels'\\?"),
        ({"steps": "many"}, "recipe: a setting is of the wrong kind"),
        ({"steps": 28.5}, r"recipe: a setting is of the wrong kind: steps 28\.5\."),
        ({"ratio": True}, "wrong kind: ratio True"),
        ({"method_options": 5}, "wrong kind: method_options 5"),
        ({"draw": "lots"}, "wrong kind: draw 'lots'"),
        ({"optim": {"lr": "x"}}, "wrong kind: lr 'x'"),
        ({"optim": {"rate": 1}}, "recipe: optim has a setting that is not known"),
        ({"optim": 5}, "recipe: a setting is of the wrong kind"),
    ],
)
def test_a_damaged_recipe_is_a_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Recipe.from_json(Recipe().to_json() | change)


# --- the paper's tables ---------------------------------------------------------------------------------------


def test_the_cells_are_those_of_the_paper() -> None:
    tables: dict[str, int] = {}
    for cell in CELLS:
        tables[cell.table] = tables.get(cell.table, 0) + 1
    # 10 methods x 9 columns, 6 methods x 6 columns, 6 rows
    assert tables == {"table 1": 90, "table 2": 36, "ablation": 6}
    assert Cell("table 1", "stl10", 40, "instant", 85.09, 2.8) in CELLS
    assert Cell("table 2", "cifar100", 2500, "dash", 65.51, 0.1) in CELLS
    assert Cell("ablation", "stl10", 40, "instant_3", 82.97, 2.7) in CELLS


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.table}-{cell.source}-{cell.labels}-{cell.method}")
def test_the_command_of_a_cell_resolves(cell: Cell) -> None:
    program, verb, source, *words = shlex.split(command_of(cell).replace("pretrained=FILE", "pretrained=none"))
    settings = dict(word.split("=", 1) for word in words)
    recipe = resolve(source, settings)
    assert (program, verb, recipe.source, recipe.labels) == ("instant", "train", cell.source, cell.labels)
    assert (recipe.method, recipe.seed) == (cell.method, 0)
    assert recipe.method in METHODS
    assert recipe_of(cell) in RECIPES
    assert recipe.labels is not None
    assert recipe.labels % SOURCES[cell.source].classes == 0


def test_the_listed_commands_resolve_to_the_recipes_they_are_listed_for() -> None:
    listed = {row["recipe"]: row["command"] for row in LISTINGS["recipes"]()[: len(RECIPES)]}
    assert listed.keys() == RECIPES.keys()
    for name in ("images", "vectors"):
        assert listed.pop(name) == f"(from Python, with instant.recipes.{name})"
    for name, command in listed.items():
        _, _, source, *words = shlex.split(command.replace("pretrained=FILE", "pretrained=none"))
        assert resolve(source, dict(word.split("=", 1) for word in words)) == RECIPES[name]()


def of(recipe: Recipe, *names: str) -> tuple[object, ...]:
    return tuple(getattr(recipe, name) for name in names)


@pytest.mark.parametrize("method", METHODS)
def test_classic_settings(method: str) -> None:
    """Table 2: SGD 0.03, Nesterov 0.9, 2^20 steps, 64 labelled, 7 times as many unlabelled, EMA 0.999."""
    small = method in ("pseudo_label", "pi_model", "mean_teacher", "vat", "mixmatch")
    ten, hundred, stl = (recipes.RECIPES[f"classic_{name}"](method=method) for name in ("cifar10", "cifar100", "stl10"))
    for recipe in (ten, hundred, stl):
        assert of(recipe, "steps", "batch", "ratio", "ema") == (1_048_576, 64, 1 if small else 7, 0.999)
        assert (recipe.optim.name, recipe.optim.lr, recipe.optim.momentum, recipe.optim.nesterov) == (
            "sgd",
            0.03,
            0.9,
            True,
        )
        assert (recipe.optim.warmup, recipe.optim.cycles, recipe.optim.layer_decay) == (0, 7 / 16, 1.0)
    assert [recipe.optim.weight_decay for recipe in (ten, hundred, stl)] == [5e-4, 1e-3, 5e-4]
    assert [recipe.backbone for recipe in (ten, hundred, stl)] == ["wrn_28_2", "wrn_28_2", "wrn_37_2"]


@pytest.mark.parametrize("method", METHODS)
def test_fast_settings_differ_from_the_classic_in_start_optimizer_views_and_kappa_alone(method: str) -> None:
    fast, classic = recipes.fast_cifar10(method=method), recipes.classic_cifar10(method=method)
    assert (fast.contrast, fast.steps) == (0 if "supervised" in method else 24_000, 105_000)
    assert fast.optim == dataclasses.replace(classic.optim, name="muon", lr=0.1, cycles=0.5, warmup=1000)
    apart = {"contrast", "mix", "mix_after", "steps", "optim", "method_options", "log_every", "evaluate_every"}
    for name, value in classic.to_json().items():
        assert name in apart or fast.to_json()[name] == value, name
    slow_T = fast.method_options.get("transition_lr") == 0.001
    assert slow_T == (method.startswith("instant") and method != "instant_released")
    by_class = {"kappa": "self_adaptive", "base": 1.0, "align": False}
    given = {key: value for key, value in fast.method_options.items() if key != "transition_lr"}
    assert given == (by_class if method in ("instant", "instant_class") else {})


@pytest.mark.parametrize("method", METHODS)
def test_pretrained_settings(method: str) -> None:
    """Table 1: AdamW with layer decay, 204,800 steps, 8 and 8 samples, no EMA but MeanTeacher's."""
    ten, hundred, stl = (
        recipes.RECIPES[f"pretrained_{name}"](method=method) for name in ("cifar10", "cifar100", "stl10")
    )
    for recipe in (ten, hundred, stl):
        ema = 0.999 if method == "mean_teacher" else 0.0
        assert of(recipe, "steps", "batch", "ratio", "ema") == (204_800, 8, 1, ema)
        assert (recipe.optim.name, recipe.optim.weight_decay, recipe.optim.warmup) == ("adamw", 5e-4, 5120)
    assert [(r.optim.lr, r.optim.layer_decay) for r in (ten, hundred, stl)] == [(5e-4, 0.5), (5e-4, 0.5), (1e-4, 0.65)]
    assert [recipe.backbone for recipe in (ten, hundred, stl)] == ["vit_s_2_32", "vit_s_2_32", "vit_b_16_96"]


def test_the_weight_of_mixmatch() -> None:
    """100, but 150 on CIFAR-100 and 10 with a pretrained network."""
    weights = {name: RECIPES[name](method="mixmatch").method_options.get("weight") for name in RECIPES}
    assert weights == {
        "classic_cifar10": None,  # the method's own 100
        "fast_cifar10": None,
        "classic_cifar100": 150.0,
        "classic_stl10": None,
        "pretrained_cifar10": 10.0,
        "pretrained_cifar100": 10.0,
        "pretrained_stl10": 10.0,
        "digits": None,
        "fashion_mnist": None,
        "images": None,
        "vectors": None,
    }
    published = [name for name in RECIPES if name.startswith(("classic", "pretrained"))]
    assert all(RECIPES[name](method=method).method_options == {} for name in published for method in ("instant", "uda"))
    assert resolve("cifar100", {"method": "mixmatch", "method.weight": "75"}).method_options == {"weight": 75}


def test_a_misspelt_method_is_found_before_data_is_looked_for(tmp_path: Path) -> None:
    """A download or the decoding of a million photos would come first."""
    with pytest.raises(InputError, match="method='instnat' is not known; did you mean 'instant'"):
        resolve("cifar10", {"method": "instnat", "recipe": "fast_cifar10"})
    with pytest.raises(InputError, match="method='instnat' is not known; did you mean 'instant'"):
        prepare(tmp_path / "nowhere", None, {"method": "instnat"}, [])
