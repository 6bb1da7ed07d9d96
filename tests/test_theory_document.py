"""docs/theory.md: its Python is run, in order, and must print what it shows."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "docs" / "theory.md"


def test_the_document_prints_what_it_shows() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 8
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    for number, block in enumerate(blocks, start=1):
        test = doctest.DocTestParser().get_doctest(block, names, f"block {number}", str(DOCUMENT), 0)
        runner.run(test, out=said.append, clear_globs=False)
        names = test.globs
    assert runner.failures == 0, "".join(said)
    assert runner.tries > 40
