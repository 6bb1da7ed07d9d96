"""The command: one sentence for every mistake, and nothing finished is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import instant
from instant import recipes
from instant.algorithms import METHODS
from instant.backbones import BACKBONES, build
from instant.cli import main
from instant.config import Recipe, keys
from instant.console import say
from instant.data.sources import SOURCES, arrays, load
from instant.data.split import make_split
from instant.demo import label_spreading, run_demo
from instant.engine.fit import fit
from instant.engine.optim import Optim
from instant.engine.step import Program
from instant.errors import InputError
from instant.listing import LISTINGS
from instant.run import Run

TINY = ["steps=2", "batch=8", "ratio=2", "labels=10"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Default run folders go to a folder of their own, and no source is at hand or in reach but digits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INSTANT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("finished") / "run")
    recipe = recipes.digits(labels=10).override(dict(word.split("=", 1) for word in TINY))
    fit(recipe, make_split(load("digits"), labels=10), run=run)
    return run


@pytest.fixture
def copy(finished: Run, tmp_path: Path) -> Path:
    """A finished run to spoil."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in finished.path.glob("*.json*"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "model.safetensors").write_bytes((finished.path / "model.safetensors").read_bytes())
    return folder


def refused(words: list[str], capsys: Capture) -> str:
    """The one sentence of a refusal."""
    capsys.readouterr()
    assert main(words) == 2
    out, complaint = capsys.readouterr()
    assert out == ""
    assert complaint.startswith("instant: ")
    assert complaint.endswith("\n")
    assert complaint.count("\n") == 1, complaint
    assert "Traceback" not in complaint
    return complaint.removeprefix("instant: ").rstrip("\n")


# --- settings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("labels=5", "labels=5 is fewer than one a class: there are 10 classes, ask for at least 10."),
        ("labels=-5", "labels=-5 is fewer than one a class"),
        ("labels=0", "labels=0 is fewer than one a class"),
        ("labels=45", "labels=45 is not divisible by the 10 classes"),
        ("labels=2000", "class '0' of digits has 142 samples with a known label, expected at least 200 labelled"),
        ("labels=many", "labels='many' must be a whole number"),
        ("labels=", "'labels=' has no value; write key=value, or labels=none where there shall be none."),
        ("validation=5", "validation=5 is not divisible by the 10 classes"),
        ("batch=1000", "batch=1000 with ratio=6 asks for 6000 unlabelled samples a step, but digits has 1437"),
        ("batch=1e9", "batch=1000000000 asks for more samples a step than digits has: 1437; lower batch."),
        ("batch=1e9 method=supervised", "batch=1000000000 asks for more samples a step than digits has: 1437"),
        ("batch=1e12", "batch=1000000000000 must be at least 1 and below 2^31."),
        ("ratio=0", "ratio=0 must be at least 1"),
        ("steps=0", "steps=0 must be at least 1"),
        ("steps=abc", "steps='abc' must be a whole number"),
        ("steps=5 optim.warmup=5", "optim.warmup=5 must be below the 5 steps of the run"),
        ("ema=1", "ema=1.0 must lie in [0, 1); 0 means no averaging."),
        ("ema=0 method=mean_teacher", "method=mean_teacher learns from the averaged weights, and ema=0 means none"),
        ("seed=-1", "seed=-1 must be 0 or more"),
        ("clip=-1", "clip=-1.0 must be 0 or more."),
        ("method=fixmach", "method='fixmach' is not known; did you mean 'fixmatch'?"),
        ("method=no.such:thing", "method='no.such:thing' cannot be imported"),
        ("method=near.py:thing", "expected a module rather than a file: leave out .py and folders, package.module:fun"),
        ("method=:thing", "method=':thing' cannot be imported (it names no module)"),
        ("method=.near:thing", "method='.near:thing' cannot be imported (it names no module)"),
        ("method=os:getcwd", "method='os:getcwd' is a builtin_function_or_method that takes no argument, expected"),
        ("method=builtins:dict", "method='builtins:dict' is a type that takes no argument, expected"),
        ("method=json:decoder", "method='json:decoder' is a module, expected a function"),
        ("method.treshold=0.9 method=fixmatch", "method.treshold is not an option of fixmatch; did you mean"),
        ("method.threshold=high method=fixmatch", "method.threshold='high' must be a number, for example 0.95"),
        ("method.transition=hed", "transition='hed' is not known; did you mean 'head'?"),
        ("backbone=smal_cnn", "no backbone is called 'smal_cnn': did you mean 'small_cnn'?"),
        ("backbone=mlp", "mlp takes vectors (D,), the samples have shape (1, 16, 16)"),
        ("backbone=vit_s_2_32", "vit_s_2_32 takes images of 32x32, the samples are 16x16"),
        ("backbone.depth=3", "small_cnn has no argument 'depth'"),
        ("backbone.bn_momentum=abc", "backbone.bn_momentum='abc' of small_cnn must be a number, for example 0.1."),
        ("backbone.width=1.5", "backbone.width=1.5 of small_cnn must be a whole number, for example 64."),
        ("backbone.width=abc", "backbone.width='abc' of small_cnn must be a whole number, for example 64."),
        ("backbone.width=true", "backbone.width=True of small_cnn must be a whole number, for example 64."),
        ("backbone.width=1e9", "backbone.width=1000000000.0 of small_cnn must be a whole number, for example 64."),
        ("operations=101", "operations=101 must be at most 100"),
        ("backbone.width=99999999999", "small_cnn cannot be built with backbone.width=99999999999"),
        ("noise=0.2", "noise= is for vectors, and digits has images; leave it out."),
        ("neighbours=5", "neighbours= is for vectors, and digits has images; leave it out."),
        ("backbone.bn_momentum=2", "bn_momentum must lie in (0, 1], got 2"),
        ("optim.name=adam", "optim.name 'adam' is not known: did you mean 'adamw'?"),
        ("optim.lr=0", "optim.lr must be positive, got 0.0"),
        ("optim.layer_decay=0.5", "optim.layer_decay=0.5 needs a ViT backbone"),
        ("lr=0.1", "'lr' is not a setting; did you mean 'optim.lr'?"),
        ("lables=40", "'lables' is not a setting; did you mean 'labels'?"),
        ("labels", "'labels' is not a setting; write key=value, for example labels=40 or optim.lr=0.01"),
        ("labels=my.CSV", "'labels=my.CSV' is no setting; a file of labels is given as --labels my.CSV"),
        ("a=b.csv", "'a' is not a setting; "),
        ("b.parquet", "'b.parquet' is no setting; a file of labels is given as --labels b.parquet"),
        ("=40", "'=40' is not a setting; write key=value"),
        ("labels=10 labels=20", "labels is given twice, as '10' and as '20'; give it once."),
        ("source=cifar10", "the source is the first word, not a setting: instant train SOURCE key=value ..."),
        ("recipe=digts", "recipe='digts' is not known; did you mean 'digits'?"),
        ("recipe=classic_cifar10", "recipe=classic_cifar10 is for cifar10, not for digits; did you mean 'digits'?"),
        ("pretrained=nowhere.pth", "nowhere.pth"),
        ("data=/nosuch", "data=/nosuch: digits reads no files, it comes with a package; leave data= out."),
        ("device=banana", "device='banana' is not known; use auto, cpu, cuda or cuda:N."),
        ("device=mps", "device='mps' is not known; use auto, cpu, cuda or cuda:N."),
        ("device=cuda:99", "device=cuda:99: this machine has "),
        ("device=cpu step=captured", "step=captured records a CUDA graph and needs a GPU"),
        ("step=fast", "step='fast' is not known; choose one of: auto, captured, compiled, eager"),
        ("precision=float16", "precision='float16' is not known; did you mean 'bfloat16'?"),
        ("--fource", "No such option: --fource"),
        ("--resume somewhere", "--resume takes everything from the run folder; give it alone."),
    ],
)
def test_a_setting_that_cannot_be_used(words: str, sentence: str, capsys: Capture, tmp_path: Path) -> None:
    assert sentence in refused(["train", "digits", *words.split()], capsys)
    assert list(tmp_path.iterdir()) == []  # no folder was made for a run that never began


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("train digit", "source 'digit' is not known; did you mean 'digits'?"),
        ("train labels=40", "source 'labels=40' is not known"),
        ("train", "name a source to train on, for example: instant train digits labels=10"),
        ("train arrays recipe=vectors", "There is no data set 'arrays'"),
        ("train cifar10 recipe=pretrained_cifar10", "add pretrained=FILE"),
        ("train --resume nowhere", "nowhere/recipe.json is not there: it is no run folder."),
        ("train --resume run --out other", "--resume takes everything from the run folder; give it alone."),
        ("train --resume run --force", "--resume takes everything from the run folder; give it alone."),
        ("train cifar10 data=~nobody.here/x", "~nobody.here/x: there is no such home folder;"),
        ("train cifar10 data=/dev/null", "root: expected a folder, /dev/null is a file"),
        ("evaluate nowhere", "nowhere/recipe.json is not there: it is no run folder."),
        ("evaluate", "Missing argument"),
        ("list", "Missing argument"),
        ("list everything", "everything"),
        ("tain digits", "tain"),
        ("demo --labels 7", "labels=7 is fewer than one a class"),
        ("demo --seed -1", "seed=-1 must be 0 or more."),
        ("demo --labels ten", "Invalid value for '--labels'"),
    ],
)
def test_a_command_that_cannot_be_run(words: str, sentence: str, capsys: Capture) -> None:
    assert sentence in refused(words.split(), capsys)


def test_a_gpu_whose_memory_is_full(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def full(program: Program, step: int) -> None:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of ..."
        )

    monkeypatch.setattr(Program, "forward", full)
    assert main(["train", "digits", *TINY]) == 1
    sentence = " ".join(capsys.readouterr().err.split())
    assert "instant: the GPU's memory is full (CUDA out of memory). Lower batch or ratio, leave the samples" in sentence
    assert "Traceback" not in sentence


def test_a_gpu_that_is_not_there(capsys: Capture) -> None:
    if not torch.cuda.is_available():
        sentence = refused(["train", "digits", "device=cuda"], capsys)
        assert sentence == "device=cuda: this machine has no CUDA GPU that torch can use; use device=cpu or auto."


# --- data -----------------------------------------------------------------------------------------------------


def test_arrays_that_cannot_be_used() -> None:
    x = np.zeros((6, 3), np.float32)
    x[4, 1] = np.nan
    images = [np.zeros((8, 8), np.uint8)] * 5 + [np.zeros((8, 9), np.uint8)]
    y = [0, 1, 0, 1, 0, 1]
    for wrong, sentence in (
        (lambda: arrays(x, y), "x: row 4, column 1 is nan, expected a finite number within float32."),
        (lambda: arrays(images, y), r"x: row 5 has shape \(8, 9\), expected \(8, 8\) as in row 0."),
        (
            lambda: make_split(arrays(np.zeros((6, 3)), y, classes=["a", "b", "c"]), labels=3),
            "class 'c' of arrays has no labelled sample; every class needs at least one.",
        ),
    ):
        with pytest.raises(InputError, match=sentence):
            wrong()


@pytest.mark.parametrize(("size", "state"), [(0, "empty"), (1000, "cut short"), (40_000_000, "too long")])
def test_a_broken_file_of_cifar(size: int, state: str, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in (*(f"data_batch_{part}.bin" for part in range(1, 6)), "test_batch.bin"):
        with open(folder / name, "wb") as file:
            file.truncate(size if name == "data_batch_1.bin" else 30_730_000)
    assert refused(["train", "cifar10", f"data={tmp_path}"], capsys) == (
        f"{folder / 'data_batch_1.bin'}: the file is {state}: expected 30,730,000 bytes, got {size:,}. Delete it and "
        "load again to get a good copy."
    )


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b\x08\x00 cut short"])
def test_a_broken_archive_of_cifar(content: bytes, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(content)
    assert main(["train", "cifar10", f"data={tmp_path}"]) == 2
    *progress, complaint = capsys.readouterr().err.splitlines()
    assert all(line.startswith("Unpacking") for line in progress)
    assert complaint.startswith(f"instant: {tmp_path / 'cifar-10-binary.tar.gz'} ({len(content)} bytes) is not a whole")


# --- run folders ----------------------------------------------------------------------------------------------


def test_a_finished_run_is_not_overwritten(finished: Run, capsys: Capture) -> None:
    def state() -> dict[Path, tuple[bytes, int]]:
        return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in finished.path.rglob("*") if p.is_file()}

    before = state()
    sentence = refused(["train", "digits", *TINY, "--out", str(finished)], capsys)
    assert sentence == f"{finished} already holds a finished run; choose another --out, or add --force."
    sentence = refused(["train", "--resume", str(finished)], capsys)
    assert sentence == f"{finished} is finished; there is nothing to resume. See it with: instant report {finished}"
    (finished.path.parent / "supervised").symlink_to(finished.path)
    sentence = refused(["demo", "--out", str(finished.path.parent)], capsys)
    assert "already holds a finished run" in sentence
    assert state() == before


def test_the_default_folder_is_named_for_the_run(capsys: Capture, tmp_path: Path) -> None:
    assert main(["train", "digits", *TINY, "method=supervised", "seed=3"]) == 0
    assert Run(tmp_path / "runs" / "digits-10-supervised-3").finished
    assert "already holds a finished run" in refused(["train", "digits", *TINY, "method=supervised", "seed=3"], capsys)
    assert main(["train", "digits", *TINY[:3], "labels=all"]) == 0
    assert Run(tmp_path / "runs" / "digits-all-instant-0").summary()["label_budget"]["total"] == 1437


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_run_of_another_version(copy: Path, capsys: Capture) -> None:
    edit(copy / "model.json", format=7, instant="9.9")
    expected = (
        f"{copy / 'model.json'} was written by instant 9.9 in run format 7, this is {instant.__version__} which reads "
        "format 1; use the version that wrote it, or train again."
    )
    assert refused(["evaluate", str(copy)], capsys) == expected
    edit(copy / "recipe.json", format=7, instant="9.9")
    expected = expected.replace("model.json", "recipe.json")
    assert refused(["evaluate", str(copy)], capsys) == expected
    (copy / "summary.json").unlink()
    assert refused(["train", "--resume", str(copy)], capsys) == expected


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("recipe.json", b'{"format": 1, "rec', "recipe.json cannot be read"),
        ("recipe.json", b"", "recipe.json cannot be read"),
        ("recipe.json", b"\xff\xfe\x00", "recipe.json cannot be read"),
        ("recipe.json", b"[1, 2]", "recipe.json holds a list, expected an object with names; it is damaged."),
        ("recipe.json", b"{}", "recipe.json was written by instant (unknown) in run format None"),
        ("recipe.json", b'{"format": 1}', "recipe.json holds no recipe; it is damaged."),
        ("recipe.json", b'{"format": 1, "recipe": {"steps": "x"}}', "recipe: a setting is of the wrong kind"),
        ("recipe.json", b'{"format": 1, "recipe": {"stepz": 5}}', "recipe: 'stepz' is not a setting"),
        ("model.json", b'{"format": 1}', "model.json lacks backbone, backbone_options, shape, classes, mean, std:"),
        ("model.safetensors", b"", "model.safetensors cannot be read as safetensors"),
        ("model.safetensors", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ", "model.safetensors does not fit model.json"),
        ("model.safetensors", None, "model.safetensors cannot be read as safetensors"),
        ("model.json", None, "model.json is not there: the run did not finish; go on with: instant train --resume"),
        ("recipe.json", None, "recipe.json is not there: it is no run folder."),
    ],
)
def test_a_damaged_run(name: str, content: bytes | None, sentence: str, copy: Path, capsys: Capture) -> None:
    if content is None:
        (copy / name).unlink()
    else:
        (copy / name).write_bytes(content)
    assert sentence in refused(["evaluate", str(copy)], capsys)


@pytest.mark.parametrize(
    ("words", "name", "content", "missing"),
    [
        (["report"], "summary.json", {"format": 1, "recipe": {}}, "method, backbone, seed, steps, accuracy_of, "),
        (
            ["label", "--out", "labels.csv"],
            "split.json",
            {"format": 1, "recipe": {}},
            "source, hash, classes, labelled, ",
        ),
        (["label", "--out", "labels.csv"], "split.json", {"pool": None}, "pool: "),  # of a whole file
    ],
)
def test_a_run_without_what_is_looked_up(
    words: list[str], name: str, content: dict[str, object], missing: str, copy: Path, capsys: Capture
) -> None:
    if None in content.values():
        whole = json.loads((copy / name).read_text())
        content = {key: value for key, value in whole.items() if key not in content}
    (copy / name).write_text(json.dumps(content))
    sentence = refused([words[0], str(copy), *words[1:]], capsys)
    assert sentence.startswith(f"{copy / name} lacks {missing}")
    assert sentence.endswith("Put the file back as it was, or train again.")
    assert "it was changed, or is of another version of instant (this is " in sentence


def test_a_truncated_model(copy: Path, capsys: Capture) -> None:
    whole = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(whole[:-100])
    assert "model.safetensors cannot be read as safetensors" in refused(["evaluate", str(copy)], capsys)
    (copy / "summary.json").unlink()
    (copy / "checkpoint").mkdir()
    (copy / "checkpoint" / "state.safetensors").write_bytes(whole)
    assert "is not a checkpoint of this run" in refused(["train", "--resume", str(copy)], capsys)
    (copy / "checkpoint" / "state.safetensors").write_bytes(whole[:-100])
    assert "cannot be read as safetensors" in refused(["train", "--resume", str(copy)], capsys)


def test_a_run_whose_data_changed(copy: Path, capsys: Capture) -> None:
    (copy / "summary.json").unlink()
    edit(copy / "split.json", hash="0123456789abcdef")
    sentence = refused(["train", "--resume", str(copy)], capsys)
    expected = f"the samples of {copy} have changed since it was begun; put them back as they were, or train again."
    assert sentence == expected


def test_an_unfinished_run(copy: Path, capsys: Capture) -> None:
    (copy / "summary.json").unlink()
    (copy / "model.json").unlink()
    assert "model.json is not there: the run did not finish" in refused(["evaluate", str(copy)], capsys)
    sentence = refused(["train", "digits", *TINY, "--out", str(copy)], capsys)
    assert sentence == (
        f"{copy} already holds an unfinished run; go on with: instant train --resume {copy}; or choose another --out, "
        "or add --force."
    )


def test_a_run_folder_that_is_a_file(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("")
    sentence = refused(["evaluate", str(tmp_path / "file")], capsys)
    assert sentence == f"{tmp_path / 'file'} is a file; give the folder of the run, as in {tmp_path}."


def test_where_a_run_is_asked(finished: Run, capsys: Capture) -> None:
    for words in (["evaluate", str(finished.path)], ["label", str(finished.path), "--out", "x.csv"]):
        assert refused([*words, "--device", "banana"], capsys) == (
            "device='banana' is not known; use auto, cpu, cuda or cuda:N."
        )
    assert main(["evaluate", str(finished.path), "--device", "cpu"]) == 0


def test_a_model_for_other_data(copy: Path, capsys: Capture) -> None:
    edit(copy / "model.json", classes=[str(digit) for digit in reversed(range(10))])
    assert "evaluate it on the data it was trained for." in refused(["evaluate", str(copy)], capsys)


# --- what works -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "key", "names"),
    [
        ("methods", "method", set(METHODS)),
        ("recipes", "recipe", set(recipes.RECIPES)),
        ("backbones", "backbone", {*BACKBONES, "timm:NAME"}),
        ("sources", "source", set(SOURCES)),
        ("settings", "setting", set(keys())),
    ],
)
def test_lists(what: str, key: str, names: set[str], capsys: Capture) -> None:
    assert main(["list", what, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row[key] for row in rows} == names
    assert all(row.keys() == rows[0].keys() for row in rows)
    assert main(["list", what]) == 0
    table = capsys.readouterr().out
    assert all(name in table for name in names)
    if what == "methods":
        assert len(rows) == 20
    if what == "backbones":
        assert "'instant-ssl[timm]'" in table  # square brackets are rich's markup
    if what == "recipes":
        assert len(rows) == len(recipes.RECIPES) + 132


def test_what_settings_are_said_to_be_is_what_they_are() -> None:
    """Given as they are written, they change nothing."""
    rows = {row["setting"]: row["if no recipe says"] for row in LISTINGS["settings"]()}
    given = {key: value for key, value in rows.items() if value}
    assert len(given) == len(rows) - 3  # recipe, method.OPTION and backbone.OPTION
    assert Recipe(steps=7, labels=3, seed=5, optim=Optim(lr=1.0)).override(given) == Recipe()


def test_the_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"instant {instant.__version__}\n"


@pytest.mark.parametrize("columns", [80, 100, 119, 120, 160])
def test_words_of_a_command_are_not_broken(columns: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["list", "recipes"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    shown = " ".join(line.split("│")[4] for line in lines).split()
    assert shown == " ".join(row["command"] for row in LISTINGS["recipes"]()).split()


@pytest.mark.parametrize("words", [[], ["--help"], ["train", "--help"], ["evaluate", "--help"], ["list", "--help"]])
def test_help(words: list[str], capsys: Capture) -> None:
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "Usage:" in out
    assert err == ""


def test_a_group_alone_shows_its_help_and_no_empty_complaint(capsys: Capture) -> None:
    assert main(["bench"]) == 2
    out, err = capsys.readouterr()
    assert "Usage:" in out
    assert err == ""


def test_ctrl_c_while_it_is_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-m", "instant"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "instant: stopped.\n")


def test_help_does_not_wait_for_torch() -> None:
    program = "import sys; from instant.cli import main; main(['train', '--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


def test_a_command_does_not_wait_for_what_it_does_not_use() -> None:
    """Each of them takes half a second or more to import, beside torch's second."""
    program = (
        "import sys; import instant.listing, instant.run, instant.engine.build, instant.labelling.stream; "
        "sys.exit(', '.join({'torch._dynamo', 'scipy.stats', 'pandas', 'sklearn'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr.strip() == ""


def test_a_run_with_validation_says_what_it_costs(capsys: Capture, tmp_path: Path) -> None:
    assert main(["train", "digits", *TINY, "validation=20", "--out", "run"]) == 0
    out = capsys.readouterr().out
    assert "digits: 1417 images, 10 of them labelled, 20 more for validation: 30 labels in all; instant with" in out
    assert next(line for line in out.splitlines() if "validation accuracy, last" in line).count(" % of 20 samples ")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["label_budget"]["total"] == 30


def test_a_terminal_that_knows_ascii_only_and_a_reader_that_goes_away(tmp_path: Path) -> None:
    """As a process: both need a real stream."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-m", "instant", "train", "digits", *TINY, "--out", "run"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "used" in done.stdout
    assert done.stdout.isascii()
    listing = f"{sys.executable} -m instant list recipes --json | true"
    done = subprocess.run(["bash", "-c", listing], env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stderr


def test_the_demo_refuses_before_it_trains_and_compares_on_one_split(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "demo" / "instant").mkdir(parents=True)
    (tmp_path / "demo" / "instant" / "recipe.json").write_text("{}")
    with pytest.raises(InputError, match="already holds an unfinished run"):
        run_demo(tmp_path / "demo")
    assert not (tmp_path / "demo" / "supervised").exists()
    source = load("digits")
    assert 0.5 < label_spreading(source, make_split(source, labels=10)) < 0.95


def test_pretrained_weights_say_what_matched(tmp_path: Path, capsys: Capture) -> None:
    torch.manual_seed(0)
    weights = build("vit_micro_4_16", shape=(1, 16, 16), classes=7).state_dict()  # of another task: another head
    save_file(weights, tmp_path / "vit.safetensors")
    words = ["train", "digits", *TINY, "backbone=vit_micro_4_16", f"pretrained={tmp_path / 'vit.safetensors'}"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{len(weights) - 2} of {len(weights)}" in shown, shown
    assert "head" in shown


def test_a_report_replaces_no_file_unasked(finished: Run, tmp_path: Path, capsys: Capture) -> None:
    thesis = tmp_path / "thesis.html"
    thesis.write_text("mine")
    words = ["report", str(finished.path), "--out"]
    assert "thesis.html is there already; choose another name, or add --force." in refused(
        [*words, str(thesis)], capsys
    )
    assert thesis.read_text() == "mine"
    for name in ("recipe.json", "model.safetensors", "checkpoint/state.safetensors"):
        said = refused([*words, str(finished.path / name), "--force"], capsys)
        assert f"would replace the {name} of {finished}" in said
    assert main([*words, str(thesis), "--force"]) == 0
    assert "<html" in thesis.read_text()


def test_names_are_printed_as_they_are(capsys: Capture) -> None:
    say("report: e:fire:x/[b]report.html")
    assert capsys.readouterr().out == "report: e:fire:x/[b]report.html\n"


@pytest.mark.parametrize(
    "words", [["train", ""], ["train", "digits", "--out", ""], ["train", "digits", "--out= "], ["report", " "]]
)
def test_an_empty_word_is_no_name(words: list[str], capsys: Capture) -> None:
    assert "a word of the command is empty" in refused(words, capsys)


def test_a_run_folder_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "labels.csv").write_text("file,label\n")
    for force in ([], ["--force"]):
        sentence = refused(["train", "digits", "steps=2", "--out", str(tmp_path / "labels.csv"), *force], capsys)
        assert sentence == f"--out {tmp_path / 'labels.csv'} is a file; name a folder for the run."
