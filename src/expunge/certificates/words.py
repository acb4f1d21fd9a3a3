"""Numbers and times in plain words. A bound is never shown smaller than it is."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Final

from expunge.certificates.facts import GuaranteeFacts
from expunge.certificates.moments import seconds_of

_FINE: Final = Context(prec=50)
_UP: Final = Context(prec=50, rounding=ROUND_CEILING)
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
    return in_digits(_exact(value), digits, ROUND_CEILING)


def percent(probability: float | Decimal) -> str:
    """An upper bound on a probability, as a percentage rounded up."""
    return f"{in_digits(_exact(probability).scaleb(2, _FINE), 3, ROUND_CEILING)}%"


def chance(probability: float) -> str:
    """An upper bound on a probability as "1 in so many", the number rounded down."""
    if probability == 0:
        return "never"
    if 1 / probability < 1.5:
        return "always"
    many = Context(prec=50, rounding=ROUND_FLOOR).divide(Decimal(1), _exact(probability))
    return f"1 in {in_digits(many, 3, ROUND_FLOOR)}"


def factor(guarantee: GuaranteeFacts) -> str:
    """e^α, rounded up."""
    return in_digits(_factor(guarantee), 3, ROUND_CEILING)


def bound(guarantee: GuaranteeFacts, probability: float) -> Decimal:
    """The most that the guarantee allows of what has this probability after training from scratch, rounded up."""
    return min(Decimal(1), _UP.fma(_factor(guarantee), _exact(probability), _exact(guarantee.beta)))


def _factor(guarantee: GuaranteeFacts) -> Decimal:
    """e^α, or the least bit more."""
    return Decimal(1) if guarantee.alpha == 0 else _FINE.next_plus(_FINE.exp(_exact(guarantee.alpha)))


def period(seconds: int) -> str:
    """A tick of the clock."""
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    return plural(seconds // size, unit)


def day_and_time(at: str) -> str:
    """16 November 2026, 02:00:00 UTC."""
    seconds_of(at)
    return f"{int(at[8:10])} {_MONTHS[int(at[5:7]) - 1]} {at[:4]}, {at[11:19]} UTC"


def _exact(value: float | Decimal) -> Decimal:
    """The number as it is written: a reader takes 0.001 for a thousandth, not for the float next to it."""
    return value if isinstance(value, Decimal) else Decimal(repr(float(value)))


def in_digits(value: Decimal, digits: int, rounding: str) -> str:
    """So many significant digits, thousands apart, without an exponent where people can do without."""
    rounded = Context(prec=digits, rounding=rounding).create_decimal(value)
    if rounded and not -7 < rounded.adjusted() < 15:
        return f"{rounded:.{digits - 1}e}"
    text = f"{rounded:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
