"""The results of `instant bench step` for people, for programs, and as rows of a file that grows."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from instant.bench.step import Failure, Parts, Result
from instant.data.files import atomic, locked
from instant.errors import InputError


def as_row(result: Result | Failure, command: str) -> dict[str, Any]:
    """Everything about a result under one name each; of a failure, what failed and why."""
    row = {"date": datetime.date.today().isoformat(), "command": command, **result.subject._asdict()}
    if isinstance(result, Failure):
        return row | {"error": result.error}
    row |= {
        "precision": result.precision,
        "images": result.images,
        "ms": round(result.milliseconds, 3),
        "images_per_second": round(result.images_per_second, 1),
        "tflops": _short(result.tflops),
        "tflops_share": round(result.tflops / result.ceilings.tflops, 4),
        "gbs": _short(result.gbs),
        "gbs_share": round(result.gbs / result.ceilings.gbs, 4),
        "flop_floor_ms": round(result.flop_floor, 3),
        "byte_floor_ms": round(result.byte_floor, 3),
        "start_seconds": round(result.start_seconds, 1),
        "peak_mib": None if result.peak_mib is None else round(result.peak_mib, 1),
        "ceiling_tflops": _short(result.ceilings.tflops),
        "ceiling_gbs": _short(result.ceilings.gbs),
    }
    parts = result.parts._asdict() if result.parts else dict.fromkeys(Parts._fields)
    return row | {f"{name}_ms": None if value is None else round(value, 3) for name, value in parts.items()}


def _short(number: float) -> float:
    """Four digits, wherever the point is: rates differ by a factor of ten thousand between devices."""
    return float(f"{number:.4g}")


COLUMNS = [
    "date", "hardware", "torch", "command", "method", "backbone", "way", "precision", "images", "ms",
    "images_per_second", "tflops", "tflops_share", "gbs", "gbs_share", "flop_floor_ms", "byte_floor_ms",
    "start_seconds", "peak_mib", "ceiling_tflops", "ceiling_gbs", "views_ms", "network_ms", "update_ms",
]  # fmt: skip


def check_csv(path: Path, columns: Sequence[str] = COLUMNS) -> None:
    """Refuse, before anything is measured, a file that rows could not be added to."""
    if not path.parent.is_dir():
        raise InputError(f"--csv {path}: there is no folder {path.parent}; make it first.")
    if path.is_dir():
        raise InputError(f"--csv {path} is a folder; name a file in it.")
    with writing_csv(path):
        lines = path.read_bytes().splitlines() if path.exists() else []
    if lines and lines[0] != ",".join(columns).encode():
        raise InputError(f"--csv {path} has other columns than these rows; name another file.")
    with writing_csv(path), locked(path):
        pass  # where no lock can lie, no row can


def append_csv(path: Path, rows: list[dict[str, Any]], columns: Sequence[str] = COLUMNS) -> None:
    """Add rows below those that are there; the file is whole at every moment."""
    with writing_csv(path), locked(path):
        before = path.read_bytes() if path.exists() else b""
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        if not before:
            writer.writeheader()
        writer.writerows(rows)
        with atomic(path) as file:
            file.write(before + text.getvalue().encode())


@contextmanager
def writing_csv(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"--csv {path} cannot be written ({error.strerror or error}); name another file.") from error


def print_table(results: list[Result | Failure], console: Console) -> None:
    """A column a method, a few methods beside each other."""
    measured = [result for result in results if isinstance(result, Result)]
    for start in range(0, len(measured), BESIDE):
        group = measured[start : start + BESIDE]
        subject = group[0].subject
        table = Table(title=f"{subject.backbone}, {subject.way}, on {subject.hardware}, torch {subject.torch}")
        table.add_column("")
        for result in group:
            table.add_column(escape(result.subject.method), justify="right")
        for name, cells in zip(*_cells(group)):
            table.add_row(name, *cells)
        console.print(table)
    if measured:
        console.print(CAPTION, highlight=False)
    for failure in results:
        if isinstance(failure, Failure):
            console.print(f"{failure.subject.method} failed: {failure.error}", highlight=False, markup=False)


BESIDE = 3
CAPTION = (
    "Shares are of what the device reached in this run. Floors: the least time for the operations of the matrix "
    "products, and for reading and writing each of their operands once."
)


def _cells(results: list[Result]) -> tuple[list[str], list[tuple[str, ...]]]:
    """The names of the rows, and a cell for every result in each."""
    columns = []
    for r in results:
        column = {
            "a step": f"{r.milliseconds:.2f} ms",
            "images a step": f"{r.images:,}",
            "images a second": f"{r.images_per_second:,.0f}",
            "precision": r.precision,
            "TFLOP/s": f"{r.tflops:.3g} of {r.ceilings.tflops:.3g} ({100 * r.tflops / r.ceilings.tflops:.0f} %)",
            "GB/s": f"{r.gbs:.3g} of {r.ceilings.gbs:.3g} ({100 * r.gbs / r.ceilings.gbs:.0f} %)",
            "FLOP floor": f"{r.flop_floor:.2f} ms, {r.milliseconds / r.flop_floor:.1f} x",
            "byte floor": f"{r.byte_floor:.2f} ms, {r.milliseconds / r.byte_floor:.1f} x",
            "start, compiling included": f"{r.start_seconds:.1f} s",
            f"peak memory ({r.peak_of})": "not measured" if r.peak_mib is None else f"{r.peak_mib:,.0f} MiB",
        }
        if r.parts is not None:
            whole = sum(r.parts)
            column |= {
                f"in {name}": f"{value:.2f} ms ({100 * value / whole:.0f} %)"
                for name, value in r.parts._asdict().items()
            }
        columns.append(column)
    return list(columns[0]), list(zip(*(column.values() for column in columns)))
