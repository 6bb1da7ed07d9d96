"""What a run folder holds is replaced only on purpose, and by one process at a time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from runs import (
    TINY,
    assert_same_run,
    contents,
    model_bytes,
    points,
    small,
)

from instant import load
from instant.cli import main
from instant.engine.fit import fit
from instant.errors import InputError
from instant.run import Run
from instant.run_files import FILES


def test_a_finished_run_is_replaced_only_by_force_and_only_by_a_good_recipe(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.path, folder)
    before = contents(folder)
    words = ["train", "digits", *(f"{key}={value}" for key, value in TINY.items()), "labels=10", "--out", str(folder)]
    assert main(words) == 2
    assert "already holds a finished run; choose another --out, or add --force." in capsys.readouterr().err
    for mistake in ("method=fixmach", "method.bse=1", "labels=11", "batch=1400", "backbone=mlp", "device=banana"):
        wrong = [word for word in words if word.split("=")[0] != mistake.split("=")[0]]
        assert main([*wrong, mistake, "--force"]) == 2
        assert contents(folder) == before, mistake
    assert main([*words, "seed=1", "--force"]) == 0
    assert Run(folder).recipe().seed == 1
    assert len(Run(folder).history()) == 5
    assert contents(folder).keys() == before.keys() | {"report.html"}
    assert model_bytes(Run(folder)) != before["model.safetensors"]


def test_a_run_at_its_end_without_its_curves(finished: Run, tmp_path: Path) -> None:
    shutil.copytree(finished.path, tmp_path / "run")
    for name in ("summary.json", "metrics.jsonl"):
        (tmp_path / "run" / name).unlink()
    with pytest.raises(InputError, match=r"metrics\.jsonl does not say how that ended"):
        fit(*small(), run=Run(tmp_path / "run"), resume=True)


def test_files_that_are_not_ours_are_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"somebody's work")
    for name in ("notes.txt", ".draft.tmp", "below/.draft.tmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"kept in any case")
    words = ["train", "digits", "steps=1", "batch=8", "ratio=2", "--out", str(tmp_path)]
    assert main(words) == 2
    assert "already holds files of the names a run uses (model.safetensors)" in capsys.readouterr().err
    assert contents(tmp_path)["model.safetensors"] == b"somebody's work"
    assert main([*words, "--force"]) == 0
    for name in ("notes.txt", ".draft.tmp", "below/.draft.tmp"):
        assert (tmp_path / name).read_bytes() == b"kept in any case"


@pytest.mark.parametrize("removed", range(len(FILES) + 1))
def test_a_crash_while_an_old_run_is_being_removed(
    removed: int, finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is left is the old run still to be finished, or no run: never two runs in one."""
    folder = tmp_path / "run"
    shutil.copytree(finished.path, folder)
    for name in FILES[:removed]:
        (folder / name).unlink(missing_ok=True)  # not every run has an audit
    code = main(["train", "--resume", str(folder)])
    complaint = capsys.readouterr().err
    if removed == 0:
        assert (code, "is finished; there is nothing to resume" in complaint) == (2, True)
    elif removed == 1:
        assert code == 0
        assert_same_run(Run(folder), finished)
    else:
        assert (code, "recipe.json is not there: it is no run folder." in complaint) == (2, True)
        recipe, split = small()
        if removed < len(FILES):
            with pytest.raises(InputError, match="files of the names a run uses"):
                Run(folder).begin(recipe, split)
        Run(folder).begin(recipe, split, force=removed < len(FILES))
        assert contents(folder).keys() == {"recipe.json", "split.json"}


def test_one_process_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "digits", "steps=1", "batch=8", "ratio=2", "--out", str(tmp_path / "run")]
    with Run(tmp_path / "run").exclusive():
        assert main(words) == 2
    assert capsys.readouterr().err == (
        f"instant: another process is training into {tmp_path / 'run'}; wait for it to end, or choose another --out.\n"
    )
    assert main(words) == 0


@pytest.mark.parametrize("below", ["run", "deep/run"])
def test_a_folder_that_cannot_be_made(below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert main(["train", "digits", "steps=1", "batch=8", "ratio=2", "--out", str(tmp_path / "file" / below)]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"instant: the run folder {tmp_path / 'file'}")
    assert "cannot be written" in complaint
    assert complaint.count("\n") == 1
    assert (tmp_path / "file").read_text() == "not a folder"


@pytest.mark.parametrize("kind", [str, Path])
def test_a_folder_is_named_as_it_is_loaded(kind: type, tmp_path: Path) -> None:
    recipe, split = points(steps="4")
    trained = fit(recipe, split, run=kind(tmp_path / "run"))
    assert load(kind(tmp_path / "run")).predict(split.test.samples).shape == (30,)
    assert fit(recipe, split, run=kind(tmp_path / "run"), resume=True).history == trained.history
