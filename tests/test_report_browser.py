"""The report in a real browser: on a phone, on a desk and in print nothing overflows, and nothing is complained of."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instant.report.facts import Facts
from instant.report.page import render

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on PATH: install chromium to run these")
PHONE, DESK = 390, 1280

# The page is shown in a frame of the wanted width, as a window cannot be made as narrow as a phone
PROBE = """<!doctype html><meta charset="utf-8"><iframe width="WIDTH" height="900" srcdoc="PAGE"></iframe>
<pre id="found">not run</pre><script>
addEventListener("load", () => {
  const page = document.querySelector("iframe").contentDocument, root = page.documentElement;
  const outside = [], clipped = [];
  for (const e of page.querySelectorAll("body *")) {
    const box = e.getBoundingClientRect();
    const words = e.tagName + ": " + e.textContent.slice(0, 40);
    if (box.right > root.clientWidth + 1 || box.left < -1) outside.push(words);
    if (e.ownerSVGElement && e.tagName !== "title") {
      const frame = e.ownerSVGElement.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
          || box.bottom > frame.bottom + 1) clipped.push(words);
    }
  }
  const commands = [...page.querySelectorAll("#verdict code")].map(e => e.getClientRects().length);
  document.getElementById("found").textContent = JSON.stringify({
    width: root.clientWidth, scroll: root.scrollWidth, outside, clipped, commands,
    elements: page.querySelectorAll("body *").length, scripts: page.scripts.length,
    broken: [...page.images].filter(image => !image.naturalWidth).length, images: page.images.length,
    smallest: Math.min(...[...page.querySelectorAll("svg text")].map(t => t.getBoundingClientRect().height)),
  });
});
</script>"""


def browse(folder: Path, text: str, *options: str) -> tuple[str, str]:
    """What the browser made of a page, and what it said."""
    page = folder / "page.html"
    page.write_text(text, encoding="utf-8")
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={folder / 'profile'}", *options, page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout, done.stderr


def measure(folder: Path, text: str, width: int) -> dict[str, Any]:
    probe = PROBE.replace("WIDTH", str(width)).replace("PAGE", html.escape(text))
    dom, _ = browse(folder, probe, "--dump-dom", "--window-size=1400,1000")
    found = re.search(r'<pre id="found">(.*?)</pre>', dom, re.S)
    assert found is not None
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_nothing_overflows(hostile: Facts, width: int, tmp_path: Path) -> None:
    found = measure(tmp_path, render(hostile), width)
    assert found["elements"] > 300
    assert found["scroll"] <= found["width"] <= width + 4
    assert found["outside"] == []
    assert found["clipped"] == []
    assert (found["images"], found["broken"], found["scripts"]) == (36, 0, 0)
    assert found["smallest"] >= 8  # pixels a line of a chart is high


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_a_command_is_not_broken_at_its_hyphens(hostile: Facts, width: int, tmp_path: Path) -> None:
    known = dataclasses.replace(hostile.accuracy, value=0.9, baseline=None, is_baseline=False)
    found = measure(tmp_path, render(dataclasses.replace(hostile, run="run", accuracy=known)), width)
    assert found["commands"] == [1]  # box


def test_many_classes(hostile: Facts, tmp_path: Path) -> None:
    """A hundred: the heat map is a picture, the rest grows downwards."""
    assert hostile.decisions is not None
    names = tuple(f"class number {k}" for k in range(100))
    many = dataclasses.replace(
        hostile,
        classes=names,
        labelled=np.ones(100, int),
        transition=np.eye(100) * 0.9 + 0.001,
        records=[record | {"threshold_by_class": [0.9, *[None] * 99]} for record in hostile.records],
    )
    found = measure(tmp_path, render(many), PHONE)
    assert (found["outside"], found["clipped"]) == ([], [])


def test_the_probe_sees_what_overflows(hostile: Facts, tmp_path: Path) -> None:
    text = render(hostile).replace("<main>", '<main><div style="width: 2000px">wide</div>')
    found = measure(tmp_path, text, PHONE)
    assert found["outside"] == ["DIV: wide"]
    assert found["scroll"] > PHONE


def test_the_browser_has_nothing_to_complain_of(hostile: Facts, tmp_path: Path) -> None:
    text = render(hostile)
    assert "CONSOLE" not in browse(tmp_path, text, "--dump-dom")[1]
    broken = text.replace("<main>", '<main><img src="https://example.invalid/x.png">')
    assert "Content Security Policy" in browse(tmp_path, broken, "--dump-dom")[1]  # the page forbids what is afar


def test_it_prints(hostile: Facts, tmp_path: Path) -> None:
    out = tmp_path / "page.pdf"
    browse(tmp_path, render(hostile), f"--print-to-pdf={out}", "--no-pdf-header-footer")
    pages = len(re.findall(rb"/Type\s*/Page\b", out.read_bytes()))
    assert 2 <= pages <= 12
