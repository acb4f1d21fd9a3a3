"""Small drawings for the report, as SVG text that needs nothing from anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

WIDTH = 640
_LEFT, _RIGHT, _ROW, _TOP = 24, 24, 52, 10
_NAME = 20  # how much of a row its name takes, above the drawing: readable on a phone, where letters are enlarged
COLOURS = {"before": "#7a7a7a", "unlearned": "#c0392b", "retrained": "#2166ac"}


def interval_plot(rows: Sequence[tuple[str, str, float, float, float]], *, label: str) -> str:
    """Estimates with intervals on a scale from 0 to 1; a row is (name, colour, low, middle, high)."""
    height = _TOP + _ROW * len(rows) + 40
    parts = [_scale(height - 34, [0.0, 0.25, 0.5, 0.75, 1.0], 0.0, 1.0)]
    for place, (name, colour, low, middle, high) in enumerate(rows):
        y = _TOP + _ROW * place + _NAME + 12
        parts += [
            _text(_LEFT, y - 14, name),
            _line(_x(low, 0, 1), y, _x(high, 0, 1), y, colour, width=3),
            _line(_x(low, 0, 1), y - 6, _x(low, 0, 1), y + 6, colour, width=2),
            _line(_x(high, 0, 1), y - 6, _x(high, 0, 1), y + 6, colour, width=2),
            f'<circle cx="{_x(middle, 0, 1):.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>',
        ]
    return _picture(parts, height, label)


def histogram_plot(arms: Mapping[str, NDArray[np.float64]], *, cut: float | None, label: str) -> str:
    """How often each value of a statistic was seen, one row for each arm, and the cut-off as a dashed line."""
    values = np.concatenate([arm[np.isfinite(arm)] for arm in arms.values()])
    if len(values) == 0:
        return _picture([_text(_LEFT, 30, "the statistic was never defined")], 50, label)
    low, high = _limits(values, cut)
    edges = np.linspace(low, high, 41)
    row, top = 100, _TOP + _NAME  # above the rows there is room for the word that names the line
    height = top + row * len(arms) + 40
    parts = [_scale(height - 34, _ticks(low, high), low, high)]
    for place, (name, arm) in enumerate(arms.items()):
        base = top + row * (place + 1) - 6
        seen = arm[np.isfinite(arm)]
        parts.append(_text(_LEFT, base - row + _NAME + 2, name if len(seen) else f"{name}: never defined"))
        parts.append(_line(_LEFT, base, WIDTH - _RIGHT, base, "#cccccc"))
        counts, _ = np.histogram(seen, bins=edges)
        tallest = max(1, int(counts.max()))
        for count, left, right in zip(counts.tolist(), edges[:-1], edges[1:], strict=True):
            if count:
                size = (row - 2 * _NAME) * count / tallest
                x, width = _x(left, low, high), _x(right, low, high) - _x(left, low, high)
                parts.append(
                    f'<rect x="{x:.1f}" y="{base - size:.1f}" width="{max(1.0, width - 0.6):.1f}" '
                    f'height="{size:.1f}" fill="{COLOURS.get(name.split()[0], "#555555")}"/>'
                )
    if cut is not None and math.isfinite(cut):
        x = _x(cut, low, high)
        parts.append(_line(x, _TOP, x, height - 40, "#000000", dash=True))
        is_right = x > WIDTH - 120
        parts.append(_text(x - 4 if is_right else x + 4, _TOP + 10, "cut-off", anchor="end" if is_right else "start"))
    return _picture(parts, height, label)


def alpha_plot(lower: float, certified: float, *, label: str) -> str:
    """The proven lower bound on α, and the certificate's α, on one scale."""
    finite = [value for value in (lower, certified) if math.isfinite(value)]
    high = max(1.0, 1.15 * max(finite))
    height = _TOP + 2 * _ROW + 40
    parts = [_scale(height - 34, _ticks(0.0, high), 0.0, high)]
    rows = [
        ("shown by the trials: at least", lower, COLOURS["unlearned"]),
        ("certified: at most", certified, COLOURS["retrained"]),
    ]
    for place, (name, value, colour) in enumerate(rows):
        y = _TOP + _ROW * place + _NAME + 12
        parts.append(_text(_LEFT, y - 14, name))
        if math.isfinite(value):
            x = _x(value, 0.0, high)
            parts.append(_line(_LEFT, y, x, y, colour, width=6))
            parts.append(_text(x + 8, y + 4, f"{value:.3g}"))
        else:
            parts.append(_text(_LEFT + 4, y + 6, "nothing is certified"))
    return _picture(parts, height, label)


def _limits(values: NDArray[np.float64], cut: float | None) -> tuple[float, float]:
    seen = [float(values.min()), float(values.max())]
    if cut is not None and math.isfinite(cut):
        seen.append(cut)
    low, high = min(seen), max(seen)
    margin = 0.03 * (high - low) or 0.5 * (abs(high) or 1.0)
    return low - margin, high + margin


def _ticks(low: float, high: float) -> list[float]:
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= 6)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step) + 1)]


def _x(value: float, low: float, high: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * (value - low) / (high - low)


def _scale(y: float, ticks: Sequence[float], low: float, high: float) -> str:
    marks = [_line(_LEFT, y, WIDTH - _RIGHT, y, "#333333")]
    for tick in ticks:
        x = _x(tick, low, high)
        marks += [_line(x, y, x, y + 5, "#333333"), _text(x, y + 20, f"{tick:.6g}", anchor="middle", size=11)]
    return "".join(marks)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: int = 1, dash: bool = False) -> str:
    dashes = ' stroke-dasharray="5 4"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"{dashes}/>'
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'


def _picture(parts: Sequence[str], height: float, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label, quote=True)}" '
        f'font-family="sans-serif">{"".join(parts)}</svg>'
    )
