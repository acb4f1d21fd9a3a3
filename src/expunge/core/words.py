"""Numbers and times in plain words. A bound is never shown smaller than it is.

A point in time is written in whole seconds of UTC, like 2026-11-16T02:00:00Z.

How long a retraining takes depends on how many shards it touches, which is secret. So every time that shows when a
retraining was done is rounded up to the next tick of a clock that is fixed beforehand. Ticks are counted from
1970-01-01T00:00:00Z.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Final, Protocol

from expunge.core.errors import ParameterError


class Claim(Protocol):
    """The two numbers of a guarantee that bound an event: P(event) <= e^alpha * P(event from scratch) + beta."""

    @property
    def alpha(self) -> float: ...  # noqa: D102
    @property
    def beta(self) -> float: ...  # noqa: D102


_FORM: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def utc(moment: datetime | float) -> str:
    """Write a point in time (an aware datetime, or seconds since 1970) in whole seconds, rounded down."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ParameterError(f"a point in time needs a time zone, got {moment!r}")
        moment = moment.timestamp()
    return _write(math.floor(moment))


def seconds_of(at: str) -> int:
    """Read a point in time; return its seconds since 1970."""
    if not isinstance(at, str) or not _FORM.fullmatch(at):
        raise ParameterError(f"a time must be written like 2026-11-16T02:00:00Z, got {at!r:.80}")
    try:
        return int(datetime.fromisoformat(at).timestamp())
    except ValueError:
        raise ParameterError(f"there is no such time as {at!r}") from None


def round_up(moment: datetime | float | str, *, tick_seconds: int) -> str:
    """Return the first tick at or after `moment`."""
    require_tick(tick_seconds)
    if isinstance(moment, str):
        moment = seconds_of(moment)
    seconds = moment.timestamp() if isinstance(moment, datetime) else moment
    return _write(math.ceil(seconds / tick_seconds) * tick_seconds)


def is_on_tick(at: str, *, tick_seconds: int) -> bool:
    """Tell whether `at` is a tick of the clock."""
    return seconds_of(at) % tick_seconds == 0


def require_tick(tick_seconds: object) -> None:
    """Check the length of a clock tick: a whole number of seconds, up to a year."""
    if isinstance(tick_seconds, bool) or not isinstance(tick_seconds, int) or not 1 <= tick_seconds <= 366 * 86400:
        raise ParameterError(
            f"tick_seconds must be a whole number of seconds from 1 to a year, got {tick_seconds!r:.80}"
        )


def _write(seconds: int) -> str:
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        raise ParameterError(f"there is no time {seconds!r} seconds after 1970") from None
    return f"{moment.year:04d}{moment.strftime('-%m-%dT%H:%M:%SZ')}"


_FINE: Final = Context(prec=50)
_UP: Final = Context(prec=50, rounding=ROUND_CEILING)
_PERIOD: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([dhms])")
_LENGTHS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_UNITS: Final = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: 1 record, 2 records."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def spell_time(seconds: float) -> str:
    """Write an amount of work in seconds or minutes, with two figures."""
    if seconds < 0.001:
        return "1 ms" if seconds >= 0.0005 else "less than 1 ms"
    if seconds < 1:
        return f"{float(f'{1000 * seconds:.2g}'):g} ms" if seconds < 0.1 else f"{seconds:.2f} s"
    return f"{float(f'{seconds:.2g}'):,.10g} s" if seconds < 600 else f"{seconds / 60:,.0f} minutes"


def ceiling(value: float, digits: int = 3) -> str:
    """Write an upper bound, rounded up to `digits` significant digits."""
    return in_digits(_exact(value), digits, ROUND_CEILING)


def percent(probability: float | Decimal) -> str:
    """Write an upper bound on a probability as a percentage, rounded up."""
    return f"{in_digits(_exact(probability).scaleb(2, _FINE), 3, ROUND_CEILING)}%"


def percent_at_least(probability: Fraction) -> str:
    """Write a lower bound on a probability as a percentage, rounded down; close to 100% with more digits."""
    down = Context(prec=50, rounding=ROUND_FLOOR)
    value = down.divide(Decimal(100 * probability.numerator), Decimal(probability.denominator))
    return f"{in_digits(value, 3 if probability < Fraction(99, 100) else 5, ROUND_FLOOR)}%"


def chance(probability: float) -> str:
    """Write an upper bound on a probability as "1 in n", with n rounded down."""
    if probability == 0:
        return "never"
    if 1 / probability < 1.5:
        return "always"
    many = Context(prec=50, rounding=ROUND_FLOOR).divide(Decimal(1), _exact(probability))
    return f"1 in {in_digits(many, 3, ROUND_FLOOR)}"


def factor(guarantee: Claim) -> str:
    """Write e^α, rounded up."""
    return in_digits(_factor(guarantee), 3, ROUND_CEILING)


def bound(guarantee: Claim, probability: float) -> Decimal:
    """Compute the largest probability that the guarantee allows an event, rounded up.

    `probability` is that of the event after training from scratch.
    """
    return min(Decimal(1), _UP.fma(_factor(guarantee), _exact(probability), _exact(guarantee.beta)))


def _factor(guarantee: Claim) -> Decimal:
    """Compute e^α, or the next larger number."""
    return Decimal(1) if guarantee.alpha == 0 else _FINE.next_plus(_FINE.exp(_exact(guarantee.alpha)))


def period(seconds: int) -> str:
    """Write the length of a clock tick in its largest whole unit."""
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    return plural(seconds // size, unit)


def read_period(name: str, value: object) -> float:
    """Read a length of time: seconds, a timedelta, or a text such as "90d", "12h", "30m" or "3600s".

    Parameters
    ----------
    name
        The option's name, for the message.
    value
        What the caller gave.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    ParameterError
        If it is none of these, or not positive.

    Examples
    --------
    >>> read_period("if_older_than", "90d")
    7776000.0
    """
    seconds: object = value
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        found = _PERIOD.fullmatch(value.strip())
        seconds = None if found is None else float(found[1]) * _LENGTHS[found[2]]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ParameterError(f"{name} must be a time such as 90d, 12h, 30m or 3600s, got {value!r:.80}")
    return float(seconds)


def day_and_time(at: str) -> str:
    """Write a point in time like 16 November 2026, 02:00:00 UTC."""
    seconds_of(at)
    return f"{int(at[8:10])} {_MONTHS[int(at[5:7]) - 1]} {at[:4]}, {at[11:19]} UTC"


def _exact(value: float | Decimal) -> Decimal:
    """Take a number as it is written: a reader takes 0.001 for a thousandth, not for the float next to it."""
    return value if isinstance(value, Decimal) else Decimal(repr(float(value)))


def in_digits(value: Decimal, digits: int, rounding: str) -> str:
    """Write a number with significant digits and thousands separators; extreme numbers get an exponent."""
    rounded = Context(prec=digits, rounding=rounding).create_decimal(value)
    if rounded and not -7 < rounded.adjusted() < 15:
        return f"{rounded:.{digits - 1}e}"
    text = f"{rounded:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
