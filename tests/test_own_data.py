"""docs/own-data.md: its script makes a folder that the commands take, and keeps score by the truth alone."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import instant
from instant.cli import main
from instant.data.source import Source
from instant.data.store import Store
from instant.engine.build import source_for, split_for
from instant.report.baseline import find_baseline
from instant.run import Run

SCRIPT = Path(__file__).parents[1] / "docs" / "examples" / "clothes.py"
NAMES = ("T-shirt/top", "Bag")


def source() -> Source:
    """Stripes that lie and stripes that stand, 8 x 8, in turn."""
    rng = np.random.default_rng(0)

    def part(count: int) -> tuple[Store, np.ndarray]:
        y = np.arange(count) % 2
        lying = np.repeat([[0], [180], [0], [180]], 2, axis=0).repeat(8, axis=1)
        x = rng.integers(0, 60, (count, 1, 8, 8)) + np.where(y[:, None, None, None], lying.T, lying)
        return Store(x.astype(np.uint8), "stripes"), y

    train, targets = part(60)
    test, test_targets = part(20)
    return Source(
        name="stripes",
        train=train,
        targets=targets,
        test=test,
        test_targets=test_targets,
        classes=NAMES,
        mean=(0.5,),
        std=(0.5,),
    )


def table(path: str) -> list[list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def test_the_whole_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INSTANT_DATA", str(tmp_path / "cache"))
    spec = importlib.util.spec_from_file_location("clothes", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    clothes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(clothes)
    monkeypatch.setattr(clothes, "load", lambda *_: source())
    monkeypatch.setattr(clothes, "PHOTOS", 50)
    clothes.make(Path("clothes"), None)
    rows = table("clothes/labels.csv")
    assert [label for _, label in rows] == ["T-shirt/top"] * 4 + ["Bag"] * 4
    assert all(NAMES[int(name[:5]) % 2] == label for name, label in rows)
    words = ["train", "clothes/photos", "--labels", "clothes/labels.csv"]
    words += ["steps=30", "batch=4", "ratio=2", "device=cpu", "ema=0.5"]
    assert main([*words, "method.base=0.5", "--out", "run"]) == 0
    assert main([*words, "method=supervised", "--out", "run/baseline"]) == 0
    recipe = Run("run").recipe()
    assert find_baseline(Run("run"), split_for(recipe, source_for(recipe))) is not None  # what --baseline would train
    assert main(["certify", "run", "--draw", "3", "--out", "todo.csv"]) == 0
    clothes.check(Path("clothes"), Path("todo.csv"))
    sheet = table("todo.csv")
    assert len(sheet) == 3
    assert all(NAMES[int(name[:5]) % 2] == label for name, label in sheet)
    assert main(["certify", "run", "--labels", "todo.csv"]) == 1  # three checks are too few for 95 %
    capsys.readouterr()
    clothes.score(Path("clothes"), Path("run"))
    simple, supervised, semi = capsys.readouterr().out.splitlines()
    assert simple == "logistic regression on pixels    100.00 % of 20 new images"
    right = 100 * (instant.load("run").predict(source().test.samples) == np.array(NAMES * 10)).mean()
    assert semi.split()[:3] == ["InstanT", "(run)", f"{right:.2f}"]
    assert supervised.startswith("supervised (run/baseline)")
