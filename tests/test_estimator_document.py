"""docs/estimator.md: its Python is run, in order, and its table is what was measured."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "estimator.md").read_text(encoding="utf-8")


def test_the_document_prints_what_it_shows() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "docs/estimator.md", None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)
    assert runner.tries > 30


def test_the_table_is_what_was_measured() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "estimator.py"), "--table"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8").stdout
    assert " ".join(printed.split()) in " ".join(TEXT.split())
