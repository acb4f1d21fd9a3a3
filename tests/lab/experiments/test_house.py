"""The map in docs/design.md is the one that the source and a trace of the real commands give."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "lab" / "experiments" / "house.py"
EXACT = {"layers", "ignored imports", "private names across packages"}
RUN = "run `python lab/experiments/house.py --map` and commit docs/design.md"


@pytest.fixture(scope="module")
def house():
    return runpy.run_path(str(SCRIPT))


def figures(table):
    """Name, before and now of each row."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {name: tuple(float(value.replace(",", "").rstrip("%")) for value in values) for name, *values in rows}


def test_the_page_shows_what_is_there(house):
    """In one test, because the trace takes seconds. Figures that every change moves may be a tenth off."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    drawn = house["draw"](ROOT)
    for name in "imports", "rooms", "delete", "predict":
        assert house["part"](page, name)[1] == drawn[name], RUN
    shown, today = figures(house["part"](page, "figures")[1]), figures(drawn["figures"])
    assert shown.keys() == today.keys()
    for name, (before, now) in today.items():
        assert shown[name][0] == before, RUN
        assert shown[name][1] == pytest.approx(now, rel=0 if name in EXACT else 0.1), f"{name}: {RUN}"


def test_imports_point_downwards(house):
    """Each package imports only what is on its own floor (the highest one, here) or on a lower one."""
    drawn = house["draw_imports"](ROOT, house["imports_of"](house["modules"](ROOT / "src" / "expunge")))
    head, *rows = drawn.splitlines()[1:-1]
    order = head.split()
    assert [row.split()[0] for row in rows] == order
    for row in rows:
        marks = re.findall(r".{10}", row[10:].ljust(10 * len(order)))
        assert marks[order.index(row.split()[0])].strip() == "–"
        assert not "".join(marks[: order.index(row.split()[0])]).strip()


CALLS = [
    ("cli.requests", "delete", True),
    ("core.records", "Records.apply", True),
    ("training.ensemble", "update", True),
]


def test_a_story_must_be_in_the_order_of_the_trace(house):
    steps = [("core.records.Records.apply", "compute."), ("training.ensemble.update", "train.")]
    told = "1. `core.records.Records.apply`: compute.\n2. `training.ensemble.update`: train."
    assert house["tell"](steps, CALLS) == told
    with pytest.raises(SystemExit, match=r"no call of core\.records\.Records\.apply after training\.ensemble\.update"):
        house["tell"](steps[::-1], CALLS)
    with pytest.raises(SystemExit, match=r"no call of training\.ensemble\.learn after the beginning"):
        house["tell"]([("training.ensemble.learn", "train.")], CALLS)


def test_assertions_are_counted(house, tmp_path):
    (tmp_path / "test_one.py").write_text(
        "def test():\n    assert 1\n    with pytest.raises(ValueError):\n        assert 2\n", encoding="utf-8"
    )
    assert house["assertions"](tmp_path) == {"assert statements in tests": 2, "pytest.raises in tests": 1}
