"""A folder and its labels to a source: layouts, matching, and what is wrong."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from folders import labelled, photos, plain, read

from instant.data.folder.labels import match_labels, ways
from instant.data.folder.listing import list_images, list_unlabelled
from instant.data.folder.problems import Flaw, write_problems
from instant.data.folder.read import read_again, read_own
from instant.data.folder.survey import Survey
from instant.data.folder.table import read_table
from instant.errors import InputError

# --- layouts ----------------------------------------------------------------------------------------------------

pytestmark = pytest.mark.usefixtures("home")


def test_a_folder_with_a_table(tmp_path: Path) -> None:
    table = photos(tmp_path / "photos", count=6, labelled=4)
    source, flaws = read(tmp_path / "photos", table)
    assert flaws == {}
    assert source.classes == ("cat", "dog")
    assert list(source.files) == [f"{number:03d}.png" for number in range(6)]
    assert source.targets.tolist() == [0, 1, 0, 1, -1, -1]
    assert source.train.samples.shape == (6, 3, 8, 8)
    assert isinstance(source.train.samples, np.memmap)
    assert len(source.test) == 0


def test_rows_are_the_files_they_say(tmp_path: Path) -> None:
    (tmp_path / "p" / "deep").mkdir(parents=True)
    for level, name in ((10, "b.png"), (20, "a.png"), (30, "deep/c.png")):
        plain((level, 0, 0)).save(tmp_path / "p" / name)
    (tmp_path / "p" / "aa.png").write_text("no image, between two that are")
    (tmp_path / "l.csv").write_text("file,label\na.png,x\nb.png,y\n")
    source, _ = read(tmp_path / "p", tmp_path / "l.csv")
    assert dict(zip(source.files, source.train.samples[:, 0, 0, 0].tolist())) == {
        "a.png": 20,
        "b.png": 10,
        "deep/c.png": 30,
    }
    assert source.targets.tolist() == [0, 1, -1]
    # red: 10, 20 and 30 of 255 have the mean 20 and the deviation sqrt(200 / 3)
    assert source.mean == pytest.approx((20 / 255, 0, 0))
    assert source.std == pytest.approx((np.sqrt(200 / 3) / 255, 1, 1))


def test_a_folder_named_for_no_label_is_no_class(tmp_path: Path) -> None:
    for name in ("cat", "dog ", "-1", "nan"):
        (tmp_path / "p" / "labelled" / name).mkdir(parents=True)
        plain((9, 9, 9)).save(tmp_path / "p" / "labelled" / name / "1.png")
    source, flaws = read(tmp_path / "p")
    assert source.classes == ("cat", "dog")
    assert flaws["labelled/-1/1.png"] == "'-1' stands for no label; it counts as unlabelled"
    assert flaws["labelled/nan/1.png"] == "'nan' stands for no label; it counts as unlabelled"
    assert len(source.train) == 4


def test_deleted_photos_of_a_windows_drive_are_none(tmp_path: Path) -> None:
    for name in ("a.png", "$RECYCLE.BIN/S-1-5/b.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        plain((9, 9, 9)).save(tmp_path / name)
    assert list(list_unlabelled(tmp_path, []).names) == ["a.png"]


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for name in (
        "labelled/cat/1.png",
        "labelled/10/1.png",
        "labelled/2/1.png",
        "unlabelled/1.png",
        "labelled/stray.png",
    ):
        (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        plain((9, 9, 9)).save(tmp_path / "p" / name)
    source, flaws = read(tmp_path / "p")
    assert source.classes == ("2", "10", "cat")
    assert labelled(source) == {"labelled/2/1.png": "2", "labelled/10/1.png": "10", "labelled/cat/1.png": "cat"}
    assert "no class's folder" in flaws["labelled/stray.png"]
    assert len(source.train) == 5
    (tmp_path / "p" / "labelled").rename(tmp_path / "p" / "Labeled")
    assert read(tmp_path / "p")[0].classes == ("2", "10", "cat")
    (tmp_path / "l.csv").write_text("file,label\nunlabelled/1.png,cat\nLabeled/2/1.png,dog\n")
    source, flaws = read(tmp_path / "p", tmp_path / "l.csv")
    assert (source.classes, "are not used" in flaws["Labeled"]) == (("cat", "dog"), True)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_of_paths(tmp_path: Path, kind: str) -> None:
    photos(tmp_path / "p", count=4)
    rows = {
        "path": [f"p/{n:03d}.png" for n in range(3)] + ["p/gone.png", "../x.png"],
        "class": ["007", "NA", None, "NA", "NA"],
    }
    frame, path = pd.DataFrame(rows), tmp_path / f"all.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    source, flaws = read(path)
    assert labelled(source) == {"p/000.png": "007", "p/001.png": "NA"}
    assert list(source.files) == ["p/000.png", "p/001.png", "p/002.png"]
    assert "no image of this name" in flaws["p/gone.png"]
    assert "outside the folder" in flaws["../x.png"]


def test_numbers_in_a_parquet_are_classes_too(tmp_path: Path) -> None:
    photos(tmp_path / "p", count=6)
    values = [3.0, 10.0, float("nan"), -1.0]
    pd.DataFrame({"file": [f"{n:03d}.png" for n in range(4)], "label": values}).to_parquet(tmp_path / "l.parquet")
    source, _ = read(tmp_path / "p", tmp_path / "l.parquet")
    assert labelled(source) == {"000.png": "3", "001.png": "10"}


def test_numbers_that_pandas_wrote_beside_missing_ones(tmp_path: Path) -> None:
    photos(tmp_path / "p", count=6)
    labels = ["0.0", "1.0", "-1.0", "nan", "None", "1.0"]
    rows = "".join(f"{n:03d}.png,{label}\n" for n, label in enumerate(labels))
    (tmp_path / "l.csv").write_text(f"file,label\n{rows}")
    source, _ = read(tmp_path / "p", tmp_path / "l.csv")
    assert labelled(source) == {"000.png": "0.0", "001.png": "1.0", "004.png": "None", "005.png": "1.0"}


def test_a_table_as_spreadsheets_write_it(tmp_path: Path) -> None:
    photos(tmp_path / "p")
    (tmp_path / "l.csv").write_bytes(
        "\ufeffFile;Label;note\r\n.\\000.png; Käfer ;a, b\r\n./001.png;dog;\r\n002.png;;\r\n".encode()
    )
    source, flaws = read(tmp_path / "p", tmp_path / "l.csv")
    assert labelled(source) == {"000.png": "Käfer", "001.png": "dog"}
    assert set(flaws) == {"000.png", "001.png"}  # each the only one of its class


@pytest.mark.parametrize(
    ("text", "files", "labels"),
    [
        ("file,label\na,cat\n,,\nb,dog,, \n", ["a", "", "b"], ["cat", "", "dog"]),
        ("file,label\na,cat,\nb,dog,,\n", ["a", "b"], ["cat", "dog"]),
        ("\nfile,label\ra\r  \rb,dog\r", ["a", "b"], ["", "dog"]),
        (',file , LABEL\r\n0,"a\nb","x, ""y"""\r\n1,c,"d"e\r\n', ["a\nb", "c"], ['x, "y"', "de"]),
        ("label\ncat\n\n007\n", None, ["cat", "", "007"]),
        ("label\na;b c\n", None, ["a;b c"]),
        ("sep=;\r\nfile;label\r\na;b, c\r\n", ["a"], ["b, c"]),
        ('"SEP=\t"\nfile\tlabel\n\na\tcat\n', ["a"], ["cat"]),
        ("\n\nsep=|\nfile|label\na|cat\n", ["a"], ["cat"]),
        ("sep=;\nlabel\ncat\n\ndog\n", None, ["cat", "", "dog"]),
        ("file;label;width, height\na;cat;3\n", ["a"], ["cat"]),
        ("file;label,x\na;cat\n", ["a"], None),
        ('"x; y; z",label\na,cat\n', None, ["cat"]),
        ("file\tlabel\tby me, you; them\na\tcat\n", ["a"], ["cat"]),
        ("file,label\na,#N/A\nb,n/a\n", ["a", "b"], ["", "n/a"]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_rows_of_text(tmp_path: Path, text: str, files: list[str] | None, labels: list[str] | None) -> None:
    (tmp_path / "l.csv").write_text(text, newline="")
    assert read_table(tmp_path / "l.csv") == (files, labels)


def test_columns_that_nobody_asks_for_may_have_one_name(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("file,label,class,Class,note,note\na,b,c,d,e,f\n")
    assert read_table(tmp_path / "l.csv") == (["a"], ["b"])


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    (tmp_path / "l.csv").write_text(f"outline,file,label\n{'x' * (limit + 1)},a,cat\n")
    assert read_table(tmp_path / "l.csv") == (["a"], ["cat"])
    (tmp_path / "l.csv").write_text(f"file,label,{'x' * (limit + 1)}\na,cat,\n")
    assert read_table(tmp_path / "l.csv") == (["a"], ["cat"])
    assert csv.field_size_limit() == limit  # it is of the whole process


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "file,label\n000.png,cat, tabby\n001.png,cat, siamese\n",
            "l.csv, line 2: expected 2 cells as in the first line, got 3 ('000.png', 'cat', ' tabby'). "
            "Put quotes around a name with a comma, and no space before them.",
        ),
        (
            'file,label\n\n"0\n0",cat\na,b,,c\n',
            "line 5: expected 2 cells as in the first line, got 4 ('a', 'b', '', 'c')",
        ),
        ("file;label\na;b;c\n", "Put quotes around a name with a semicolon"),
        ("sep=|\n\nfile|label\na|b|c\n", "line 4: expected 2 cells as in the first line, got 3 ('a', 'b', 'c'). Put"),
        ("sep=|\nfile|label\na|b|c\n", "Put quotes around a name with a '|'"),
        ('sep=;\nfile;label\na;cat\nb;"dog\n', "(a quote is left open in line 4)"),
        ("label\ncat, tabby\n", "expected 1 cell as in the first line, got 2"),
        ('file,label\na,cat\nb,"dog\nc,cat\n', "cannot be read as a table of text (a quote is left open in line 3)"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_row_with_too_many_cells(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "l.csv").write_text(text)
    with pytest.raises(InputError, match=re.escape(sentence)):
        read_table(tmp_path / "l.csv")


def test_a_parquet_table_with_other_columns(tmp_path: Path) -> None:
    pd.DataFrame({"a": ["000.png"]}).to_parquet(tmp_path / "l.parquet")
    with pytest.raises(InputError, match=r"expected the columns file and label, got 'a'\. Rename its columns\.$"):
        read_table(tmp_path / "l.parquet")


def test_paths_as_other_systems_write_them(tmp_path: Path) -> None:
    names = ("A/B.JPG", "A/e\u0301.png", "C.png", "c.png", "p/d.png", "d.png")
    meant = {
        "A\\B.JPG": "A/B.JPG",
        "a/b.jpg": "A/B.JPG",
        "b.jpg": "A/B.JPG",
        "p/A/B.JPG": "A/B.JPG",
        "C:\\Users\\me\\p\\A\\B.JPG": "A/B.JPG",
        "../p/A/B.JPG": "A/B.JPG",
        "D:\\p\\old\\p\\A\\B.JPG": "A/B.JPG",
        "D:\\p\\p\\p\\A\\B.JPG": "A/B.JPG",
        "D:\\p\\p\\d.png": "p/d.png",
        "A/\u00e9.png": "A/e\u0301.png",
        "c.png": "c.png",
        "C.PNG": "C.png, c.png",
        "..\\A\\B.JPG": None,
        "C:\\Users\\me\\q\\A\\B.JPG": None,
        "  ": None,
    }
    for file, name in meant.items():
        flaws: list[Flaw] = []
        found = match_labels([file], ["cat"], names, tmp_path / "p", flaws)
        if name in names:
            assert (found, flaws) == ({name: "cat"}, [])
        else:
            assert (found, [flaw.file for flaw in flaws]) == ({}, [file])
            assert name is None or name in flaws[0].reason


def test_spaces_around_a_name_may_belong_to_it(tmp_path: Path) -> None:
    names = (" a.png", "a.png", "b.png", "d/ c.png", "d/c.png ", "d/c.png")
    files = [" a.png", "a.png", "  b.png ", "d\\ c.png", "d\\c.png ", "d/c.png"]
    for chosen in ([0], [1], [4], list(range(len(files)))):
        flaws: list[Flaw] = []
        found = match_labels([files[i] for i in chosen], [str(i) for i in chosen], names, tmp_path / "p", flaws)
        assert (found, flaws) == ({names[i]: str(i) for i in chosen}, [])
    assert ways(" /etc/passwd", tmp_path) == [" /etc/passwd"]  # within the folder


def test_a_table_of_paths_with_spaces_around_them(tmp_path: Path) -> None:
    for name in (" a.png", "a.png", "b.png"):
        plain((1, 1, 1)).save(tmp_path / name)
    (tmp_path / "all.csv").write_text("file,label\n a.png,cat\na.png,dog\n b.png ,dog\n")
    source, _ = read(tmp_path / "all.csv")
    assert labelled(source) == {" a.png": "cat", "a.png": "dog", "b.png": "dog"}


def test_a_table_of_paths_with_backslashes(tmp_path: Path) -> None:
    photos(tmp_path / "p", count=4)
    rows = "".join(f"p\\{n:03d}.png;{label}\r\n" for n, label in enumerate(("a", "b", "", "b")))
    (tmp_path / "all.csv").write_text(f"file;label\r\n{rows};\r\n..\\all.csv;a\r\n", newline="")
    source, flaws = read(tmp_path / "all.csv")
    assert list(source.files) == [f"p/{n:03d}.png" for n in range(4)]
    assert labelled(source) == {"p/000.png": "a", "p/001.png": "b", "p/003.png": "b"}
    assert set(flaws) == {"p/000.png", "..\\all.csv"}  # the only one of its class, and one that is not there


def test_a_table_of_paths_in_other_case(tmp_path: Path) -> None:
    photos(tmp_path / "photos", count=4)
    (tmp_path / "other").mkdir()
    for name in ("other/a.png", "other/A.png", "other/b.png", "e\u0301.png"):
        plain((1, 1, 1)).save(tmp_path / name)
    (tmp_path / "Link").symlink_to("photos")
    (tmp_path / "out").symlink_to(tmp_path.parent)
    rows = ("PHOTOS/000.PNG,x", "Photos\\001.png,y", "photos/002.png,x", "LINK/003.png,y", "\u00e9.png,x")
    wrong = ("Other/a.PNG,y", "photos/000.PNG/1.png,x", "PHOTOS,x", "gone/1.png,")
    (tmp_path / "all.csv").write_text("\n".join(("file,label", *rows, *wrong)))
    source, flaws = read(tmp_path / "all.csv")
    assert labelled(source) == {
        "photos/000.png": "x",
        "photos/001.png": "y",
        "photos/002.png": "x",
        "Link/003.png": "y",
        "e\u0301.png": "x",
    }
    assert len(source.train) == 5
    assert flaws == {
        **{row.split(",")[0]: "there is no image of this name in the folder; its label is not used" for row in wrong},
        "gone/1.png": "there is no image of this name in the folder; its row is not used",
    }


def test_every_suffix_is_found_and_read(tmp_path: Path) -> None:
    kinds = {"jpg": "JPEG", "JFIF": "JPEG", "jpe": "JPEG", "apng": "PNG", "dib": "DIB", "pbm": "PPM", "pnm": "PPM"}
    (tmp_path / "p").mkdir()
    for suffix, kind in kinds.items():
        plain(1, mode="1" if suffix == "pbm" else "L").save(tmp_path / "p" / f"a.{suffix}", kind)
    (tmp_path / "l.csv").write_text("file,label\na.jfif,x\na.jpe,y\na.dib,x\na.pbm,y\n")
    source, flaws = read(tmp_path / "p", tmp_path / "l.csv")
    assert (set(source.files), flaws) == ({f"a.{suffix}" for suffix in kinds}, {})
    assert {file: int(x.mean()) for file, x in zip(source.files, source.train.samples)} == {
        file: 255 if file == "a.pbm" else 1 for file in source.files
    }


def test_grey_only_where_every_image_is(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for number in range(300):
        plain(5, (9, 9), "L").save(tmp_path / "p" / f"{number:03d}.png")
    (tmp_path / "l.csv").write_text("file,label\n000.png,x\n001.png,y\n")
    assert read(tmp_path / "p", tmp_path / "l.csv")[0].train.shape == (1, 8, 8)
    plain((1, 2, 3), (9, 9)).save(tmp_path / "p" / "001.png")  # not among those that are looked at first
    assert read(tmp_path / "p", tmp_path / "l.csv")[0].train.shape == (3, 8, 8)


def test_what_images_are_like(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for number, size in enumerate([(10, 40), (20, 20), (90, 30)]):
        plain((1, 2, 3), size).save(tmp_path / "p" / f"{number}.png")
    (tmp_path / "l.csv").write_text("file,label\n0.png,x\n1.png,y\n")
    seen: list[Survey] = []
    read_own(tmp_path / "p", tmp_path / "l.csv", lambda survey: seen.append(survey) or 16, [], progress=False)
    assert seen == [Survey(median=20, equal=False, grey=False)]


@pytest.mark.parametrize("odd", [(9, 9), (40, 30)])
def test_of_one_size_only_where_every_image_is(odd: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for number in range(260):  # every second is looked at first: the even ones
        plain((1, 2, 3), odd if number == 201 else (9, 9)).save(tmp_path / "p" / f"{number:03d}.png")
    (tmp_path / "l.csv").write_text("file,label\n000.png,x\n001.png,y\n")
    seen: list[Survey] = []
    read_own(tmp_path / "p", tmp_path / "l.csv", lambda survey: seen.append(survey) or 8, [], progress=False)
    assert seen == [Survey(median=9, equal=odd == (9, 9), grey=False)]


# --- what is wrong ----------------------------------------------------------------------------------------------


def test_bad_files_are_listed_and_left_out(tmp_path: Path) -> None:
    table = photos(tmp_path / "p")
    bad = tmp_path / "p"
    (bad / "empty.jpg").touch()
    (bad / "text.jpg").write_text("hello")
    whole = (bad / "020.png").read_bytes()
    (bad / "cut.png").write_bytes(whole[: len(whole) // 2])
    (bad / "phone.heic").write_bytes(b"x")
    (bad / "folder.jpg").mkdir()
    os.mkfifo(bad / "pipe.jpg")  # opening it would wait for ever
    (bad / "notes.txt").write_text("not an image, and none of our business")
    source, flaws = read(bad, table)
    assert len(source.train) == 24
    assert {name: reason.split(";")[0] for name, reason in flaws.items()} == {
        "empty.jpg": "the file is empty (0 bytes)",
        "text.jpg": "the content is no image of a known format",
        "cut.png": flaws["cut.png"],
        "phone.heic": "images of this format are not read",
        "pipe.jpg": "it is no file but a folder, pipe or device",
    }
    assert "cut short or damaged" in flaws["cut.png"]


def test_no_file_outside_the_folder_is_read(tmp_path: Path) -> None:
    table = photos(tmp_path / "p")
    plain((1, 1, 1)).save(tmp_path / "secret.png")
    (tmp_path / "elsewhere").mkdir()
    plain((1, 1, 1)).save(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "p" / "out.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "p2").mkdir()
    plain((1, 1, 1)).save(tmp_path / "p2" / "a.png")
    (tmp_path / "p" / "beside.png").symlink_to("../p2/a.png")  # whose folder's name begins with this one's
    (tmp_path / "p" / "up.png").symlink_to("../secret.png")
    (tmp_path / "p" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "p" / "loop.png").symlink_to("loop.png")
    (tmp_path / "p" / "within.png").symlink_to("000.png")
    with table.open("a") as file:
        file.write(f"../secret.png,cat\n{tmp_path}/secret.png,cat\nlinked/a.png,cat\n{tmp_path}/p/010.png,cat\n")
    source, flaws = read(tmp_path / "p", table)
    assert set(source.files) == {f"{n:03d}.png" for n in range(24)} | {"within.png"}
    assert "leaves the folder" in flaws["out.png"]
    assert "leaves the folder" in flaws["up.png"]
    assert "leaves the folder" in flaws["beside.png"]
    assert "link to a folder" in flaws["linked"]
    assert "cannot be read" in flaws["loop.png"]
    assert "outside the folder" in flaws["../secret.png"]
    assert "outside the folder" in flaws[f"{tmp_path}/secret.png"]
    assert "no image of this name" in flaws["linked/a.png"]
    assert labelled(source)["010.png"] == "cat"


def test_a_table_of_paths_follows_no_link_outside(tmp_path: Path) -> None:
    photos(tmp_path / "p" / "in")
    plain((1, 1, 1)).save(tmp_path / "secret.png")
    (tmp_path / "p" / "link").symlink_to(tmp_path)
    (tmp_path / "p" / "all.csv").write_text("file,label\nin/000.png,a\nin/001.png,b\nlink/secret.png,a\n")
    flaws: list[Flaw] = []
    source = read_own(tmp_path / "p" / "all.csv", None, 8, flaws, progress=False)
    assert list(source.files) == ["in/000.png", "in/001.png"]
    assert any(flaw.file == "link/secret.png" and "leaves the folder" in flaw.reason for flaw in flaws)


def test_labels_that_fit_no_file_or_two(tmp_path: Path) -> None:
    table = photos(tmp_path / "p")
    for part in ("a", "b"):
        (tmp_path / "p" / part).mkdir()
        plain((1, 1, 1)).save(tmp_path / "p" / part / "same.png")
    plain((1, 1, 1)).save(tmp_path / "p" / "a" / "once.png")
    with table.open("a") as file:
        file.write("same.png,cat\nonce.png,dog\ngone.png,cat\n010.png,cat\n010.png,dog\n011.png,dog\n011.png,dog\n")
    source, flaws = read(tmp_path / "p", table)
    assert "fits 2 files (a/same.png, b/same.png)" in flaws["same.png"]
    assert "no image of this name" in flaws["gone.png"]
    assert "two labels, 'cat' and 'dog'" in flaws["010.png"]
    assert "given twice" in flaws["011.png"]
    found = labelled(source)
    assert (found["a/once.png"], found["011.png"]) == ("dog", "dog")
    assert not {"010.png", "a/same.png", "b/same.png"} & found.keys()


def test_a_whole_number_with_a_point_is_the_same_class(tmp_path: Path) -> None:
    """As programs write 1 where a column has gaps; 01 and 1.5 are other names."""
    photos(tmp_path / "p", count=8)
    rows = ("1", "1.0", "1", "2.", "2", "2", "01", "1.5")
    table = tmp_path / "numbers.csv"
    table.write_text("file,label\n" + "".join(f"{row:03d}.png,{name}\n" for row, name in enumerate(rows)))
    source, flaws = read(tmp_path / "p", table)
    assert source.classes == ("01", "1", "2", "1.5")
    assert flaws.keys() == {"001.png", "003.png", "006.png", "007.png"}  # the last two have one label each
    assert flaws["001.png"] == "its class '1.0' is taken as '1': two spellings of one class"


def test_error_values_of_spreadsheets_are_no_classes(tmp_path: Path) -> None:
    photos(tmp_path / "p", count=12)
    errors = ("#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NULL!", "#NUM!")
    rows = [*("cat", "dog") * 2, *errors, "#N/A", ""]
    table = tmp_path / "lookup.csv"
    table.write_text("label\n" + "\n".join(rows) + "\n")
    np.save(tmp_path / "x.npy", np.zeros((12, 3), np.float32))
    _, of_rows = read(tmp_path / "x.npy", table)
    table.write_text("file,label\n" + "".join(f"{row:03d}.png,{name}\n" for row, name in enumerate(rows)))
    source, flaws = read(tmp_path / "p", table)
    assert labelled(source) == {"000.png": "cat", "001.png": "dog", "002.png": "cat", "003.png": "dog"}
    reasons = [
        f"its label {name!r} is the error of a formula; it counts as unlabelled, write the class instead"
        for name in errors
    ]
    assert flaws == {f"{row:03d}.png": reason for row, reason in enumerate(reasons, 4)}
    assert of_rows == {f"row {row}": reason for row, reason in enumerate(reasons, 4)}
    table.write_text("file,label\n000.png,#REF!\n001.png,#N/A\n")
    with pytest.raises(InputError, match="no file has a label"):
        read(tmp_path / "p", table)


def test_a_class_called_as_others_call_a_gap(tmp_path: Path) -> None:
    photos(tmp_path / "p", count=24)
    gaps = ("N/A", "na", "NULL", "Unknown", "unlabelled", "Unlabeled", "?", "-")
    table = tmp_path / "gaps.csv"
    rows = (*gaps, *gaps, *("cat", "-2", "None") * 2)
    table.write_text("file,label\n" + "".join(f"{row:03d}.png,{name}\n" for row, name in enumerate(rows)))
    source, flaws = read(tmp_path / "p", table)
    assert set(source.classes) == {*gaps, "cat", "-2", "None"}
    assert flaws == {
        name: f"{name!r} is taken as a class; leave the cell empty where the label is not known" for name in gaps
    }


def test_three_rows_of_a_file_are_one_dispute(tmp_path: Path) -> None:
    photos(tmp_path / "p", count=8)
    table = tmp_path / "three.csv"
    table.write_text("file,label\n0.png,a\n000.png,cat\n000.png,dog\n000.png,cat\n001.png,cat\n002.png,dog\n")
    _, flaws = read(tmp_path / "p", table)
    assert flaws["000.png"] == "it has two labels, 'cat' and 'dog'; neither is used"


def test_two_spellings_are_one_class(tmp_path: Path) -> None:
    photos(tmp_path / "p")
    (tmp_path / "l.csv").write_text("file,label\n000.png,Cat\n001.png,Cat\n002.png,cat\n003.png,dog\n004.png,dog\n")
    source, flaws = read(tmp_path / "p", tmp_path / "l.csv")
    assert source.classes == ("Cat", "dog")
    assert flaws == {"002.png": "its class 'cat' is taken as 'Cat': two spellings of one class"}
    with (tmp_path / "l.csv").open("a") as file:
        file.write("000.png,CAT\n")  # of one file: no contradiction
    source, flaws = read(tmp_path / "p", tmp_path / "l.csv")
    assert labelled(source)["000.png"] == "Cat"
    assert flaws["000.png"] == "its label 'CAT' is given twice; it counts once"


def test_a_class_with_one_label_and_a_class_without(tmp_path: Path) -> None:
    table = photos(tmp_path / "p")
    (tmp_path / "p" / "bad.png").write_text("no image")
    with table.open("a") as file:
        file.write("010.png,bird\nbad.png,fish\n")
    source, flaws = read(tmp_path / "p", table)
    assert source.classes == ("bird", "cat", "dog")
    assert "only labelled file of class 'bird'" in flaws["010.png"]
    assert "the class is left out" in flaws["fish"]


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("file,label\n", "no file has a label"),
        ("file,label\n000.png,cat\n", "all labels are 'cat'"),
        ("file,label\n000.png,1\n001.png,-1\n", r"all labels are '1' \(empty, NaN and -1 are unlabelled\); expected"),
        (
            "file,label\n0,cat\n1,dog\n2,\n",
            "l.csv: none of its 2 labels can be used; the first is of '0'. Write the paths",
        ),
        ("000.png,cat\n001.png,dog\n", "expected the columns file and label, got '000.png', 'cat'. Put a first line"),
        ("file|label\n000.png|cat\n", "got 'file.label'. .* columns are separated by commas, semicolons or tabs"),
        (
            "file,label,Label\n000.png,cat,1\n001.png,dog,2\n",
            "expected one column label, got 'label' and 'Label'. Rename",
        ),
        ("file, FILE,label\n000.png,1,cat\n001.png,2,dog\n", "expected one column file, got 'file' and ' FILE'"),
        ("file,label,label\n000.png,cat,1\n001.png,dog,2\n", "expected one column label, got 'label' and 'label'"),
        (
            "file,note\n000.png,cat\n",
            "there is no column label, and none called class or category or target or y. Rename the one that is meant",
        ),
        ("Datei;label\n000.png;cat\n", "there is no column file, and none called filename or .* or id. Rename"),
        ("", "cannot be read as a table of text .* saves one as CSV UTF-8"),
        ("file,label\n000.png,\xff\n", "cannot be read as a table"),
    ],
)
def test_one_sentence_where_it_cannot_go_on(tmp_path: Path, table: str, sentence: str) -> None:
    photos(tmp_path / "p")
    (tmp_path / "l.csv").write_bytes(table.encode("latin1"))
    with pytest.raises(InputError, match=sentence) as refusal:
        read(tmp_path / "p", tmp_path / "l.csv")
    assert "\n" not in str(refusal.value)


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    table = photos(tmp_path / "p")
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="holds no image files"):
        read(tmp_path / "none", table)
    with pytest.raises(InputError, match="nothing says which images are labelled"):
        read(tmp_path / "p")
    with pytest.raises(InputError, match=r"l\.csv is not there"):
        read(tmp_path / "p", tmp_path / "l.csv")
    for path, label_file in ((tmp_path / ("n" * 300), table), (tmp_path / "p", tmp_path / ("n" * 300))):
        for read_ in (lambda *given: read_own(*given, 8, []), lambda *given: read_again(*given, 8)):
            with pytest.raises(InputError, match="n cannot be looked for"):
                read_(path, label_file)
    with pytest.raises(InputError, match="expected a folder of images, a table"):
        read(tmp_path / "p" / "000.png")
    with pytest.raises(InputError, match="side=7 must be from 8 to 512"):
        read(tmp_path / "p", table, side=7)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (("{home}/p/001.png", "{home}/p/000.png"), "the table names a file outside the folder"),
        (("../p/001.png", "../p/000.png"), "the table names a file outside the folder"),
        (("001.png", "000.png"), "there is no image of this name in the folder"),
    ],
)
def test_a_table_of_which_no_file_can_be_used(tmp_path: Path, files: tuple[str, ...], reason: str) -> None:
    photos(tmp_path / "p")
    (tmp_path / "proj").mkdir()
    table = tmp_path / "proj" / "all.csv"
    named = [file.format(home=tmp_path) for file in files]
    table.write_text("file,label\n" + "".join(f"{file},{number}\n" for number, file in enumerate(named)))
    whole = f"all.csv: none of its files can be used; the first is {named[0]!r}: {reason}; its row is not used. Put the"
    for list_ in (lambda flaws: list_images(table, None, flaws), lambda flaws: list_unlabelled(table, flaws)):
        flaws: list[Flaw] = []
        with pytest.raises(InputError, match=re.escape(whole)):
            list_(flaws)
        assert [flaw.file for flaw in flaws] == named


def test_a_folder_of_which_no_file_can_be_used_says_why(tmp_path: Path) -> None:
    """As a telephone's, whose photos are no JPEG."""
    table = photos(tmp_path / "p")
    for folder in ("telephone", "links"):
        (tmp_path / folder).mkdir()
    (tmp_path / "telephone" / "IMG_1.HEIC").write_bytes(b"ftypheic")
    (tmp_path / "telephone" / "IMG_1.MOV").write_bytes(b"ftypqt")
    (tmp_path / "links" / "000.png").symlink_to(tmp_path / "p" / "000.png")
    for folder, why in (
        ("telephone", "'IMG_1.HEIC': images of this format are not read; save it as JPEG or PNG. Bring images"),
        ("links", "'000.png': it is a link that leaves the folder; it is not read. Bring images"),
    ):
        for list_ in (lambda path: list_images(path, table, []), lambda path: list_unlabelled(path, [])):
            with pytest.raises(InputError, match=re.escape(f"none of its files can be used; the first is {why}")):
                list_(tmp_path / folder)


def test_a_table_without_files(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("file,label\n,\n")
    with pytest.raises(InputError, match=r"all\.csv holds no image files"):
        read(tmp_path / "all.csv")


def test_only_bad_files(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / "p" / name).write_text("no image")
    (tmp_path / "l.csv").write_text("file,label\na.jpg,x\nb.jpg,y\n")
    flaws: list[Flaw] = []
    with pytest.raises(InputError, match=r"none of the 2 image files can be read\. Of the first: the "):
        read_own(tmp_path / "p", tmp_path / "l.csv", 8, flaws, progress=False)
    assert dict(flaws) == dict.fromkeys(("a.jpg", "b.jpg"), "the content is no image of a known format")


def test_headers_alone_are_no_images(tmp_path: Path) -> None:
    table = photos(tmp_path / "p")
    for path in (tmp_path / "p").iterdir():
        path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(InputError, match="only 0 labelled images can be read"):
        read(tmp_path / "p", table)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    table = photos(tmp_path / "p")
    odd = os.fsdecode(bytes(tmp_path / "p") + b"/\xff\n.png")
    plain((1, 1, 1)).save(tmp_path / "x.png")
    os.rename(tmp_path / "x.png", odd)
    Path(os.fsdecode(bytes(tmp_path / "p") + b"/\xfe.png")).write_text("bad")
    flaws: list[Flaw] = []
    source = read_own(tmp_path / "p", table, 8, flaws, progress=False)
    assert source.files[-1] == "\\udcff\n.png"
    write_problems(tmp_path / "problems.csv", flaws)
    with open(tmp_path / "problems.csv", newline="", encoding="utf-8") as file:
        assert [row["file"] for row in csv.DictReader(file)] == ["\\udcfe.png"]
