"""The first minute: ten labels, three ways to use them."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from instant.data.source import Source
from instant.data.sources import load
from instant.data.split import Split, make_split
from instant.engine.fit import fit
from instant.progress import ProgressBar
from instant.recipes import digits
from instant.run import Run


def label_spreading(source: Source, split: Split) -> float:
    """Test accuracy of scikit-learn's LabelSpreading on the same split (7 nearest neighbours on the pixels)."""
    from sklearn.semi_supervised import LabelSpreading

    x = source.train.samples.reshape(len(source.train), -1) / 255
    y = np.full(len(x), -1)
    y[split.labelled] = split.targets
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # samples no label reaches divide by zero inside
        model = LabelSpreading(kernel="knn", n_neighbors=7).fit(x, y)
        return float(model.score(source.test.samples.reshape(len(source.test), -1) / 255, source.test_targets))


def run_demo(
    out: Path, *, seed: int = 0, labels: int = 10, force: bool = False, console: Console | None = None
) -> dict[str, float]:
    """Train the supervised baseline and InstanT, fit LabelSpreading, and print a table of the three."""
    console = console or Console(emoji=False)
    methods = {"supervised": "supervised", "InstanT": "instant"}
    for method in methods.values():
        Run(out / method).require_free(force=force)
    source = load("digits")
    split = make_split(source, labels=labels, seed=seed)
    console.print(
        f"digits: {len(split.train)} images of handwritten digits, [b]{labels} of them labelled[/b] "
        f"({labels // len(split.classes)} a class); accuracy is on {len(split.test)} other images."
    )
    rows: list[tuple[str, float, str]] = []
    for title, method in methods.items():
        run = Run(out / method)
        recipe = digits(labels=labels, method=method).override({"seed": str(seed)})
        with ProgressBar(f"{title:<10}", console) as bar:
            trained = fit(recipe, split, run=run, force=force, callbacks=[bar])
        rows.append((title, trained.summary["accuracy_last"], str(run)))
    rows.insert(1, ("LabelSpreading", label_spreading(source, split), "(scikit-learn, not saved)"))

    table = Table(title=f"{labels} labels, the same for all")
    table.add_column("method")
    table.add_column("test accuracy", justify="right")
    table.add_column("run folder", overflow="fold")
    for title, accuracy, where in rows:
        table.add_row(title, f"{100 * accuracy:.1f} %", escape(where))
    console.print(table)
    return {title: accuracy for title, accuracy, _ in rows}
