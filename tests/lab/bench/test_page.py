from __future__ import annotations

import pytest

from expunge_lab.bench import COLUMNS, Environment, Line, Report, Target, cells, to_markdown
from expunge_lab.bench.page import format_quantity

LINES = [
    Line.faster("delete", [0.005, 0.006, 0.007], "retrain", [0.6, 0.6, 0.7], target=Target.ratio_at_least(50)),
    Line.cost("fit", [2.0], "bagging", [1.0], target=Target.ratio_at_most(1.1)),
    Line.alone("certify", [2e-4], target=Target.ours_at_most(0.1)),
]


def page(*, quick: bool = False) -> str:
    environment = Environment("2021-06-08", "1.2.3", "3.11.0", "2.0.0", "1.6.0", 2)
    return to_markdown(Report(quick, environment, {"delete": LINES}), command="expunge bench delete")


@pytest.mark.parametrize(
    ("value", "text"), [(1234, "1,234 s"), (1.5, "1.5 s"), (0.0123, "12.3 ms"), (4.5e-5, "45 µs"), (3e-8, "30 ns")]
)
def test_times_have_three_digits_and_a_fitting_unit(value: float, text: str) -> None:
    assert format_quantity(value, "s") == text


def test_the_cells_of_a_line() -> None:
    assert cells(LINES[0]) == ("delete", "6 ms", "retrain", "600 ms", "100× as fast (100–120)", "≥ 50×", "yes")
    assert cells(LINES[1]) == ("fit", "2 s", "bagging", "1 s", "2× the time (2–2)", "≤ 1.1×", "NO")
    assert cells(LINES[2]) == ("certify", "200 µs", "—", "—", "—", "≤ 100 ms", "yes")


def test_the_page_says_how_it_was_made() -> None:
    text = page()
    assert "Made by `expunge bench delete` on 2021-06-08" in text
    for word in ("Python 3.11.0", "NumPy 2.0.0", "scikit-learn 1.6.0", "2 cores"):
        assert word in text
    assert "quick" not in text


def test_a_quick_page_says_so() -> None:
    assert "A quick run" in page(quick=True)


def test_the_tables_are_well_formed() -> None:
    rows = [line for line in page().splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(LINES)
    assert {row.count("|") for row in rows} == {len(COLUMNS) + 1}
