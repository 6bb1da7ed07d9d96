"""Charts as hand-written SVG: lines with a band, ranges, pairs of bars, a heat map, strips over time.

Colours and sizes of text are the page's (its style sheet has light, dark and print); what a chart says by colour it
says by shape or words too. All text that comes in is escaped. Charts are 360 units wide, so that on a phone a unit is
about a pixel.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup, escape
from PIL import Image

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 34
ROW = 20  # height of a class's row
WRITTEN, DRAWN = 12, 25  # classes up to which a heat map has its numbers written, and its cells drawn one by one
POINTS = 300  # of a line: more than a chart this wide can show

Point = tuple[float, float]


class Series(NamedTuple):
    """A line: its name, its points, and its place in the page's list of colours and dashes."""

    name: str
    points: Sequence[Point]
    style: int = 1


class Band(NamedTuple):
    """A shaded area between two lines: (x, low, high)."""

    name: str
    points: Sequence[tuple[float, float, float]]


def line_chart(title: str, series: Sequence[Series], *, bands: Sequence[Band] = (), steps: int) -> Markup:
    """Shares in [0, 1] over the steps of a run."""
    values = [y for line in series for _, y in line.points] + [y for b in bands for p in b.points for y in p[1:]]
    low, high = _limits(values)

    def place(x: float, y: float) -> str:
        across = LEFT + x / max(steps, 1) * (WIDTH - LEFT - RIGHT)
        return f"{across:.1f},{TOP + (high - y) / (high - low) * (HEIGHT - TOP - BOTTOM):.1f}"

    parts = []
    for tick in np.linspace(low, high, 5):
        y = place(0, float(tick)).split(",")[1]
        parts.append(f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y}" dy="4" text-anchor="end">{100 * tick:.3g} %</text>')
    for x, anchor in ((0, "start"), (steps / 2, "middle"), (steps, "end")):
        at = place(x, low).split(",")[0]
        parts.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 15}" text-anchor="{anchor}">{x:,.0f}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">step</text>')
    for band in bands:
        points = _thinned(band.points)
        there = " ".join(place(x, top) for x, _, top in points)
        back = " ".join(place(x, bottom) for x, bottom, _ in reversed(points))
        parts.append(f'<polygon class="band" points="{there} {back}"><title>{escape(band.name)}</title></polygon>')
    for line in series:
        points = _thinned(line.points)
        path = " ".join(place(x, y) for x, y in points)
        name = f"<title>{escape(line.name)}</title>"
        parts.append(f'<polyline class="line s{line.style}" points="{path}">{name}</polyline>')
        if points:
            across, down = place(*points[-1]).split(",")
            parts.append(f'<circle class="dot s{line.style}" cx="{across}" cy="{down}" r="3"/>')
    return _svg(title, WIDTH, HEIGHT, parts)


def range_chart(title: str, names: Sequence[str], ranges: Sequence[tuple[float, float, float] | None]) -> Markup:
    """Low, middle and high in [0, 1] of each class; None where there is nothing."""
    left, right = _label_width(names), 44
    height = TOP + ROW * len(names) + 20

    least, most = _limits([value for values in ranges if values is not None for value in values])

    def at(value: float) -> float:
        return left + (value - least) / (most - least) * (WIDTH - left - right)

    parts = []
    for tick in (least, (least + most) / 2, most):
        parts.append(f'<path class="grid" d="M{at(tick):.1f} {TOP}V{height - 18}"/>')
        parts.append(f'<text x="{at(tick):.1f}" y="{height - 5}" text-anchor="middle">{tick:.3g}</text>')
    for row, (name, values) in enumerate(zip(names, ranges)):
        y = TOP + ROW * (row + 0.5)
        parts.append(_row_name(name, left, y))
        if values is None:
            parts.append(f'<text x="{left + 4}" y="{y}" dy="4">nobody is called this</text>')
            continue
        low, middle, high = values
        parts.append(f'<path class="range" d="M{at(low):.1f} {y}H{at(high):.1f}"/>')
        parts.append(f'<circle class="dot s1" cx="{at(middle):.1f}" cy="{y}" r="4"/>')
        parts.append(f'<text x="{WIDTH - 4}" y="{y}" dy="4" text-anchor="end">{middle:.3f}</text>')
    return _svg(title, WIDTH, height, parts)


def pair_bars(title: str, names: Sequence[str], first: Sequence[float], second: Sequence[float]) -> Markup:
    """Two shares in [0, 1] of each class, one bar above the other."""
    left, right = _label_width(names), 44
    top = max([*first, *second, 1e-9])
    row_height = ROW + 8
    height = TOP + row_height * len(names) + 4
    parts = []
    for row, (name, *shares) in enumerate(zip(names, first, second)):
        y = TOP + row_height * row
        parts.append(_row_name(name, left, y + 12))
        for place, share in enumerate(shares):
            length = share / top * (WIDTH - left - right)
            parts.append(
                f'<rect class="bar s{place + 1}" x="{left}" y="{y + 1 + 11 * place}" width="{length:.1f}" height="10"/>'
            )
            parts.append(
                f'<text class="small" x="{left + length + 4:.1f}" y="{y + 9.5 + 11 * place}">{100 * share:.1f} %</text>'
            )
    return _svg(title, WIDTH, height, parts)


def heat_map(title: str, names: Sequence[str], matrix: np.ndarray) -> Markup:
    """A matrix of shares: rows are true classes, columns are what they are called; the darker, the more."""
    count = len(names)
    left, top = _label_width(names), 30
    cell = (WIDTH - left - 4) / count
    height = top + cell * count + 6
    parts = [f'<text x="{left + cell * count / 2:.1f}" y="11" text-anchor="middle">called</text>']
    if count <= DRAWN:
        for i, j in np.ndindex(count, count):
            x, y, value = left + cell * j, top + cell * i, float(matrix[i, j])
            words = escape(f"{names[i]} called {names[j]}: {100 * value:.1f} %")
            parts.append(
                f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{cell:.1f}" height="{cell:.1f}" '
                f'fill-opacity="{value:.3f}"><title>{words}</title></rect>'
            )
            if count <= WRITTEN:
                tone = "cell-text over" if value > 0.5 else "cell-text"
                parts.append(
                    f'<text class="{tone}" x="{x + cell / 2:.1f}" y="{y + cell / 2:.1f}" dy="3" text-anchor="middle">'
                    f"{100 * value:.0f}</text>"
                )
    else:  # as a picture of one pixel a cell: thousands of elements would weigh more than all the rest
        parts.append(
            f'<image class="pixels" x="{left}" y="{top}" width="{cell * count:.1f}" height="{cell * count:.1f}" '
            f'preserveAspectRatio="none" href="{_pixels(matrix)}"/>'
        )
    parts.append(f'<rect class="frame" x="{left}" y="{top}" width="{cell * count:.1f}" height="{cell * count:.1f}"/>')
    if cell >= 10:
        for place, name in enumerate(names):
            parts.append(_row_name(name, left, top + cell * (place + 0.5)))
            short = escape(_cut(name, max(1, int(cell // 7))))
            middle = left + cell * (place + 0.5)
            parts.append(f'<text class="small" x="{middle:.1f}" y="{top - 5}" text-anchor="middle">{short}</text>')
    return _svg(title, WIDTH, height, parts)


def strips(title: str, names: Sequence[str], values: np.ndarray, *, steps: int) -> Markup:
    """Values in [0, 1] over the steps of a run, a row a class: the darker, the higher; NaN, where nothing is, is empty.

    (K, times), the times evenly apart. The last value is written out, and each cell says its own.
    """
    left, right = _label_width(names), 44
    width, height = WIDTH - left - right, ROW * len(names)
    low, high = _limits(values[np.isfinite(values)].tolist())
    depth = np.nan_to_num(0.08 + 0.92 * (values - low) / (high - low))  # so that the lowest is seen to be there
    times = values.shape[1]
    parts = []
    if len(names) <= DRAWN:
        wide = width / times
        for (k, t), value in np.ndenumerate(values):
            if np.isfinite(value):
                words = escape(f"{names[k]}, about step {(t + 1) / times * steps:,.0f}: {value:.3f}")
                parts.append(
                    f'<rect class="cell" x="{left + wide * t:.1f}" y="{TOP + ROW * k + 2}" width="{wide + 0.2:.1f}" '
                    f'height="{ROW - 4}" fill-opacity="{depth[k, t]:.3f}"><title>{words}</title></rect>'
                )
    else:
        parts.append(
            f'<image class="pixels" x="{left}" y="{TOP}" width="{width}" height="{height}" '
            f'preserveAspectRatio="none" href="{_pixels(depth)}"/>'
        )
    for k, name in enumerate(names):
        y = TOP + ROW * (k + 0.5)
        parts.append(_row_name(name, left, y))
        known = values[k][np.isfinite(values[k])]
        last = f"{known[-1]:.3f}" if len(known) else "none"
        parts.append(f'<text x="{WIDTH - 4}" y="{y}" dy="4" text-anchor="end">{last}</text>')
    for x, anchor in ((0, "start"), (steps, "end")):
        across = left + x / max(steps, 1) * width
        parts.append(f'<text x="{across:.1f}" y="{TOP + height + 13}" text-anchor="{anchor}">{x:,}</text>')
    scale = f"step; faint {low:.3g}, dark {high:.3g}"
    parts.append(f'<text x="{left + width / 2:.1f}" y="{TOP + height + 13}" text-anchor="middle">{scale}</text>')
    return _svg(title, WIDTH, TOP + height + 20, parts)


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> Markup:
    head = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">'
    return Markup(f"{head}{''.join(parts)}</svg>")


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Quarters of a round interval around the values, inside [0, 1].

    >>> _limits([0.93, 0.99])
    (0.9, 1.0)
    """
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    for grain in (0.02, 0.1, 0.2, 0.5):
        bottom, top = np.floor(low / grain) * grain, np.ceil(high / grain) * grain
        if top - bottom <= 2 * grain or grain == 0.5:
            break
    bottom, top = max(0.0, bottom), min(1.0, top)
    return (float(bottom), float(top)) if top > bottom else (max(0.0, bottom - grain), min(1.0, bottom + grain))


def _thinned(points: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """At most POINTS of them, the first and the last among them."""
    if len(points) <= POINTS:
        return list(points)
    return [points[i] for i in np.linspace(0, len(points) - 1, POINTS).round().astype(int)]


def _label_width(names: Sequence[str]) -> int:
    return min(104, 14 + 7 * max(len(name) for name in names))


def _row_name(name: str, left: float, y: float) -> str:
    short = escape(_cut(name, 13))
    return f'<text x="{left - 5}" y="{y:.1f}" dy="4" text-anchor="end">{short}<title>{escape(name)}</title></text>'


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else name[: max(1, most - 1)] + ("…" if most > 1 else "")


def _pixels(matrix: np.ndarray) -> str:
    """One blue pixel a cell, as opaque as its share: it shows on a light page and on a dark one."""
    pixels = np.zeros((*matrix.shape, 4), np.uint8)
    pixels[..., :3] = (46, 134, 193)
    pixels[..., 3] = np.clip(255 * matrix, 0, 255)
    return png(pixels)


def png(pixels: np.ndarray) -> str:
    """A picture as a data address."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
