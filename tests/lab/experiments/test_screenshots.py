"""The pictures of pages: every module that writes HTML is among them, and all pictures are there and small."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "expunge"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "lab" / "experiments" / "screenshots.py"))


def test_every_writer_of_html_is_named(script):
    """A writer imports elements or the document of `expunge.core.html`, or writes a page itself."""
    makes = re.compile(r"from expunge\.core\.html import [^\n]*\b(document|tag|table)\b|<html", re.IGNORECASE)
    found = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for path in SOURCE.rglob("*.py")
        if path != SOURCE / "core" / "html.py" and makes.search(path.read_text(encoding="utf-8"))
    }
    assert {"evidence.page", "audit.page", "serving.card"} <= found  # the search finds those that are known
    assert script["SERVED"] | {module for module, _ in script["PAGES"].values()} == found


def test_every_picture_is_there_and_small(script):
    live = {f"dashboard-{page}-{view}.png" for page in script["DASHBOARD"] for view in script["LIVE_VIEWS"]}
    wanted = {f"{page}-{view}.png" for page in script["PAGES"] for view in script["VIEWS"]} | live
    assert {path.name for path in script["FIGURES"].iterdir()} == wanted
    for name in wanted:
        path = script["FIGURES"] / name
        assert path.stat().st_size <= script["LARGEST"]
        with Image.open(path) as picture:
            assert picture.mode == "P"
            width, _, _ = script["VIEWS"][name.removesuffix(".png").rpartition("-")[2]]
            width = script["WIDE"] if name in live and width > 600 else width
            margins = 2 * int(40 * script["SCALE"]) if name.endswith("-print.png") else 0
            assert abs(picture.width - margins - width * script["SCALE"]) <= 1  # no page is wider than its window
