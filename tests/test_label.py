"""Labels written to a file are what the run decides, whatever the blocks, the interruptions and the format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from runs import points, small

from instant.cli import main
from instant.data.split import Split
from instant.data.store import Store
from instant.engine.fit import fit
from instant.errors import InputError
from instant.labelling import stream
from instant.labelling.decisions import decide
from instant.labelling.formats import choose_format
from instant.labelling.inputs import as_store, open_samples
from instant.labelling.model import load
from instant.labelling.stream import label
from instant.run import Run

NUMBERS = {
    "confidence": "confidence", "tau": "tau", "tau_everyone": "kappa", "tau_runner_up": "stay",
    "tau_others": "inflow", "mistaken": "mistaken",
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Split]:
    """InstanT on vectors, where some are accepted and some are not."""
    recipe, split = points("instant", **{"method.base": "0.7", "optim.lr": "0.01", "steps": "30"})
    run = Run(tmp_path_factory.mktemp("label") / "mine")
    fit(recipe, split, run=run)
    return run, split


def saved(path: Path, values: np.ndarray) -> Path:
    np.save(path, values)
    return path


def test_the_pool_and_its_past(trained: tuple[Run, Split], tmp_path: Path) -> None:
    run, split = trained
    out = tmp_path / "new folder" / "labels.parquet"
    done = label(run, out, pool=lambda: split)
    table, found, past = pd.read_parquet(out), decide(run, split), run.sample_history()
    assert done == (120, int(found.accepted.sum()), 0, 0, 0)
    assert 0 < done.accepted < 120
    assert table["id"].tolist() == [str(i) for i in split.pool]
    assert table["label"].tolist() == [split.classes[k] for k in found.label]
    assert table["runner_up"].tolist() == [split.classes[k] for k in found.runner_up]
    assert table["accepted"].tolist() == found.accepted.tolist()
    assert table["reason"].tolist() == [found.reason(row) for row in range(120)]
    for column, name in NUMBERS.items():
        assert table[column].to_numpy() == pytest.approx(getattr(found, name)), column
    assert table["margin"].to_numpy() == pytest.approx(found.stay + found.inflow)
    cut = np.minimum(1, table["tau_everyone"] + table["margin"])
    assert table["tau"].to_numpy() == pytest.approx(cut.to_numpy(), abs=1e-6)
    assert table[[f"p_{name}" for name in split.classes]].to_numpy() == pytest.approx(found.probs)
    given = dict(zip(split.labelled.tolist(), split.targets.tolist()))
    named = [split.classes[given[row]] if row in given else None for row in split.pool.tolist()]
    assert [name if isinstance(name, str) else None for name in table["given"]] == named
    assert 0 < table["given"].notna().sum() < 120
    assert table["first_accepted"].fillna(-1).tolist() == past["first"].tolist()
    assert table["flips"].tolist() == past["flips"].tolist()
    assert table["first_accepted"].isna().tolist() == (past["first"] < 0).tolist()
    assert 0 < table["first_accepted"].isna().sum() < 120
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("method", ["instant_released", "freematch", "softmatch", "flexmatch", "adamatch", "dash"])
def test_a_sample_alone_gets_what_it_gets_among_others(method: str, tmp_path: Path) -> None:
    """Rules that look at the batch in training stand still: blocks of one row equal all rows at once."""
    recipe, split = points(method, steps="40", **{"optim.lr": "0.03"})
    run = Run(tmp_path / "run")
    fit(recipe, split, run=run)
    pool, alone = decide(run, split), decide(run, split, Store(split.train.samples[split.pool[7:8]], "one"))
    assert alone.tau[0] == pytest.approx(pool.tau[7], abs=1e-6)
    assert alone.probs[0] == pytest.approx(pool.probs[7], abs=1e-6)
    path, out = saved(tmp_path / "x.npy", split.train.samples[split.pool[:9]]), tmp_path / "labels.parquet"
    label(run, out, path=path, block=1)
    table = pd.read_parquet(out)
    assert table["tau"].to_numpy() == pytest.approx(pool.tau[:9], abs=1e-6)
    assert table["accepted"].tolist() == pool.accepted[:9].tolist()
    assert "flips" not in table


class Stop(Exception):
    """Stands for a kill between two shards."""


def stop_after(rows: int) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if done >= rows:
            raise Stop

    return report


def test_an_interrupted_call_goes_on(
    trained: tuple[Run, Split], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, split = trained
    path, out = saved(tmp_path / "x.npy", split.train.samples), tmp_path / "labels.parquet"
    label(run, tmp_path / "whole.parquet", path=path, block=50)
    with pytest.raises(Stop):
        label(run, out, path=path, block=50, report=stop_after(100))
    assert not out.exists()
    (tmp_path / "labels.parquet.parts" / "00001.parquet").write_bytes(b"PAR1 cut short")
    (tmp_path / "labels.parquet.parts" / ".DS_Store").write_bytes(b"")  # where a Mac's Finder has looked
    decided: list[list[int]] = []
    real = stream.decide_rows

    def watching(judge: object, store: object, rows: np.ndarray, *rest: object) -> object:
        decided.append(rows.tolist())
        return real(judge, store, rows, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(stream, "decide_rows", watching)
    done = label(run, out, path=path, block=50)
    assert done.resumed == 50
    assert decided == [list(range(50, 100)), list(range(100, 120))]  # the cut one and the missing one
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not (tmp_path / "labels.parquet.parts").exists()


def test_shards_of_other_samples_or_another_run_are_dropped(trained: tuple[Run, Split], tmp_path: Path) -> None:
    run, split = trained
    path, out = saved(tmp_path / "x.npy", split.train.samples), tmp_path / "labels.parquet"
    with pytest.raises(Stop):
        label(run, out, path=path, block=50, report=stop_after(50))
    saved(path, split.train.samples[::-1])
    assert label(run, out, path=path, block=50).resumed == 0
    assert pd.read_parquet(out)["tau"].to_numpy() == pytest.approx(decide(run, split).tau[::-1], abs=1e-6)
    out.unlink()
    with pytest.raises(Stop):
        label(run, out, path=path, block=50, report=stop_after(50))
    other = Run(tmp_path / "other")
    recipe, split = points("instant", seed="1")
    fit(recipe, split, run=other)
    assert label(other, out, path=path, block=50).resumed == 0


def test_formats_say_the_same(trained: tuple[Run, Split], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, split = trained
    path = str(saved(tmp_path / "x.npy", split.train.samples[:9]))
    for name, words in {"a.parquet": [], "a.csv": [], "b.txt": ["--format", "csv"], "a.json": []}.items():
        assert main(["label", str(run), path, "--out", str(tmp_path / name), *words]) == 0
    assert "9 samples" in capsys.readouterr().out
    table = pd.read_parquet(tmp_path / "a.parquet")
    text = pd.read_csv(tmp_path / "a.csv", dtype={"id": str, "label": str, "runner_up": str})
    pd.testing.assert_frame_equal(text, table, check_dtype=False, rtol=1e-6)
    assert (tmp_path / "b.txt").read_bytes() == (tmp_path / "a.csv").read_bytes()
    tasks = json.loads((tmp_path / "a.json").read_text())
    assert len(tasks) == 9
    for task, row in zip(tasks, table.to_dict("records")):
        assert task["data"]["image"] == row["id"]
        assert task["data"]["reason"] == row["reason"]
        (prediction,) = task["predictions"]
        assert prediction["score"] == pytest.approx(row["confidence"])
        assert prediction["model_version"] == "mine"
        choice = {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [row["label"]]}}
        assert prediction["result"] == [choice]


def test_the_command_labels_its_own_pool(finished: Run, tmp_path: Path) -> None:
    out = tmp_path / "labels.parquet"
    assert main(["label", str(finished), "--out", str(out)]) == 0
    found = decide(finished, small()[1])
    table = pd.read_parquet(out)
    assert table["tau"].to_numpy() == pytest.approx(found.tau, abs=1e-6)
    assert table["flips"].tolist() == finished.sample_history()["flips"].tolist()


def test_images_in_every_layout(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 4, 6), np.uint8)
    np.savez(tmp_path / "x.npz", x=images, y=np.arange(5))
    layouts = [(images, (3, 4, 6)), (images.transpose(0, 2, 3, 1), (3, 4, 6)), (images / np.float64(255), (3, 4, 6))]
    for values, shape in layouts:
        found = open_samples(saved(tmp_path / "x.npy", values), shape, []).store
        assert np.array_equal(found.samples, images)
    assert np.array_equal(open_samples(tmp_path / "x.npz", (3, 4, 6), []).store.samples, images)
    for name in ("X", "images", "data", "features"):  # as training takes them
        np.savez(tmp_path / "other.npz", **{"y": np.arange(5), name: images})
        assert np.array_equal(open_samples(tmp_path / "other.npz", (3, 4, 6), []).store.samples, images)
    grey = open_samples(saved(tmp_path / "x.npy", images[:, 0]), (1, 4, 6), []).store
    assert np.array_equal(grey.samples, images[:, :1])
    mapped = open_samples(saved(tmp_path / "x.npy", images.transpose(0, 2, 3, 1)), (3, 4, 6), []).store.samples
    while not isinstance(mapped, np.memmap):  # a view of the file, however it is turned
        mapped = mapped.base
        assert mapped is not None


def test_what_cannot_be_labelled_is_a_sentence(trained: tuple[Run, Split], tmp_path: Path) -> None:
    run, split = trained
    out, good = tmp_path / "labels.parquet", saved(tmp_path / "good.npy", split.train.samples[:3])
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY nothing")
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    np.savez(tmp_path / "two.npz", a=np.zeros(3), b=np.zeros(3))
    np.savez(tmp_path / "both.npz", x=np.zeros(3), data=np.zeros(3))
    np.savez(tmp_path / "spoilt.npz", x=np.full(3, 0.5))
    spoilt = (tmp_path / "spoilt.npz").read_bytes()
    (tmp_path / "spoilt.npz").write_bytes(spoilt.replace(np.float64(0.5).tobytes(), np.float64(0.25).tobytes()))
    tarred = tmp_path / "x.tar"
    tarred.touch()
    for path, sentence in {
        saved(tmp_path / "wide.npy", np.zeros((3, 9), np.float32)): r"expected vectors of shape \(5,\).*got \(9,\)",
        saved(tmp_path / "nan.npy", np.full((3, 5), np.nan, np.float32)): "row 0, column 0 is nan",
        saved(tmp_path / "words.npy", np.array(["a"])): "expected numbers",
        tmp_path / "broken.npy": "cannot be read",
        tmp_path / "objects.npy": "cannot be read",
        tmp_path / "two.npz": "one called x, X, images, data or features, got a, b",
        tmp_path / "both.npz": "expected one of x, data, it holds all of them",
        tmp_path / "spoilt.npz": "x cannot be read",
        tmp_path / "missing.npy": "is not there",
        tmp_path / ("n" * 300): "n cannot be looked for",
        tarred: "expected a folder of images",
    }.items():
        with pytest.raises(InputError, match=sentence):
            label(run, out, path=path)
    label(run, out, path=good)
    with pytest.raises(InputError, match="is there already; choose another --out, or add --force"):
        label(run, out, path=good)
    label(run, out, path=good, force=True)
    (tmp_path / "b.csv.parts").mkdir()
    (tmp_path / "b.csv.parts" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="holds files of somebody else"):
        label(run, tmp_path / "b.csv", path=good)
    with pytest.raises(InputError, match="is a folder; name a file in it"):
        label(run, tmp_path, path=good, force=True)
    with pytest.raises(InputError, match="n cannot be looked for"):
        label(run, tmp_path / ("n" * 300), path=good)
    with pytest.raises(InputError, match="/dev/null is no ordinary file"):
        label(run, Path("/dev/null"), path=good, form="csv", force=True)
    with pytest.raises(InputError, match="would replace the samples that are to be labelled"):
        label(run, good, path=tmp_path / "." / "good.npy", form="csv", force=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        label(run, tmp_path / "file" / "b.csv", path=good)
    with pytest.raises(InputError, match="have changed since it was begun"):
        label(run, tmp_path / "c.csv", pool=lambda: points("instant", seed="1")[1])


@pytest.mark.parametrize(
    ("failing", "sentence"),
    [("path", r"x\.npy cannot be read \(Input/output error\)"), ("pool", "the samples of .*mine cannot be read"),
     ("run", "the run .*mine cannot be read"), ("out", "--out .* cannot be written")],
)  # fmt: skip
def test_a_disk_that_fails_is_that_of_what_is_read(
    failing: str, sentence: str, trained: tuple[Run, Split], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Split:
        raise OSError(5, "Input/output error")

    place = {"path": "open_samples", "run": "load_judge", "out": "_prepare"}.get(failing)
    if place:
        monkeypatch.setattr(stream, place, fails)
    path = None if failing == "pool" else saved(tmp_path / "x.npy", trained[1].train.samples[:3])
    with pytest.raises(InputError, match=sentence) as refusal:
        label(trained[0], tmp_path / "labels.csv", path=path, pool=fails, form="csv")
    assert ("--out" in str(refusal.value)) == (failing == "out")


def test_samples_given_in_python_cannot_be_found_again(
    trained: tuple[Run, Split], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["label", str(trained[0]), "--out", str(tmp_path / "labels.csv")]) == 2
    assert "samples that were given in Python can only be given there again" in capsys.readouterr().err


def test_a_stopped_command_says_how_to_go_on(
    finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stream, "decide_rows", stopped)
    samples = saved(tmp_path / "x.npy", np.zeros((3, 16, 16), np.uint8))
    assert main(["label", str(finished), str(samples), "--out", str(tmp_path / "labels.csv")]) == 130
    assert capsys.readouterr().err == "instant: stopped. What is done is kept: the same command goes on from there.\n"


def test_words_that_do_not_fit(finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, sentence in {
        ("--out", str(tmp_path / "labels.xls")): "expected a name that ends in .parquet, .csv, .json",
        ("--out", str(tmp_path / "labels.csv"), "--format", "cvs"): "--format 'cvs' is not known",
        ("--out", str(tmp_path / "no" / "x.csv")): f"there is no folder {tmp_path / 'no'}; make it first",
    }.items():
        assert main(["label", str(finished), *words]) == 2
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    assert choose_format(Path("LABELS.CSV"), None) == "csv"


@pytest.mark.parametrize(
    ("given", "shape", "sentence"),
    [
        (np.zeros((0, 3)), (3,), r"X: there are no samples, got shape \(0, 3\); give at least one"),
        (np.ma.masked_array(np.ones((2, 2)), [[True, False]] * 2), (2,), "X: 2 values are masked; fill them in first"),
        (np.array([[0.0, 3.1e300]]), (2,), r"X: row 0, column 1 is 3.1e\+300, more than float32 holds"),
        (np.zeros((2, 64)), (1, 8, 8), r"expected images of shape \(1, 8, 8\), as the model was trained on"),
    ],
)
def test_samples_that_a_model_cannot_take(given: np.ndarray, shape: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        as_store(given, shape)


def test_a_run_is_a_path() -> None:
    with pytest.raises(InputError, match="run=None must be the path of a run folder"):
        load(None)  # type: ignore[arg-type]
