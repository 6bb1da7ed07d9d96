"""The report: its numbers are the run's, its text cannot become markup, and it loads nothing."""

from __future__ import annotations

import dataclasses
import re
import shutil
import signal
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import HOSTILE, StopAt, points, small

import instant.report.page
from instant.cli import main
from instant.cli.report import show_report
from instant.config import Recipe
from instant.data.split import Split
from instant.engine.fit import Callback, fit
from instant.engine.interrupt import Interrupted
from instant.errors import InputError
from instant.progress import ProgressBar
from instant.report.baseline import find_baseline, train_baseline
from instant.report.charts import Series, heat_map, line_chart, pair_bars, strips
from instant.report.facts import Facts, collect, compare
from instant.report.gallery import gallery
from instant.report.page import class_thresholds, percent, render, write_report
from instant.report.warnings import Warn
from instant.run import Run

VOID = {"meta", "link", "img", "br"}
SECTIONS = ("accuracy", "curves", "classes", "gallery", "budget", "settings", "versions")


class Page(HTMLParser):
    """Tags that open and close in pairs, ids with their text, and addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.tags: set[str] = set()
        self.text: dict[str, str] = {}
        self.addresses: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.add(tag)
        self.addresses += [values[name] or "" for name in ("src", "href", "action", "data", "poster") if name in values]
        assert not any(name.startswith("on") for name in values), values
        if name := values.get("id"):
            self.text[name] = ""
        if tag not in VOID:
            self.open.append((tag, values.get("id") or ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:  # of SVG
            self.handle_starttag(tag, attrs)
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, name in self.open:
            if name:
                self.text[name] += data


@pytest.fixture(scope="session")
def facts(finished: Run) -> Facts:
    return collect(finished, small()[1])


def test_all_parts_are_there_and_nothing_is_loaded(facts: Facts) -> None:
    text = render(facts)
    page = Page(text)
    assert set(SECTIONS) <= page.text.keys()
    assert {"thresholds", "balance", "transition", "threshold-curve", "accuracy-curve"} <= page.text.keys()
    assert {"utilisation-curve", "pseudo_label_accuracy-curve"} <= page.text.keys()
    assert page.addresses
    assert all(address.startswith("data:") for address in page.addresses)
    assert not re.search(r"url\(|@import|https?://", text)
    assert "script" not in page.tags
    assert len(text) < 1_500_000


def test_the_threshold_is_explained(facts: Facts) -> None:
    sentence = "how sure the classifier must be of its label for it to be accepted"
    assert sentence in Page(render(facts)).text["classes"]
    nothing = dataclasses.replace(facts, decisions=None, gallery=())
    assert sentence not in Page(render(nothing)).text["classes"]


def test_numbers_are_those_of_the_summary(facts: Facts, finished: Run) -> None:
    page, summary = Page(render(facts)), finished.summary()
    assert page.text["value"] == percent(summary["accuracy_last"])
    assert page.text["utilisation"] == percent(summary["utilisation"])
    assert page.text["right"] == percent(summary["pseudo_label_accuracy"])
    assert f"last {percent(summary['threshold_mean'], 1)}" in page.text["threshold-curve"]
    assert page.text["budget"].split()[2:5] == ["training10", "validation0", "total10"]
    for name, value in (
        ("steps", "24"),
        ("batch", "8"),
        ("method", "instant"),
        ("optim.lr", "0.1"),
        ("optim.name", "sgd"),
    ):
        assert re.search(rf"{re.escape(name)}\s*{re.escape(value)}\b", page.text["settings"]), name
    for version in summary["versions"].values():
        assert version in page.text["versions"]


def test_names_stay_text(hostile: Facts) -> None:
    text = render(hostile)
    page = Page(text)
    assert "script" not in page.tags
    assert all(address.startswith("data:") for address in page.addresses)
    for name in HOSTILE:
        assert name in page.text["classes"]
        assert name in page.text["thresholds"]
    assert HOSTILE[0] in page.text["warnings"]
    assert "&lt;b&gt;run&amp;amp;" in text  # the run folder
    assert "onerror" in page.text["classes"]


@pytest.mark.parametrize(
    ("own", "other", "sentence"),
    [
        (0.9, 0.8, "10.00 points above the same network trained on the labelled samples alone."),
        (0.8, 0.8, "Semi-supervised learning did not help here: labelled samples alone reach the same accuracy."),
        (0.8, 0.85, "did not help here: labelled samples alone reach 85.00 %, 5.00 points more."),
        (0.8, None, "There is no supervised baseline to compare with yet."),
    ],
)
def test_the_verdict(facts: Facts, own: float, other: float | None, sentence: str) -> None:
    summary = {**facts.summary, "accuracy_last": own}
    accuracy = compare(summary, None if other is None else {"accuracy_last": other})
    page = Page(render(dataclasses.replace(facts, accuracy=accuracy)))
    assert sentence in page.text["verdict"]
    assert page.text["baseline"] == ("not trained" if other is None else percent(other))
    assert ("--with-baseline" in page.text["verdict"]) == (other is None)


def test_without_test_labels_validation_counts_and_without_both_nothing(facts: Facts) -> None:
    nothing = {**facts.summary, "accuracy_last": None, "validation_accuracy": None}
    page = Page(render(dataclasses.replace(facts, accuracy=compare(nothing, None))))
    assert "There are no test or validation labels, so accuracy is not known." in page.text["verdict"]
    assert (page.text["value"], page.text["baseline"]) == ("not known", "not known")
    assert "no labels are held out" in page.text["accuracy"]
    assert facts.summary["accuracy_of"] not in page.text["accuracy"]
    budget = {"label_budget": {"training": 10, "validation": 8, "total": 18}}
    held = compare(nothing | budget | {"validation_accuracy": 0.75}, {"accuracy_last": 0.9, "validation_accuracy": 0.5})
    assert (held.value, held.baseline, held.measured_on) == (0.75, 0.5, "validation samples")
    page = Page(render(dataclasses.replace(facts, accuracy=held)))
    assert page.text["verdict"].endswith(
        "25.00 points above the same network trained on the labelled samples alone. "
        "Each of the 8 validation samples counts 12.50 points."
    )
    assert "accuracy on 8 validation samples" in page.text["accuracy"]


def test_warnings_come_first(facts: Facts) -> None:
    loud = dataclasses.replace(facts, warnings=[Warn("none", "Nobody is accepted. Lower it.")])
    text = render(loud)
    assert Page(text).text["warnings"].split("\n")[3].strip() == "Nobody is accepted. Lower it."
    assert text.index('id="warnings"') < text.index('id="accuracy"')
    assert "warnings" not in Page(render(dataclasses.replace(facts, warnings=[]))).text


def test_the_gallery(hostile: Facts) -> None:
    """Nobody labelled, at most a dozen a group, in the order of confidence over threshold, each with its reason."""
    table, split = hostile.decisions, small()[1]
    assert table is not None
    surest, borderline, refused = gallery(table, split)
    above = dict(zip(table.ids.tolist(), (table.confidence - table.tau).tolist()))
    accepted = dict(zip(table.ids.tolist(), table.accepted.tolist()))
    free = [i for i in table.ids.tolist() if i not in set(split.labelled.tolist())]

    def chosen(group: object) -> list[int]:
        return [int(picture.name.split()[-1]) for picture in group.pictures]  # type: ignore[attr-defined]

    assert chosen(surest) == sorted((i for i in free if accepted[i]), key=lambda i: -above[i])[:12]
    assert chosen(borderline) == sorted(free, key=lambda i: abs(above[i]))[:12]
    assert min(len(group.pictures) for group in (surest, borderline, refused)) == 12
    worst = sorted(above[i] for i in free if not accepted[i])[:12]
    assert [above[i] for i in chosen(refused)] == worst
    assert all(p.reason.startswith("refused: ") and p.image.startswith("data:image/png") for p in refused.pictures)
    files = tuple(f"cats/{i}.png" for i in range(len(split.train)))
    named = gallery(table, dataclasses.replace(split, files=files))[0]
    assert [picture.name for picture in named.pictures] == [f"cats/{i}.png" for i in chosen(surest)]


def test_the_mean_of_t(tmp_path: Path) -> None:
    """Of a method with one T for all samples it is that T; rows of any T sum to 1; others have none."""
    for method in ("instant_class", "instant", "fixmatch"):
        run = Run(tmp_path / method)
        recipe, split = points(method)
        trained = fit(recipe, split, run=run)
        found = collect(run, split).transition
        if method == "fixmatch":
            assert found is None
            continue
        assert found is not None
        assert found.sum(1) == pytest.approx(1, abs=1e-5)
        if method == "instant_class":
            with torch.no_grad():
                matrix = trained.learner.method.transitions.estimator(torch.zeros(1, 1), torch.zeros(1, 1))
            assert found == pytest.approx(matrix.numpy(), abs=1e-5)


def test_vectors_have_no_gallery_and_supervised_runs_no_thresholds(tmp_path: Path) -> None:
    for method, said in (("instant", None), ("supervised", "which has no threshold and accepts nobody")):
        run = Run(tmp_path / method)
        recipe, split = points(method)
        fit(recipe, split, run=run)
        page = Page(render(collect(run, split)))
        assert "gallery" not in page.text
        assert ("thresholds" in page.text) == (said is None)
        if said:
            assert said in page.text["classes"]
            assert "it is a baseline itself" in page.text["verdict"]
            with pytest.raises(InputError, match="is a baseline itself and needs none"):
                train_baseline(run, split)


def test_a_method_of_ones_own_that_is_named_is_shown_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reported.py").write_text("from instant.algorithms import instant as method\n")
    monkeypatch.syspath_prepend(tmp_path)
    run = Run(tmp_path / "run")
    recipe, split = points()
    fit(dataclasses.replace(recipe, method="reported:method"), split, run=run)
    with pytest.raises(InputError, match="which is code"):
        collect(run, split)
    facts = collect(run, split, "reported:method")
    assert facts.why_no_decisions == ""
    assert facts.decisions is not None
    assert facts.transition is not None


def test_the_baseline_is_trained_once_and_only_fits_its_run(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    recipe, split = points()
    fit(recipe, split, run=run)
    assert find_baseline(run, split) is None
    kept = train_baseline(run, split)
    assert kept.recipe().method == "supervised"
    written = (kept.path / "summary.json").stat().st_mtime_ns
    assert (train_baseline(run, split).path / "summary.json").stat().st_mtime_ns == written
    facts = collect(run, split)
    assert facts.accuracy.baseline == kept.summary()["accuracy_last"]
    assert "supervised" in Page(render(facts)).text["accuracy-curve"]
    assert find_baseline(run, dataclasses.replace(split, targets=split.targets[::-1])) is None  # other labels
    fit(*points(seed="1"), run=run, force=True)  # another run in the same folder
    assert find_baseline(run, points(seed="1")[1]) is None


def test_a_finished_run_where_the_baseline_goes_is_put_aside(tmp_path: Path) -> None:
    run, notes = Run(tmp_path / "run"), Notes()
    recipe, split = points()
    fit(recipe, split, run=run)
    longer, _ = points("supervised", steps=str(recipe.steps + 1))
    fit(longer, split, run=run.baseline)
    weights = (run.baseline.path / "model.safetensors").read_bytes()
    train_baseline(run, split, callbacks=[notes])
    assert notes.said == [f"{run}/baseline held a run of other settings or data; it is {run}/baseline-1 now."]
    assert (run.path / "baseline-1" / "model.safetensors").read_bytes() == weights
    assert run.baseline.recipe().steps == recipe.steps


def test_a_baseline_that_was_stopped_goes_on(tmp_path: Path) -> None:
    run, notes = Run(tmp_path / "run"), Notes()
    recipe, split = points()
    fit(recipe, split, run=run)
    with pytest.raises(Interrupted):
        train_baseline(run, split, callbacks=[notes, StopAt(2)])
    train_baseline(run, split, callbacks=[notes])
    assert notes.starts == [0, 2]


class Notes(Callback):
    """What a run says, and where it starts."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.starts: list[int] = []

    def start(self, recipe: Recipe, split: Split, step: int) -> None:
        self.starts.append(step)

    def note(self, text: str) -> None:
        self.said.append(text)


def test_the_command_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    tiny = ["steps=6", "labels=10", "batch=8", "ratio=2", "device=cpu"]
    assert main(["train", "digits", *tiny, "--out", str(folder), "--baseline"]) == 0
    first = (folder / "report.html").read_text(encoding="utf-8")
    assert "not trained" not in first
    out = tmp_path / "elsewhere.html"
    assert main(["report", str(folder), "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8") == first
    assert f"report: {out}" in capsys.readouterr().out
    assert main(["report", str(folder), "--out", str(tmp_path / "no" / "such.html")]) == 2
    assert "such.html: there is no folder" in capsys.readouterr().err
    assert main(["report", str(folder), "--out", str(tmp_path / ("x" * 300))]) == 2
    assert "cannot be written (File name too long)" in capsys.readouterr().err
    assert main(["report", str(folder), "--out", str(tmp_path / ("x" * 240 + ".html"))]) == 2  # no room for a temporary
    assert "the report cannot be written to" in capsys.readouterr().err

    def fails(*_: object) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr(instant.report.page, "render", fails)
    assert main(["train", "digits", *tiny, "--out", str(folder), "--force"]) == 0
    assert "the run is kept, but its report is not written (no ink)" in capsys.readouterr().err
    assert Run(folder).finished
    assert not (folder / "report.html").exists()  # that of the run before it is gone


def save_vectors() -> tuple[np.ndarray, np.ndarray]:
    """x.npz in the folder where one is, all of it labelled."""
    x, y = np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 2
    np.savez("x.npz", x=x, y=y)
    return x, y


def test_ctrl_c_during_the_baseline_leaves_the_run_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_vectors()

    def stop(bar: ProgressBar, step: int) -> None:
        if Run("run").finished and step == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ProgressBar, "step", stop)
    tiny = ["steps=2", "batch=4", "ratio=2", "device=cpu", "validation=2"]
    assert main(["train", "x.npz", *tiny, "--out", "run", "--baseline"]) == 130
    told = capsys.readouterr()
    assert (
        "run is finished, and its report is written without a baseline; for one: instant report run --with" in told.out
    )
    assert Path("run/report.html").exists()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["report", "run", "--with-baseline"]) == 0
    assert Run("run/baseline").finished


def test_no_baseline_is_trained_where_nothing_could_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    truth = np.arange(40) % 2
    x = np.random.default_rng(0).normal(size=(40, 4)) + 6 * truth[:, None]
    np.savez("x.npz", x=x, y=np.where(np.arange(40) < 8, truth, -1))
    tiny = ["steps=4", "batch=4", "ratio=2", "device=cpu", "--out", "run"]
    sentence = "No baseline is trained: no labels are held out to compare accuracies on"
    assert main(["train", "x.npz", *tiny, "--baseline"]) == 0
    out = capsys.readouterr().out
    assert out.count(sentence) == 1
    assert out.index(sentence) < out.index("x: 40 samples, 8 of them labelled")  # before the time is spent
    assert main(["report", "run", "--with-baseline"]) == 0
    assert capsys.readouterr().out.count(sentence) == 1
    assert not Path("run/baseline").exists()
    page = Page(Path("run/report.html").read_text(encoding="utf-8"))
    assert (page.text["value"], page.text["baseline"]) == ("not known", "not known")
    assert page.text["verdict"].startswith("There are no test or validation labels, so accuracy is not known.")
    assert "--with-baseline" not in page.text["verdict"]
    assert main(["train", "x.npz", *tiny, "--force", "--baseline", "validation=2"]) == 0
    assert sentence not in capsys.readouterr().out
    assert Run("run/baseline").finished


def test_what_trains_a_baseline_can_be_pasted_and_other_data_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x, y = save_vectors()
    tiny = ["steps=2", "batch=4", "ratio=2", "device=cpu", "validation=2"]
    assert main(["train", "x.npz", *tiny, "--out", "my run"]) == 0
    assert "Train one with: instant report 'my run' --with-baseline\n" in capsys.readouterr().out
    page = Path("my run/report.html").read_bytes()
    assert "instant report 'my run' --with-baseline" in Page(page.decode()).text["verdict"]
    np.savez("x.npz", x=x, y=1 - y)
    assert main(["report", "my run", "--with-baseline"]) == 2
    assert "of my run have changed" in capsys.readouterr().err
    assert (Path("my run/report.html").read_bytes(), Path("my run/baseline").exists()) == (page, False)


def test_a_baseline_of_a_baseline_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "train",
        "digits",
        "steps=2",
        "device=cpu",
        "method=supervised",
        "--baseline",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    assert "method=supervised is a baseline itself and needs none" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_warning_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """During training, and not again after it; `instant report` says it again."""
    tiny = ["steps=8", "labels=10", "batch=8", "ratio=2", "log_every=2", "device=cpu", "method.base=1"]
    assert main(["train", "digits", *tiny, "method.relative=false", "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.count("Thresholds are stuck at 1") == 1
    assert main(["report", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.count("Thresholds are stuck at 1") == 1


def test_an_unfinished_run_has_none(finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(finished.path, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    assert main(["report", str(tmp_path / "run")]) == 2
    assert "the run did not finish; go on with: instant train --resume" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["model.safetensors", "reference.safetensors", "checkpoint/state.safetensors"])
@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_run_keeps_its_page(
    name: str, cut: bool, finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished.path, tmp_path / "run")
    page, file = tmp_path / "run" / "report.html", tmp_path / "run" / name
    page.write_text("the good one")
    content = file.read_bytes()
    file.unlink()
    if cut:
        file.write_bytes(content[: len(content) // 2])
    assert main(["report", str(tmp_path / "run")]) == 2
    assert file.name in capsys.readouterr().err
    assert page.read_text() == "the good one"


@pytest.mark.parametrize(("method", "expected"), [("mixmatch", True), ("supervised", False)])
def test_that_a_report_shows_no_accepted_labels_is_said_where_one_would_look_for_some(
    method: str, expected: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, split = points(method)
    fit(recipe, split, run=Run(tmp_path))
    show_report(Run(tmp_path), split, with_baseline=False)
    assert ("The report shows no accepted labels:" in capsys.readouterr().out) == expected


def test_writing_keeps_the_page_before_it_when_it_fails(
    finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "page.html"
    path, _ = write_report(finished, small()[1], out)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(InputError, match="No space left on device"):
        write_report(finished, small()[1], out)
    assert out.read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]


def test_a_line_by_hand() -> None:
    """From 48 to 348 across, from 12 down to 176: 100 % is at the top, half the steps in the middle."""
    text = line_chart("t", [Series("a", [(0, 0.0), (50, 0.5), (100, 1.0)])], steps=100)
    assert 'points="48.0,176.0 198.0,94.0 348.0,12.0"' in text
    assert text.count("%</text>") == 5
    many = line_chart("t", [Series("a", [(i, i / 1000) for i in range(1001)])], steps=1000)
    line = re.search(r'<polyline[^>]*points="([^"]*)"', many)
    assert line is not None
    ends = line[1].split()
    assert (len(ends), ends[0], ends[-1]) == (300, "48.0,176.0", "348.0,12.0")


def test_bars_and_cells_by_hand() -> None:
    bars = pair_bars("t", ["a", "b"], [0.75, 0.25], [0.5, 0.5])
    widths = [float(w) for w in re.findall(r'class="bar s\d" [^>]*width="([\d.]+)"', bars)]
    assert np.array(widths) / widths[0] == pytest.approx([1, 2 / 3, 1 / 3, 2 / 3], abs=1e-3)
    cells = heat_map("t", ["a", "b"], np.array([[0.9, 0.1], [0.25, 0.75]]))
    assert re.findall(r'fill-opacity="([\d.]+)"', cells) == ["0.900", "0.100", "0.250", "0.750"]
    assert "b called a: 25.0 %" in cells
    large = heat_map("t", [str(k) for k in range(100)], np.eye(100))
    assert large.count("<rect") == 1
    assert len(large) < 20_000


def test_strips_by_hand() -> None:
    """From 0.8 to 1 the faintest is 0.08 and the darkest 1; 0.9 is (0.08 + 1) / 2; what is not known is not drawn."""
    text = strips("t", ["a", "b"], np.array([[0.8, 0.9], [1.0, np.nan]]), steps=100)
    assert re.findall(r'fill-opacity="([\d.]+)"', text) == ["0.080", "0.540", "1.000"]
    assert "a, about step 100: 0.900" in text
    assert re.findall(r'text-anchor="end">([\d.]+)</text>', text) == ["0.900", "1.000", "100"]
    large = strips("t", [str(k) for k in range(100)], np.full((100, 30), 0.9), steps=100)
    assert large.count("<rect") == 0
    assert large.count("<image") == 1


def test_thresholds_per_class_over_time(facts: Facts) -> None:
    """Sixty records become thirty columns of the mean of two; a class that nobody was called is left out of it."""
    rows = [[0.8, None if t % 2 else 1.0, None] for t in range(60)]
    records = [{"step": t, "threshold_by_class": row} for t, row in enumerate(rows)]
    three = dataclasses.replace(facts, records=records, classes=("a", "b", "c"))
    chart = str(class_thresholds(three))
    assert chart.count("<rect") == 2 * 30
    assert re.findall(r'text-anchor="end">([\d.]+|none)</text>', chart)[:3] == ["0.800", "1.000", "none"]
    assert class_thresholds(dataclasses.replace(facts, records=[{"step": 1}])) is None
    assert "class-thresholds" in Page(render(facts)).text
