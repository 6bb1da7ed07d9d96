"""What only a GPU can show: a recorded step resumes, keeps its memory, and sees the views that an eager one sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from runs import StopAt, points

from instant.algorithms import METHODS
from instant.config import Recipe
from instant.contrast import contrastive
from instant.data.sources import arrays
from instant.data.split import Split
from instant.engine.build import build_program, split_for
from instant.engine.features import features_recipe
from instant.engine.fit import Interrupted, fit
from instant.engine.step import Program
from instant.recipes import resolve
from instant.run import Run
from instant.transition.registry import TRANSITIONS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def small_cifar(**settings: str) -> tuple[Recipe, Split]:
    """Random images, to be trained as CIFAR-10 would be."""
    images = np.random.default_rng(0).integers(0, 256, (500, 3, 32, 32), np.uint8)
    source = arrays(images, np.arange(500) % 10, channels="first")
    recipe = resolve("cifar10", {"batch": "8", "ratio": "3", "labels": "20", "device": "cuda", **settings})
    return recipe, split_for(recipe, source)


def pictures(**settings: str) -> Program:
    return build_program(*small_cifar(**settings))


def test_a_recorded_run_resumes_where_it_was_stopped(tmp_path: Path) -> None:
    recipe, split = points(device="cuda", step="captured")
    whole, parts = Run(tmp_path / "whole"), Run(tmp_path / "parts")
    fit(recipe, split, run=whole)
    with pytest.raises(Interrupted):
        fit(recipe, split, run=parts, callbacks=[StopAt(9)])
    fit(recipe, split, run=parts, resume=True)
    expected, found = (run.load_checkpoint() for run in (whole, parts))
    assert expected is not None
    assert found is not None
    assert found[1] == expected[1] == recipe.steps
    for name, value in expected[0].items():
        torch.testing.assert_close(found[0][name], value, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("still", ["true", "false"])
def test_memory_does_not_grow(still: str) -> None:
    program = pictures(step="captured", weak_gradient=still)
    for step in range(20):
        program(step)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for step in range(20, 1020):
        program(step)
    torch.cuda.synchronize()
    assert program.way == "captured"
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() == before


def test_every_way_draws_the_same_views() -> None:
    feed = pictures(step="eager").feed
    compiled = torch.compile(feed.forward, dynamic=False)
    clock = torch.zeros((), dtype=torch.int64, device="cuda")
    with torch.no_grad():
        feed.prepare(0)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            compiled(clock)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            recorded = compiled(clock)
        for step in (0, 1, 7):
            feed.prepare(step)
            clock.fill_(step)
            graph.replay()
            for views in (compiled(clock), recorded):
                for name, expected in feed(clock)._asdict().items():
                    torch.testing.assert_close(getattr(views, name), expected, rtol=1e-6, atol=1e-6, msg=name)
                assert torch.equal(views.index, feed(clock).index)


def run_recorded(program: Program) -> None:
    """Five steps, as a CUDA graph."""
    said: list[str] = []
    program.announce = said.append
    for step in range(5):
        program(step)
    assert program.way == "captured", said


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_can_be_recorded(method: str) -> None:
    program = build_program(*points(method, device="cuda", step="captured"))
    run_recorded(program)
    assert np.isfinite(program.meter.read()["loss"])


def test_muon_can_be_recorded() -> None:
    program = pictures(step="captured", **{"optim.name": "muon"})
    before = program.learner.model.get_parameter("groups.2.0.conv1.weight").detach().clone()
    run_recorded(program)
    assert (program.learner.model.get_parameter("groups.2.0.conv1.weight") - before).abs().max() > 0
    assert np.isfinite(program.meter.read()["loss"])


def test_learning_features_can_be_recorded() -> None:
    recipe, split = small_cifar(step="captured", contrast="40")
    program = build_program(features_recipe(recipe, split), split, method=contrastive)
    run_recorded(program)
    assert np.isfinite(program.meter.read()["loss_contrast"])


@pytest.mark.parametrize("transition", list(TRANSITIONS))
def test_every_estimator_of_T_can_be_recorded(transition: str) -> None:
    settings = {"device": "cuda", "step": "captured", "method.transition": transition}
    program = build_program(*points(**settings))
    run_recorded(program)


def test_a_module_that_waits_for_the_host_runs_compiled_instead() -> None:
    program = build_program(*points("fixmatch", device="cuda", step="captured"))
    model = program.learner.model
    waited: list[float] = []

    def wait(module: torch.nn.Module, inputs: tuple, outputs: object) -> None:
        waited.append(float(inputs[0].sum()))

    model.register_forward_hook(wait)
    said: list[str] = []
    program.announce = said.append
    stream = torch.cuda.current_stream()
    for step in range(5):
        program(step)
    assert program.way == "compiled"
    assert "the step cannot be recorded as a CUDA graph" in said[-1], said
    assert int(program.clock) == 5
    assert np.isfinite(program.meter.read()["loss"])
    assert len(waited) > 5
    torch.rand(1, device="cuda")  # dropout, say: a recording that broke off must not leave the generator waiting,
    assert torch.cuda.current_stream() == stream  # nor stay on its stream, nor spoil the next one
    run_recorded(build_program(*points("fixmatch", device="cuda", step="captured")))


def test_a_recorded_step_that_goes_back_draws_its_views_again() -> None:
    """It draws one step ahead; what lies ready belongs to another step then."""
    program = pictures(step="captured", precision="float32")

    def loss(step: int) -> float:
        program.meter.read()
        program(step)
        return program.meter.read()["loss"]

    for step in range(3):
        program(step)
    saved = {name: value.clone() for name, value in program.tensors().items()}
    expected = loss(3)
    program.restore(saved)
    others = program._views_of(program.clock + 1)
    assert loss(3) == pytest.approx(expected, rel=1e-4)
    program.restore(saved)
    with torch.no_grad():  # the test can tell: other views have another loss
        assert float(program.learner(others).loss) != pytest.approx(expected, rel=1e-3)
