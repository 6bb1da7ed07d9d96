"""The one trainer: equal runs, what it can be built from, and what it shows."""

from __future__ import annotations

import dataclasses
import gc
import io
import os
import re
import shutil
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from runs import (
    COMMAND,
    DIGITS,
    assert_equal,
    points,
    small,
)
from torch import Tensor

from instant import random, recipes
from instant.algorithms import METHODS
from instant.backbones.base import DropPath
from instant.cli import main
from instant.config import Recipe
from instant.data.feed import METHOD, SECOND, WEAK
from instant.engine.build import build_program, split_for
from instant.engine.fit import Trained, fit
from instant.engine.step import convolutions, keep_compiled
from instant.errors import InputError
from instant.match import Match
from instant.progress import ProgressBar, describe
from instant.rules import Fixed
from instant.run import Run
from instant.types import Evidence, Method, Network, Output, Problem, State, Views


def test_two_runs_with_one_seed_are_equal_and_another_seed_is_another_run() -> None:
    one, again, other = (fit(*small(seed=seed)) for seed in ("1", "1", "2"))
    assert_equal(one.learner.state_dict(), again.learner.state_dict())
    assert not torch.equal(one.learner.model.head.weight, other.learner.model.head.weight)  # type: ignore[union-attr]


def test_the_global_generator_is_neither_read_nor_moved() -> None:
    torch.manual_seed(1)
    one = fit(*points())
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after)
    assert_equal(fit(*points()).learner.state_dict(), one.learner.state_dict())


def test_no_generator_of_a_gpu_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not put back, as that of the CPU is."""
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("moved"))
    build_program(*points())


@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_what_a_program_holds_is_freed_with_it(way: str) -> None:
    """At once: its recording and its data would take a GPU's memory until Python looks for cycles."""
    program = build_program(*points(step=way))
    program(0)
    program.meter.read()
    freed = weakref.ref(program)
    gc.disable()
    try:
        del program
        assert freed() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("given", [None, "ieee", "tf32"])
def test_convolutions_leave_the_settings_of_torch_as_they_were(given: str | None) -> None:
    """Also where somebody has set them in the way of torch 2.9, after which `allow_tf32` cannot be read any more."""
    cudnn: Any = torch.backends.cudnn
    if not hasattr(cudnn, "conv"):
        pytest.skip("this torch knows one way of setting them")
    before = cudnn.conv.fp32_precision
    try:
        if given is not None:
            cudnn.conv.fp32_precision = given
        was = cudnn.benchmark, cudnn.conv.fp32_precision
        for exact in (False, True):
            with convolutions(exact=exact):
                assert cudnn.benchmark
                assert cudnn.conv.fp32_precision in (("ieee", "none") if exact else was[1:])
            assert (cudnn.benchmark, cudnn.conv.fp32_precision) == was
    finally:
        cudnn.conv.fp32_precision = before


def test_drop_path_draws_from_other_streams_than_the_feed() -> None:
    program = build_program(*small(backbone="vit_micro_4_16"))
    step = random.fold(program.feed.key, 5)
    taken = [random.fold(step, stream).tolist() for stream in (WEAK, SECOND, METHOD)]
    drops = [module for module in program.learner.model.modules() if isinstance(module, DropPath)]
    assert len(drops) == 8
    assert not [drop for drop in drops if random.fold(random.fold(drop.key, 5), drop.stream).tolist() in taken]


def test_drop_path_of_a_network_for_t_follows_the_seed() -> None:
    def keys(seed: str) -> set[tuple[int, ...]]:
        settings = {"backbone": "vit_micro_4_16", "method.transition": "network", "seed": seed}
        learner = build_program(*small(**settings)).learner
        return {tuple(m.key.tolist()) for m in learner.modules() if isinstance(m, DropPath)}

    assert len(keys("0")) == 2  # of the network that learns, and of T's
    assert not keys("0") & keys("1")


def test_clipping_takes_the_network_and_t_apart() -> None:
    """T's own gradient, however long, leaves the network's step as long as it is allowed to be."""
    settings = {"clip": "0.01", "optim.momentum": "0", "optim.nesterov": "false", "optim.weight_decay": "0"}
    recipe, split = points(**settings, **{"optim.warmup": "0", "optim.lr": "1"})
    program = build_program(recipe, split)
    before = [p.detach().clone() for p in program.learner.model.parameters()]
    program(0)
    after = program.learner.model.parameters()
    moved = torch.cat([(a.detach() - b).flatten() for a, b in zip(after, before)])
    assert float(moved.norm()) == pytest.approx(0.01, rel=1e-3)


def test_fully_supervised_trains_on_every_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*COMMAND[3:], "method=fully_supervised", "steps=3", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert "1437 of them labelled (all: fully_supervised takes every label, not labels=10)" in capsys.readouterr().out
    run = Run(tmp_path / "run")
    assert run.summary()["label_budget"] == {"training": 1437, "validation": 0, "total": 1437}
    assert sorted(run.split_record()["labelled"]) == list(range(1437))
    recipe = recipes.digits(labels=10, method="fully_supervised").override({"validation": "20"})
    assert split_for(recipe, DIGITS).budget == {"training": 1417, "validation": 20, "total": 1437}
    assert split_for(recipes.digits(labels=10, method="supervised"), DIGITS).budget["total"] == 10
    assert split_for(recipes.digits(labels=10).override({"method.transition": "network"}), DIGITS).budget["total"] == 10


def test_a_teacher_needs_an_average() -> None:
    recipe, split = points("pi_model", ema="0")
    fit(recipe, split)
    with pytest.raises(InputError) as error:
        fit(dataclasses.replace(recipe, method="mean_teacher"), split)
    assert str(error.value) == (
        "method=mean_teacher learns from the averaged weights, and ema=0 means none; set ema=0.999 or so."
    )


def test_the_teacher_averages_parameters_and_copies_batch_statistics() -> None:
    recipe, split = small(steps="1", ema="0.75")
    before = build_program(recipe, split).learner.model.state_dict()
    learner = fit(recipe, split).learner
    after, teacher = learner.model.state_dict(), learner.judged.state_dict()
    moving = {name for name, _ in learner.model.named_parameters()}
    assert moving < after.keys()
    for name, value in after.items():
        expected = 0.75 * before[name] + 0.25 * value if name in moving else value
        torch.testing.assert_close(teacher[name], expected, msg=name)
    assert not torch.equal(before["head.weight"], after["head.weight"])


def test_without_an_average_the_last_weights_are_judged() -> None:
    trained = fit(*points(ema="0"))
    assert trained.learner.judged is trained.learner.model
    assert trained.summary["accuracy_of"] == "last weights"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method.base": "high"}, "method.base='high' must be a number, for example 0.9"),
        ({"method.base": "true"}, "method.base=True must be a number, for example 0.9"),
        ({"method.align": "7"}, "method.align=7 must be true or false"),
        ({"method.base": "nan"}, "method.base=nan must be a number, for example 0.9"),
        ({"method.warmup": "1e30"}, "method.warmup=1e+30 must be a number, for example 0"),
        ({"method.kappa": "5"}, "method.kappa=5 must be a word, for example labelled"),
        ({"method.kappa": "none"}, "method.kappa=None must be a word, for example labelled"),
        ({"method.transition_lr": "-1"}, "method.transition_lr=-1 must be 0 or more."),
        ({"method.transition_decay": "-1"}, "method.transition_decay=-1 must be 0 or more."),
        ({"method.transition_decay": "much"}, "method.transition_decay='much' must be none or a number"),
        ({"method.transition_decay": "true"}, "method.transition_decay=True must be none or a number"),
        ({"method.resoftmax": "true"}, "method.resoftmax=True must be none or a positive number"),
        ({"method.transition_decay": "nan"}, "method.transition_decay=nan must be 0 or more."),
        ({"method.base": "1.5"}, "method.base=1.5 must lie in [0, 1]."),
        ({"method": "fixmatch", "method.threshold": "95"}, "method.threshold=95 must lie in [0, 1]."),
        ({"method": "uda", "method.temperature": "0"}, "method.temperature=0 must be above 0."),
        ({"method": "mixmatch", "method.alpha": "0"}, "method.alpha=0 must be above 0."),
        ({"method": "dash", "method.period": "0"}, "method.period=0 must be above 0."),
        ({"method": "dash", "method.warmup": "0"}, "method.warmup=0 leaves no step to measure the labelled loss"),
        ({"method": "softmatch", "method.momentum": "2"}, "method.momentum=2 must lie in [0, 1]."),
        ({"method": "pi_model", "method.ramp": "-1"}, "method.ramp=-1 must be 0 or more."),
        ({"method.bse": "1"}, "method.bse is not an option of instant; did you mean 'base'?"),
        ({"backbone.width": "wide"}, "backbone.width='wide' of mlp must be a whole number"),
        ({"device": "meta"}, "device='meta' is not known; use auto, cpu, cuda or cuda:N."),
        ({"device": "cuda:99"}, "device=cuda:99: this machine has "),
        ({"step": "captured", "device": "cpu"}, "step=captured records a CUDA graph and needs a GPU"),
    ],
)
def test_what_a_program_cannot_be_built_from(settings: dict[str, str], sentence: str) -> None:
    recipe, split = points()
    with pytest.raises(InputError) as error:
        build_program(recipe.override(settings), split)
    assert str(error.value).startswith(sentence)


def test_fit_of_x_and_y_names_what_takes_them() -> None:
    recipe, split = points()
    with pytest.raises(InputError, match=r"^fit\(recipe, split\): .* got ndarray and list; .*InstanTClassifier\(\)"):
        fit(np.zeros((2, 1)), [0, 1])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"got Split and Recipe"):
        fit(split, recipe)  # type: ignore[arg-type]


def test_a_run_follows_the_whole_schedule() -> None:
    """Warm-up to step 2, full rate for half of the 12 steps after it, then down to 0."""
    shape = {"steps": "14", "optim.lr": "0.4", "optim.warmup": "2", "optim.cycles": "0.5", "optim.hold": "0.5"}
    recipe, split = points(**shape, **{"optim.power": "2"})
    rates = [float(build_program(recipe, split).learning_rate(torch.tensor(step))) for step in (1, 2, 8, 11, 14)]
    assert rates == pytest.approx([0.2, 0.4, 0.4, 0.2, 0], abs=1e-6)


def test_a_whole_number_for_the_rate_of_a_methods_own_parameters_is_a_float_on_the_device() -> None:
    """The fused kernel of a GPU reads float32; on a CPU it would go unnoticed."""
    recipe, split = points()
    program = build_program(recipe.override({"method.transition_lr": "1"}), split)
    assert program.optimizers[1].param_groups[0]["lr"].dtype == torch.float32


def plain(problem: Problem, *, threshold: float = 0.5) -> Match:
    return Match(Fixed(threshold))


def test_a_function_stands_in_for_a_method_that_takes_other_options(tmp_path: Path) -> None:
    """`vectors` sets base, transition_lr and momentum for instant; a function that lacks them goes without."""
    recipe, split = points()
    assert recipe.method_options.keys() == {"base", "transition_lr", "momentum"}
    run = Run(tmp_path / "run")
    trained = fit(recipe.override({"method.threshold": "0.25"}), split, run=run, method=plain)
    assert float(trained.learner.method.rule.value) == 0.25
    assert run.recipe().method_options == {"threshold": 0.25}  # what was trained, so that it can be resumed
    assert trained.summary["method"] == run.recipe().method == "test_engine:plain"
    again = fit(run.recipe(), split, run=run, resume=True, method=plain)
    assert_equal(again.learner.state_dict(), trained.learner.state_dict())
    renamed = recipe.override({"method": "fixmatch"})
    assert fit(renamed, split).recipe.method_options == {}
    for wish in ({"method.base": "0.95"}, {"method.base": "0.9"}):  # asked for, be it the recipe's own value
        with pytest.raises(InputError, match=r"method.base is not an option of plain; choose one of: threshold"):
            fit(recipe.override(wish), split, method=plain)
    assert fit(recipe, split, method=METHODS["instant"]).recipe.method_options == recipe.method_options


def own(problem: Problem, *, base: float = 0.7, momentum: float = 0.01) -> Match:
    """Its options have the names of ours, and a meaning of their own."""
    return Match(Fixed(base))


def test_a_method_of_your_own_keeps_its_defaults_however_it_is_given() -> None:
    """The recipe's `base` and `momentum` are for our methods."""
    recipe, split = points()
    by_name = recipes.vectors(method="test_engine:own").override({"steps": "2", "batch": "8"})
    for trained in (fit(recipe, split, method=own), fit(by_name, split)):
        assert trained.recipe.method == "test_engine:own"
        assert trained.recipe.method_options == {}
        assert float(trained.learner.method.rule.value) == pytest.approx(0.7)


@pytest.mark.parametrize("name", ["instant_released", "freematch", "fixmatch", "instant_1"])
def test_a_recipe_suggests_the_same_options_however_the_method_is_given(name: str) -> None:
    recipe, split = points()
    wanted = recipes.vectors(method=name).method_options
    assert recipe.override({"method": name}).method_options == wanted
    assert fit(recipe, split, method=METHODS[name]).recipe.method_options == wanted
    assert fit(dataclasses.replace(recipe, method=name), split).recipe.method_options == wanted
    bare = dataclasses.replace(recipe.override({"method": name}), method_options={})  # somebody wants none of them
    assert fit(bare, split).recipe.method_options == {}
    wished = recipe.override({"method.momentum": "0.98"}).override({"method": "instant_1"})
    assert "method.momentum" not in wished.suggested  # asked for once, asked for with the next method too


@pytest.mark.parametrize(("make", "method", "key", "first", "then"), [
    (recipes.classic_cifar10, "mixmatch", "ratio", 7, 1),
    (recipes.classic_stl10, "vat", "ratio", 7, 1),
    (recipes.pretrained_cifar10, "mean_teacher", "ema", 0.0, 0.999),
])  # fmt: skip
def test_what_a_method_wants_of_the_recipe_comes_and_goes_with_it(
    make: Callable[..., Recipe], method: str, key: str, first: float, then: float
) -> None:
    paper = make()
    assert getattr(paper, key) == first
    assert getattr(make(method=method), key) == then
    other = paper.override({"method": method})
    assert getattr(other, key) == then
    assert getattr(other.override({"method": "instant"}), key) == first
    assert other == make(method=method)
    asked = paper.override({key: str(first)}).override({"method": method})
    assert getattr(asked, key) == first


class LossAlone(Match):
    def forward(self, model: Network, teacher: Network, views: Views) -> Tensor:  # type: ignore[override]
        return super().forward(model, teacher, views).loss


class BareTuple(Fixed):
    def forward(self, seen: Evidence) -> tuple[tuple[Tensor, Tensor], State]:  # type: ignore[override]
        selection, state = super().forward(seen)
        return (selection.weight, selection.threshold), state


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (lambda p: LossAlone(Fixed(0.5)), "LossAlone.forward returned a Tensor, expected an instant.types.Output"),
        (lambda p: Match(BareTuple(0.5)), "BareTuple.forward returned a tuple, expected an instant.types.Selection"),
    ],
)
def test_what_a_method_or_a_rule_must_return(method: Callable[[Problem], Method], message: str) -> None:
    recipe, split = points()
    with pytest.raises(InputError, match=message):
        fit(recipe, split, method=method)


def test_a_function_that_hands_its_options_on_gets_what_was_asked_for() -> None:
    seen: dict[str, Any] = {}

    def handing_on(problem: Problem, **options: Any) -> Method:
        seen.update(options)
        return METHODS["instant"](problem, **options)

    recipe, split = points()
    recipe = recipe.override({"method.kappa": "labelled"})
    fit(recipe, split, method=handing_on)
    assert seen == {"kappa": "labelled"}


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_compiled_equals_eager(optimizer: str) -> None:
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        with pytest.raises(InputError, match="needs a C\\+\\+ compiler"):
            fit(*points(step="compiled"))
        return

    def trained(way: str) -> Trained:
        return fit(*points(step=way, steps="5", **{"optim.name": optimizer}))

    eager, compiled = trained("eager").learner.state_dict(), trained("compiled").learner.state_dict()
    start = build_program(*points()).learner.state_dict()
    for name, value in eager.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-4, atol=1e-5, msg=name)
    assert max(float((eager[name] - value).abs().max()) for name, value in start.items()) > 0.01


@torch._dynamo.config.patch(error_on_recompile=True)
def test_programs_of_one_process_are_compiled_apart() -> None:
    """Why an earlier one does not fit, torch works out, and fails where a rule has not the other's buffers."""
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("needs a C++ compiler")
    for method in ("fixmatch", "adamatch"):
        said: list[str] = []
        program = build_program(*points(method, step="compiled"))
        program.announce = said.append
        for step in range(2):
            program(step)
        assert program.way == "compiled", said


# --- what a person sees ---------------------------------------------------------------------------------------


def test_without_a_terminal_there_is_a_plain_line_per_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "with [/b] and a very long name, so that a line of eighty columns would be broken in two"
    assert main([*COMMAND[3:], "steps=4", "evaluate_every=2", "--out", str(folder)]) == 0
    first, second, third, *table = capsys.readouterr().out.splitlines()
    said = "digits: 1437 images, 10 of them labelled; instant with small_cnn, 4 steps, by the recipe "
    assert first.startswith(f"{said}method.momentum=0.98 method.transition_lr=0.001 method.base=0.95; run folder")
    assert first.endswith(str(folder))
    number = r"[\d.]+"
    line = rf"accuracy {number} % · used {number} % · threshold {number}"
    assert re.fullmatch(rf"instant: step 2: {line}", second)
    assert re.fullmatch(rf"instant: step 4: {line}", third)
    cells = [row.strip("│").split("│")[1].strip() for row in table if row.startswith("│")]
    assert "".join(cells).replace(" ", "").endswith(str(folder).replace(" ", ""))  # folded, not cut short


def test_on_a_terminal_there_is_a_bar() -> None:
    screen = io.StringIO()
    recipe, split = points()
    with ProgressBar("a title", Console(file=screen, force_terminal=True, width=120)) as bar:
        summary = fit(recipe, split, callbacks=[bar]).summary
    assert "a title" in screen.getvalue()
    assert "24/24" in screen.getvalue()
    assert f"accuracy {100 * summary['accuracy_last']:.1f} %" in screen.getvalue()


def test_in_a_log_a_note_is_one_line() -> None:
    log, note = io.StringIO(), "a warning of more words than a narrow console has room for"
    ProgressBar("a title", Console(file=log, width=20)).note(note)
    assert log.getvalue() == note + "\n"


@pytest.mark.parametrize("width", [40, 80])
def test_figures_never_cut_the_steps_done_and_the_time_left(width: int) -> None:
    screen = io.StringIO()
    recipe, split = small()
    with ProgressBar("instant", Console(file=screen, force_terminal=True, no_color=True, width=width)) as bar:
        bar.start(recipe.override({"steps": "600"}), split, 0)
        bar.record({"step": 590, "validation_accuracy": 0.833, "utilisation": 1.0, "threshold": 0.9})
        bar.step(600)
    first, *more = screen.getvalue().split("instant ")[-1].splitlines()
    assert re.search(r"600/600 .* 0:00:00", first)
    assert "\u2026" not in first + more[0]


def test_what_is_shown_of_a_record() -> None:
    assert describe({"loss": 0.25}) == "loss 0.250"
    assert describe({"accuracy": 0.5, "loss": 0.25}) == "accuracy 50.0 % · loss 0.250"
    assert describe({"accuracy": 0.5, "loss": 1.0, "utilisation": 0.256, "threshold": 0.9}) == (
        "accuracy 50.0 % · used 26 % · threshold 0.900"
    )


def test_every_way_has_the_same_state() -> None:
    """A checkpoint of a compiled run must resume as an eager one, and the other way round."""
    recipe, split = points()
    eager, compiled = (build_program(recipe.override({"step": way}), split) for way in ("eager", "compiled"))
    assert compiled.tensors().keys() == eager.tensors().keys()


@pytest.mark.parametrize(("method", "allowed"), [("vat", False), ("fixmatch", True)])
def test_a_method_that_needs_float32_runs_without_tf32_and_leaves_the_switch_alone(method: str, allowed: bool) -> None:
    program = build_program(*points(method))
    seen: list[bool] = []
    program.learner.model.register_forward_hook(lambda *_: seen.append(torch.backends.cudnn.allow_tf32))
    program(0)
    assert set(seen) == {allowed}
    assert torch.backends.cudnn.allow_tf32


class Wrapping(RuntimeError):
    """As torch has for what a compiler raises."""

    def __init__(self, inner: Exception) -> None:
        super().__init__("backend='inductor' raised:")
        self.inner_exception = inner


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("no compiler for this\nand a long trace"), "RuntimeError: no compiler for this"),
        (KeyError("value"), "KeyError: 'value'"),
        (AssertionError(), "AssertionError: no reason given"),
        (Wrapping(OSError("no space")), "OSError: no space"),
    ],
)
def test_a_step_that_cannot_be_compiled_runs_eager_and_says_so(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, split = points(step="compiled")
    plain = build_program(recipe.override({"step": "eager"}), split)
    program = build_program(recipe, split)

    def broken(*args: object) -> None:
        raise error

    monkeypatch.setattr(program, "_forward", broken)
    said: list[str] = []
    program.announce = said.append
    for step in range(3):
        program(step)
        plain(step)
    assert said == [
        "compiling the step: about a minute the first time, seconds once it is in the cache",
        f"the step cannot be compiled ({reason}); it runs eager, slower",
    ]
    assert program.way == "eager"
    assert_equal(program.tensors(), plain.tensors())


def test_a_step_that_cannot_be_recorded_runs_compiled_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording fails here for want of a GPU; what follows is what follows any failure."""
    recipe, split = points()
    program, plain = build_program(recipe, split), build_program(recipe, split)
    program.way = "captured"
    said: list[str] = []
    program.announce = said.append
    for step in range(3):
        program(step)
        plain(step)
    assert len(said) == 2
    assert said[1].startswith("the step cannot be recorded as a CUDA graph (")
    assert said[1].endswith("it runs compiled, slower")
    assert program.way == "compiled"
    assert_equal(program.tensors(), plain.tensors())


def test_what_the_compiler_remarks_is_not_for_users_and_what_a_method_says_is(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    program = build_program(*points(step="compiled"))

    def remarking(*args: object) -> Output:
        for module in ("torch._inductor.lowering", "torch._dynamo.variables.functions", "torch._inductors", "mine"):
            warnings.warn_explicit(f"from {module}", UserWarning, "file.py", 1, module=module)
        return program.learner(*args)

    monkeypatch.setattr(program, "_forward", remarking)
    program._start()
    said = [str(warning.message) for warning in recwarn]  # torch's import of its compiler may say more
    assert [text for text in said if text.startswith("from ")] == ["from torch._inductors", "from mine"]


def test_too_little_memory_is_not_taken_for_a_step_that_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    program = build_program(*points(step="compiled"))

    def full(*args: object) -> None:
        raise torch.OutOfMemoryError("all of it is taken")

    monkeypatch.setattr(program, "_forward", full)
    with pytest.raises(torch.OutOfMemoryError):
        program(0)


def test_compiled_kernels_are_kept_among_the_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    keep_compiled()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / ".cache/instant/compiled")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")
    keep_compiled()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "elsewhere"
