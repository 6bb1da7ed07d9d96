"""The bench: what it counts by hand, whose time it takes, and what it writes down."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import instant.bench.step as bench
from instant.bench.ceilings import Ceilings, Sizes, measure_ceilings
from instant.bench.report import COLUMNS, append_csv, as_row, print_table
from instant.bench.step import Effort, Failure, Parts, Result, Subject, synthetic
from instant.bench.timing import seconds_a_step
from instant.bench.work import Work, count
from instant.cli import main
from instant.data.sources import load
from instant.engine.build import build_program, split_for
from instant.recipes import resolve

TINY = ["batch=4", "ratio=2", "labels=10", "device=cpu"]
SHORT = ["--steps", "1", "--repeats", "1"]
CPU = torch.device("cpu")
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings are known here, so that the arithmetic with them can be checked."""
    monkeypatch.setattr(bench, "measure_ceilings", lambda *_, **__: Ceilings(2.0, 50.0))


# --- work -----------------------------------------------------------------------------------------------------


def test_work_of_a_linear_layer():
    layer, x = nn.Linear(5, 7), torch.randn(3, 5)
    work = count(lambda: layer(x).sum().backward())
    # Forward (3, 5) by (5, 7) and the weight's gradient (7, 3) by (3, 5); the input needs none.
    assert work.flop == 2 * 3 * 5 * 7 + 2 * 7 * 3 * 5
    # Bias, input, weight and output; then the output's gradient, the input and the weight's gradient.
    assert work.bytes == 4 * ((7 + 15 + 35 + 21) + (21 + 15 + 35))


def test_work_of_a_convolution():
    layer, x = nn.Conv2d(3, 4, 3, padding=1, bias=False), torch.randn(2, 3, 8, 8, requires_grad=True)
    work = count(lambda: layer(x).sum().backward())
    # Every one of 2 * 4 * 64 outputs sums 3 * 9 products; both gradients take as much again.
    assert work.flop == 3 * (2 * 2 * 4 * 64 * 3 * 9)
    image, weight, output = 2 * 3 * 64, 4 * 3 * 9, 2 * 4 * 64
    assert work.bytes == 4 * ((image + weight + output) + (output + image + weight + image + weight))


def test_work_in_bfloat16_moves_half_the_bytes():
    layer, x = nn.Linear(5, 7, bias=False), torch.randn(3, 5)

    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(x)
        y.float().sum().backward()

    assert count(run) == Work(2 * 2 * 3 * 5 * 7, 2 * 2 * (15 + 35 + 21))


def test_work_of_attention_on_a_cpu():
    q, k, v = (torch.randn(1, 2, 8, 16, requires_grad=True) for _ in range(3))
    product = 2 * 2 * 8 * 8 * 16  # two heads, (8, 16) by (16, 8)
    assert count(lambda: scaled_dot_product_attention(q, k, v)).flop == 2 * product
    # Backward: the scores anew, and the gradients of the scores, of v, of q and of k.
    assert count(lambda: scaled_dot_product_attention(q, k, v).sum().backward()).flop == (2 + 5) * product


def test_work_of_a_step_is_the_network_on_every_image():
    recipe = resolve("digits", dict(word.split("=") for word in TINY) | {"method": "fixmatch"})
    program = build_program(recipe, split_for(recipe, load("digits")))
    step = count(lambda: program(0))
    x = torch.randn(4 + 2 * 8, 1, 16, 16)  # labelled, weak and strong
    once = count(lambda: program.learner.model(x).logits.sum().backward())
    assert step.flop == once.flop > 0


# --- time -----------------------------------------------------------------------------------------------------


def test_median_leaves_out_warm_up_and_a_disturbed_repeat():
    seen: list[int] = []
    extra = iter([0.0, 100.0, 4.0])

    def clock(run) -> float:
        before = len(seen)
        run()
        return 2.0 * (len(seen) - before) + next(extra)

    found = seconds_a_step(seen.append, clock, first=1, warm_up=2, steps=4, repeats=3)
    # Repeats of four steps take 8, 108 and 12 seconds.
    assert found == 12 / 4
    assert seen == list(range(1, 1 + 2 + 4 * 3))


def test_ceilings_are_work_over_time(monkeypatch: pytest.MonkeyPatch):
    times = iter([0.5, 0.25, 0.1, 0.2])
    monkeypatch.setattr("instant.bench.ceilings.clock_of", lambda device: lambda run: (run(), next(times))[1])
    found = measure_ceilings(CPU, torch.float32, tf32=False, sizes=Sizes(100, 1000), repeats=2)
    assert found == pytest.approx((2 * 100**3 / 0.25 / 1e12, 2 * 1000 / 0.1 / 1e9))


# --- results --------------------------------------------------------------------------------------------------


def made(method: str = "uda", parts: Parts | None = None) -> Result:
    return Result(
        subject=Subject(method, "wrn_28_2", "captured", "a GPU", "2.13.0"),
        precision="bfloat16",
        images=960,
        milliseconds=8.0,
        start_seconds=52.0,
        peak_mib=1234.5,
        peak_of="device memory",
        work=Work(800 * 10**9, 12 * 10**9),
        ceilings=Ceilings(800.0, 4000.0),
        parts=parts,
    )


def test_rates_shares_and_floors_by_hand():
    row = as_row(made(), "instant bench step")
    assert row["images_per_second"] == 120_000
    # 0.8 TFLOP and 12 GB in 8 ms; at the ceilings they take 1 ms and 3 ms.
    assert (row["tflops"], row["tflops_share"], row["flop_floor_ms"]) == (100, 0.125, 1)
    assert (row["gbs"], row["gbs_share"], row["byte_floor_ms"]) == (1500, 0.375, 3)


def test_a_result_has_every_column_and_no_other():
    assert sorted(as_row(made(), "c")) == sorted(as_row(made(parts=Parts(1, 2, 3)), "c")) == sorted(COLUMNS)


def test_csv_keeps_earlier_rows(tmp_path: Path):
    path = tmp_path / "step.csv"
    append_csv(path, [as_row(made("uda"), "instant bench step method=uda")])
    first = path.read_text()
    append_csv(path, [as_row(made("vat"), "instant bench step --methods a,b")])
    assert path.read_text().startswith(first)
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["uda", "vat"]
    assert rows[1]["command"] == "instant bench step --methods a,b"
    assert rows[1]["views_ms"] == ""
    assert [path.name for path in tmp_path.iterdir()] == ["step.csv"]


def test_table_holds_all_methods_in_a_narrow_terminal(capsys: Capture):
    methods = ["instant", "fixmatch", "fully_supervised", "mean_teacher"]
    failure = Failure(Subject("vat", "wrn_28_2", "captured", "a GPU", "2.13.0"), "out of [memory]")
    print_table([*(made(method) for method in methods), failure], Console(width=80))
    shown = capsys.readouterr().out
    for word in (*methods, "8.00 ms", "3.00 ms, 2.7 x", "vat failed: out of [memory]"):
        assert word in shown


def test_synthetic_images_are_in_the_format_of_cifar10():
    source = synthetic(20)
    assert source.train.samples.shape == (20, 3, 32, 32)
    assert len(source.classes) == 10
    assert source.train.samples.std() > 50


# --- the command ----------------------------------------------------------------------------------------------


def test_json_and_csv_of_the_command(tmp_path: Path, capsys: Capture):
    path = tmp_path / "step.csv"
    words = ["bench", "step", "digits", *TINY, "--methods", "fixmatch,supervised", *SHORT]
    assert main([*words, "--json", "--csv", str(path)]) == 0
    out, progress = capsys.readouterr()
    found = json.loads(out)
    assert "fixmatch: 1 x 1 steps" in progress
    assert [row["method"] for row in found] == ["fixmatch", "supervised"]
    assert [row["images"] for row in found] == [4 + 8 + 8, 4]
    for row in found:
        assert sorted(row) == sorted(COLUMNS)
        assert row["command"] == f"instant {' '.join(words)}"
        assert (row["way"], row["precision"], row["torch"]) == ("eager", "float32", torch.__version__)
        assert row["ms"] > 0
        assert row["network_ms"] > 0
    with open(path, newline="") as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["fixmatch", "supervised"]


def test_a_csv_that_cannot_be_written_loses_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    words = ["bench", "step", "digits", *TINY, "method=supervised", *SHORT, "--json", "--csv"]
    assert main([*words, str(tmp_path / ("x" * 255))]) == 2  # no room for the name of a lock: said before it measures
    out, said = capsys.readouterr()
    assert out == ""
    assert "cannot be written (File name too long); name another file." in said

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("instant.bench.report.atomic", full)
    assert main([*words, str(tmp_path / "step.csv")]) == 2
    out, said = capsys.readouterr()
    assert [row["method"] for row in json.loads(out)] == ["supervised"]
    assert "step.csv cannot be written (No space left on device); name another file." in said


def test_synthetic_is_the_source_when_none_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Capture):
    monkeypatch.setattr("instant.bench.command.synthetic", lambda: synthetic(100))
    settings = ["method=supervised", "backbone=small_cnn", *TINY]
    assert main(["bench", "step", *settings, *SHORT, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["backbone"] == "small_cnn"
    assert row["command"].startswith("instant bench step synthetic method=supervised backbone=small_cnn")


@pytest.mark.parametrize("kind", [torch.OutOfMemoryError, Exception])  # those of Triton are no RuntimeError
def test_one_failure_does_not_stop_the_others(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
):
    def build(recipe, split):
        if recipe.method == "uda":
            raise kind("CUDA out of memory. Tried to allocate\nmuch")
        return build_program(recipe, split)

    monkeypatch.setattr(bench, "build_program", build)
    path = tmp_path / "step.csv"
    words = ["bench", "step", "digits", *TINY, "--methods", "uda,supervised", *SHORT, "--csv", str(path)]
    assert main([*words, "--json"]) == 1
    failed, measured = json.loads(capsys.readouterr().out)
    assert (failed["method"], failed["error"]) == ("uda", "CUDA out of memory. Tried to allocate")
    assert measured["ms"] > 0
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("digits --methods fixmach", "method='fixmach' is not known; did you mean 'fixmatch'?"),
        ("digits --methods uda,,vat", "--methods 'uda,,vat' has an empty name"),
        ("digits method=uda --methods vat", "--methods vat and method=uda both name methods"),
        ("digits --steps 0", "--steps 0 must be at least 1."),
        ("digits --repeats -1", "--repeats -1 must be at least 1."),
        ("digits --csv missing/step.csv", "--csv missing/step.csv: there is no folder missing; make it first."),
        ("digits --csv .", "--csv . is a folder"),
        ("digits --csv other.csv", "--csv other.csv has other columns than these rows"),
        ("digits --csv v.npz", "--csv v.npz has other columns than these rows; name another file."),
        ("synthetic data=here", "synthetic makes its own images"),
        ("digits contrast=100", "contrast=100: a step of the method is measured"),
        ("digts", "source 'digts' is not known; did you mean 'digits'?"),
        ("v.npz", "bench step takes a named source, not files of your own as v.npz; choose one of: cifar10,"),
        ("digits step=captured device=cpu", "step=captured records a CUDA graph"),
        ("digits batch=2000 device=cpu", "batch=2000 asks for more samples a step"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "v.npz").write_bytes(b"PK\x03\x04\xff\xfe")
    assert main(["bench", "step", *words.split()]) == 2
    out, complaint = capsys.readouterr()
    assert out == ""
    assert sentence in complaint
    assert (tmp_path / "other.csv").read_text() == "a,b\n1,2\n"


def test_measuring_runs_the_schedule_it_needs():
    assert Effort(2, 3, 5).total == 1 + 2 + 2 + 15  # warmed up twice
