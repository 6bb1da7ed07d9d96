"""`instant train PATH --labels FILE`: from files to a run that is found again."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from folders import photos, plain
from rich.console import Console

from instant.choose import SHARE, Choice, choose, choose_side, gpu_room, needed, prepare
from instant.cli import main
from instant.cli.train import print_choices
from instant.data.folder.survey import Survey
from instant.data.sources import arrays
from instant.data.store import Store
from instant.engine.build import build_program, split_for
from instant.recipes import small
from instant.report.baseline import baseline_recipe
from instant.run import Run

Capture = pytest.CaptureFixture[str]
H200 = 112e9  # bytes
TINY = ["steps=4", "batch=4", "ratio=2", "device=cpu"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INSTANT_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")


def refused(words: list[str], capsys: Capture) -> str:
    capsys.readouterr()
    assert main(words) == 2
    complaint = capsys.readouterr().err.splitlines()[-1]
    assert complaint.startswith("instant: ")
    return complaint


def problems(run: str) -> dict[str, str]:
    with open(Path(run) / "problems.csv", newline="", encoding="utf-8") as file:
        return {row["file"]: row["reason"] for row in csv.DictReader(file)}


def test_a_folder_is_trained_on_and_found_again(capsys: Capture) -> None:
    photos(Path("photos"))
    Path("photos/bad.jpg").write_text("no image")
    with open("labels.csv", "a") as file:
        file.write("gone.png,cat\n")
    assert main(["train", "photos", *TINY, "--labels", "labels.csv", "--out", "run"]) == 0
    out = capsys.readouterr().out
    assert "2 files or labels with a problem, listed in run/problems.csv" in out
    assert "the median image is 13 wide or high" in out
    assert "pseudo-labels right" in out
    assert "not known: no labels are held out" in out
    assert "test accuracy" not in out
    assert problems("run").keys() == {"bad.jpg", "gone.png"}
    again = ["train", "photos", *TINY, "--labels", "labels.csv", "--out", "run", "--force"]
    assert "'stesp' is not a setting" in refused([*again, "stesp=3"], capsys)
    Path("none.csv").write_text("file,label\ngone.png,cat\n")
    refused([word.replace("labels.csv", "none.csv") for word in again], capsys)
    assert problems("run").keys() == {"bad.jpg", "gone.png"}  # of the run that is there still
    recipe, run = Run("run").recipe(), Run("run")
    assert (recipe.source, recipe.data, recipe.label_file) == (
        "own",
        str(Path("photos").resolve()),
        str(Path("labels.csv").resolve()),
    )
    assert (recipe.side, recipe.labels, recipe.validation, recipe.steps) == (32, None, 0, 4)
    record = run.split_record()
    assert (record["source"], record["classes"], record["pool"]) == ("photos", ["cat", "dog"], 24)
    assert run.summary()["label_budget"] == {"training": 8, "validation": 0, "total": 8}
    # the only labels there are were trained on, so nothing says how many others are right
    assert run.summary()["pseudo_label_accuracy"] is None
    assert "held no labels out for validation" in refused(["evaluate", "run"], capsys)
    assert "there is nothing to certify" in refused(["certify", "run", "--draw", "2", "--out", "todo.csv"], capsys)
    assert main(["label", "run", "--out", "found.csv"]) == 0
    ids = [line.split(",")[0].strip('"') for line in Path("found.csv").read_text().splitlines()[1:]]
    assert ids == sorted(p.name for p in Path("photos").glob("*.png"))
    shutil.rmtree("cache")  # as docs/own-data.md allows
    assert main(["label", "run", "--out", "again.csv"]) == 0
    assert Path("again.csv").read_text() == Path("found.csv").read_text()


@pytest.mark.parametrize("count", [2, 3])
def test_a_handful_of_images_is_enough_for_what_is_chosen(count: int, capsys: Capture) -> None:
    photos(Path("photos"), count=count, labelled=2)
    assert main(["train", "photos", "steps=2", "device=cpu", "--labels", "labels.csv", "--out", "run"]) == 0
    assert (Run("run").recipe().batch, Run("run").recipe().ratio) == (1, count)
    assert f"1, and {count} x unlabelled" in capsys.readouterr().out
    nothing = refused(["certify", "run", "--draw", "5", "--out", "todo.csv"], capsys)
    assert ("run has no sample that nobody labelled" in nothing) == (count == 2)
    words = ["train", "photos", "ratio=4", "steps=2", "device=cpu", "--labels", "labels.csv", "--out", "other"]
    assert "batch=1 with ratio=4 asks for 4 unlabelled samples" in refused(words, capsys)  # as given, it stands


def test_a_name_that_no_folder_can_have(capsys: Capture) -> None:
    assert "n cannot be looked for (File name too long)" in refused(["train", "n" * 300], capsys)


def test_a_validation_part_is_counted_and_evaluated(capsys: Capture) -> None:
    photos(Path("photos"), count=40, labelled=21)  # 11 cats and 10 dogs: a fifth of 10 is 2 a class
    assert main(["train", "photos", *TINY, "--labels", "labels.csv", "--out", "run"]) == 0
    assert "2 labels a class are held out" in capsys.readouterr().out
    assert Run("run").summary()["label_budget"] == {"training": 17, "validation": 4, "total": 21}
    assert main(["evaluate", "run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["part"], found["samples"]) == ("validation", 4)
    assert found["accuracy"] == Run("run").summary()["validation_accuracy"]


def test_a_run_is_not_evaluated_on_other_files(capsys: Capture) -> None:
    """One more moves all that are behind it: the labels would be held against their neighbours."""
    photos(Path("photos"), count=40, labelled=21)
    assert main(["train", "photos", *TINY, "--labels", "labels.csv", "--out", "run"]) == 0
    plain((1, 1, 1)).save("photos/000a.png")
    for words in (["evaluate", "run"], ["label", "run", "--out", "found.csv"]):
        assert "the samples of run have changed since it was begun, from 40 to 41; put them" in refused(words, capsys)
    Path("photos/000a.png").unlink()
    assert main(["evaluate", "run"]) == 0
    with open("labels.csv", "a") as file:  # more labels, the same photos: what was held out is still where it was
        file.write("039.png,cat\n")
    assert main(["evaluate", "run"]) == 0
    assert "the labels of run have changed" in refused(["report", "run"], capsys)


def test_other_labels_or_another_test_part_are_no_move(capsys: Capture) -> None:
    y = np.arange(60) % 2
    x = np.random.default_rng(0).normal(size=(60, 3)) + 3 * y[:, None]
    parts = {"x": x[:40], "y": y[:40], "x_test": x[40:], "y_test": y[40:]}
    for name, changed in (
        ("a", {}),
        ("b", {"y_test": 1 - y[40:]}),
        ("c", {"y": 1 - y[:40]}),
        ("d", {"x_test": x[:20]}),
    ):
        np.savez(f"{name}.npz", **parts | changed)
    assert main(["train", "a.npz", *TINY, "--out", "run"]) == 0
    for _ in ("finished", "unfinished"):
        kept = Path("run/recipe.json").read_text()
        for name, what in (("b", "test samples"), ("c", "labels"), ("d", "test samples")):
            complaint = refused(["train", "--resume", "run", f"data={name}.npz"], capsys)
            assert f"the {what} of run have changed since it was begun" in complaint
            assert Path("run/recipe.json").read_text() == kept
        Path("run/summary.json").unlink(missing_ok=True)
    assert main(["train", "digits", "labels=10", "steps=1", "--out", "digits"]) == 0
    assert "digits reads no files" in refused(["train", "--resume", "digits", "data=elsewhere"], capsys)
    complaint = refused(["train", "--resume", "digits", "--labels", "labels.csv"], capsys)
    assert "--labels is for data of your own, and digits was trained on digits." in complaint


def test_a_folder_that_was_renamed(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(Path("photos"))
    assert main(["train", "photos", *TINY, "--labels", "labels.csv", "--out", "run"]) == 0
    Path("photos").rename("pictures")
    Path("labels.csv").rename("pictures.csv")
    for words in (["report", "run"], ["label", "run", "--out", "found.csv"]):
        complaint = refused(words, capsys)
        assert "photos and " in complaint
        assert "labels.csv are not there" in complaint
        assert complaint.endswith(": instant train --resume RUN data=FOLDER --labels FILE")
    Path("pictures").rename("photos")
    complaint = refused(["report", "run"], capsys)
    assert "labels.csv is not there" in complaint
    assert complaint.endswith(": instant train --resume RUN --labels FILE")
    Path("photos").rename("pictures")
    Path("pictures.csv").rename("labels.csv")
    complaint = refused(["report", "run"], capsys)
    assert "photos is not there" in complaint
    assert complaint.endswith(": instant train --resume RUN data=FOLDER")
    Path("labels.csv").rename("pictures.csv")
    capsys.readouterr()
    assert main(["train", "--resume", "run", "data=pictures", "--labels", "pictures.csv"]) == 0
    assert "run is finished; from now on its data is looked for in " in capsys.readouterr().out
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")  # both paths are kept whole
    assert main(["report", "../run"]) == 0
    (Path("../run") / "summary.json").unlink()
    assert main(["train", "--resume", "../run"]) == 0
    plain((1, 1, 1)).save("../pictures/000a.png")
    words = ["train", "--resume", "../run", "data=../pictures"]
    assert "the samples of ../run have changed" in refused(words, capsys)


def test_an_array_that_was_renamed_keeps_its_baseline(capsys: Capture) -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 2
    np.savez("x.npz", x=x, y=y)
    assert main(["train", "x.npz", *TINY, "validation=2", "--out", "run", "--baseline"]) == 0
    trained = Path("run/baseline/summary.json").stat().st_mtime_ns
    Path("x.npz").rename("z.npz")
    assert refused(["report", "run"], capsys).endswith(": instant train --resume RUN data=FILE")
    assert main(["train", "--resume", "run", "data=z.npz"]) == 0
    assert main(["report", "run", "--with-baseline"]) == 0
    assert Path("run/baseline/summary.json").stat().st_mtime_ns == trained
    assert "is finished; there is nothing to resume" in refused(["train", "--resume", "run", "device=cpu"], capsys)


def test_labels_of_an_array_in_another_order(capsys: Capture) -> None:
    """What `instant label` writes, sorted by anything, gives every sample its own label."""
    truth = np.arange(40) % 2
    np.save("x.npy", np.random.default_rng(0).normal(size=(40, 4)) + 6 * truth[:, None])
    np.save("y.npy", np.where(truth == 0, "a", "b"))
    assert main(["train", "x.npy", *TINY, "--labels", "y.npy", "--out", "run"]) == 0
    assert main(["label", "run", "x.npy", "--out", "found.csv"]) == 0
    found = pd.read_csv("found.csv").assign(label=np.where(truth == 0, "a", "b"))  # as a person corrects them
    found.sort_values("confidence", ascending=False)[:30].to_csv("sorted.csv", index=False)
    kept = sorted(found.sort_values("confidence", ascending=False).id[:30])
    assert kept != list(range(30))
    targets = prepare(Path("x.npy"), Path("sorted.csv"), {}, []).source.targets
    assert {row: targets[row] for row in range(40) if targets[row] >= 0} == {row: truth[row] for row in kept}


def test_a_list_of_problems_takes_nobody_elses_place(capsys: Capture) -> None:
    photos(Path("photos"))
    Path("run").mkdir()
    Path("run/problems.csv").write_text("mine,important\n")
    Path("found.problems.csv").write_text("mine too\n")
    assert main(["train", "photos", *TINY, "--labels", "labels.csv", "--out", "run"]) == 0
    assert main(["label", "run", "photos", "--out", "found.csv"]) == 0
    assert Path("run/problems.csv").read_text() == "mine,important\n"
    assert Path("found.problems.csv").read_text() == "mine too\n"
    Path("photos/bad.jpg").write_text("no image")
    words = ["train", "photos", *TINY, "--labels", "labels.csv", "--out", "run", "--force"]
    assert "run/problems.csv is there, and is no list of problems" in refused(words, capsys)
    assert Run("run").finished
    words = ["label", "run", "photos", "--out", "again.csv"]
    assert main(words) == 0
    Path("photos/bad.jpg").unlink()
    assert Path("again.problems.csv").exists()
    assert main([*words, "--force"]) == 0
    assert not Path("again.problems.csv").exists()  # ours, of an earlier call


def test_a_run_goes_on_with_the_same_files(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(Path("photos"))
    assert main(["train", "photos", *TINY, "--labels", "labels.csv", "--out", "run"]) == 0
    (Path("run") / "summary.json").unlink()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["train", "--resume", "../run"]) == 0
    (Path("../run") / "summary.json").unlink()
    Path("../photos/023.png").rename("../photos/other.png")  # as many, and the labelled ones where they were
    assert "the samples of ../run have changed" in refused(["train", "--resume", "../run"], capsys)
    plain((1, 1, 1)).save("../photos/000a.png")
    assert "the samples of ../run have changed" in refused(["train", "--resume", "../run"], capsys)
    Path("../labels.csv").unlink()
    assert "labels.csv is not there" in refused(["train", "--resume", "../run"], capsys)


def test_a_folder_for_each_class_and_the_default_run_folder(capsys: Capture) -> None:
    for name in ("labelled/a/1.png", "labelled/a/2.png", "labelled/b/1.png", "labelled/b/2.png"):
        (Path("shots") / name).parent.mkdir(parents=True, exist_ok=True)
        plain((9, 9, 9)).save(Path("shots") / name)
    photos(Path("shots/unlabelled"))
    assert main(["train", "shots/", *TINY, "mirror=false"]) == 0
    run = Run("runs/shots-all-instant-0")
    assert run.finished
    assert run.recipe().mirror is False
    assert not (run.path / "problems.csv").exists()
    assert "already holds a finished run" in refused(["train", "shots/", *TINY], capsys)


def test_vectors_with_test_samples(capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 2
    x = rng.normal(size=(60, 4)) + 6 * truth[:, None]
    np.savez("all.npz", x=x[:40], y=np.where(np.arange(40) < 6, truth[:40], -1), x_test=x[40:], y_test=truth[40:])
    assert main(["train", "all.npz", *TINY, "--out", "run"]) == 0
    assert Run("run").recipe().backbone == "mlp"
    capsys.readouterr()
    assert main(["evaluate", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 20


def test_problems_are_listed_also_where_the_run_stops(capsys: Capture) -> None:
    Path("photos").mkdir()
    for name in ("a.jpg", "b.jpg"):
        Path("photos", name).write_text("no image")
    Path("labels.csv").write_text("file,label\na.jpg,x\nb.jpg,y\n")
    words = ["train", "photos", *TINY, "--labels", "labels.csv", "--out", "run"]
    assert "none of the 2 image files can be read" in refused(words, capsys)
    assert problems("run").keys() == {"a.jpg", "b.jpg"}
    photos(Path("photos"))
    for name in ("a.jpg", "b.jpg"):
        Path("photos", name).unlink()
    assert main(words) == 0  # the list of the first attempt does not stand in the way, and goes
    assert not Path("run/problems.csv").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["photo"], "there is no folder or file photo, and source 'photo' is not known"),
        (["photo", "--labels", "labels.csv"], "photo is not there"),
        (["photos"], "nothing says which images are labelled"),
        (["photos", "--labels", "labels.csv", "stepz=4"], "'stepz' is not a setting"),
        (["photos", "--labels", "labels.csv", "method=nope"], "nope"),
        (["photos", "--labels", "labels.csv", "label_file=x"], "'label_file' is not a setting"),
        (["photos", "--labels", "labels.csv", "recipe=digits"], "recipe=digits goes with a named source"),
        (["photos", "--labels", "labels.csv", "labels=30"], "ask for fewer labels"),
        (["digits", "--labels", "labels.csv"], "--labels goes with files of your own"),
        (["digits", "side=32"], "side=32 is for images of your own"),
        (["x.npy", "--labels", "y.npy", "side=32"], "side=32 is for image files"),
        (["x.npy", "--labels", "y.npy", "mirror=true"], "mirror= is for images, and x.npy has vectors; leave it out."),
        (["photos", "--labels", "labels.csv", "noise=0.3"], "noise= is for vectors, and photos has images;"),
        (["--resume", "run", "--labels", "labels.csv", "--force"], "--resume takes everything"),
    ],
)
def test_one_sentence(words: list[str], sentence: str, capsys: Capture) -> None:
    photos(Path("photos"))
    np.save("x.npy", np.zeros((4, 2)))
    np.save("y.npy", np.array([0, 1, 0, 1]))
    assert sentence in refused(["train", *words], capsys)


def test_what_is_chosen_can_be_read_on_a_narrow_terminal() -> None:
    narrow = Console(width=40, record=True, file=io.StringIO())
    batch = Choice("batch", "16, and 4 x unlabelled", "")
    print_choices([batch, Choice("mirror", "true", "right for photographs; say mirror=false")], narrow)
    reason = "".join(line.split("\u2502")[3] for line in narrow.export_text().splitlines()[3:-1])
    assert "".join(reason.split()) == "rightforphotographs;saymirror=false"


def test_what_is_chosen() -> None:
    assert choose_side(Survey(median=64, equal=True, grey=False), room=0)[0] == 64
    assert choose_side(Survey(median=65, equal=True, grey=False), room=0)[0] == 64
    assert choose_side(Survey(median=48, equal=False, grey=False), room=0)[0] == 32
    assert choose_side(Survey(median=4, equal=True, grey=False), room=0)[0] == 32
    assert choose_side(Survey(median=300, equal=False, grey=False), room=H200)[0] == 96
    few = arrays(np.zeros((40, 64, 64), np.uint8), np.arange(40) % 2)
    recipe, choices = choose(few, method="instant", room=0)
    # 20 labels a class, of which a fifth is held out: 2 x 4; 32 remain for 4 x 8 unlabelled samples a step
    assert (recipe.backbone, recipe.validation, recipe.batch, recipe.ratio) == ("small_cnn", 8, 8, 4)
    assert all(choice.reason for choice in choices)
    assert "as none is without a label, there is nothing more to learn from" in choices[0].reason
    some = arrays(np.zeros((40, 64, 64), np.uint8), np.arange(40) % 3 - 1)
    for source, method, given in ((some, "instant", {}), (few, "supervised", {}), (few, "instant", {"labels": "4"})):
        assert "nothing more" not in choose(source, method=method, room=0, given=given)[1][0].reason
    recipe, choices = choose(few, method="instant", room=0, given={"labels": "4"})
    assert recipe.validation == 0
    assert "below 10 labels" not in choices[1].reason  # there are 20, of which some are asked for
    assert choices[1].reason.endswith("; accuracy is not measured")
    tested = dataclasses.replace(few, test=few.train, test_targets=few.targets)
    for given in ({"labels": "4"}, {}):
        assert "not measured" not in choose(tested, method="instant", room=0, given=given)[1][1].reason
    # what is given decides how much fits into a step: 40 - 14 = 26 samples for 4 x 6, 32 for 7 x 4
    assert choose(few, method="instant", room=0, given={"validation": "14"})[0].batch == 6
    assert choose(few, method="instant", room=0, given={"ratio": "7"})[0].batch == 4
    with_gpu = choose(few, method="instant", room=H200)[0]
    assert with_gpu.backbone == "wrn_28_2"
    assert with_gpu.draw == recipe.draw == "seeded"  # the same samples are labelled on every machine
    many = arrays(np.zeros((5000, 16, 16), np.uint8), np.where(np.arange(5000) < 18, np.arange(5000) % 2, -1))
    assert [choose(many, method=name, room=H200)[0].contrast for name in ("instant", "fixmatch", "supervised")] == [
        10_000,
        10_000,
        0,
    ]
    assert with_gpu.contrast == 0  # too few to learn much from
    recipe, choices = choose(many, method="instant", room=H200)
    assert "contrast" in [choice.setting for choice in choices]
    assert (recipe.optim.name, recipe.optim.lr, recipe.optim.warmup, recipe.steps) == ("muon", 0.1, 1000, 20_000)
    assert recipe.method_options == {"transition_lr": 0.001, "kappa": "self_adaptive", "base": 1.0, "align": False}
    assert [choice.value for choice in choices if choice.setting.startswith("optim.")] == ["muon", "0.1"]
    plain, choices = choose(many, method="instant", room=H200, given={"optim.name": "sgd"})
    assert (plain.optim.name, plain.optim.lr, plain.optim.warmup) == ("sgd", 0.03, 1000)
    assert [choice.value for choice in choices if choice.setting.startswith("optim.")] == ["0.03"]
    assert (with_gpu.optim.name, with_gpu.steps, with_gpu.method_options) == ("sgd", 5_000, {})
    assert choose(many, method="instant", room=0)[0].method_options["kappa"] == "self_adaptive"
    assert "kappa" not in choose(few, method="instant", room=0)[0].method_options
    vectors = arrays(np.zeros((5000, 3)), np.where(np.arange(5000) < 18, np.arange(5000) % 2, -1))
    assert choose(vectors, method="instant", room=0)[0].contrast == 0
    recipe, choices = choose(many, method="supervised", room=0)
    assert (recipe.steps, recipe.contrast) == (1000, 0)
    assert "contrast" not in [choice.setting for choice in choices]
    for room in (0, H200):  # a baseline that is trained by itself is that of the run
        ours, labels_alone = (choose(many, method=name, room=room)[0] for name in ("instant", "supervised"))
        assert baseline_recipe(ours).leaves() == labels_alone.leaves()
    assert choose(many, method="instant", room=0, given={"steps": "19"})[0].optim.warmup == 0
    recipe, _ = choose(many, method="fixmatch", room=0)
    assert recipe.optim.warmup == 50
    assert (recipe.steps, recipe.contrast, recipe.batch, recipe.validation) == (1000, 600, 32, 0)
    assert recipe.backbone_options == {"width": 16}


def test_what_is_chosen_fits_the_gpu() -> None:
    """Free memory of cards of 4 to 140 GB: the side of large photos, and the labelled ones of a step."""
    for gigabytes, side, batch in ((3, 64, 8), (7, 64, 16), (11, 64, 32), (15, 64, 32), (22, 96, 32), (139, 96, 64)):
        room = SHARE * gigabytes * 2**30
        seen = choose_side(Survey(median=300, equal=False, grey=False), room=room)
        assert seen[0] == side
        assert ("would not fit the GPU" in seen[1]) == (side < 96)
        large = arrays(np.zeros((1999, 3, side, side), np.uint8), np.arange(1999) % 2, channels="first")
        recipe, choices = choose(large, method="instant", room=room)
        assert (recipe.batch, recipe.steps) == (batch, 5000)
        why = next(choice.reason for choice in choices if choice.setting == "batch")
        assert ("would not fit the GPU's memory" in why) == (batch < 64)
    assert choose_side(Survey(median=300, equal=False, grey=False), room=1e8)[0] == 32
    assert "would" not in choose_side(Survey(median=70, equal=False, grey=False), room=H200)[1]


def test_the_room_is_most_of_what_a_gpu_has_free(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small("own", None, "instant")
    assert gpu_room(recipe.override({"device": "cpu"})) == 0
    monkeypatch.setattr("instant.choose.choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10e9, 24e9))
    for precision, share in (("bfloat16", 0.8), ("float32", 0.4)):
        assert gpu_room(recipe.override({"precision": precision})) == pytest.approx(share * 10e9)


def test_samples_take_room_too() -> None:
    """Where they fit; more than half of what is free stays in host memory."""
    source = arrays(np.zeros((2000, 3, 64, 64), np.uint8), np.arange(2000) % 2, channels="first")
    step, samples = needed(64, batch=32), source.train.samples.nbytes
    for room, batch in ((step + samples, 32), (step + samples - 1, 16), (2 * step, 32)):
        assert choose(source, method="instant", room=room)[0].batch == batch
    several = np.broadcast_to(source.train.samples[:1], (2000 * (1 + 2 * step // samples), 3, 64, 64))
    targets = np.arange(len(several)) % 2
    huge = dataclasses.replace(source, train=Store(several), targets=targets)
    assert choose(huge, method="instant", room=2 * step)[0].batch == 32


def test_options_go_with_the_network_they_were_chosen_for() -> None:
    np.savez("x.npz", x=np.zeros((2000, 8, 8), np.uint8), y=np.where(np.arange(2000) < 8, np.arange(2000) % 2, -1))
    chosen = prepare(Path("x.npz"), None, {"device": "cpu"}, [])
    assert (chosen.recipe.backbone, chosen.recipe.backbone_options) == ("small_cnn", {"width": 16})
    assert "backbone.width" in [choice.setting for choice in chosen.choices]
    given = prepare(Path("x.npz"), None, {"device": "cpu", "backbone": "wrn_28_2"}, [])
    assert (given.recipe.backbone, given.recipe.backbone_options) == ("wrn_28_2", {})
    assert "backbone.width" not in [choice.setting for choice in given.choices]


@pytest.mark.parametrize(("setting", "expected"), [("none", True), ("false", False), ("true", True)])
def test_views_are_mirrored_unless_told(setting: str, expected: bool) -> None:
    source = arrays(np.zeros((8, 8, 8), np.uint8), np.arange(8) % 2)
    recipe = small("own", None, "instant", batch=2, ratio=2).override({"mirror": setting, "device": "cpu"})
    feed = build_program(recipe, split_for(recipe, source)).feed
    assert feed.weak.mirror is expected


def test_hand_made_labels_are_never_written_over(capsys: Capture) -> None:
    photos(Path("photos"))
    before = Path("labels.csv").read_bytes()
    assert main(["train", "photos", *TINY, "--labels", "labels.csv", "--out", "run"]) == 0
    for words in (["label", "run"], ["certify", "run", "--draw", "3"]):
        said = refused([*words, "--out", "labels.csv", "--force"], capsys)
        assert said == "instant: labels.csv would replace the labels of run; choose another name."
    for words in (["report", "run", "--out"], ["export", "run", "--force", "--safetensors"]):
        assert "labels.csv would replace the labels of run" in refused([*words, "labels.csv"], capsys)
    assert Path("labels.csv").read_bytes() == before


def test_a_refused_command_takes_no_list_of_problems_away(capsys: Capture) -> None:
    photos(Path("photos"))
    Path("photos/bad.jpg").write_text("no image")
    words = ["train", "photos", *TINY, "--labels", "labels.csv", "--out", "run"]
    assert main(words) == 0
    assert problems("run").keys() == {"bad.jpg"}
    Path("photos/bad.jpg").unlink()
    assert "validation=3 is not divisible" in refused([*words, "--force", "validation=3"], capsys)
    assert Run("run").finished
    assert problems("run").keys() == {"bad.jpg"}
    assert main([*words, "--force"]) == 0
    assert not Path("run/problems.csv").exists()
