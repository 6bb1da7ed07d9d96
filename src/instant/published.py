"""Accuracies the paper prints (top-1 %, mean of three seeds, +- 95 % interval): what a reproduction is held against.

InstanT, NeurIPS 2023, Tables 1, 2 and 4.
"""

from __future__ import annotations

from typing import NamedTuple


class Cell(NamedTuple):
    """One cell of one of the paper's tables."""

    table: str
    source: str
    labels: int
    method: str
    accuracy: float
    interval: float


_TABLE_1_COLUMNS = [
    ("cifar10", 10), ("cifar10", 40), ("cifar10", 250),
    ("cifar100", 200), ("cifar100", 400), ("cifar100", 2500),
    ("stl10", 10), ("stl10", 40), ("stl10", 100),
]  # fmt: skip

_TABLE_1 = {
    "pseudo_label": "37.65 3.1 88.21 5.3 95.42 0.4 63.34 2.0 73.13 0.9 84.28 0.1 30.74 6.7 57.16 4.2 73.44 1.5",
    "mean_teacher": "64.57 4.9 87.15 2.5 95.25 0.5 59.50 0.8 69.42 0.9 82.91 0.4 42.72 7.8 66.80 3.4 77.71 1.8",
    "mixmatch": "65.04 2.6 97.16 0.9 97.95 0.1 60.36 1.3 72.26 0.1 83.84 0.2 10.68 1.1 27.58 16.2 61.85 11.3",
    "vat": "60.07 6.3 93.33 6.6 97.67 0.2 65.89 1.8 75.33 0.4 83.42 0.4 20.57 4.4 65.18 7.0 80.94 1.0",
    "uda": "78.76 3.6 97.92 0.2 97.96 0.1 65.49 1.6 75.85 0.6 83.81 0.2 48.37 4.3 79.67 4.9 89.46 1.0",
    "fixmatch": "66.50 15.1 97.44 0.9 97.95 0.1 65.29 1.4 75.52 0.1 83.98 0.1 40.13 3.4 77.72 4.4 88.41 1.6",
    "flexmatch": "70.54 9.6 97.78 0.3 97.88 0.2 63.76 0.9 74.01 0.5 83.72 0.2 60.63 12.9 78.17 3.7 89.54 1.3",
    "dash": "74.35 4.5 96.63 2.0 97.90 0.3 63.33 0.4 74.54 0.2 84.01 0.2 41.06 4.4 78.03 3.9 89.56 2.0",
    "adamatch": "85.15 20.4 97.94 0.1 97.92 0.1 73.61 0.1 78.59 0.4 84.49 0.1 68.17 7.7 83.50 4.2 89.25 1.5",
    "instant": "87.32 10.2 97.93 0.1 98.08 0.1 74.17 0.3 78.80 0.4 84.28 0.5 69.39 7.4 85.09 2.8 89.35 1.9",
}

_TABLE_2_COLUMNS = [
    ("cifar10", 40), ("cifar10", 250), ("cifar10", 4000),
    ("cifar100", 400), ("cifar100", 2500), ("cifar100", 10000),
]  # fmt: skip

_TABLE_2 = {
    "uda": "91.60 1.5 94.44 0.3 95.55 0.0 40.60 1.8 64.79 0.8 72.13 0.2",
    "fixmatch": "91.45 1.7 94.87 0.1 95.51 0.1 45.08 3.4 65.63 0.4 71.65 0.3",
    "flexmatch": "94.53 0.4 94.85 0.1 95.62 0.1 47.81 1.4 66.11 0.4 72.48 0.2",
    "dash": "84.67 4.3 94.78 0.3 95.54 0.1 45.26 2.6 65.51 0.1 72.10 0.3",
    "adamatch": "94.64 0.0 94.76 0.1 95.46 0.1 52.02 1.7 66.36 0.7 72.32 0.2",
    "instant": "94.83 0.1 94.72 0.2 95.57 0.0 53.94 1.8 67.09 0.0 72.30 0.4",
}

_ABLATION = {
    "fixmatch": "77.72 4.4",
    "adamatch": "83.50 4.2",
    "instant_1": "79.92 5.8",
    "instant_2": "81.49 4.9",
    "instant_3": "82.97 2.7",
    "instant": "85.09 2.8",
}


def _cells(table: str, columns: list[tuple[str, int]], rows: dict[str, str]) -> list[Cell]:
    found = []
    for method, text in rows.items():
        numbers = [float(word) for word in text.split()]
        for (source, labels), value, interval in zip(columns, numbers[::2], numbers[1::2], strict=True):
            found.append(Cell(table, source, labels, method, value, interval))
    return found


CELLS: list[Cell] = [
    *_cells("table 1", _TABLE_1_COLUMNS, _TABLE_1),
    *_cells("table 2", _TABLE_2_COLUMNS, _TABLE_2),
    *_cells("ablation", [("stl10", 40)], _ABLATION),
]
