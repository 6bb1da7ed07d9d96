"""Arrays of the user's own: names and numbers as labels, and which of them mean none."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from folders import plain, read
from PIL import Image

from instant.data.folder.objects import read_objects
from instant.data.sources.labels import MADE_TEXT
from instant.errors import InputError

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["cat", "dog", "", "cat"]),
        np.array(["cat", "dog", None, "cat"], dtype=object),
        np.array(["cat", "dog", float("nan"), "cat"], dtype=object),
        np.array(["cat", "dog", None, "cat"]).astype(str),  # "None"
        np.array(["cat", "dog", np.nan, "cat"]),  # "nan"
        np.array(["cat", "dog", "-1", "cat"]),
        np.array([np.str_("cat"), np.bytes_(b"dog"), np.float64("nan"), "cat"], dtype=object),
        np.array(["cat", "dog", pd.NA, "cat"], dtype=object),
        *(np.array(["cat", "dog", gap, "cat"]) for gap in (*MADE_TEXT, " ")),
        np.array([b"cat", b"dog", b"<NA>", b"cat"]),
        pd.Series(["cat", "dog", pd.NA, "cat"]).astype(object).map(str).to_numpy(object),
        np.array(["cat", "dog", "NaT", "cat"], dtype=object),
    ],
)
def test_names_in_arrays(tmp_path: Path, labels: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 8, 8), np.uint8))
    np.save(tmp_path / "y.npy", labels)
    source, _ = read(tmp_path / "x.npy", tmp_path / "y.npy")
    assert source.classes == ("cat", "dog")
    assert source.targets.tolist() == [0, 1, -1, 0]
    assert source.train.shape == (1, 8, 8)
    np.savez(tmp_path / "both.npz", x=np.zeros((4, 8, 8), np.uint8), y=labels)
    assert read(tmp_path / "both.npz")[0].targets.tolist() == [0, 1, -1, 0]


def test_a_class_that_may_mean_none_is_noted(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 8, 8), np.uint8))
    np.save(tmp_path / "y.npy", np.array(["cat", "unknown", "", "unknown"]))
    _, problems = read(tmp_path / "x.npy", tmp_path / "y.npy")
    assert "'unknown' is taken as a class; leave the cell empty" in str(problems)


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("sprung",)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([np.int64(3), np.int64(-1), 3, np.uint8(200)], [3, -1, 3, 200]),
        ([np.float64(3), np.float32(-1), np.float16(0.5), np.longdouble(3)], [3.0, -1.0, 0.5, 3.0]),
        ([np.bool_(True), np.bool_(False)], [True, False]),
        ([np.str_("naïve"), np.str_(""), np.bytes_(b"b")], ["naïve", "", b"b"]),
        ([np.array(3, ">i8")[()], np.array([258], ">i2")[0], np.array(["cat"], ">U3")[0]], [3, 258, "cat"]),
    ],
)
def test_single_values_of_numpy_are_read_as_they_are(tmp_path: Path, values: list[object], expected: list) -> None:
    np.save(tmp_path / "y.npy", np.array(values, object))
    with open(tmp_path / "y.npy", "rb") as file:
        found = read_objects(file).tolist()
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("numpy", "load"),
        ("numpy.core.multiarray", "fromfile"),
        ("numpy._core.multiarray.scalar", "__call__"),
        ("pandas", "read_pickle"),
        ("pandas._libs.missing", "NAType"),
        ("builtins", "eval"),
        ("os", "system"),
        ("instant.data.folder.objects", "np"),
    ],
)
def test_no_other_name_is_looked_up(module: str, name: str) -> None:
    program = f"c{module}\n{name}\n.".encode()
    with pytest.raises(ValueError, match=f"it asks for {module}.{name}, which labels never need"):
        read_objects(as_npy(program))


def test_numpy_s_maker_of_values_makes_numbers_and_text_only() -> None:
    """A date, bytes of another length, a type that is text, one that would hold objects."""
    made = "cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(V{0}\ntR(I3\nV{1}\ntbC{2}tR."
    neither = "neither text nor a number"
    for code, order, content, sentence in (
        ("M8", "<", "\x08" + "\0" * 8, neither),
        ("i8", "<", "\x02\0\0", "buffer size"),
        ("i8", "<", "\x10" + "\0" * 16, "too many values"),
        ("O8", "|", "\x08" + "\0" * 8, neither),
        ("i8,O", "<", "\x08" + "\0" * 8, neither),
    ):
        with pytest.raises(ValueError, match=f"it holds Python objects: .*{sentence}"):
            read_objects(as_npy(made.format(code, order, content).encode("latin1")))
    text = "cnumpy._core.multiarray\nscalar\n(Vi8\nC\x01\x03tR."
    with pytest.raises(ValueError, match=neither):
        read_objects(as_npy(text.encode("latin1")))


def as_npy(program: bytes) -> BytesIO:
    """A file of one object, whose pickle is this."""
    file = BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    return BytesIO(file.getvalue() + program)


def test_numbers_in_one_file(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5, 3))
    np.savez(tmp_path / "all.npz", x=x, y=np.array([2, 10, np.nan, -1, 2]), x_test=x[:2], y_test=np.array([10, 2]))
    source, flaws = read(tmp_path / "all.npz")
    assert source.classes == ("2", "10")
    assert source.targets.tolist() == [0, 1, -1, -1, 0]
    assert source.test_targets.tolist() == [1, 0]
    assert list(flaws) == ["row 1"]


@pytest.mark.parametrize("labels", [np.array([0, 1, -100]), np.array([0.0, 1.0, -2.0]), np.array([0, 1, -2], object)])
def test_a_number_below_minus_one_is_no_class(tmp_path: Path, labels: np.ndarray) -> None:
    sentence = f"row 2 is {labels[2]:g}, expected a whole number from 0, or -1 for unlabelled"
    np.savez(tmp_path / "all.npz", x=np.zeros((3, 2)), y=labels)
    with pytest.raises(InputError, match=f"all.npz, labels: {sentence}"):
        read(tmp_path / "all.npz")
    np.savez(tmp_path / "all.npz", x=np.zeros((3, 2)), y=[0, 1, -1], x_test=np.zeros((3, 2)), y_test=labels)
    with pytest.raises(InputError, match=f"all.npz, y_test: {sentence}"):
        read(tmp_path / "all.npz")


def test_test_labels_may_be_spelt_otherwise_too(tmp_path: Path) -> None:
    y, y_test = np.array(["Cat", "cat", "cat", "dog", "dog"]), np.array(["Cat", "DOG", "cat", ""])
    np.savez(tmp_path / "all.npz", x=np.zeros((5, 3)), y=y, x_test=np.zeros((4, 3)), y_test=y_test)
    source, _ = read(tmp_path / "all.npz")
    assert (source.classes, source.test_targets.tolist()) == (("cat", "dog"), [0, 1, 0, -1])
    np.savez(tmp_path / "all.npz", x=np.zeros((5, 3)), y=y, x_test=np.zeros((1, 3)), y_test=np.array(["cow"]))
    with pytest.raises(InputError, match="y_test: row 0 is 'cow', which is none of the 2 classes"):
        read(tmp_path / "all.npz")


def test_labels_of_arrays_in_a_table(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    for text, targets in (
        ('label\nb\na\n""\n', [1, 0, -1]),
        ("label\nb\n\na\n", [1, -1, 0]),  # an empty line is a sample without label
        ("label\nb\n-1\na\n\n\n", [1, -1, 0]),  # but not one after the last sample
        ("n;label\n\n1;b\n2;\n\n3;a\n", [1, -1, 0]),  # nor one where a row has more columns
    ):
        (tmp_path / "y.csv").write_text(text, encoding="utf-8")
        assert read(tmp_path / "x.npy", tmp_path / "y.csv")[0].targets.tolist() == targets
    for text, count in (("label\nb\na\n", 2), ("label\nb\n\na\nb\n", 4)):
        (tmp_path / "y.csv").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=f"expected 3 labels, one for each row of x, got {count}"):
            read(tmp_path / "x.npy", tmp_path / "y.csv")


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("id,label\n2,a\n0,b\n1,\n", [1, -1, 0]),  # as `instant label` writes it, in another order
        ("id,label\n2,a\n0,b\n", [1, -1, 0]),  # some of the rows
        ("file;label\n 2.0 ;a\n;\n0.0;b\n;\n", [1, -1, 0]),
        ("id,label\n2.png,b\n0.png,\n1.png,a\n", [1, -1, 0]),  # no numbers: row by row
        ("id,label\n2,b\nx,\n1,a\n", [1, -1, 0]),
        ("id,label\n,b\n,\n,a\n", [1, -1, 0]),
    ],
)
def test_a_table_that_numbers_its_samples(tmp_path: Path, text: str, targets: list[int]) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    (tmp_path / "y.csv").write_text(text)
    assert read(tmp_path / "x.npy", tmp_path / "y.csv")[0].targets.tolist() == targets


def test_numbers_of_samples_in_a_parquet(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    for numbers in ([2, 0], ["2", "0"]):
        pd.DataFrame({"id": numbers, "label": ["a", "b"]}).to_parquet(tmp_path / "y.parquet")
        assert read(tmp_path / "x.npy", tmp_path / "y.parquet")[0].targets.tolist() == [1, -1, 0]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("1,a\n2,b\n3,a\n", "there is no sample 3, the 3 samples have the numbers from 0 to 2; number them so"),
        ("0,a\n1,b\n-1,a\n", "there is no sample -1"),
        ("0,a\n1,b\n1,a\n", "there are two rows for sample 1; leave one"),
        ("0,a\n1,b\n,a\n", "a row has the label 'a' but no number"),
        ("a.png,a\nb.png,b\n", "expected 3 labels, one for each row of x, got 2"),
    ],
)
def test_numbers_that_are_of_no_sample_or_of_two(tmp_path: Path, rows: str, sentence: str) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    (tmp_path / "y.csv").write_text(f"id,label\n{rows}")
    with pytest.raises(InputError, match=sentence) as refusal:
        read(tmp_path / "x.npy", tmp_path / "y.csv")
    assert "\n" not in str(refusal.value)


def test_arrays_that_cannot_be_used(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    np.save(tmp_path / "trap.npy", np.array(["a", Trap(), "b"], dtype=object), allow_pickle=True)
    np.save(tmp_path / "lists.npy", np.array([["a", None], ["b", "c"]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "odd.npz", z=np.zeros(3))
    np.save(tmp_path / "single.npy", np.float32(3))
    np.savez(tmp_path / "single.npz", x=np.float32(3), y=np.arange(3))
    (tmp_path / "text.npy").write_text("hello")
    for path, labels, sentence in (
        ("x.npy", None, "nothing says which samples are labelled"),
        ("x.npy", "trap.npy", "which labels never need; nothing in it was run"),
        ("x.npy", "lists.npy", "and labels one text or number a row"),
        ("odd.npz", None, "expected an array called x, it holds z"),
        ("single.npy", "x.npy", "single.npy: expected samples, one a row, got a single value"),
        ("single.npz", None, "expected samples, one a row, got a single value"),
        ("x.npy", "single.npy", "expected one label a row"),
        ("text.npy", None, "cannot be read as an array"),
    ):
        with pytest.raises(InputError, match=sentence):
            read(tmp_path / path, None if labels is None else tmp_path / labels)
    assert not Path("sprung").exists()


def test_an_image_larger_than_the_square_is_not_a_corner_of_it(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    Image.linear_gradient("L").save(tmp_path / "p" / "a.png")  # 256 x 256, black above, white below
    plain(3, (9, 9), "L").save(tmp_path / "p" / "b.png")
    (tmp_path / "l.csv").write_text("file,label\na.png,x\nb.png,y\n")
    column = read(tmp_path / "p", tmp_path / "l.csv")[0].train.samples[0, 0, :, 0].astype(int)
    assert np.abs(column - (np.arange(8) * 32 + 16)).max() <= 3  # each row is the mean of 32 levels
