"""What leaves a run says what the run says: in onnxruntime, as safetensors, and as a loaded model."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from runs import DIGITS, points, small
from safetensors import safe_open
from torch import Tensor

import instant
from instant.alignment import Alignment
from instant.backbones import build
from instant.backbones.registry import without_weights
from instant.cli import main
from instant.engine.evaluate import evaluate_run
from instant.engine.fit import fit
from instant.errors import InputError
from instant.export import export_onnx, export_safetensors
from instant.labelling.decisions import decide
from instant.labelling.stream import label
from instant.match import Match
from instant.report.page import write_report
from instant.rules import Fixed
from instant.run import Run
from instant.types import Problem, State

MADE = {
    "mlp": lambda: points("instant", **{"method.base": "0.3"}),
    "mlp with dash": lambda: points("dash"),
    "small_cnn": lambda: small("flexmatch"),
    "wrn": lambda: small("softmatch", steps="1", backbone="wrn_28_2", batch="2"),
    "vit": lambda: small("instant_released", steps="1", backbone="vit_micro_4_16"),
}


@pytest.mark.parametrize("name", MADE)
def test_onnxruntime_equals_torch(name: str, tmp_path: Path) -> None:
    recipe, split = MADE[name]()
    run = Run(tmp_path / "run")
    fit(recipe, split, run=run)
    file = tmp_path / "model.onnx"
    assert export_onnx(run, file) == ("label", "probabilities", "tau", "accepted")
    found = decide(run, split, split.train.take(np.arange(7)))
    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    for rows in (1, 7):
        label, probs, tau, accepted = session.run(None, {"samples": split.train.samples[:rows]})
        assert label.dtype == np.int64
        assert label.tolist() == found.label[:rows].tolist()
        assert probs == pytest.approx(found.probs[:rows], abs=1e-5)
        assert tau == pytest.approx(found.tau[:rows], abs=1e-5)
        clear = np.abs(found.confidence - found.tau)[:rows] > 1e-5
        assert accepted.dtype == np.bool_
        assert accepted[clear].tolist() == found.accepted[:rows][clear].tolist()
    said = {entry.key: json.loads(entry.value) for entry in onnx.load(file).metadata_props}
    assert said["classes"] == list(split.classes)
    assert said["mean"] == list(split.mean)
    assert said["shape"] == list(split.train.shape)


class Milder(Alignment):
    """The geometric mean of what is aligned and what is not."""

    def forward(self, probs: Tensor, probs_l: Tensor) -> tuple[Tensor, State]:
        whole, state = super().forward(probs, probs_l)
        return torch.softmax((whole.log() + probs.log()) / 2, 1), state


class Spectral(Alignment):
    """By an operation that ONNX does not have."""

    def forward(self, probs: Tensor, probs_l: Tensor) -> tuple[Tensor, State]:
        whole, state = super().forward(probs, probs_l)
        return whole + 0 * torch.linalg.svdvals(self.model.diag()).sum(), state


def test_an_alignment_of_ones_own_goes_along_or_is_refused(tmp_path: Path) -> None:
    def mine(problem: Problem) -> Match:
        return Match(Fixed(0.9), align=Milder(problem.classes, momentum=0.9))

    def never(problem: Problem) -> Match:
        return Match(Fixed(0.9), align=Spectral(problem.classes, momentum=0.9))

    recipe, split = points(steps="60", **{"optim.lr": "0.03"})
    run, file = Run(tmp_path / "run"), tmp_path / "model.onnx"
    fit(recipe, split, run=run, method=mine)
    with pytest.raises(InputError, match=r"does something that ONNX cannot hold .*svd.*; use --safetensors"):
        export_onnx(run, file, method=never)
    assert not file.exists()
    export_onnx(run, file, method=mine)
    found = decide(run, split, split.train.take(np.arange(7)), method=mine)
    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    for rows in (1, 7):
        _, probs, _, _ = session.run(None, {"samples": split.train.samples[:rows]})
        assert probs == pytest.approx(found.probs[:rows], abs=1e-5)


def test_a_method_without_thresholds_gives_label_and_probabilities(tmp_path: Path) -> None:
    recipe, split = points("supervised")
    run = Run(tmp_path / "run")
    fit(recipe, split, run=run)
    assert export_onnx(run, tmp_path / "model.onnx") == ("label", "probabilities")
    session = onnxruntime.InferenceSession((tmp_path / "model.onnx").read_bytes())
    label, probs = session.run(None, {"samples": split.train.samples[:5]})
    model = instant.load(run.path)
    assert probs == pytest.approx(model.predict_proba(split.train.samples[:5]), abs=1e-5)
    assert np.array(model.classes)[label].tolist() == model.predict(split.train.samples[:5]).tolist()
    with pytest.raises(InputError, match="method=supervised, which has no threshold"):
        model.decide(split.train.samples[:5])


def test_safetensors_hold_the_weights_and_the_card(finished: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    export_safetensors(finished, file)
    network, card = finished.load_model()
    with safe_open(file, "pt") as found:
        said = {name: json.loads(value) for name, value in found.metadata().items()}
        tensors = {name: found.get_tensor(name) for name in found.keys()}  # noqa: SIM118
    assert said == card
    again = build(said["backbone"], shape=tuple(said["shape"]), classes=10, **said["backbone_options"])
    again.load_state_dict(tensors)
    x = torch.rand(2, *said["shape"])
    assert torch.equal(again.eval()(x).logits, network(x).logits)
    with pytest.raises(InputError, match="is there already"):
        export_safetensors(finished, file)
    export_safetensors(finished, file, force=True)


def test_load_predicts_as_evaluate_does_and_decides_as_decide_does(finished: Run) -> None:
    split = small()[1]
    model = instant.load(finished.path)
    probs = model.predict_proba(split.test.samples)
    assert probs.sum(1) == pytest.approx(np.ones(360), abs=1e-5)
    right = (probs.argmax(1) == split.test_targets).mean()
    assert right == pytest.approx(evaluate_run(finished, DIGITS)["accuracy"])
    assert model.predict(split.test.samples).tolist() == [model.classes[k] for k in probs.argmax(1)]
    found, expected = model.decide(split.test.samples), decide(finished, split, split.test)
    assert found.tau.tolist() == expected.tau.tolist()
    assert found.accepted.tolist() == expected.accepted.tolist()


def test_forms_of_input_are_one(finished: Run) -> None:
    model, images = instant.load(finished.path), small()[1].test.samples[:6]
    expected = model.predict_proba(images)
    for form in (images[:, 0], images.transpose(0, 2, 3, 1), torch.from_numpy(images), images / np.float32(255)):
        assert model.predict_proba(form) == pytest.approx(expected, abs=1e-6)
    with pytest.raises(InputError, match=r"X: expected images of shape \(1, 16, 16\).*got \(9, 9\)"):
        model.predict(np.zeros((2, 9, 9), np.uint8))
    with pytest.raises(InputError, match="uint8, or of floats from 0 to 1"):
        model.predict(images.astype(np.float32))
    with pytest.raises(InputError, match="X: expected an array, its rows of one length"):
        model.predict([[1], [1, 2]])
    half = torch.zeros(2, 1, 16, 16, dtype=torch.bfloat16)
    assert model.predict_proba(half) == pytest.approx(model.predict_proba(half.float()))


def test_a_wide_resnet_comes_back_from_plain_tensors() -> None:
    one, other = (build("wrn_28_2", shape=(1, 8, 8), classes=3) for _ in range(2))
    other.load_state_dict(dict(one.state_dict()))  # as a file has them: torch's own note of versions is gone
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(one.eval()(x).logits, other.eval()(x).logits)


def test_the_command(finished: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    onnx_file, weights = tmp_path / "model.onnx", tmp_path / "weights.safetensors"
    assert main(["export", str(finished), "--onnx", str(onnx_file), "--safetensors", str(weights)]) == 0
    out, err = capfd.readouterr()
    assert "label, probabilities, tau, accepted" in " ".join(out.split())
    assert "torchvision" not in err
    assert onnx_file.exists()
    assert weights.exists()
    assert main(["export", str(finished), "--onnx", str(onnx_file)]) == 2
    assert "is there already" in capfd.readouterr().err
    one = ["--onnx", str(tmp_path / "m"), "--safetensors", str(tmp_path / "x" / ".." / "m"), "--force"]
    assert main(["export", str(finished), *one]) == 2
    assert "are one file; name two." in capfd.readouterr().err
    assert not (tmp_path / "m").exists()
    assert main(["export", str(finished)]) == 2
    assert "--onnx FILE" in capfd.readouterr().err
    for option in ("--onnx", "--safetensors"):
        assert main(["export", str(finished), option, str(tmp_path), "--force"]) == 2
        assert f"{tmp_path} is a folder; name a file in it." in capfd.readouterr().err
        assert main(["export", str(finished), option, str(tmp_path / "no" / "such")]) == 2
        assert f"there is no folder {tmp_path / 'no'}; make it first" in capfd.readouterr().err
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("option", ["--onnx", "--safetensors"])
def test_a_file_that_cannot_be_written(
    option: str, finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / ("x" * 250)  # the temporary file beside it has a longer name, too long for a file system
    assert main(["export", str(finished), option, str(path)]) == 2
    assert capsys.readouterr().err == (
        f"instant: {path} cannot be written (File name too long); choose a folder you may write to, with space left.\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_it_is_a_sentence(
    finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", str(finished), "--onnx", str(tmp_path / "model.onnx")]) == 2
    assert 'pip install "instant-ssl[onnx]"' in capsys.readouterr().err


def test_a_folder_cannot_make_anything_run(
    finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recipe may name any function of any module: only a caller who names it too gets it imported."""
    folder = tmp_path / "run"
    shutil.copytree(finished.path, folder)
    recipe = json.loads((folder / "recipe.json").read_text())
    recipe["recipe"]["method"] = "trap:spring"
    (folder / "recipe.json").write_text(json.dumps(recipe))
    (tmp_path / "trap.py").write_text("raise RuntimeError('this ran')\n\ndef spring(problem): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    for attempt in (
        lambda: instant.load(folder),
        lambda: export_onnx(Run(folder), tmp_path / "model.onnx"),
        lambda: label(Run(folder), tmp_path / "labels.csv", pool=lambda: small()[1]),
        lambda: decide(Run(folder), small()[1]),
        lambda: write_report(Run(folder), small()[1]),
    ):
        with pytest.raises(InputError, match="trap:spring, which is code"):
            attempt()
    assert main(["report", str(folder)]) == 2
    assert "trap:spring, which is code" in capsys.readouterr().err
    unfinished = shutil.copytree(folder, tmp_path / "unfinished")
    (unfinished / "summary.json").unlink()
    assert main(["train", "--resume", str(unfinished)]) == 2
    assert "name it yourself with method=trap:spring" in capsys.readouterr().err
    assert main(["train", "--resume", str(unfinished), "method=instant"]) == 2
    assert "was begun with method=trap:spring, not instant" in capsys.readouterr().err
    for words in (["label", str(folder), "--out", str(tmp_path / "labels.csv")], ["report", str(folder)]):
        assert main([*words, "--method", "instant"]) == 2
        assert "was begun with method=trap:spring, not instant" in capsys.readouterr().err
        assert main([*words, "--method", "instant.algorithms:instant"]) == 0  # what the caller names is what is run
    assert len(instant.load(folder, method="instant.algorithms:instant").predict(small()[1].test.samples[:3])) == 3
    assert without_weights("timm:x", {"pretrained": True, "checkpoint_path": "evil.pth", "depth": 2}) == {"depth": 2}
