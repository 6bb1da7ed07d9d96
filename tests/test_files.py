"""Atomic writing and locking."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from instant.data import files
from instant.data.files import atomic, exists, locked, replace
from instant.errors import InputError


def test_writes_bytes_and_text(tmp_path):
    with atomic(tmp_path / "a.bin", "wb") as f:
        f.write(b"\x00\x01")
    with atomic(str(tmp_path / "b.txt"), "w") as f:
        f.write("größe\n")
    assert (tmp_path / "a.bin").read_bytes() == b"\x00\x01"
    assert (tmp_path / "b.txt").read_bytes() == "größe\n".encode()
    assert sorted(os.listdir(tmp_path)) == ["a.bin", "b.txt"]


def test_a_reader_sees_the_old_file_until_the_end(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with atomic(path, "w") as f:
        f.write("new and longer")
        f.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new and longer"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failing_block_leaves_the_old_file_and_no_temporary(tmp_path, error):
    path = tmp_path / "a"
    path.write_text("old")

    def write() -> None:
        with atomic(path, "w") as f:
            f.write("half")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_failing_rename_leaves_no_temporary(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="directory"), atomic(tmp_path / "a") as f:
        f.write(b"x")
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(("held", "renamed"), [(2, True), (3, False)])
def test_what_a_virus_scanner_holds_is_waited_for(tmp_path, monkeypatch, held, renamed):
    """As on Windows: twice here, then it is given up."""
    asked = []

    def refuse(source, target):
        asked.append(target)
        if len(asked) <= held:
            raise PermissionError(13, "Access is denied")
        os.replace(source, target)

    monkeypatch.setattr(files, "PAUSES", (0, 0))
    monkeypatch.setattr(Path, "replace", refuse)
    (tmp_path / "new").write_text("new")
    if renamed:
        replace(tmp_path / "new", tmp_path / "a")
        assert os.listdir(tmp_path) == ["a"]
    else:
        with pytest.raises(PermissionError):
            replace(tmp_path / "new", tmp_path / "a")
    assert len(asked) == 3


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    (tmp_path / "plain").write_text("")
    with atomic(tmp_path / "a") as f:
        f.write(b"")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_what_cannot_be_looked_for_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "loop").symlink_to("loop")
    for name in ("n" * 300, "loop", "loop/below"):
        with pytest.raises(InputError, match=f"{name} cannot be looked for .*; check the name, and that you may enter"):
            exists(tmp_path / name)
    (tmp_path / "file").touch()
    (tmp_path / "dead").symlink_to("gone")
    found = {name: exists(tmp_path / name) for name in ("file", "gone", "gone/below", "file/below", "dead", "a\0b")}
    assert [name for name, there in found.items() if there] == ["file"]

    def refused(*_, **__):  # as in a folder that may not be entered, which the superuser always may
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "stat", refused)
    with pytest.raises(InputError, match=r"file cannot be looked for \(Permission denied\)"):
        exists(tmp_path / "file")


def test_only_writing_from_the_start(tmp_path):
    with pytest.raises(ValueError, match="mode must be"), atomic(tmp_path / "a", "ab"):
        pass
    assert os.listdir(tmp_path) == []


def test_locked_lets_one_in_at_a_time_and_cleans_up(tmp_path):
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with locked(tmp_path / "a"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.002)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert os.listdir(tmp_path) == []


def test_a_system_without_file_locks_trains_and_labels(tmp_path):
    """Windows has no fcntl, no resource, no advice about memory, no say in cores: nothing may need them."""
    script = """
import mmap, os, sys
sys.modules["fcntl"] = sys.modules["resource"] = None
del mmap.MADV_DONTNEED, os.sched_getaffinity
from instant.cli import main
from instant.data.folder.cache import cores
assert cores() == os.cpu_count()
tiny = ["steps=2", "labels=10", "batch=4", "ratio=2", "device=cpu"]
assert main(["train", "digits", *tiny, "--out", "run"]) == 0
assert main(["label", "run", "--out", "labels.csv"]) == 0
assert main(["label", "run", "x.npy", "--out", "mapped.csv"]) == 0
assert main(["bench", "step", "digits", *tiny[1:], "--steps", "1", "--repeats", "1", "--json"]) == 0
"""
    np.save(tmp_path / "x.npy", np.zeros((3, 1, 16, 16), np.uint8))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "labels.csv").read_text().count("\n") == 1438
    assert '"peak_mib": null' in done.stdout
