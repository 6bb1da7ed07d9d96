"""`instant label RUN FOLDER`: new image files get the labels their pixels get, and bad ones are listed."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from folders import photos, plain
from PIL import Image
from runs import points

from instant.cli import main
from instant.data.folder.decode import decode
from instant.data.split import Split
from instant.engine.build import source_for, split_for
from instant.engine.fit import fit
from instant.labelling.stream import label
from instant.run import Run

Capture = pytest.CaptureFixture[str]
NEW = ["00.png", "01.png", "02.png", "03.png", "deep/00.png"]


class Stop(Exception):
    """Stands for a kill between two shards."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INSTANT_DATA", str(tmp_path / "cache"))
    photos(Path("photos"))
    Path("new/deep").mkdir(parents=True)
    rng = np.random.default_rng(1)
    for number, name in enumerate(NEW):  # of other sizes than those trained on
        Image.fromarray(rng.integers(0, 50 * number + 50, (30, 20 + number, 3), np.uint8)).save(Path("new") / name)
    words = ["steps=6", "batch=4", "ratio=2", "device=cpu", "side=8"]
    assert main(["train", "photos", *words, "--labels", "labels.csv", "--out", "run"]) == 0


def listed(path: str) -> dict[str, str]:
    with open(path, newline="", encoding="utf-8") as file:
        return {row["file"]: row["reason"] for row in csv.DictReader(file)}


def test_files_are_labelled_as_their_pixels_are(capsys: Capture) -> None:
    Path("new/bad.jpg").write_text("no image")
    Path("new/link.png").symlink_to("/etc/hostname")
    assert main(["label", "run", "new", "--out", "found.parquet"]) == 0
    out = capsys.readouterr().out
    assert "found.parquet: 5 samples" in out
    assert "2 files or labels with a problem, listed in found.problems.csv" in out
    assert listed("found.problems.csv").keys() == {"bad.jpg", "link.png"}
    assert "problems.csv" not in {path.name for path in Path("run").iterdir()}  # the run's own list is another
    np.save("new.npy", np.stack([decode(Path("new") / name, 8, 3) for name in NEW]))
    assert main(["label", "run", "new.npy", "--out", "pixels.parquet"]) == 0
    files, pixels = pd.read_parquet("found.parquet"), pd.read_parquet("pixels.parquet")
    assert files.pop("id").tolist() == NEW
    assert pixels.pop("id").tolist() == ["0", "1", "2", "3", "4"]
    pd.testing.assert_frame_equal(files, pixels)


def test_names_that_are_not_ascii_say_their_encoding() -> None:
    """To Excel, by a mark in front; what is plain has none, for programs that do not know it."""
    mark = "\ufeff".encode()
    Path("new/bad.jpg").write_text("no image")
    for name, marked in (("plain.csv", False), ("b\u00e4ume.csv", True)):
        if marked:
            (Path("new") / NEW[0]).rename("new/b\u00e4ume.png")
            Path("new/bad.jpg").rename("new/b\u00f6se.jpg")
        assert main(["label", "run", "new", "--out", name]) == 0
        for path in (Path(name), Path(name).with_suffix(".problems.csv")):
            assert path.read_bytes().startswith(mark) == marked, path
        assert ("b\u00e4ume.png" in pd.read_csv(name)["id"].tolist()) == marked
    Path("new/b\u00f6se.jpg").unlink()
    assert main(["label", "run", "new", "--out", "b\u00e4ume.csv", "--force"]) == 0
    assert not Path("b\u00e4ume.problems.csv").exists()  # it was known for a list of ours


def test_what_is_held_out_for_validation_gets_no_row_and_is_counted(capsys: Capture) -> None:
    words = ["steps=6", "batch=4", "ratio=2", "device=cpu", "side=8", "validation=4"]
    assert main(["train", "photos", *words, "--labels", "labels.csv", "--out", "held"]) == 0
    capsys.readouterr()
    assert main(["label", "held", "--out", "own.csv"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("own.csv: 20 samples, ")  # of 24 files
    assert second == "4 samples held out for validation are not among them."
    kept = {f"{row:03d}.png" for row in Run("held").split_record()["validation"]}
    assert len(kept) == 4
    assert set(pd.read_csv("own.csv")["id"]) == {path.name for path in Path("photos").iterdir()} - kept
    assert main(["label", "held", "new", "--out", "new.csv"]) == 0
    assert main(["label", "run", "--out", "all.csv"]) == 0
    assert "held out" not in capsys.readouterr().out


def stop(done: int, total: int) -> None:
    if done:
        raise Stop


def test_shards_of_the_pool_go_when_a_file_of_it_has_changed() -> None:
    def pool() -> Split:
        return split_for(run.recipe(), source_for(run.recipe()))

    run, out = Run("run"), Path("own.csv")
    record = pool().record()
    for changed, resumed in ((False, 2), (True, 0)):
        with pytest.raises(Stop):
            label(run, out, pool=pool, form="csv", block=2, report=stop, force=True)
        if changed:
            plain(0).save("photos/001.png")
        assert label(run, out, pool=pool, form="csv", block=2, force=True).resumed == resumed
    assert pool().record() == record  # by which a run knows its samples; files are known there by their names


def test_an_interrupted_call_goes_on_unless_a_file_has_changed() -> None:
    out = Path("found.csv")
    with pytest.raises(Stop):
        label(Run("run"), out, path=Path("new"), form="csv", block=2, report=stop)
    assert label(Run("run"), out, path=Path("new"), form="csv", block=2).resumed == 2
    with pytest.raises(Stop):
        label(Run("run"), out, path=Path("new"), form="csv", block=2, report=stop, force=True)
    plain(0).save("new/03.png")
    assert label(Run("run"), out, path=Path("new"), form="csv", block=2, force=True).resumed == 0


def test_a_list_of_problems_goes_when_they_are_gone() -> None:
    Path("new/bad.jpg").write_text("no image")
    Path("paths.csv").write_text("file\nnew/00.png\nnew/bad.jpg\nnew/gone.png\n../secret.png\n")
    assert label(Run("run"), Path("found.csv"), path=Path("paths.csv"), form="csv") == (1, 0, 0, 3, 0)
    assert listed("found.problems.csv").keys() == {"new/bad.jpg", "new/gone.png", "../secret.png"}
    assert label(Run("run"), Path("found.csv"), path=Path("new"), form="csv", force=True).problems == 1
    Path("new/bad.jpg").unlink()
    assert label(Run("run"), Path("found.csv"), path=Path("new"), form="csv", force=True).problems == 0
    assert not Path("found.problems.csv").exists()


def test_what_cannot_be_labelled_is_said_in_a_sentence(capsys: Capture) -> None:
    recipe, split = points("instant", steps="2")
    fit(recipe, split, run=Run("vectors"))
    Path("empty").mkdir()
    Path("broken").mkdir()
    Path("broken/a.png").write_bytes(b"")
    capsys.readouterr()
    for run, path, sentence in (
        ("vectors", "new", "the run was trained on vectors; bring samples like them as a .npy or .npz"),
        ("run", "empty", "holds no image files"),
        ("run", "gone", "gone is not there"),
        ("run", "broken", "none of the 1 image files can be read"),
    ):
        assert main(["label", run, path, "--out", "found.csv"]) == 2
        assert sentence in capsys.readouterr().err
        assert not Path("found.csv").exists()
    assert listed("found.problems.csv") == {"a.png": "the file is empty (0 bytes)"}
