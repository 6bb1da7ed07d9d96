"""A file of a run folder that is damaged is a sentence, and a changed one has another fingerprint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from instant.cli import main
from instant.engine.checkpoint import load_tensors, save_tensors
from instant.errors import InputError
from instant.run import Run
from instant.run_files import CHECKPOINT


@pytest.mark.parametrize("line", ["5", "{}", '{"step": 0.5}', '{"step": 3, "loss": "x"}', '{"step": 3, "', "[" * 99999])
def test_a_damaged_line_is_left_out_at_the_end_alone(line: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1, "loss": NaN}}\n{line}\n{{"step": 4}}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2 is damaged"):
        Run(tmp_path).history()
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}')
    assert Run(tmp_path).history() == Run(tmp_path).rewind(9) == [{"step": 1}]


@pytest.mark.parametrize(
    ("name", "change", "command"),
    [
        ("recipe.json", {"recipe": {"method": 5}}, "evaluate"),
        ("split.json", {"classes": None}, "report"),
        ("split.json", {"labelled": "x"}, "report"),
        ("model.json", {"mean": None}, "evaluate"),
        ("model.json", {"mean": []}, "evaluate"),
        ("model.json", {"shape": [1]}, "evaluate"),
        ("model.json", {"shape": []}, "evaluate"),
        ("model.json", {"backbone": []}, "evaluate"),
        ("summary.json", {"steps": "x"}, "report"),
        ("summary.json", {"accuracy_last": "x"}, "report"),
        ("summary.json", {"versions": None}, "report"),
    ],
)
def test_a_value_of_another_kind_is_a_sentence(
    name: str,
    change: dict[str, Any],
    command: str,
    finished: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(finished.path, tmp_path / "run")
    file = tmp_path / "run" / name
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert main([command, str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert next(iter(change)) in said or name in said


@pytest.mark.parametrize("step", ["-3", "99", "x", "0.5"])
def test_a_checkpoint_of_no_step_of_the_run(step: str, finished: Run, tmp_path: Path) -> None:
    shutil.copytree(finished.path, tmp_path / "run")
    run = Run(tmp_path / "run")
    path = run.path / CHECKPOINT
    tensors, meta = load_tensors(path)
    save_tensors(path, tensors, {**meta, "step": step})
    with pytest.raises(InputError, match="does not say one of its steps"):
        run.load_checkpoint()


@pytest.mark.parametrize(
    "name", ["recipe.json", "split.json", "model.json", "model.safetensors", "reference.safetensors"]
)
def test_the_fingerprint_is_of_all_that_decides(finished: Run, tmp_path: Path, name: str) -> None:
    shutil.copytree(finished.path, tmp_path / "run")
    run = Run(tmp_path / "run")
    assert run.fingerprint() == finished.fingerprint()
    (run.path / name).write_bytes((run.path / name).read_bytes() + b" ")
    assert run.fingerprint() != finished.fingerprint()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not say which files are mapped")
def test_a_file_that_was_read_is_let_go(tmp_path: Path) -> None:
    """Windows replaces no file that somebody has mapped, such as the checkpoint that a run went on from."""
    save_tensors(tmp_path / "x.safetensors", {"x": torch.arange(100_000)}, {})
    tensors, _ = load_tensors(tmp_path / "x.safetensors")
    assert int(tensors["x"][-1]) == 99_999
    assert "x.safetensors" not in Path("/proc/self/maps").read_text()
