"""A backbone of the user's own: named everywhere ours are, and never because a file names it."""

from __future__ import annotations

import enum
import functools
import json
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from runs import DIGITS, TINY, StopAt, assert_same_run, blobs, model_bytes, points, small
from torch import Tensor, nn

import instant
from instant.backbones import Backbone, build, linear_head
from instant.cli import main
from instant.data.files import atomic
from instant.engine.evaluate import evaluate_run
from instant.engine.fit import fit
from instant.engine.interrupt import Interrupted
from instant.errors import InputError
from instant.export import export_onnx, export_safetensors
from instant.labelling.decisions import decide
from instant.labelling.stream import label
from instant.report.baseline import train_baseline
from instant.report.page import write_report
from instant.run import Run
from instant.testing import check_backbone
from instant.types import Prediction

MODULE = """
import torch
from torch import nn
from instant.backbones import Backbone, linear_head

class Net(Backbone):
    def __init__(self, shape, classes, width):
        super().__init__(width, classes)
        inputs = 1
        for size in shape:
            inputs *= size
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU())
        self.head = linear_head(width, classes)

    def features(self, x):
        return self.body(x)

def make(shape, classes, *, width: int = 12, gain: float = 1.0, note: str | None = None):
    net = Net(shape, classes, width)
    net.gain = gain
    return net

number = 3

def noisy(shape, classes): raise OSError("the disk is asleep")
def other(shape, classes): return nn.Linear(3, 3)
def nothing(): ...
def backwards(classes, size): ...
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of the user's own on the path."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "mine.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    yield folder / "mine.py"
    for name in ("mine", "moved", "trap"):
        sys.modules.pop(name, None)


def changed(path: Path, **values: Any) -> None:
    """A JSON file with other values at its top, or of its recipe."""
    content = json.loads(path.read_text(encoding="utf-8"))
    (content["recipe"] if path.name == "recipe.json" else content).update(values)
    with atomic(path, "w") as file:
        json.dump(content, file)


class Plain(Backbone):
    """One layer on flat samples; what differs is handed in."""

    def __init__(self, shape: tuple[int, ...], classes: int, *, width: int = 8) -> None:
        super().__init__(width, classes)
        self.layer = nn.Linear(int(np.prod(shape)), width)
        self.head = linear_head(width, classes)

    def features(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1)).tanh()


# -- everywhere that a name works ---------------------------------------------------------------------------------


def test_every_command_takes_it(mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train with a baseline, report, evaluate, label, certify, export, and where the data is now."""
    settings = [f"{key}={value}" for key, value in TINY.items()]
    out, own = str(tmp_path / "run"), ["--backbone", "mine:make"]
    words = ["train", "digits", "labels=10", "method=fixmatch", "method.threshold=0.1", *settings]
    assert main([*words, "backbone=mine:make", "backbone.width=16", "--out", out, "--baseline"]) == 0
    run = Run(out)
    assert run.summary()["backbone"] == run.baseline.summary()["backbone"] == "mine:make"
    assert run.recipe().backbone_options == {"width": 16}
    assert "with mine:make" in capsys.readouterr().out
    files = [str(tmp_path / name) for name in ("labels.csv", "drawn.csv", "model.safetensors", "model.onnx")]
    for command in (
        ["evaluate", out],
        ["report", out, "--with-baseline"],
        ["label", out, "--out", files[0]],
        ["certify", out, "--draw", "2", "--out", files[1]],
        ["export", out, "--safetensors", files[2]],
        ["export", out, "--onnx", files[3]],
    ):
        assert main(command) == 2
        assert "a backbone of its own, mine:make, which is code" in capsys.readouterr().err
        assert main([*command, "--backbone", "small_cnn"]) == 2
        assert "was begun with backbone=mine:make, not small_cnn" in capsys.readouterr().err
        assert main([*command, *own]) == 0, capsys.readouterr().err
    assert all(Path(file).stat().st_size for file in files)
    assert main(["certify", out, *own]) == 2
    assert "--backbone goes with --draw" in capsys.readouterr().err
    assert main(["train", "--resume", out]) == 2
    assert f"instant report {out} --backbone mine:make" in capsys.readouterr().err


def test_a_resumed_run_ends_as_an_uninterrupted_one(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, split = small("flexmatch", backbone="mine:make")
    whole, halved = Run(tmp_path / "whole"), Run(tmp_path / "halved")
    fit(recipe, split, run=whole)
    with pytest.raises(Interrupted):
        fit(recipe, split, run=halved, callbacks=[StopAt(13)])
    assert halved.resume_command.endswith(" backbone=mine:make")
    mine.write_text(MODULE.replace("width: int = 12", "width: int = 20"), encoding="utf-8")  # another default since
    sys.modules.pop("mine")
    words = ["train", "--resume", str(halved)]
    assert main(words) == 2
    assert "name it yourself with backbone=mine:make" in capsys.readouterr().err
    assert main([*words, "backbone=mine:noisy"]) == 2
    said = capsys.readouterr().err
    assert "was begun with backbone=mine:make, not mine:noisy; name that one, or train anew." in said
    assert "If it has moved, let a module of the old name import it." in said
    assert main([*words, "backbone=mine:make"]) == 0
    assert_same_run(halved, whole)
    loaded = instant.load(whole.path, backbone="mine:make")
    assert loaded.predict_proba(split.test.samples[:3]).shape == (3, 10)


def test_features_are_learnt_by_it_first(mine: Path, tmp_path: Path) -> None:
    recipe, split = small("fixmatch", backbone="mine:make", contrast="6", log_every="3")
    run, whole = Run(tmp_path / "run"), Run(tmp_path / "whole")
    fit(recipe, split, run=whole)
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(2)])
    shutil.rmtree(run.path / "checkpoint")  # go on from the finished features
    fit(recipe, split, run=run, resume=True)
    assert model_bytes(run) == model_bytes(whole)
    shutil.rmtree(run.path / "checkpoint")
    changed(run.features.path / "model.json", backbone="trap:spring")  # the folder cannot bring in another
    mine.with_name("trap.py").write_text("raise RuntimeError('this ran')")
    fit(recipe, split, run=run, resume=True)
    assert model_bytes(run) == model_bytes(whole)
    with pytest.raises(InputError, match="was begun with backbone=mine:make, not small_cnn"):
        fit(small("fixmatch", contrast="6", log_every="3")[0], split, run=run, resume=True)
    ours = small("fixmatch", contrast="6", log_every="3")[0]
    fit(ours, split, run=run, force=True)
    shutil.rmtree(run.path / "checkpoint")
    changed(run.features.path / "model.json", backbone="trap:spring")
    with pytest.raises(InputError, match="was begun with backbone=trap:spring, not small_cnn"):
        fit(ours, split, run=run, resume=True)


def test_python_takes_the_function_itself(tmp_path: Path) -> None:
    recipe, split = points("instant", **{"backbone.width": "24", "method.transition": "network"})
    run = Run(tmp_path / "run")
    trained = fit(recipe, split, run=run, backbone=Plain)
    assert isinstance(trained.learner.model, Plain)
    assert trained.learner.model.num_features == 24
    assert run.recipe().backbone == "test_own_backbones:Plain"
    model = instant.load(run.path, backbone=Plain)
    assert model.predict(split.test.samples[:4]).shape == (4,)
    for attempt in (lambda: instant.load(run.path), lambda: instant.load(run.path, backbone="mlp")):
        with pytest.raises(InputError, match="test_own_backbones:Plain"):
            attempt()
    with pytest.raises(InputError, match=r"does not fit backbone=test_own_backbones:.*was another one trained\?"):
        instant.load(run.path, backbone=lambda shape, classes, width: Plain(shape, classes, width=9))


def test_the_estimator_takes_its_name(mine: Path) -> None:
    x, truth, y = blobs()
    settings = {"backbone": "mine:make", "backbone.width": 16}
    model = instant.InstanTClassifier(steps=60, random_state=0, settings=settings).fit(x, y)
    assert type(model.judge_.network).__module__ == "mine"
    assert model.score(x, truth) > 0.9
    with pytest.raises(ValueError, match=r"backbone\.width='wide' of mine:make must be a whole number"):
        instant.InstanTClassifier(settings=settings | {"backbone.width": "wide"}).fit(x, y)


def test_code_that_has_moved_is_taken_where_it_is_now(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, split = small("fixmatch", backbone="mine:make")
    run = Run(tmp_path / "run")
    fit(recipe, split, run=run)
    train_baseline(run, split, backbone="mine:make")
    mine.rename(mine.with_name("moved.py"))
    sys.modules.pop("mine")
    assert main(["evaluate", str(run), "--backbone", "moved:make"]) == 0
    capsys.readouterr()
    assert main(["report", str(run), "--with-baseline", "--backbone", "moved:make"]) == 0
    assert "mine" not in sys.modules
    assert not (run.path / "baseline-1").exists()  # the one that is there is this run's


def test_a_baseline_begun_before_the_code_moved_is_trained_anew(mine: Path, tmp_path: Path) -> None:
    recipe, split = small("fixmatch", backbone="mine:make")
    run = Run(tmp_path / "run")
    fit(recipe, split, run=run)
    with pytest.raises(Interrupted):
        train_baseline(run, split, backbone="mine:make", callbacks=[StopAt(5)])
    mine.rename(mine.with_name("moved.py"))
    sys.modules.pop("mine")
    assert train_baseline(run, split, backbone="moved:make").finished


class Kind(enum.StrEnum):
    PLAIN = "plain"
    ROUND = "round"


def choosing(
    shape: tuple[int, ...],
    classes: int,
    *,
    pretrained: str,
    kind: Kind = Kind.PLAIN,
    where: Path | None = None,
    width: int = 8,
) -> Backbone:
    """Options that no file holds as they are, and one that is timm's word too."""
    return Plain(shape, classes, width=width + len(pretrained))


class Within:
    @staticmethod
    def make(shape: tuple[int, ...], classes: int, *, width: int) -> Backbone:
        return Plain(shape, classes, width=width)


def test_what_is_trained_can_be_loaded(tmp_path: Path) -> None:
    given = {"backbone.pretrained": "abc", "backbone.where": "a/b"}
    for number, (function, settings) in enumerate(
        [
            (choosing, given),
            (choosing, given | {"backbone.kind": "round"}),
            (functools.partial(choosing, pretrained="ab", width=4), {}),
            (Within.make, {}),
        ]
    ):
        recipe, split = points("fixmatch", **settings)
        run = Run(tmp_path / f"run{number}")
        fit(recipe, split, run=run, backbone=function)
        by_name = instant.load(run.path, backbone=run.recipe().backbone)
        x = split.test.samples[:4]
        assert np.array_equal(by_name.predict_proba(x), instant.load(run.path, backbone=function).predict_proba(x))


# -- a folder is not trusted --------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["recipe.json", "model.json"])
def test_a_folder_cannot_have_a_backbone_imported(
    file: str, finished: Run, mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.path, folder)
    changed(folder / file, backbone="trap:spring")
    mine.with_name("trap.py").write_text("raise RuntimeError('this ran')\n\ndef spring(shape, classes): ...\n")
    run, split = Run(folder), small()[1]
    attempts: list[Callable[[], object]] = [
        lambda: instant.load(folder),
        lambda: export_onnx(run, tmp_path / "model.onnx"),
        lambda: label(run, tmp_path / "labels.csv", pool=lambda: split),
        lambda: decide(run, split),
        lambda: write_report(run, split),
    ]
    if file == "model.json":
        attempts += [
            lambda: run.load_model(),
            lambda: evaluate_run(run, DIGITS),
            lambda: export_safetensors(run, tmp_path / "model.safetensors"),
        ]
    else:
        attempts.append(lambda: train_baseline(run, split))
    for attempt in attempts:
        with pytest.raises(InputError, match="trap:spring, which is code"):
            attempt()
    for command in (["report", str(folder)], ["label", str(folder), "--out", str(tmp_path / "labels.csv")]):
        assert main(command) == 2
        assert "trap:spring, which is code" in capsys.readouterr().err
    if file == "recipe.json":
        (folder / "summary.json").unlink()
        assert main(["train", "--resume", str(folder)]) == 2
        assert "name it yourself with backbone=trap:spring" in capsys.readouterr().err
        assert main(["train", "--resume", str(folder), "backbone=small_cnn"]) == 2
        assert "was begun with backbone=trap:spring, not small_cnn" in capsys.readouterr().err
    assert "trap" not in sys.modules


def test_a_folder_cannot_have_timm_open_a_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its `checkpoint_path` and the like unpickle: they are the caller's to give."""
    asked: list[dict[str, Any]] = []

    class Body(nn.Module):
        num_features = 4

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(1, 4, 3)

        def forward_features(self, x: Tensor) -> Tensor:
            return self.layer(x)

        def forward_head(self, x: Tensor, pre_logits: bool) -> Tensor:
            return x.mean((2, 3))

    def create_model(name: str, *, num_classes: int, in_chans: int, **options: Any) -> nn.Module:
        asked.append(options)
        return Body()

    timm = types.ModuleType("timm")
    timm.create_model = create_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    words = ["train", "digits", "labels=10", "steps=2", "batch=4", "ratio=1", "backbone=timm:any"]
    words += ["method.transition=network", "checkpoint_every=1"]
    out, table = str(tmp_path / "run"), str(tmp_path / "labels.csv")
    assert main([*words, "backbone.checkpoint_path=mine.pth", "--out", out]) == 0
    assert {"checkpoint_path": "mine.pth"} in asked  # the caller's own word
    asked.clear()
    capsys.readouterr()
    for command in (["evaluate", out], ["report", out], ["label", out, "--out", table]):
        assert main(command) == 0
    (tmp_path / "run" / "summary.json").unlink()
    assert main(["train", "--resume", out]) == 0  # the checkpoint has the weights
    capsys.readouterr()
    sentence = "backbone.checkpoint_path='mine.pth' has timm open a file that can run code"
    assert main(["report", out, "--with-baseline"]) == 2
    assert sentence in capsys.readouterr().err
    (tmp_path / "run" / "summary.json").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    assert main(["train", "--resume", out]) == 2
    assert sentence in capsys.readouterr().err
    assert asked
    assert not any(asked)


def test_what_has_no_name_is_asked_for_in_python(tmp_path: Path) -> None:
    recipe, split = points("fixmatch")
    fit(recipe, split, run=Run(tmp_path / "run"), backbone=lambda **words: Plain(**words))
    with pytest.raises(InputError, match=r"give it in Python, .*instant\.load\(RUN, backbone=FUNCTION\)\.$"):
        instant.load(tmp_path / "run")


# -- what can be wrong with it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("backbone=no.such:thing", "backbone='no.such:thing' cannot be imported (No module named 'no'); expected"),
        (
            "backbone=mine:mke",
            "backbone='mine:mke' cannot be imported (module 'mine' has no attribute 'mke'); expected",
        ),
        ("backbone=code/mine.py:make", "expected a module rather than a file: leave out .py and folders"),
        ("backbone=mine:number", "backbone='mine:number' is a int, expected a function(shape, classes, **options)"),
        ("backbone=mine:nothing", "backbone=mine:nothing takes () and no shape and no classes; expected a function("),
        ("backbone=mine:backwards", "backbone=mine:backwards takes (classes, size) and no shape; expected"),
        ("backbone=mine:noisy", "(OSError: the disk is asleep, "),
        ("backbone=mine:other", "backbone=mine:other returned a Linear, expected an instant.backbones.Backbone"),
        ("backbone=mine:make backbone.widht=3", "mine:make has no argument 'widht': did you mean 'width'?"),
        ("backbone=mine:make backbone.width=1.5", "backbone.width=1.5 of mine:make must be a whole number"),
        ("backbone=mine:make backbone.note=3", "backbone.note=3 of mine:make must be a text or none."),
        (
            "backbone=mine:make backbone.shape=3",
            "backbone.shape is not an option: the data say their shape; leave it out.",
        ),
        ("backbone=smal_cnn", "did you mean 'small_cnn'? (a backbone of your own is given as package.module:function)"),
    ],
)
def test_a_mistake_is_a_sentence(
    words: str, sentence: str, mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "digits", "labels=10", "steps=2", *words.split(), "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run" / "recipe.json").exists()


def test_a_module_that_ends_the_process_is_a_sentence(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine.write_text("import sys\nsys.exit(0)\n")
    assert main(["train", "digits", "backbone=mine:make"]) == 2
    assert "cannot be imported (SystemExit: 0, " in capsys.readouterr().err


class ForgetsTheWidth(Plain):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        nn.Module.__init__(self)


class ReturnsLogits(Plain):
    def forward(self, x: Tensor, still: Tensor | None = None) -> Any:
        return self.head(self.features(x))


class TakesNoStillRows(Plain):
    def forward(self, x: Tensor) -> Prediction:  # type: ignore[override]
        return Prediction(self.head(self.features(x)), self.features(x))


class DropsStillRows(Plain):
    def forward(self, x: Tensor, still: Tensor | None = None) -> Prediction:
        return super().forward(x)


class OtherClasses(Plain):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.head = linear_head(8, classes + 1)


class OtherFeatures(Plain):
    def forward(self, x: Tensor, still: Tensor | None = None) -> Prediction:
        found = super().forward(x, still)
        return found._replace(features=found.features[:, :3])


class FailsInEvaluation(Plain):
    def features(self, x: Tensor) -> Tensor:
        return super().features(x if self.training else x.flatten(1)[:, :2])


class WritesNoFeatures(Backbone):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(3, classes)


class NotSizedYet(Plain):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.layer = nn.LazyLinear(8)


class KeepsMoreThanTensors(Plain):
    def get_extra_state(self) -> dict[str, int]:
        return {"seen": 3}


class Grows(Plain):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.register_buffer("seen", torch.zeros(0, 8))

    def features(self, x: Tensor) -> Tensor:
        found = super().features(x)
        self.seen = torch.cat([self.seen, found])
        return found


class HasComplexParts(Plain):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.turn = nn.Parameter(torch.ones(8, dtype=torch.complex64))


class EndsTheProcess(Plain):
    def features(self, x: Tensor) -> Tensor:
        sys.exit(0)


def gives_up(shape: tuple[int, ...], classes: int) -> Backbone:
    sys.exit(0)


def by_place(shape: tuple[int, ...], classes: int, /) -> Backbone:
    return Plain(shape, classes)


def missing_option(shape: tuple[int, ...], classes: int, *, width: int) -> Backbone:
    return Plain(shape, classes, width=width)


def unreadable(shape: tuple[int, ...], classes: int, *, width: NotThere = 3) -> Backbone:  # type: ignore[name-defined]  # noqa: F821
    return Plain(shape, classes)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (ForgetsTheWidth, r"does not say its num_features; call super\(\).__init__\(num_features, classes\)"),
        (ReturnsLogits, "forward returned a Tensor in training with still rows, expected an instant.types.Prediction"),
        (TakesNoStillRows, r"cannot predict samples of shape \(5,\) in training with still rows \(TypeError: "),
        (DropsStillRows, r"the logits of 4 samples in training with still rows .* \(4, 3\).*; got shape \(2, 3\)"),
        (
            OtherClasses,
            r"the logits of 4 samples .* shape \(4, 3\), a row a sample and its classes; got shape \(4, 4\)",
        ),
        (OtherFeatures, r"the features of 4 samples .* shape \(4, 8\), .* num_features; got shape \(4, 3\)"),
        (
            FailsInEvaluation,
            r"in evaluation with still rows \(RuntimeError: mat1 .*, .*test_own_backbones\.py line \d+\)",
        ),
        (WritesNoFeatures, r"\(TypeError: WritesNoFeatures must define features\(x\)\)"),
        (NotSizedYet, r"layer\.weight has no shape yet; give the sizes of its layers"),
        (KeepsMoreThanTensors, "_extra_state of its state is a dict, and a checkpoint holds tensors alone"),
        (Grows, "seen has another shape or type after the network is used in training"),
        (HasComplexParts, "the parameter turn is complex64, and only floats are trained"),
        (EndsTheProcess, r"cannot predict .* \(SystemExit: 0, .*test_own_backbones\.py line \d+\)"),
        (gives_up, r"could not be built .* \(SystemExit: 0, .*test_own_backbones\.py line \d+\)"),
        (by_place, "takes shape and classes by place only, and is called with names"),
        (missing_option, r"needs width, which has no default: add backbone\.width=VALUE"),
        (unreadable, r"its arguments cannot be read \(NameError: name 'NotThere' is not defined.*\); its hints may"),
    ],
)
def test_a_network_that_keeps_no_promise_is_a_sentence(function: Callable[..., Backbone], sentence: str) -> None:
    with pytest.raises(InputError, match=f"backbone=test_own_backbones:{function.__qualname__}.*{sentence}"):
        build(function, shape=(5,), classes=3)


def test_a_network_is_not_the_function_that_makes_it(tmp_path: Path) -> None:
    recipe, split = points("fixmatch")
    for wrong, kind in ((Plain((5,), 3), "Plain"), (3, "int")):
        with pytest.raises(InputError, match=rf"backbone is a {kind}, expected a name or the function\(shape, classes"):
            fit(recipe, split, backbone=wrong)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=f"backbone is a {kind}, expected"):
            check_backbone(wrong)  # type: ignore[arg-type]


def test_hints_are_taken_at_their_word() -> None:
    def made(
        shape: tuple[int, ...],
        classes: int,
        *,
        pool: Literal["mean", "max"] = "mean",
        width: int = None,  # type: ignore[assignment]  # noqa: RUF013
        sizes: tuple[int, ...] = (1, 2),
        free=None,  # type: ignore[no-untyped-def]
    ) -> Backbone:
        return Plain(shape, classes, width=width or 4)

    for fine in ({"pool": "max"}, {"width": None}, {"width": 5}, {"sizes": 3}, {"free": 0.5}):
        build(made, shape=(5,), classes=3, **fine)
    with pytest.raises(InputError, match=r"backbone\.pool='median' .* must be mean or max\."):
        build(made, shape=(5,), classes=3, pool="median")
    assert build(lambda **words: Plain(**words), shape=(5,), classes=3, width=6).num_features == 6


def test_trying_it_moves_nothing() -> None:
    """Neither its running statistics nor torch's generator, from which the method is drawn next."""

    class Counting(Plain):
        def __init__(self, shape: tuple[int, ...], classes: int) -> None:
            super().__init__(shape, classes)
            self.norm = nn.BatchNorm1d(8)
            self.drop = nn.Dropout(0.5)

        def features(self, x: Tensor) -> Tensor:
            return self.drop(self.norm(super().features(x)))

    torch.manual_seed(0)
    plain = Counting((5,), 3)
    after = torch.rand(2)
    torch.manual_seed(0)
    network = build(Counting, shape=(5,), classes=3)
    assert torch.equal(torch.rand(2), after)
    assert all(torch.equal(value, plain.state_dict()[name]) for name, value in network.state_dict().items())
    assert network.training


# -- check_backbone -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape"),
    [("wrn_28_2", (3, 8, 8)), ("vit_micro_4_16", (3, 16, 16)), ("small_cnn", (1, 8, 8)), ("mlp", (9,))],
)
def test_ours_keep_their_promises(name: str, shape: tuple[int, ...]) -> None:
    check_backbone(name, shape=shape)


class Drops(Plain):
    def features(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().features(x), 0.5, self.training)


class Spare(Plain):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.spare = nn.Parameter(torch.zeros(3))


class LooksAround(Plain):
    def features(self, x: Tensor) -> Tensor:
        found = super().features(x)
        return found - found.mean(0)


class SaysIndependent(Plain):
    rows_are_independent = True

    def features(self, x: Tensor) -> Tensor:
        found = super().features(x)
        return found - found.mean(0) if self.training else found


class NormalisesTheBatch(Plain):
    rows_are_independent = True

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.norm = nn.BatchNorm1d(8)

    def features(self, x: Tensor) -> Tensor:
        return self.norm(super().features(x))


class Turns(Plain):
    """Still rows first, which is the wrong way round."""

    def forward(self, x: Tensor, still: Tensor | None = None) -> Prediction:
        return super().forward(x if still is None else torch.cat([still, x]))


class Remembers(Plain):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.seen = torch.rand(8)

    def features(self, x: Tensor) -> Tensor:
        return super().features(x) + self.seen


class Stays(Plain):
    """A constant that is no buffer."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.shift = torch.full((8,), 0.5)

    def features(self, x: Tensor) -> Tensor:
        return super().features(x) + self.shift


class Waits(Plain):
    def features(self, x: Tensor) -> Tensor:
        found = super().features(x)
        return found / max(1.0, found.max().item())


class Overwrites(Plain):
    def features(self, x: Tensor) -> Tensor:
        return super().features(x.clamp_(-1, 1))


class Divides(Plain):
    """A sample of nothing but 0 has no direction."""

    def features(self, x: Tensor) -> Tensor:
        return super().features(x / x.norm(dim=1, keepdim=True))


class CountsOn(Plain):
    """What it is asked in evaluation changes what it answers next."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.register_buffer("asked", torch.zeros(()))

    def features(self, x: Tensor) -> Tensor:
        if not self.training:
            self.asked += 1
        return super().features(x) + self.asked


class Misnames(Plain):
    no_weight_decay = frozenset({"token"})


class Differs(Plain):
    calls = 0

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        Differs.calls += 1
        nn.init.constant_(self.layer.bias, float(Differs.calls))


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (OtherClasses, "must be floats of shape"),
        (Drops, "two equal steps differ; draw only from instant.random"),
        (Spare, "no gradient reaches spare"),
        (LooksAround, "in evaluation a row depends on the others"),
        (SaysIndependent, "it says rows_are_independent, but in training a row depends on the others"),
        (Turns, "still rows are predicted otherwise than in one batch, after the others"),
        (Remembers, "its state does not survive state_dict"),
        (Stays, "a tensor stays on the CPU where all else is on a GPU"),
        (Waits, "the step waits for the device"),
        (Overwrites, "it wrote into the samples"),
        (Divides, "the logits are not finite, where one sample is 0 everywhere"),
        (CountsOn, "in evaluation its state moves"),
        (NormalisesTheBatch, "it says rows_are_independent, but in training a row depends on the others"),
        (Misnames, "no_weight_decay names 'token', which is none of its parameters"),
        (Differs, "one seed gave two networks"),
    ],
)
def test_a_broken_promise_is_found(function: Callable[..., Backbone], sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_backbone(function, shape=(5,))


def test_a_sound_one_passes() -> None:
    check_backbone(Plain, shape=(5,), width=6)
