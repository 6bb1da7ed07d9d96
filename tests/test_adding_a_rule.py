"""docs/adding-a-rule.md: the files it shows are run, from outside the package, by the commands it names."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from instant.run import Run
from instant.testing import check_backbone, check_method, check_rule
from instant.types import Evidence

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "docs" / "examples" / "my_rule.py"
OWN_BACKBONE = EXAMPLE.with_name("my_backbone.py")
DOCUMENT = ROOT / "docs" / "adding-a-rule.md"


def blocks(language: str) -> list[str]:
    """The fenced blocks of the document in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def my_rule(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    import my_rule

    yield my_rule
    del sys.modules["my_rule"]


def test_the_document_shows_that_very_file() -> None:
    code = EXAMPLE.read_text(encoding="utf-8")
    assert blocks("python")[0] == code
    assert len(code.splitlines()) < 60


def test_the_checks_of_the_document_pass(my_rule: ModuleType) -> None:
    """The second block of the document, run as it stands; then the same on a compiled step."""
    exec(compile(blocks("python")[1], str(DOCUMENT), "exec"), {})
    check_rule(my_rule.ClassQuantile(4, first=0.2, last=0.9, ramp=10, rate=0.05), compiled=True)
    check_method(my_rule.my_method, compiled=True)


def test_a_class_moves_towards_its_share(my_rule: ModuleType) -> None:
    """By hand, at the middle of the ramp: q_t = 0.2 + 0.7 / 2 = 0.55 and every bar stands at 0.5."""
    rule = my_rule.ClassQuantile(4, first=0.2, last=0.9, ramp=10, rate=0.1)
    probs = torch.tensor([
        [0.7, 0.1, 0.1, 0.1],  # called 0, passes
        [0.6, 0.2, 0.1, 0.1],  # called 0, passes
        [0.1, 0.4, 0.3, 0.2],  # called 1, does not
        [0.1, 0.1, 0.8, 0.0],  # called 2, passes
        [0.2, 0.1, 0.4, 0.3],  # called 2, does not
    ])  # fmt: skip
    seen = Evidence(probs, probs, torch.zeros(5, dtype=torch.long), torch.arange(5), torch.tensor(5))
    (weight, threshold), state = rule(seen)
    assert weight.tolist() == [1, 1, 0, 1, 0]
    assert threshold.tolist() == [0.5] * 5
    # class 0: all pass, + 0.1 * (1 - 0.55); 1: none, - 0.1 * 0.55; 2: half, - 0.1 * 0.05; 3: nobody, stays
    assert state["tau"].tolist() == pytest.approx([0.545, 0.445, 0.495, 0.5])


def command_of(block: str) -> tuple[list[str], Callable[..., str]]:
    """The words after `instant` in a block of the document, and what runs such words where it runs them."""
    assignment, command, *settings = shlex.split(block)
    name, _, folder = assignment.partition("=")
    assert (name, command) == ("PYTHONPATH", "instant")
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "instant", *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return settings, run


def test_the_command_of_the_document_trains(tmp_path: Path) -> None:
    settings, run = command_of(blocks("sh")[0])
    own = ["--method", "my_rule:my_method"]
    run(*settings, "steps=20", "--out", str(tmp_path / "run"))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert (summary["method"], summary["steps"]) == ("my_rule:my_method", 20)
    assert 0 < summary["utilisation"] <= 1
    options = json.loads((tmp_path / "run" / "recipe.json").read_text(encoding="utf-8"))["recipe"]["method_options"]
    assert options == {"last": 0.8}
    said = run("report", str(tmp_path / "run"), *own)
    assert f"Train one with: instant report {tmp_path / 'run'} {' '.join(own)} --with-baseline" in said
    (tmp_path / "run" / "summary.json").unlink()
    told = Run(tmp_path / "run").resume_command.split()
    assert told == ["instant", "train", "--resume", str(tmp_path / "run"), "method=my_rule:my_method"]
    run(*told[1:])
    assert (tmp_path / "run" / "summary.json").exists()


def test_the_document_shows_that_very_backbone() -> None:
    assert blocks("python")[2] == OWN_BACKBONE.read_text(encoding="utf-8")


def test_the_check_of_the_backbone_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last block of the document, run as it stands; then the same compiled."""
    monkeypatch.syspath_prepend(str(OWN_BACKBONE.parent))
    exec(compile(blocks("python")[3], str(DOCUMENT), "exec"), {})
    check_backbone("my_backbone:my_backbone", shape=(1, 8, 8), compiled=True)
    del sys.modules["my_backbone"]


def test_the_command_trains_that_backbone(tmp_path: Path) -> None:
    settings, run = command_of(blocks("sh")[1])
    folder = tmp_path / "run"
    run(*settings, "steps=20", "--out", str(folder))
    card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    assert card["backbone"] == "my_backbone:my_backbone"
    assert card["backbone_options"] == {"width": 16, "depth": 3}  # the default too, which may be another tomorrow
    (folder / "summary.json").unlink()
    told = Run(folder).resume_command.split()
    assert told == ["instant", "train", "--resume", str(folder), "backbone=my_backbone:my_backbone"]
    run(*told[1:])
    assert (folder / "summary.json").exists()
