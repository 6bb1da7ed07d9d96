"""A folder is decoded once: what is kept, what decodes it anew, what is resumed, and what cannot be kept."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import photos, plain, read
from PIL import Image

from instant.data.folder import cache, shards, workers
from instant.data.folder.read import read_own
from instant.errors import InputError

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are decoded, in this process, four a shard."""
    names: list[str] = []

    def noting(path: Path, side: int, channels: int) -> np.ndarray:
        names.append(path.name)
        return original(path, side, channels)

    original = shards.decode
    monkeypatch.setattr(shards, "decode", noting)
    monkeypatch.setattr(cache, "SHARD", 4)
    monkeypatch.setattr(cache.os, "sched_getaffinity", lambda _: {0})
    return names


def test_a_second_run_decodes_nothing(tmp_path: Path, decodings: list[str]) -> None:
    table = photos(tmp_path / "p", count=10)
    first, _ = read(tmp_path / "p", table)
    assert len(decodings) == 10
    (tmp_path / "p").rename(tmp_path / "moved")
    again, _ = read(tmp_path / "moved", table)
    assert len(decodings) == 10
    assert np.array_equal(first.train.samples, again.train.samples)
    assert (first.mean, first.std) == (again.mean, again.std)


def test_what_is_decoded_need_not_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = photos(tmp_path / "p", count=10)
    first, _ = read(tmp_path / "p", table)

    def refused(*_: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(cache, "locked", refused)
    assert np.array_equal(read(tmp_path / "p", table)[0].train.samples, first.train.samples)


def test_what_is_decoded_may_be_deleted(tmp_path: Path, home: Path, decodings: list[str]) -> None:
    """All of it, or a file of it: a source in use stays whole, the next one decodes again."""
    table = photos(tmp_path / "p", count=10)
    first, _ = read(tmp_path / "p", table)
    pixels = np.array(first.train.samples)
    for number, deleted in enumerate((home, next(home.rglob("pixels.u8")), next(home.rglob("card.json"))), start=1):
        shutil.rmtree(deleted) if deleted.is_dir() else deleted.unlink()
        assert np.array_equal(first.train.samples, pixels)
        again, flaws = read(tmp_path / "p", table)
        assert (len(decodings), flaws) == (10 + 10 * number, {})
        assert np.array_equal(again.train.samples, pixels)


@pytest.mark.parametrize("name", ["pixels.u8", "card.json", "survey.json"])
@pytest.mark.parametrize("size", [0, 10])
def test_a_damaged_store_is_made_anew(name: str, size: int, tmp_path: Path, home: Path, decodings: list[str]) -> None:
    table = photos(tmp_path / "p", count=10)
    pixels = np.array(read(tmp_path / "p", table)[0].train.samples)
    os.truncate(next(home.rglob(name)), size)
    assert np.array_equal(read(tmp_path / "p", table)[0].train.samples, pixels)


def test_what_could_not_be_read_for_now_is_tried_again(
    tmp_path: Path, decodings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that has gone and a memory that is full say nothing about the files; only their shard is decoded again."""
    table = photos(tmp_path / "p", count=10, labelled=4)
    (tmp_path / "p" / "009.png").write_text("no image")
    fails: dict[str, Exception] = {"005.png": OSError(5, "Input/output error"), "006.png": MemoryError()}
    fail(fails, monkeypatch)
    source, flaws = read(tmp_path / "p", table)
    assert len(source.train) == 7
    assert flaws["005.png"] == "the file cannot be read: Input/output error"
    assert flaws["006.png"] == "there was not enough memory to open it"
    decodings.clear()
    fails.clear()
    source, flaws = read(tmp_path / "p", table)
    assert (len(source.train), flaws.keys()) == (9, {"009.png"})
    assert decodings == ["004.png", "005.png", "006.png", "007.png"]
    assert len(read(tmp_path / "p", table)[0].train) == 9
    assert len(decodings) == 4  # what is left is damaged for good


def fail(errors: dict[str, Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    plain_open = Image.open

    def failing(path: Path, **options: Any) -> Image.Image:
        if error := errors.get(path.name):
            raise error
        return plain_open(path, **options)

    monkeypatch.setattr(Image, "open", failing)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_file_that_may_not_be_read_is_tried_again_when_its_mode_has_changed(
    number: int, tmp_path: Path, decodings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = photos(tmp_path / "p", count=10, labelled=4)
    refused: dict[str, Exception] = {"005.png": PermissionError(number, "not permitted")}
    fail(refused, monkeypatch)
    for _ in range(2):
        source, flaws = read(tmp_path / "p", table)
        assert (len(source.train), flaws) == (9, {"005.png": "the file cannot be read: not permitted"})
        assert len(decodings) == 10  # the second time nothing
    refused.clear()
    (tmp_path / "p" / "005.png").chmod(0o640)
    assert len(read(tmp_path / "p", table)[0].train) == 10


def test_a_changed_file_is_seen_also_with_its_size_and_date(tmp_path: Path, decodings: list[str]) -> None:
    photos(tmp_path / "p", count=10)
    path = tmp_path / "p" / "003.bmp"
    plain((1, 1, 1)).save(path)
    before = path.stat()
    assert read(tmp_path / "p", tmp_path / "labels.csv")[0].train.samples[3, 0, 0, 0] == 1
    plain((2, 2, 2)).save(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert read(tmp_path / "p", tmp_path / "labels.csv")[0].train.samples[3, 0, 0, 0] == 2


def test_another_side_is_another_store(tmp_path: Path, decodings: list[str]) -> None:
    table = photos(tmp_path / "p", count=10)
    assert read(tmp_path / "p", table, side=8)[0].train.shape == (3, 8, 8)
    assert read(tmp_path / "p", table, side=9)[0].train.shape == (3, 9, 9)


def test_decoding_goes_on_where_it_was_stopped(
    tmp_path: Path, decodings: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = photos(tmp_path / "p", count=10)
    with monkeypatch.context() as stopped:
        noting = shards.decode

        def stopping(path: Path, side: int, channels: int) -> np.ndarray:
            if path.name == "005.png":
                raise KeyboardInterrupt
            return noting(path, side, channels)

        stopped.setattr(shards, "decode", stopping)
        with pytest.raises(KeyboardInterrupt):
            read_own(tmp_path / "p", table, 8, [])
    assert "what is done is kept: start again" in capsys.readouterr().err
    assert decodings == [f"{n:03d}.png" for n in range(5)]  # a whole shard of four, and one of the next
    decodings.clear()
    source, _ = read(tmp_path / "p", table)
    assert decodings == [f"{n:03d}.png" for n in range(4, 10)]
    monkeypatch.setenv("INSTANT_DATA", str(tmp_path / "other"))
    assert np.array_equal(source.train.samples, read(tmp_path / "p", table)[0].train.samples)


def test_a_shard_that_a_power_cut_spoilt_is_made_again(tmp_path: Path, decodings: list[str]) -> None:
    photos(tmp_path / "p", count=4)
    shard = shards.Shard(tmp_path / "p", [f"{n:03d}.png" for n in range(4)], tmp_path / "shard", 8, 3)
    shards.decode_shard(shard)
    whole = shards.read_shard(shard)
    assert len(decodings) == 4
    content = shard.path.read_bytes()
    for spoilt in (b"", content[:-1], content[:-1] + bytes([content[-1] ^ 1])):
        shard.path.write_bytes(spoilt)
        assert shards.read_shard(shard).pixels == whole.pixels


def test_many_processes_make_the_same_store(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = photos(tmp_path / "p", count=20)
    (tmp_path / "p" / "007.png").write_text("bad")
    one, flaws = read(tmp_path / "p", table)
    monkeypatch.setenv("INSTANT_DATA", str(tmp_path / "other"))
    monkeypatch.setattr(cache, "SHARD", 6)
    monkeypatch.setattr(cache.os, "sched_getaffinity", lambda _: {0, 1})
    two, same = read(tmp_path / "p", table)
    assert np.array_equal(one.train.samples, two.train.samples)
    assert (list(one.files), one.mean, flaws) == (list(two.files), two.mean, same)
    assert len(one.train) == 19


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="as on Windows")
def test_processes_never_hear_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each answers for a shard is the signals it had blocked when it came to it."""
    monkeypatch.setattr(cache, "cores", lambda: 2)
    monkeypatch.setattr(cache, "decode_shard", partial(signal.pthread_sigmask, signal.SIG_BLOCK))
    assert all(signal.SIGINT in found for found in cache._decode_all(iter([[], []]), 2))
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])  # this process still does


def test_an_interrupt_waits_for_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that would write a file after five seconds; the interrupt comes when both are asked to."""
    done = tmp_path / "done"
    monkeypatch.setattr(cache, "cores", lambda: 2)
    monkeypatch.setattr(cache, "decode_shard", exec)
    monkeypatch.setattr(cache, "wait", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    work = f"import pathlib, time; time.sleep(5); pathlib.Path({str(done)!r}).touch()"
    with pytest.raises(KeyboardInterrupt):
        list(cache._decode_all(iter([work, work]), 2))
    assert not done.exists()


def test_what_fails_in_a_process_fails_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed there is no answer; after a failure nothing is left to wait for."""
    monkeypatch.setattr(cache, "cores", lambda: 2)
    monkeypatch.setattr(cache, "decode_shard", exec)
    with pytest.raises(OSError, match="No space left") as raised:
        list(cache._decode_all(iter(["print('word')", "raise OSError(28, 'No space left')"]), 2))
    assert raised.value.errno == 28


def test_a_process_that_is_killed_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is given a shard, and ends."""
    table = photos(tmp_path / "p")
    with monkeypatch.context() as killing:
        killing.setattr(cache, "cores", lambda: 2)
        killing.setattr(cache, "SHARD", 4)
        killing.setattr(workers, "WORKER", "import pickle, sys; [pickle.load(sys.stdin.buffer) for _ in range(2)]")
        with pytest.raises(InputError, match="ended abruptly, perhaps for want of memory"):
            read(tmp_path / "p", table)
    assert len(read(tmp_path / "p", table)[0].train) == 24


def test_a_script_without_a_guard_is_run_once(tmp_path: Path) -> None:
    """The processes that decode do not import it: it would wait there for itself."""
    photos(tmp_path / "photos", count=130, labelled=8)
    (tmp_path / "script.py").write_text(
        "import instant, pathlib\n"
        "from instant.data.folder import cache\n"
        "cache.cores = lambda: 2\n"
        "print('run', flush=True)\n"
        "settings = {'side': '8', 'steps': '2', 'batch': '4', 'ratio': '2', 'device': 'cpu'}\n"
        "found = instant.compare_methods(\n"
        "    'photos', settings, methods=['instant'], seeds=[0], out='out', labels=pathlib.Path('labels.csv')\n"
        ")\n"
        "print(found.failures)\n"
    )
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "run\n()\n"), done.stderr


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="as on Windows")
def test_processes_end_with_the_one_they_work_for(tmp_path: Path) -> None:
    """It is killed, and can tell them nothing; they had a minute's work."""
    (tmp_path / "minute.py").write_text(
        "import os, pathlib, sys, time\n"
        "def work(place):\n"
        "    (pathlib.Path(sys.path[0]) / f'{place}.pid').write_text(str(os.getpid()))\n"
        "    time.sleep(60)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(
        "import minute\n"
        "from instant.data.folder import cache\n"
        "cache.cores, cache.decode_shard = lambda: 2, minute.work\n"
        "list(cache._decode_all(iter('ab'), 2))\n"
    )
    process = subprocess.Popen([sys.executable, str(script)])
    places = [tmp_path / f"{name}.pid" for name in "ab"]
    for place in places:
        wait_until(lambda place=place: place.exists() and place.read_text() != "")
    workers = [int(place.read_text()) for place in places]
    assert all(map(alive, workers))
    process.kill()
    process.wait()
    for worker in workers:
        wait_until(lambda worker=worker: not alive(worker))


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"  # ended, and nobody asked how


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("half a minute went by")


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = photos(tmp_path / "p")
    (tmp_path / "file").touch()
    monkeypatch.setenv("INSTANT_DATA", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot be kept in .*file"):
        read(tmp_path / "p", table)


def test_the_record_of_a_survey_is_small(tmp_path: Path, home: Path) -> None:
    """What is kept is found again, not made again: a changed record changes the answer."""
    table = photos(tmp_path / "p")
    read(tmp_path / "p", table)
    (kept,) = home.glob("*/survey.json")
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"grey": True}))
    assert read(tmp_path / "p", table)[0].train.shape == (1, 8, 8)
