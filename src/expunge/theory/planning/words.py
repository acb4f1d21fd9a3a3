"""Numbers of a plan in plain words."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context, Decimal


def count(value: float) -> str:
    """A count or an amount: thousands apart, three digits below a hundred."""
    if math.isinf(value):
        return "∞"
    if value == round(value) or value >= 100:
        return f"{value:,.0f}" if value < 1e12 else f"{value:.1e}"
    return f"{value:.3g}" if value >= 1e-4 else f"{value:.1e}"


def passes(value: float) -> str:
    """A number of passes over the data."""
    return f"{count(value)} {'pass' if value == 1 else 'passes'}"


def percent(value: float) -> str:
    """A probability or a share as a percentage, without rounding up to certainty."""
    if value in (0, 1):
        return f"{100 * value:.0f}%"
    if 0.999 <= value < 1:
        return f"{100 * min(value, 0.99999):.3f}%"
    return f"{100 * value:.3g}%" if value >= 1e-4 else f"{100 * value:.1e}%"


def chance(value: float) -> str:
    """An upper bound on a small probability as "1 in so many", the number rounded down to the digits of `count`."""
    if value == 0:
        return "nothing"
    digits = 3 if value > 1e-12 else 2
    many = Context(prec=digits, rounding=ROUND_FLOOR).divide(Decimal(1), Decimal(repr(float(value))))
    return f"1 in {count(float(many))}"


def duration(days: float | None) -> str:
    """A length of time; None means that there is no end."""
    if days is None:
        return "without end"
    for size, unit in ((365.0, "years"), (1.0, "days"), (1 / 24, "hours"), (1 / 1440, "minutes")):
        if days >= 2 * size:
            return f"{count(days / size)} {unit}"
    return f"{count(days * 86400)} seconds"
