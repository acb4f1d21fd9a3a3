"""Numbers and times in plain words. A bound is never shown smaller than it is."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Final

from expunge.certificates.facts import GuaranteeFacts
from expunge.certificates.moments import seconds_of

_UNITS: Final = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


def plural(count: int, noun: str) -> str:
    """1 record, 2 records."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def ceiling(value: float, digits: int = 3) -> str:
    """An upper bound, rounded up to so many digits."""
    return _digits(value, digits, ROUND_CEILING)


def percent(probability: float) -> str:
    """An upper bound on a probability, as a percentage rounded up."""
    return f"{ceiling(100 * probability)}%"


def chance(probability: float) -> str:
    """An upper bound on a probability as "1 in so many", the number rounded down."""
    if probability == 0:
        return "never"
    many = 1 / probability
    if many < 1.5:
        return "always"
    return f"1 in {_digits(many * (1 + 1e-12), 3, ROUND_FLOOR)}"


def factor(guarantee: GuaranteeFacts) -> str:
    """e^α, rounded up."""
    return ceiling(math.exp(guarantee.alpha))


def bound(guarantee: GuaranteeFacts, probability: float) -> float:
    """The most that the guarantee allows of what has this probability after training from scratch."""
    return min(1.0, math.exp(guarantee.alpha) * probability + guarantee.beta)


def period(seconds: int) -> str:
    """A tick of the clock."""
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    return plural(seconds // size, unit)


def day_and_time(at: str) -> str:
    """16 November 2026, 02:00:00 UTC."""
    seconds_of(at)
    return f"{int(at[8:10])} {_MONTHS[int(at[5:7]) - 1]} {at[:4]}, {at[11:19]} UTC"


def _digits(value: float, digits: int, rounding: str) -> str:
    """So many significant digits, thousands apart, without an exponent where people can do without."""
    rounded = Context(prec=digits, rounding=rounding).create_decimal(Decimal(repr(value)))
    if rounded and not -7 < rounded.adjusted() < 15:
        return f"{rounded:.{digits - 1}e}"
    text = f"{rounded:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
