"""Learning features without labels: the loss, the views, and the run before the run."""

from __future__ import annotations

import io
import json
import math
import shutil
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from runs import DIGITS, StopAt, assert_equal, assert_same_run, model_bytes, points, small
from safetensors.torch import load_file
from torch import Tensor

from instant import InstanTClassifier, random
from instant.augment.contrast import YIQ, Part
from instant.cli import main
from instant.config import Recipe
from instant.contrast import Contrast, contrast, contrastive
from instant.data.split import Split, make_split
from instant.engine.build import build_program, split_for
from instant.engine.features import features_recipe
from instant.engine.fit import Callback, fit
from instant.engine.interrupt import Interrupted
from instant.errors import InputError
from instant.progress import ProgressBar
from instant.report.baseline import baseline_recipe
from instant.run import Run
from instant.run_files import CHECKPOINT
from instant.types import Prediction, Views

SHORT = {"contrast": "12", "steps": "12"}


# -- the loss ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
def test_the_loss_is_nt_xent(temperature: float) -> None:
    """Equation 1 of arXiv 2002.05709, view by view."""
    generator = torch.Generator().manual_seed(3)
    first, second = (F.normalize(torch.randn(5, 4, generator=generator).double(), dim=1) for _ in range(2))
    views = [*first, *second]
    losses, right = [], []
    for i, view in enumerate(views):
        partner = (i + 5) % 10
        others = {j: math.exp(float(view @ views[j]) / temperature) for j in range(10) if j != i}
        losses.append(-math.log(others[partner] / sum(others.values())))
        right.append(max(others, key=lambda j: others[j]) == partner)
    loss, found = contrast(first, second, temperature)
    assert float(loss) == pytest.approx(sum(losses) / 10)
    assert float(found) == pytest.approx(sum(right) / 10)


def test_two_views_that_agree_are_better_than_two_that_do_not() -> None:
    both = torch.eye(3)
    alike, everything = contrast(both, both, 0.5)
    apart, nothing = contrast(both, both.roll(1, 0), 0.5)
    assert float(alike) == pytest.approx(math.log(math.exp(2) + 4) - 2)
    assert float(apart) == pytest.approx(math.log(math.exp(2) + 4))
    assert (float(everything), float(nothing)) == (1, 0)


def test_what_is_compared_are_directions_of_the_two_views() -> None:
    """Weak views of lengths 3 and 2 along the axes, strong ones of length 1 the other way round: as of unit length."""
    method = Contrast(2, temperature=0.5)
    method.project = torch.nn.Identity()  # type: ignore[assignment]
    weak, strong = torch.tensor([[3.0, 0.0], [0.0, 2.0]]), torch.eye(2).roll(1, 0)
    nobody, none = weak[:0], torch.zeros(0, dtype=torch.long)
    given = Views(nobody, none, weak, strong, torch.arange(2), torch.tensor(0), random.root(0), none, torch.ones(0))

    def model(x: Tensor, still: Tensor | None = None) -> Prediction:
        return Prediction(x, x)

    out = method(model, model, given)
    # each has its partner at cosine 0, another at 1 and one more at 0
    assert float(out.loss) == pytest.approx(math.log(math.exp(2) + 2))
    assert float(out.metrics["partner_found"]) == 0


# -- the views --------------------------------------------------------------------------------------------------------

NO_PART = [1.0, 0.5, 0.5, 0.5, 0.9]  # all of the image, not stretched, in the middle, not mirrored
NO_COLOUR = [0.5, 0.5, 0.5, 0.5, 0.9, 0.9]  # not jittered, not grey


def _images(channels: int = 3, side: int = 8) -> Tensor:
    return 20 + 200 * torch.rand(2, channels, side, side, generator=torch.Generator().manual_seed(0))


def _draws(values: list[float]) -> Tensor:
    return torch.tensor(values).view(-1, 1).expand(-1, 2)


def _luma(images: Tensor) -> Tensor:
    return torch.einsum("c,bchw->bhw", torch.tensor(YIQ[0]), images)


@pytest.mark.parametrize("channels", [1, 3])
def test_draws_that_change_nothing_change_nothing(channels: int) -> None:
    part, images = Part(mirror=True), _images(channels)
    torch.testing.assert_close(part.part(images, _draws(NO_PART)), images, rtol=0, atol=1e-3)
    torch.testing.assert_close(part.recolour(images, _draws(NO_COLOUR)), images, rtol=0, atol=1e-3)


def test_a_mirrored_view_is_the_mirror_image_and_only_where_that_is_allowed() -> None:
    images, mirrored = _images(), _draws([1.0, 0.5, 0.5, 0.5, 0.1])
    torch.testing.assert_close(Part(mirror=True).part(images, mirrored), images.flip(3), rtol=0, atol=1e-3)
    torch.testing.assert_close(Part(mirror=False).part(images, mirrored), images, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("right", "down"), [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_a_part_is_that_corner_of_the_image_brought_to_its_size(right: float, down: float) -> None:
    images = _images()
    view = Part(mirror=False, smallest=0.25).part(images, _draws([0.0, 0.5, right, down, 0.9]))
    rows, columns = (slice(4, 8) if at else slice(0, 4) for at in (down, right))
    larger = F.interpolate(images[:, :, rows, columns], size=8, mode="bilinear", align_corners=False)
    torch.testing.assert_close(view[:, :, 2:6, 2:6], larger[:, :, 2:6, 2:6])  # at its edge it looks beyond it


def test_a_quarter_has_a_quarter_of_the_area_and_stays_in_the_image() -> None:
    """A ramp from left to right and one from top to bottom: what a view shows of them says where it lies."""
    ramp = torch.linspace(0, 1, 64)
    images = torch.stack([ramp.expand(64, 64), ramp.view(-1, 1).expand(64, 64)]).expand(500, 2, 64, 64)
    draws = random.uniform(random.root(0), 5, 500)
    view = Part(mirror=True, smallest=0.2).part(images.contiguous(), draws)
    width = (view[:, 0, 32, -1] - view[:, 0, 32, 0]).abs()
    height = (view[:, 1, -1, 32] - view[:, 1, 0, 32]).abs()
    area, ratio = width * height, width / height
    assert area.min() > 0.15
    assert area.max() < 1.03
    assert 0.5 < area.mean() < 0.7
    assert ratio.min() > 0.7
    assert ratio.max() < 1.43
    assert 0.4 < (view[:, 0, 32, -1] < view[:, 0, 32, 0]).float().mean() < 0.6  # mirrored


def test_a_grey_view_has_the_brightness_of_the_image() -> None:
    images = _images()
    grey = Part(mirror=True).recolour(images, _draws([0.5, 0.5, 0.5, 0.5, 0.9, 0.1]))
    torch.testing.assert_close(grey, _luma(images).unsqueeze(1).expand_as(images), rtol=1e-3, atol=0.1)


def test_brightness_multiplies_and_contrast_stretches_about_the_mean() -> None:
    images, part = _images(), Part(mirror=True, jitter=0.4)
    darker = part.recolour(images, _draws([0.0, 0.5, 0.5, 0.5, 0.1, 0.9]))
    torch.testing.assert_close(darker, 0.6 * images, rtol=1e-3, atol=0.1)
    flatter = part.recolour(images, _draws([0.5, 0.25, 0.5, 0.5, 0.1, 0.9]))
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    torch.testing.assert_close(flatter, mean + 0.8 * (images - mean), rtol=1e-3, atol=0.1)


def test_saturation_and_hue_leave_the_brightness_and_turn_the_colour() -> None:
    images, part = 100 + (_images() - 120) / 8, Part(mirror=True, jitter=0.4)
    axes = torch.tensor(YIQ)[1:]

    def colour(x: Tensor) -> Tensor:
        return torch.einsum("ac,bchw->abhw", axes, x)

    for draws, factor, degrees in (
        ([0.5, 0.5, 0.0, 0.5, 0.1, 0.9], 0.6, 0),
        ([0.5, 0.5, 1.0, 0.5, 0.1, 0.9], 1.4, 0),
        ([0.5, 0.5, 0.5, 1.0, 0.1, 0.9], 1.0, 36),  # a tenth of a turn: a quarter of the jitter
    ):
        view = part.recolour(images, _draws(draws))
        torch.testing.assert_close(_luma(view), _luma(images), rtol=1e-3, atol=0.1)
        (i, q), (was_i, was_q) = colour(view), colour(images)
        cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        torch.testing.assert_close(i, factor * (cosine * was_i - sine * was_q), rtol=1e-3, atol=0.1)
        torch.testing.assert_close(q, factor * (sine * was_i + cosine * was_q), rtol=1e-3, atol=0.1)


def test_four_of_five_are_in_other_colours_and_one_of_five_is_grey() -> None:
    images = _images()[:1].expand(4000, -1, -1, -1)
    views = Part(mirror=True).recolour(images, random.uniform(random.root(0), 6, 4000))
    grey = (views.amax(1) - views.amin(1)).amax(dim=(1, 2)) < 0.1
    same = (views - images).abs().amax(dim=(1, 2, 3)) < 0.1
    assert float(grey.float().mean()) == pytest.approx(0.2, abs=0.02)
    assert float(same.float().mean()) == pytest.approx(0.2 * 0.8, abs=0.02)


def test_views_depend_on_the_key_alone() -> None:
    images, part = _images().to(torch.uint8), Part(mirror=True)
    first, again, other = (part(images, random.root(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], part(images[:1].expand(2, -1, -1, -1), random.root(0))[1])  # each its own
    assert first.min() >= 0
    assert first.max() <= 255
    with pytest.raises(InputError, match="uint8"):
        part(_images(), random.root(0))


# -- the run before the run -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("contrast") / "run")
    recipe, split = small(**SHORT)
    fit(recipe, split, run=run)
    return run


def test_features_of_other_settings_or_data_are_not_taken(straight: Run, tmp_path: Path) -> None:
    for number, settings in enumerate(({"seed": "1"}, {"contrast": "13"}, {"ratio": "5"}, {"labels": "20"})):
        assert learns_its_own(*small(**{**SHORT, "steps": "1", **settings}), tmp_path / str(number), straight)
    recipe, split = small(**{**SHORT, "steps": "1"})
    for name in ("recipe.json", "split.json", "model.safetensors", "model.json", "summary.json"):
        damaged = Run(shutil.copytree(straight.path, tmp_path / f"without {name}"))
        (damaged.features.path / name).write_bytes((damaged.features.path / name).read_bytes()[:20])
        assert learns_its_own(recipe, split, tmp_path / f"beside one without {name}", damaged)
    other = Run(shutil.copytree(straight.path, tmp_path / "of other code"))
    kept = json.loads((other.features.path / "recipe.json").read_text(encoding="utf-8"))
    kept["code"]["backbone"] = {"slope": 0.9}
    (other.features.path / "recipe.json").write_text(json.dumps(kept), encoding="utf-8")
    assert learns_its_own(recipe, split, tmp_path / "beside one of other code", other)
    start = tmp_path / "start.safetensors"
    start.write_bytes(model_bytes(straight))
    assert learns_its_own(replace(recipe, pretrained=str(start)), split, tmp_path / "pretrained", straight)
    told = Told()
    fit(recipe, split, run=Run(tmp_path / "same"), callbacks=[told], mates=[Run(tmp_path / "none"), straight])
    assert told.notes[0] == f"features are those of {straight}, which has the same data and seed"
    assert model_bytes(Run(tmp_path / "same").features) == model_bytes(straight.features)


def learns_its_own(recipe: Recipe, split: Split, folder: Path, mate: Run) -> bool:
    """Whether a run beside that one begins to learn features; it is stopped there, as learning takes a second."""
    with suppress(Begun):
        fit(recipe, split, run=Run(folder), callbacks=[Begins()], mates=[mate])
        return False
    return True


class Begun(Exception):
    pass


class Begins(Callback):
    def note(self, text: str) -> None:
        if text.startswith("learning features first"):
            raise Begun


class Told(Callback):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_run_starts_from_the_features(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    recipe, split = small(contrast="12", steps="1", **{"optim.lr": "1e-12"})
    fit(recipe, split, run=run)
    start, end = (load_file(folder.path / "model.safetensors") for folder in (run.features, run))
    moved = {name for name in end if not torch.allclose(start[name], end[name], rtol=0, atol=1e-7)}
    assert not {name for name in moved if "running" not in name and "num_batches" not in name}
    fresh = fit(recipe.override({"contrast": 0}), split).learner.judged.state_dict()
    assert torch.equal(fresh["head.weight"], start["head.weight"])  # the head has learnt nothing
    assert sum(not torch.allclose(fresh[name], start[name]) for name in start) > len(start) / 2


def test_no_label_is_looked_at(straight: Run, tmp_path: Path) -> None:
    """With other labels, and another method, the features are the same to the last bit."""
    other = Run(tmp_path / "other")
    recipe, _ = small("fixmatch", **SHORT)
    recipe = recipe.override({"labels": 30})
    fit(recipe, split_for(recipe, DIGITS), run=other)
    assert model_bytes(other.features) == model_bytes(straight.features)
    assert model_bytes(other) != model_bytes(straight)


def test_the_partner_is_found_more_and_more_often(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    fit(*small(contrast="120", steps="1"), run=run)
    found = [record["partner_found"] for record in run.features.history()]
    assert len(found) == 24
    assert sum(found[-6:]) > 1.5 * sum(found[:6])
    assert "accuracy" not in run.features.history()[-1]  # nobody has told it of classes


@pytest.mark.parametrize("stops", [(-11,), (-5,), (0,), (1,), (7,), (-8, -3, 0, 5)])
def test_stopped_anywhere_it_goes_on_to_the_same_run(stops: tuple[int, ...], straight: Run, tmp_path: Path) -> None:
    recipe, split = small(**SHORT)
    run = Run(tmp_path / "run")
    for number, stop in enumerate(stops):
        with pytest.raises(Interrupted) as stopped:
            fit(recipe, split, run=run, resume=number > 0, callbacks=[StopAt(stop)])
        assert stopped.value.run is run
        assert stopped.value.step == (stop if stop > 0 else 1 if stop == 0 else 0)
    fit(run.recipe(), split, run=run, resume=True)
    assert_same_run(run, straight)
    assert run.summary()["seconds_features"] == run.features.summary()["seconds"] > 0


def test_a_resumed_run_does_without_its_features(straight: Run, tmp_path: Path) -> None:
    recipe, split = small(**SHORT)
    run = Run(tmp_path / "run")
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(7)])
    for path in sorted(run.features.path.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    fit(recipe, split, run=run, resume=True)
    assert_same_run(run, straight)


def test_features_of_another_run_are_not_taken_for_its_own(straight: Run, tmp_path: Path) -> None:
    """A folder that was begun anew and stopped at once still holds what the run before it learnt."""
    recipe, split = small(**SHORT)
    run = Run(tmp_path / "run")
    fit(recipe.override({"seed": 1}), make_split(DIGITS, labels=10, seed=1), run=run)
    (run.path / "summary.json").unlink()
    run.begin(recipe, split, force=True)
    fit(recipe, split, run=run, resume=True)
    assert_same_run(run, straight)


def test_nor_are_features_of_other_data(straight: Run, tmp_path: Path) -> None:
    recipe, split = small(**SHORT)
    run = Run(tmp_path / "run")
    fit(recipe, split, run=run)
    record = json.loads((run.features.path / "split.json").read_text())
    (run.features.path / "split.json").write_text(json.dumps(record | {"hash": "another"}))
    (run.path / "summary.json").unlink()
    (run.path / CHECKPOINT).unlink()
    before = (run.features.path / "model.safetensors").stat().st_mtime_ns
    fit(recipe, split, run=run, resume=True)
    assert (run.features.path / "model.safetensors").stat().st_mtime_ns != before
    assert_same_run(run, straight)


def test_a_folder_begun_anew_forgets_the_features_of_the_run_before(tmp_path: Path) -> None:
    recipe, split = small(**SHORT)
    run = Run(tmp_path / "run")
    fit(recipe, split, run=run)
    with pytest.raises(Interrupted):
        fit(recipe.override({"contrast": 0}), split, run=run, force=True, callbacks=[StopAt(7)])
    assert not run.features.exists
    fit(run.recipe(), split, run=run, resume=True)
    assert run.summary()["seconds_features"] == 0


def test_files_where_features_would_go_are_found_before_anything_is_begun(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    (run.features.path).mkdir(parents=True)
    (run.features.path / "split.json").write_text("mine")
    with pytest.raises(InputError, match=r"features already holds files of the names a run uses \(split.json\)"):
        fit(*small(**SHORT), run=run)
    assert not run.exists
    assert (run.features.path / "split.json").read_text() == "mine"


def test_features_may_be_gone_on_with_by_themselves(straight: Run, tmp_path: Path) -> None:
    """The command that `instant report RUN/features` names trains on the same views."""
    recipe, split = small(**SHORT)
    run = Run(tmp_path / "run")
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(-5)])
    fit(run.features.recipe(), split, run=run.features, resume=True)
    assert model_bytes(run.features) == model_bytes(straight.features)
    fit(recipe, split, run=run, resume=True)
    assert_same_run(run, straight)


def test_what_is_kept_of_a_short_run_is_what_it_has_learnt() -> None:
    """With an average over a thousand steps, two hundred would leave four fifths of the first weights."""
    recipe, split = small(contrast="200", ema="0.999")
    assert features_recipe(recipe, split).ema == 0.95
    assert features_recipe(recipe.override({"contrast": 12_000}), split).ema == 0.999
    assert features_recipe(recipe.override({"contrast": 3}), split).ema == 0


def test_ctrl_c_on_the_way_to_the_features_is_heard(tmp_path: Path) -> None:
    class AtTheNote(Callback):
        def note(self, text: str) -> None:
            signal.raise_signal(signal.SIGINT)

    run = Run(tmp_path / "run")
    with pytest.raises(Interrupted, match=r"stopped after step 1 of the 200 for features"):
        fit(*small(contrast="200"), run=run, callbacks=[AtTheNote()])
    assert run.features.load_checkpoint()[1] == 1  # type: ignore[index]


def test_pretrained_weights_are_needed_once(tmp_path: Path) -> None:
    recipe, split = small(**SHORT)
    other = Run(tmp_path / "other")
    fit(recipe.override({"contrast": 0, "seed": 5}), make_split(DIGITS, labels=10, seed=5), run=other)
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(model_bytes(other))
    recipe = recipe.override({"pretrained": str(weights)})
    whole, broken = Run(tmp_path / "whole"), Run(tmp_path / "broken")
    fit(recipe, split, run=whole)
    with pytest.raises(Interrupted):
        fit(recipe, split, run=broken, callbacks=[StopAt(-5)])
    weights.unlink()
    fit(recipe, split, run=broken, resume=True)
    assert_same_run(broken, whole)
    nowhere = Run(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no weights file"):
        fit(recipe, split, run=nowhere)
    assert not nowhere.exists


def test_features_that_break_say_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instant.contrast.contrast", lambda first, second, t: ((first * math.nan).sum(), first.mean()))
    with pytest.raises(InputError, match=r"at step 0 of the features .* pairs of views. Lower batch or ratio, or set"):
        fit(*small(**SHORT))


def test_those_who_watch_see_the_steps_before_the_first_count_up_to_nought() -> None:
    class Steps(Callback):
        def __init__(self) -> None:
            self.seen: list[int] = []
            self.notes: list[str] = []

        def step(self, step: int) -> None:
            self.seen.append(step)

        def note(self, text: str) -> None:
            self.notes.append(text)

    steps = Steps()
    trained = fit(*small(**SHORT), callbacks=[steps])
    assert steps.seen == [*range(-11, 1), *range(1, 13)]
    assert steps.notes[0] == "learning features first, without labels: 12 steps"
    assert steps.notes[1].startswith("features learnt in ")
    summary = trained.summary
    assert 0 < summary["seconds_features"] < summary["seconds"]
    own = summary["seconds"] - summary["seconds_features"]
    assert summary["steps_per_second"] >= 12 / own
    assert trained.history[0]["seconds"] > summary["seconds_features"]  # a record counts them too


def test_the_rate_grows_with_the_number_of_pairs_and_at_the_start() -> None:
    recipe, split = small(**SHORT, ratio="2")
    few, many = (features_recipe(recipe.override({"contrast": 400, "ratio": ratio}), split) for ratio in (2, 16))
    assert (few.ratio, few.optim.lr) == (4, pytest.approx(0.06 * 8 * 4 / 128))
    assert (many.ratio, many.optim.lr) == (16, pytest.approx(0.06 * 8 * 16 / 128))
    assert (many.optim.warmup, many.optim.cycles, many.steps, many.contrast) == (20, 0.5, 400, 0)
    assert features_recipe(recipe.override({"batch": 1000}), split).ratio == 1  # there are 1437


def test_muon_learns_the_features_of_a_run_that_has_muon() -> None:
    """At rates that grow with the square root of the pairs: four times as many, twice the rate."""
    recipe, split = small(**SHORT, ratio="4", **{"optim.name": "muon", "optim.lr": "0.02"})
    few, many = (features_recipe(recipe.override({"contrast": 400, "ratio": ratio}), split).optim for ratio in (4, 16))
    assert (few.name, few.lr) == ("muon", pytest.approx(0.5 * 0.25))  # 32 pairs, a sixteenth of 512
    assert (many.name, many.lr) == ("muon", pytest.approx(0.25))
    assert (few.warmup, few.cycles) == (20, 0.5)
    adam = recipe.override({"optim.name": "adamw", "optim.lr": "0.001"})
    assert features_recipe(adam, split).optim.name == "sgd"


def test_no_view_is_mirrored_where_left_and_right_matter() -> None:
    recipe, split = small(**SHORT)  # digits
    for mirror in (False, True):
        first = features_recipe(recipe.override({"mirror": mirror}) if mirror else recipe, split)
        feed = build_program(first, split, method=contrastive).feed
        assert isinstance(feed.weak, Part)
        assert feed.weak.mirror == mirror
        assert isinstance(feed.second, Part)


def test_the_bar_is_of_all_steps() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    with ProgressBar("instant", console) as bar:
        fit(*small(**SHORT), callbacks=[bar])
    assert "24/24" in screen.getvalue()
    bar.start(small(**SHORT)[0], small(**SHORT)[1], 0)
    assert bar._bar.tasks[0].completed == 0


def test_the_command_learns_features_first_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["labels=10", "batch=8", "ratio=2", "contrast=5", "steps=5", "device=cpu", "--out", str(tmp_path / "run")]
    assert main(["train", "digits", *words]) == 0
    shown = capsys.readouterr().out
    assert "5 steps after 5 without labels" in shown
    assert "learning features first, without labels: 5 steps" in shown
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["recipe"]["contrast"] == 5
    page = " ".join((tmp_path / "run" / "report.html").read_text(encoding="utf-8").split())
    assert "small_cnn, 5 steps after 5 without labels, seed 0" in page


def test_vectors_have_no_such_views(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"contrast=5 is for images, and .* has vectors; set it to 0"):
        fit(*points(contrast="5"), run=Run(tmp_path / "vectors"))
    assert not Run(tmp_path / "vectors").exists
    table = tmp_path / "x.npz"
    np.savez(table, x=np.random.default_rng(0).normal(size=(40, 3)), y=np.arange(40) % 2)
    assert main(["train", str(table), "contrast=5", "--out", str(tmp_path / "run")]) == 2
    assert "contrast= is for images" in " ".join(capsys.readouterr().err.split())


def test_a_method_that_trains_on_every_label_may_start_from_features(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    fit(*small("fully_supervised", **SHORT), run=run)
    assert run.features.finished
    assert run.features.recipe().labels is None
    split_for(run.features.recipe(), DIGITS)  # as scripts that look at features do


def test_the_baseline_looks_at_labelled_images_alone() -> None:
    recipe, _ = small(**SHORT)
    assert baseline_recipe(recipe).contrast == 0


def test_an_estimator_learns_features_too_and_a_warm_start_does_not_learn_them_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x = np.random.default_rng(0).integers(0, 256, size=(60, 8, 8), dtype=np.uint8)
    y = np.where(np.arange(60) < 20, np.arange(60) % 2, -1)
    model = InstanTClassifier(steps=4, batch=8, settings={"contrast": 4}, warm_start=True, verbose=1, device="cpu")
    model.fit(x, y)
    assert "learning features first" in capsys.readouterr().out
    model.fit(x, y)
    assert "learning features first" not in capsys.readouterr().out


def test_features_have_no_accuracy(straight: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(straight.features)]) == 2
    assert "holds features, learnt without classes" in " ".join(capsys.readouterr().err.split())


def test_the_averaged_weights_are_the_features(straight: Run) -> None:
    tensors, _, _ = straight.features.load_checkpoint()  # type: ignore[misc]
    teacher = {name.removeprefix("learner.teacher."): value for name, value in tensors.items() if ".teacher." in name}
    assert_equal(teacher, load_file(straight.features.path / "model.safetensors"))
