"""The figures as text: cells of a table, and a Markdown page."""

from __future__ import annotations

from expunge_lab.bench.measurement import Line, Spread, Target, Unit
from expunge_lab.bench.suites import SUITES, Report

COLUMNS = ("what", "ours", "against", "the other", "ratio", "target", "met")

HOW = (
    "Every ratio comes from one run in which both sides took turns, so that noise hits both; it is the median of the "
    "ratios of the repeats, with the lowest and the highest in brackets. Times are medians. BLAS and OpenMP use one "
    "thread."
)
QUICK_WARNING = "A quick run, to try the code: the sizes are tiny, and the figures mean nothing."


def cells(line: Line) -> tuple[str, ...]:
    """A line as the cells of a table, in the order of `COLUMNS`."""
    return (
        line.what,
        format_quantity(line.ours.median, line.unit),
        line.other_name or "—",
        "—" if line.other is None else format_quantity(line.other.median, line.unit),
        "—" if line.ratio is None else _format_ratio(line, line.ratio),
        "—" if line.target is None else _format_target(line.target, line.unit),
        "—" if line.met is None else "yes" if line.met else "NO",
    )


def to_markdown(report: Report, *, command: str) -> str:
    """The page; `command` is what made it."""
    about = report.environment
    parts = [
        "# Benchmarks",
        f"Made by `{command}` on {about.date}: expunge {about.expunge}, Python {about.python}, NumPy {about.numpy}, "
        f"scikit-learn {about.scikit_learn}, {about.num_cores} cores.",
        HOW,
    ]
    if report.quick:
        parts.insert(1, f"**{QUICK_WARNING}**")
    for name, lines in report.lines.items():
        parts += [f"## {name}", SUITES[name].about, _table(lines)]
    return "\n\n".join(parts) + "\n"


def format_quantity(value: float, unit: Unit) -> str:
    """Three significant digits in a unit that suits the size."""
    if unit == "bytes":
        return f"{value:.3g} bytes"
    if unit == "share":
        return f"{value:.1%}"
    for name, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{_short(value / size)} {name}"
    return f"{_short(value / 1e-9)} ns"


def _format_ratio(line: Line, ratio: Spread) -> str:
    spread = f"({_short(ratio.low)}–{_short(ratio.high)})"
    words = {"times as fast": "as fast", "times as much": "as much"}.get(line.comparison or "", "the time")
    if line.unit == "bytes":
        words = "less"
    return f"{_short(ratio.median)}× {words} {spread}"


def _format_target(target: Target, unit: Unit) -> str:
    sign = "≥" if target.bound == "at least" else "≤"
    value = f"{target.value:g}×" if target.of == "ratio" else format_quantity(target.value, unit)
    return f"{sign} {value}"


def _short(value: float) -> str:
    """Three significant digits, never in exponent form."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(lines: list[Line]) -> str:
    rows = [COLUMNS, tuple("---" for _ in COLUMNS), *(cells(line) for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
