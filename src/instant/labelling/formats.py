"""From shards to the one file that was asked for, a shard in memory at a time: parquet, csv, Label Studio's JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from instant.errors import InputError, nearest

Write = Callable[[Iterator[pa.Table], pa.Schema, IO[bytes], str], None]


def write_parquet(tables: Iterator[pa.Table], schema: pa.Schema, file: IO[bytes], model: str) -> None:
    with pq.ParquetWriter(file, schema) as writer:
        for table in tables:
            writer.write_table(table)


def write_csv(tables: Iterator[pa.Table], schema: pa.Schema, file: IO[bytes], model: str) -> None:
    with pyarrow.csv.CSVWriter(file, schema) as writer:
        for table in tables:
            writer.write_table(table)


def write_label_studio(tables: Iterator[pa.Table], schema: pa.Schema, file: IO[bytes], model: str) -> None:
    """Tasks with a prediction each, to import into a project with <Image name="image" value="$image"/> and
    <Choices name="label" toName="image">."""
    start = b"["
    rows = (row for table in tables for part in table.to_batches(max_chunksize=256) for row in part.to_pylist())
    for row in rows:  # some at a time, as objects of Python take five times the memory
        file.write(start + b"\n" + json.dumps(_task(row, model), ensure_ascii=False).encode())
        start = b","
    file.write(b"\n]\n" if start == b"," else b"[]\n")


def _task(row: dict[str, Any], model: str) -> dict[str, Any]:
    shown = ("accepted", "tau", "runner_up", "reason", "given", "first_accepted", "flips")
    choice = {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [row["label"]]}}
    return {
        "data": {"image": row["id"], **{name: row[name] for name in shown if name in row}},
        "predictions": [{"model_version": model, "score": row["confidence"], "result": [choice]}],
    }


FORMATS: dict[str, Write] = {"parquet": write_parquet, "csv": write_csv, "label-studio": write_label_studio}
_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".json": "label-studio"}


def choose_format(out: Path, name: str | None) -> str:
    """The format that was named, or the one that the suffix of the file says."""
    if name is None:
        if out.suffix.lower() not in _SUFFIXES:
            raise InputError(
                f"--out {out}: expected a name that ends in {', '.join(_SUFFIXES)}, got {out.suffix or 'none'!r}; or "
                f"say which with --format {'|'.join(FORMATS)}."
            )
        return _SUFFIXES[out.suffix.lower()]
    if name not in FORMATS:
        raise InputError(f"--format {name!r} is not known; {nearest(name, FORMATS)}")
    return name
