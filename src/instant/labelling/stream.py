"""Labels of any number of samples in constant memory: a shard a block of rows, joined at the end.

Shards lie beside the file, in FILE.parts, each whole or not there; `job.json` says what they belong to. The same
command after an interruption finds them and goes on; with another run or other samples they are dropped.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import instant
from instant.backbones import BackboneFunction
from instant.data.files import atomic, exists, locked
from instant.data.folder.problems import Flaw, write_problems
from instant.data.split import Split
from instant.data.store import Store, let_go
from instant.engine.device import device_of
from instant.errors import InputError
from instant.labelling.decisions import decide_rows
from instant.labelling.formats import FORMATS
from instant.labelling.inputs import open_samples
from instant.labelling.judge import load_judge, require_rule
from instant.labelling.table import Past, as_arrow
from instant.run import Run
from instant.types import MethodFunction

BLOCK = 2048  # rows of a shard: more take more memory, and save neither time nor space

Report = Callable[[int, int], object]  # rows done, of how many


class Labelled(NamedTuple):
    samples: int
    accepted: int
    resumed: int  # of the samples, those found in shards of an earlier call
    problems: int = 0  # files that could not be labelled, listed in `problems_of(out)`
    held_out: int = 0  # of the run's own samples, those kept for validation: no part of its pool


class _Job(NamedTuple):
    """Whose labels: rows of a store, their names, and what they are known by."""

    store: Store
    rows: np.ndarray
    names: Callable[[np.ndarray], list[str]]
    past: Past | None
    known_by: dict[str, Any]
    problems: int = 0
    held_out: int = 0


def label(
    run: Run,
    out: Path,
    *,
    path: Path | None = None,
    pool: Callable[[], Split] | None = None,
    form: str = "parquet",
    force: bool = False,
    method: str | MethodFunction | None = None,
    backbone: str | BackboneFunction | None = None,
    device: str = "auto",
    report: Report = lambda done, total: None,
    block: int = BLOCK,
) -> Labelled:
    """Write what `run` decides about the samples at `path`, or without one about the pool of the split it learnt on."""
    if exists(out) and out.is_dir():
        raise InputError(f"--out {out} is a folder; name a file in it.")
    if exists(out) and not out.is_file():
        raise InputError(f"--out {out} is no ordinary file, which the labels would replace; name another.")
    if path is not None and exists(path) and path.resolve() == out.resolve():
        raise InputError(f"--out {out} would replace the samples that are to be labelled; choose another name.")
    run.require_not_its_own(out)
    with _writing(out), locked(out):
        if out.exists() and not force:
            raise InputError(f"{out} is there already; choose another --out, or add --force.")
        with _reading(f"the run {run.path}"):
            judge, classes, shape = load_judge(run, method, backbone)
        require_rule(judge, run)
        if path is not None:
            judge.require_stranger()
            job = _from_path(path, shape, problems_of(out))
        else:
            assert pool is not None, "without a path the pool is asked about"
            with _reading(f"the samples of {run.path}"):
                split = pool()
            job = _from_pool(run, split)
        judge.to(device_of(run.recipe().device, device))
        total = len(job.rows)
        parts = out.with_name(f"{out.name}.parts")
        _prepare(parts, {"run": run.fingerprint(), "block": block, "samples": total, **job.known_by})
        report(0, total)
        shards, resumed = [], 0
        for number, start in enumerate(range(0, total, block)):
            places = slice(start, min(start + block, total))
            shard = parts / f"{number:05d}.parquet"
            if _whole(shard, places.stop - start):
                resumed += places.stop - start
            else:
                rows = job.rows[places]
                in_pool = None if job.past is None else np.arange(start, places.stop)
                found = decide_rows(judge, job.store, rows, classes, in_pool)
                table = as_arrow(found, job.names(rows), None if job.past is None else job.past.columns(places))
                with atomic(shard) as file:
                    pq.write_table(table, file)
                let_go(job.store.samples)
            shards.append(shard)
            report(places.stop, total)
        counted = _Counted(shards)
        with atomic(out) as file:
            if form == "csv" and not all(map(_ascii, shards)):
                file.write(BOM_UTF8)  # or Excel takes it for one in the encoding of its country
            FORMATS[form](iter(counted), pq.read_schema(shards[0]), file, run.path.resolve().name)
        _remove(parts)
    return Labelled(total, counted.accepted, resumed, job.problems, job.held_out)


def _ascii(shard: Path) -> bool:
    columns = pq.read_table(shard, columns=["id", "label"]).columns
    return all(pc.all(pc.string_is_ascii(column), min_count=0).as_py() for column in columns)


def problems_of(out: Path) -> Path:
    """Where the files that give no label are listed: labels.problems.csv beside labels.parquet."""
    return out.with_name(f"{out.stem}.problems.csv")


class _Counted:
    """The shards one by one, and how many accepted samples went by."""

    def __init__(self, shards: list[Path]) -> None:
        self.shards, self.accepted = shards, 0

    def __iter__(self) -> Iterator[pa.Table]:
        for shard in self.shards:
            table = pq.read_table(shard)
            self.accepted += int(table["accepted"].to_numpy().sum())
            yield table


def _from_path(path: Path, shape: tuple[int, ...], listed: Path) -> _Job:
    problems: list[Flaw] = []
    try:
        with _reading(str(path)):
            store, ids, by = open_samples(path, shape, problems)
    except InputError as error:
        if problems:
            raise InputError(f"{error} What is wrong with each of them is listed in {listed}.") from error
        raise
    finally:
        write_problems(listed, problems)

    def names(rows: np.ndarray) -> list[str]:
        return [str(row) if ids is None else ids[row] for row in rows.tolist()]

    return _Job(store, np.arange(len(store)), names, None, by, len(set(problems)))


def _from_pool(run: Run, split: Split) -> _Job:
    run.require_same(split)

    def names(rows: np.ndarray) -> list[str]:
        return [split.files[row] if split.files else str(row) for row in rows.tolist()]

    known = {"split": split.hash, "content": split.content, "key": split.key}
    by = {**known, "columns": ["given"]}  # earlier shards lack it
    return _Job(split.train, split.pool, names, Past(run, split), by, held_out=len(split.validation))


def _prepare(parts: Path, job: dict[str, Any]) -> None:
    """A folder for this job's shards: with those it has already, empty otherwise."""
    described = parts / "job.json"
    job = {"instant": instant.__version__, **job}
    with suppress(OSError, ValueError):
        if json.loads(described.read_text(encoding="utf-8")) == job:
            return
    if parts.exists() and not described.exists() and any(parts.iterdir()):
        raise InputError(f"{parts} holds files of somebody else; shards are kept there. Move it, or change --out.")
    if parts.exists():
        _remove(parts)
    parts.mkdir(parents=True)
    with atomic(described, "w") as file:
        json.dump(job, file, indent=1)


def _remove(parts: Path) -> None:
    """Shards, then what they belong to; files of other names stay, and the folder with them."""
    for file in parts.iterdir():
        if re.fullmatch(r"\d{5,}\.parquet|\..*\.tmp|\.DS_Store", file.name):
            file.unlink()
    (parts / "job.json").unlink(missing_ok=True)
    with suppress(OSError):
        parts.rmdir()


def _whole(shard: Path, rows: int) -> bool:
    try:
        return pq.read_metadata(shard).num_rows == rows
    except (OSError, pa.ArrowException):
        return False


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """What fails in here is no fault of --out."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None and str(error.filename) != what else ""
        raise InputError(
            f"{what} cannot be read ({where}{error.strerror or error}); see that the disk is there and that you may "
            "read it, then give the same command again."
        ) from error


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise InputError(
            f"--out {out} cannot be written ({error.strerror or error}); choose a folder you may write to, with space "
            "left. Finished shards are kept: the same command goes on from there."
        ) from error
