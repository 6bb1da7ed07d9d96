"""Audits of a run: the sample is random and fixed, a sheet is the whole sample, and looks are counted."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from math import comb
from pathlib import Path

import numpy as np
import pytest
from runs import points, small

from instant.cli import main
from instant.config import Recipe
from instant.data.split import Split
from instant.engine.fit import fit
from instant.errors import InputError
from instant.labelling.audit import Audit, certify_run, draw_sample
from instant.labelling.decisions import decide
from instant.labelling.sheet import read_sheet, write_sheet
from instant.run import Run

Capture = pytest.CaptureFixture[str]


def accepting(method: str = "instant") -> tuple[Recipe, Split]:
    """Points of three classes with a low bar: most are accepted, some of them wrong."""
    return points(method, **{"steps": "40", "optim.lr": "0.03", "method.base": "0.5"})


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("audited") / "run")
    fit(*accepting(), run=run)
    return run


@pytest.fixture
def run(original: Run, tmp_path: Path) -> Run:
    shutil.copytree(original.path, tmp_path / "run")
    return Run(tmp_path / "run")


@pytest.fixture(scope="module")
def split() -> Split:
    return accepting()[1]


def fill(run: Run, path: Path, *, wrong: int = 0) -> Path:
    """The drawn sample, labelled as it was predicted but for the first few."""
    audit = Audit.of(run)
    assert audit is not None
    labels = ["?"] * wrong + audit.predicted[wrong:]
    write_sheet(path, audit.drawn, dict(zip(audit.drawn, labels)))
    return path


def test_files_are_drawn_by_their_names(run: Run, split: Split, tmp_path: Path) -> None:
    named = dataclasses.replace(split, files=tuple(f"{i}.png" for i in range(len(split.train))))
    of_files = Run(tmp_path / "named")
    fit(accepting()[0], named, run=of_files)
    assert draw_sample(of_files, named, 5).drawn == [f"{i}.png" for i in draw_sample(run, split, 5).drawn]


def test_the_sample_is_of_accepted_samples_nobody_labelled(run: Run, split: Split) -> None:
    found = decide(run, split)
    audit = draw_sample(run, split, 50)
    label = dict(zip(found.ids.tolist(), found.label))
    accepted = set(found.ids[found.accepted].tolist()) - set(split.labelled.tolist())
    assert found.accepted[np.isin(found.ids, split.labelled)].any()  # some labelled ones would have been accepted
    drawn = [int(i) for i in audit.drawn]
    assert len(set(drawn)) == 50
    assert set(drawn) <= accepted
    assert audit.predicted == [split.classes[label[i]] for i in drawn]
    assert sum(audit.population.values()) == len(accepted)
    assert Audit.of(run) == audit


def test_a_larger_draw_contains_the_smaller(run: Run, split: Split) -> None:
    first = draw_sample(run, split, 20)
    assert draw_sample(run, split, 20) == first
    second = draw_sample(run, split, 45)
    assert second.drawn[:20] == first.drawn
    with pytest.raises(InputError, match="--draw 20: 45 were drawn before"):
        draw_sample(run, split, 20)
    with pytest.raises(InputError, match="drawn with --seed 0"):
        draw_sample(run, split, 50, seed=1)
    with pytest.raises(InputError, match="drawn with --looks 1"):
        draw_sample(run, split, 50, planned=2)


def test_the_seed_chooses(run: Run, split: Split) -> None:
    first = draw_sample(run, split, 20)
    (run.path / "audit.json").unlink()
    assert set(draw_sample(run, split, 20, seed=1).drawn) != set(first.drawn)


def test_draws_are_uniform(run: Run, split: Split) -> None:
    """Twenty draws of 20: the ranks of the ids average to the middle, within four standard errors."""
    found = decide(run, split)
    accepted = np.sort(found.ids[found.accepted & ~np.isin(found.ids, split.labelled)])
    ranks = []
    for seed in range(20):
        (run.path / "audit.json").unlink(missing_ok=True)
        drawn = np.array([int(i) for i in draw_sample(run, split, 20, seed=seed).drawn])
        ranks.append(np.searchsorted(accepted, drawn) / len(accepted))
    assert np.mean(ranks) == pytest.approx(0.5, abs=4 * 12**-0.5 / 400**0.5)


def test_what_cannot_be_drawn(run: Run, split: Split) -> None:
    for count in (0, 5000):
        with pytest.raises(InputError, match=rf"--draw {count}: expected from 1 to \d+, the accepted samples"):
            draw_sample(run, split, count)
    with pytest.raises(InputError, match="--looks 0 must be 1 or more"):
        draw_sample(run, split, 5, planned=0)
    draw_sample(run, split, 5)
    record = json.loads((run.path / "audit.json").read_text())
    (run.path / "audit.json").write_text(json.dumps(record | {"fingerprint": "another"}))
    with pytest.raises(InputError, match="other samples are accepted now"):
        draw_sample(run, split, 5)
    del record["drawn"]
    (run.path / "audit.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"audit\.json has no 'drawn'; it is damaged"):
        Audit.of(run)


# --- the sheet ------------------------------------------------------------------------------------------------

DRAWN, CLASSES = ["4", "8", "15"], ("cat", "dog")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id,label\n4,cat\n8,dog\n4,cat\n15,dog\n", "line 4: id 4 is there twice"),
        ("id,label\n4,cat\n8,dog\n16,cat\n", "line 4: id 16 is not one of the 3 that were drawn"),
        ("id,label\n4,cat\n8,dgo\n15,cat\n", "line 3: 'dgo' is no class of this run; did you mean 'dog'?"),
        ("id,label\n4,cat\n8,\n15,\n", "2 of 3 rows have no label, the first in line 3"),
        ("id,label\n4,cat\n8\n15,dog\n", "1 of 3 rows have no label, the first in line 3"),
        ("id,label\n4,cat\n8,dog\n", "1 of the 3 rows that were drawn are missing"),
        ("4,cat\n8,dog\n", "columns id and label, separated by commas, semicolons or tabs, got '4', 'cat'"),
        ("id|label\n4|cat\n", "separated by commas, semicolons or tabs, got 'id.label'"),
        (
            "sep=;\nid;label\n4;cat; tabby\n8;dog;;\n",
            "line 3: expected 2 cells as in the first line, got 3 .* Put quotes around a name with a semicolon",
        ),
        ("", "columns id and label, separated by commas, semicolons or tabs, got nothing"),
    ],
)
def test_a_sheet_is_the_whole_sample_and_nothing_else(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "checked.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence.replace("?", r"\?")):
        read_sheet(path, DRAWN, CLASSES)


@pytest.mark.parametrize("head", ["id,label;", "id,label", "id,predicted,label;"])
def test_a_sheet_of_an_excel_that_parts_by_semicolons(head: str, tmp_path: Path) -> None:
    """It shows a line in one cell, and what is filled in beside it goes behind a semicolon."""
    path = tmp_path / "checked.csv"
    between = "dog," if "predicted" in head else ""
    rows = [f"{number},{between};{label}" for number, label in (("15", "dog"), ("4", "cat"), ("8", "?"))]
    path.write_text("\r\n".join([head, *rows]))
    assert read_sheet(path, DRAWN, CLASSES) == {"4": "cat", "8": "?", "15": "dog"}


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_sheets_as_spreadsheets_write_them(separator: str, tmp_path: Path) -> None:
    """A mark in front, other separators, other line ends, rows in another order, a column of notes."""
    path = tmp_path / "checked.csv"
    rows = [["id", "label", "notes"], ["15", " dog ", "hm"], ["4", "cat", ""], ["8", "?", "dark"]]
    path.write_bytes("\ufeff".encode() + "\r\n".join(separator.join(row) for row in rows).encode())
    assert read_sheet(path, DRAWN, CLASSES) == {"4": "cat", "8": "?", "15": "dog"}


@pytest.mark.parametrize("head", ["ID;Label;note", "Id; LABEL ;note", "id;label;Label", "id;label;ID"])
def test_columns_of_a_sheet_in_any_case(head: str, tmp_path: Path) -> None:
    path = tmp_path / "checked.csv"
    path.write_text(f"{head}\n4;cat;x\n8;dog;y\n15;?;z\n")
    assert read_sheet(path, DRAWN, CLASSES) == {"4": "cat", "8": "dog", "15": "?"}


@pytest.mark.parametrize("head", ["id;label;sure, or not, or so", "sep=;\nid;label;note", '"sep=;"\r\nid;label;note'])
def test_the_separator_of_a_sheet_is_that_of_its_columns(head: str, tmp_path: Path) -> None:
    path = tmp_path / "checked.csv"
    path.write_text(f"{head}\n4;cat;x, y\n8;dog\n\n15;?\n", newline="")
    assert read_sheet(path, DRAWN, CLASSES) == {"4": "cat", "8": "dog", "15": "?"}


def test_empty_rows_and_spaces_that_belong_to_a_name(tmp_path: Path) -> None:
    path = tmp_path / "checked.csv"
    path.write_text("id,label\n a.png, cat \nb.png,dog\n,\n,,\n")
    assert read_sheet(path, [" a.png", "b.png"], (" cat ", "dog")) == {" a.png": " cat ", "b.png": "dog"}


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "todo.csv"
    write_sheet(path, DRAWN, {"8": "dog, large"})
    assert list(csv.reader(path.open())) == [["id", "label"], ["4", ""], ["8", "dog, large"], ["15", ""]]
    write_sheet(path, DRAWN, {}, ["cat", "dog", "dog"])
    assert path.read_text().splitlines()[:2] == ["id,predicted,label", "4,cat,"]
    with pytest.raises(InputError, match="cannot be written"):
        write_sheet(tmp_path / "no" / "todo.csv", DRAWN, {})


def test_a_sheet_with_names_that_are_not_ascii_says_its_encoding(tmp_path: Path) -> None:
    """Without the mark Excel shows and saves other names, which then are not those that were drawn."""
    path = tmp_path / "todo.csv"
    write_sheet(path, ["B\u00e4ume.png", "a.png"], {"B\u00e4ume.png": "cat", "a.png": "dog"})
    assert path.read_bytes() == b"\xef\xbb\xbfid,label\nB\xc3\xa4ume.png,cat\na.png,dog\n"
    assert read_sheet(path, ["B\u00e4ume.png", "a.png"], CLASSES) == {"B\u00e4ume.png": "cat", "a.png": "dog"}
    write_sheet(path, ["a.png"], {})
    assert path.read_bytes() == b"id,label\na.png,\n"


def test_a_sheet_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "image.csv").write_bytes(b"\xff\xfe\x00\xd8")
    for name, advice in (("image.csv", ".*; save it as csv in UTF-8"), ("nothing.csv", "")):
        with pytest.raises(InputError, match=f"{name} cannot be read{advice}"):
            read_sheet(tmp_path / name, DRAWN, CLASSES)
    (tmp_path / "open.csv").write_text('id,label\n4,"cat\n' + 200_000 * "x")
    with pytest.raises(InputError, match=r"cannot be read \(a quote is left open in line 2\)"):
        read_sheet(tmp_path / "open.csv", DRAWN, CLASSES)


# --- the certificate of a run ---------------------------------------------------------------------------------


def none_wrong(audit: Audit, share: float) -> float:
    """The precision with as many wrong labels as leave a sample without one a chance above `share`."""
    everyone, checks = sum(audit.population.values()), len(audit.drawn)
    all_samples = comb(everyone, checks)
    wrong = next(w for w in range(everyone) if comb(everyone - w - 1, checks) <= share * all_samples)
    return 1 - wrong / everyone


def test_the_certificate_counts_everything(run: Run, split: Split, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no sample was drawn from"):
        certify_run(run, tmp_path / "todo.csv")
    audit = draw_sample(run, split, 59)
    found = certify_run(run, fill(run, tmp_path / "todo.csv"), target=0.95)
    assert found.certified
    assert found.lower == pytest.approx(none_wrong(audit, 0.05))
    assert (found.accepted, found.checked, found.errors) == (sum(audit.population.values()), 59, 0)
    assert {b.name: b.accepted for b in found.classes} == {k: n for k, n in audit.population.items() if n}
    assert sum(bound.checked for bound in found.classes) == 59
    assert found.budget == {"training": 6, "checks": 59, "total": 65}
    assert certify_run(run, fill(run, tmp_path / "todo.csv", wrong=2)).errors == 2  # what nobody can tell is wrong


def test_nobody_can_tell_is_wrong_even_where_a_class_is_called_so(run: Run, split: Split, tmp_path: Path) -> None:
    draw_sample(run, split, 10)
    for name in ("audit.json", "split.json"):
        path = run.path / name
        path.write_text(path.read_text().replace(f'"{split.classes[0]}"', '"?"'))
    audit = Audit.of(run)
    assert audit is not None
    called = audit.predicted.count("?")
    assert called > 0
    assert certify_run(run, fill(run, tmp_path / "todo.csv")).errors == called


def test_a_class_may_be_called_none(run: Run, split: Split, tmp_path: Path) -> None:
    """Though nothing is accepted as that."""
    draw_sample(run, split, 10)
    record = json.loads((run.path / "split.json").read_text())
    record["classes"] = ["None", *record["classes"]]
    (run.path / "split.json").write_text(json.dumps(record))
    sheet = fill(run, tmp_path / "todo.csv")
    first, *rest = sheet.read_text().splitlines()
    place = first.split(",").index("label")
    cells = rest[0].split(",")
    cells[place] = "None"
    sheet.write_text("\n".join([first, ",".join(cells), *rest[1:]]) + "\n")
    found = certify_run(run, sheet)
    assert found.errors == 1
    assert {bound.name for bound in found.classes} <= set(split.classes)


def test_every_planned_look_has_its_share(run: Run, split: Split, tmp_path: Path) -> None:
    for count in (30, 60):
        audit = draw_sample(run, split, count, planned=2)
        found = certify_run(run, fill(run, tmp_path / "todo.csv"))
        assert (found.confidence, found.candidates) == (0.95, 2)
        assert found.lower == pytest.approx(none_wrong(audit, 0.025))
    again = certify_run(run, fill(run, tmp_path / "todo.csv", wrong=1), candidates=3)  # a correction is no new look
    assert (again.confidence, again.candidates) == (0.95, 6)


def test_a_look_that_was_not_planned_costs_confidence(run: Run, split: Split, tmp_path: Path) -> None:
    """Two looks at 4 % each: both bounds hold with 92 %. The thirteenth would leave less than one half."""
    for looks, count in enumerate(range(20, 32), start=1):
        audit = draw_sample(run, split, count)
        found = certify_run(run, fill(run, tmp_path / "todo.csv"), confidence=0.96)
        assert found.confidence == pytest.approx(1 - 0.04 * looks)
        assert found.lower == pytest.approx(none_wrong(audit, 0.04))
        assert f"with {100 - 4 * looks} % confidence" in audit.outlook(0.95, 0.96)
    draw_sample(run, split, 32)
    with pytest.raises(InputError, match="look 13 at a sample planned for 1"):
        certify_run(run, fill(run, tmp_path / "todo.csv"), confidence=0.96)


def test_labels_given_before_are_in_the_next_sheet(run: Run, split: Split, tmp_path: Path) -> None:
    draw_sample(run, split, 3, planned=2)
    certify_run(run, fill(run, tmp_path / "todo.csv", wrong=1))
    audit = draw_sample(run, split, 4)
    assert [audit.labels.get(i, "") for i in audit.drawn] == ["?", *audit.predicted[1:3], ""]


# --- the command ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on data the command can find again; that all is accepted makes the numbers those of any processor."""
    run = Run(tmp_path_factory.mktemp("named") / "run")
    fit(*small("fixmatch", **{"method.threshold": "0"}), run=run)
    return run


def test_the_command_from_draw_to_certificate(named: Run, tmp_path: Path, capsys: Capture) -> None:
    run, sheet, folder = named, tmp_path / "todo.csv", str(named)
    assert main(["certify", folder]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "59 random checks with 0 wrong certify 95 % precision.",
        "93 random checks with 1 wrong certify 95 % precision.",
    ]
    assert main(["certify", folder, "--draw", "38", "--out", str(sheet), "--looks", "2"]) == 0
    said = capsys.readouterr().out
    assert " accepted samples that nobody labelled are drawn." in said  # fewer than instant label says
    assert f"then: instant certify {folder} --labels {sheet}" in said
    assert "certify 90.8 % precision, with 95 % confidence; 95 % needs 70." in said
    assert sheet.read_text().splitlines()[0] == "id,label"  # nobody is told what was predicted
    assert main(["certify", folder, "--draw", "38", "--out", str(sheet)]) == 2
    assert "is there already; choose another name, or add --force." in capsys.readouterr().err
    assert main(["certify", folder, "--labels", str(sheet)]) == 2
    assert "38 of 38 rows have no label" in capsys.readouterr().err
    fill(run, sheet)
    assert main(["certify", folder, "--labels", str(sheet), "--target", "0.95"]) == 1
    said = capsys.readouterr().out
    assert "NOT certified: 38 checks with 0 errors support at most 90.8 %; 95 % needs 70 with 0 errors." in said
    assert "Labels spent: 10 to train + 38 to check = 48." in said
    assert main(["certify", folder, "--labels", str(sheet), "--target", "0.9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certified"] is True
    assert main(["certify", folder, "--draw", "72", "--out", str(sheet), "--force", "--show"]) == 0
    rows = list(csv.DictReader(sheet.open()))
    assert [row["label"] == row["predicted"] for row in rows] == [True] * 38 + [False] * 34
    fill(run, sheet)
    assert main(["certify", folder, "--labels", str(sheet)]) == 0
    capsys.readouterr()
    assert main(["certify", folder, "--draw", "73", "--out", str(sheet), "--force"]) == 0
    fill(run, sheet)
    assert main(["certify", folder, "--labels", str(sheet), "--target", "0.9"]) == 1
    out, complaint = capsys.readouterr()
    assert "with 92.5 % confidence, corrected for a choice among 3" in out
    assert complaint == "95 % confidence is spent: there were more looks than planned.\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--draw", "5"], "give --draw N and --out todo.csv"),
        (["--out", "x.csv"], "give --draw N and --out todo.csv"),
        (["--draw", "5", "--out", "x.csv", "--labels", "y.csv"], "give --draw N and --out todo.csv"),
        (["--target", "2"], "--target 2 must be above 0 and below 1"),
        (["--confidence", "95"], "confidence=95.0 must be from 0.5 to below 1"),
        (["--candidates", "0"], "candidates=0 must be a whole number from 1"),
        (["--labels", "nothing.csv"], "no sample was drawn from"),
        (["--looks", "0"], "--looks 0 must be 1 or more"),
        (["--labels", "x.csv", "--looks", "2"], "--looks goes with --draw"),
        (["--labels", "x.csv", "--seed", "0"], "--seed goes with --draw"),
        (["--show"], "--show goes with --draw"),
        (["--json"], "--json prints the certificate, and needs --labels"),
        (["--draw", "5", "--out", "/", "--force"], "/ is a folder; name a file in it."),
    ],
)
def test_the_commands_mistakes(words: list[str], sentence: str, run: Run, capsys: Capture) -> None:
    assert main(["certify", str(run), *words]) == 2
    out, complaint = capsys.readouterr()
    assert (out, complaint.count("\n")) == ("", 1)
    assert sentence in complaint


def test_a_folder_that_is_no_run(tmp_path: Path, capsys: Capture) -> None:
    for words in (["--draw", "5", "--out", str(tmp_path / "x.csv")], []):
        assert main(["certify", str(tmp_path), *words]) == 2
        assert "it is no run folder" in capsys.readouterr().err


def test_a_run_that_is_not_finished(tmp_path: Path, run: Run, capsys: Capture) -> None:
    shutil.copytree(run.path, tmp_path / "cut")
    (tmp_path / "cut" / "summary.json").unlink()
    assert main(["certify", str(tmp_path / "cut")]) == 2
    assert "the run did not finish; go on with: instant train --resume" in capsys.readouterr().err


def test_a_plan_counts_every_correction(tmp_path: Path, named: Run, capsys: Capture) -> None:
    """Two candidates, two looks: 0.0125 for each. Of endless labels 0.95^86 = 0.0121; of these few, 83 are enough."""
    folder = tmp_path / "my run"
    shutil.copytree(named.path, folder)
    (folder / "audit.json").unlink(missing_ok=True)
    words = ["--draw", "20", "--out", str(tmp_path / "to do.csv"), "--looks", "2", "--candidates", "2"]
    assert main(["certify", str(folder), *words]) == 0
    drawn, outlook = capsys.readouterr().out.splitlines()
    assert drawn.endswith(f"instant certify '{folder}' --labels '{tmp_path / 'to do.csv'}' --candidates 2")
    assert outlook == "If none is wrong they certify 80.5 % precision, with 95 % confidence; 95 % needs 83."
    assert main(["certify", str(folder), "--candidates", "2"]) == 0  # the sample has its looks by now
    assert capsys.readouterr().out.startswith("83 random checks with 0 wrong certify 95 % precision.")
    assert main(["certify", str(folder), "--target", "0.999", "--looks", "1"]) == 0
    said = capsys.readouterr().out.splitlines()  # one of these 1,427 may be wrong
    assert [line.split(" ")[1] for line in said] == ["random", "random", "2"]
    assert said[-1] == "With 2 wrong not even checking all 1,427 certifies 99.9 % precision."


def test_a_folder_does_not_choose_what_is_imported(tmp_path: Path, named: Run, capsys: Capture) -> None:
    folder = tmp_path / "run"
    shutil.copytree(named.path, folder)
    (folder / "audit.json").unlink(missing_ok=True)
    record = json.loads((folder / "recipe.json").read_text())
    record["recipe"]["method"] = "somebody.elses:code"
    (folder / "recipe.json").write_text(json.dumps(record))
    words = ["certify", str(folder), "--draw", "5", "--out", str(tmp_path / "todo.csv")]
    assert main(words) == 2
    assert "not trusted to run any" in capsys.readouterr().err
    assert main([*words, "--method", "instant.algorithms:fixmatch"]) == 0


def test_a_draw_whose_sheet_cannot_be_written_is_none(run: Run, split: Split, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        draw_sample(run, split, 5, sheet=tmp_path / "no folder" / "todo.csv")
    assert Audit.of(run) is None
    draw_sample(run, split, 5, sheet=tmp_path / "todo.csv", show=True)
    assert (tmp_path / "todo.csv").read_text().startswith("id,predicted,label\n")
    before = Audit.of(run)
    with pytest.raises(InputError, match="cannot be written"):
        draw_sample(run, split, 8, sheet=tmp_path / "no folder" / "todo.csv")
    assert Audit.of(run) == before


@pytest.mark.parametrize(
    "change",
    [
        {"planned": None}, {"planned": 0}, {"population": 5}, {"population": {}}, {"population": {"1": -67}},
        {"predicted": None}, {"predicted": []}, {"drawn": 5}, {"looks": ["x"]}, {"labels": []},
    ],
)  # fmt: skip
def test_an_audit_that_was_changed_is_a_sentence(change: dict, run: Run, split: Split) -> None:
    draw_sample(run, split, 5)
    record = json.loads((run.path / "audit.json").read_text())
    (run.path / "audit.json").write_text(json.dumps(record | change))
    with pytest.raises(InputError, match=r"audit\.json has .*; it is damaged\. Remove it and draw again\."):
        Audit.of(run)


def test_an_audit_of_other_classes_is_a_sentence(run: Run, split: Split, tmp_path: Path) -> None:
    audit = draw_sample(run, split, 5)
    run.save_audit(dataclasses.asdict(dataclasses.replace(audit, population=audit.population | {"cat": 3})))
    with pytest.raises(InputError, match=r"is of other classes \(cat\)"):
        certify_run(run, fill(run, tmp_path / "todo.csv"))


def test_a_class_may_be_written_in_other_capitals(tmp_path: Path) -> None:
    (tmp_path / "todo.csv").write_text("id,label\n1, ROT \n2,1.0\n3,A\n4,a\n")
    assert read_sheet(tmp_path / "todo.csv", ["1", "2", "3", "4"], ["rot", "1", "A", "a"]) == {
        "1": "rot", "2": "1", "3": "A", "4": "a"
    }  # fmt: skip


def test_training_anew_forgets_the_audit(run: Run, split: Split) -> None:
    draw_sample(run, split, 5)
    fit(*points(steps="1"), run=run, force=True)
    assert Audit.of(run) is None


def test_the_whole_of_it_on_known_truth(run: Run, split: Split, tmp_path: Path) -> None:
    """Labels from the data itself: the bound is below the precision of all accepted samples."""
    truth = np.arange(120) % 3
    audit = draw_sample(run, split, 60)
    write_sheet(tmp_path / "todo.csv", audit.drawn, {i: split.classes[truth[int(i)]] for i in audit.drawn})
    bound = certify_run(run, tmp_path / "todo.csv")
    found = decide(run, split)
    rows = found.accepted & ~np.isin(found.ids, split.labelled)
    precision = (found.label == truth[found.ids])[rows].mean()
    assert 0 < bound.errors < 30
    assert precision - 0.2 < bound.lower < precision
