"""docs/transition.md: the table of Fashion-MNIST is what its program makes of the runs that are kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_what_t_is_worth_is_what_was_measured() -> None:
    words = [sys.executable, str(ROOT / "benchmarks" / "worth_of_t.py"), "--table"]
    printed = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", check=True).stdout
    assert len(printed.splitlines()) == 12
    assert printed in (ROOT / "docs" / "transition.md").read_text(encoding="utf-8")
