"""Numbers and times in plain words. A bound is never shown smaller than it is.

Points in time: whole seconds of UTC, written like 2026-11-16T02:00:00Z, and the deployment's clock tick.

How long a retraining takes depends on how many shards it touches, which is secret. So whatever shows when a retraining
was done is rounded up to the next tick of a clock that is fixed beforehand. Ticks are
counted from 1970-01-01T00:00:00Z.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Final, Protocol

from expunge.core.errors import ParameterError


class Claim(Protocol):
    """The two numbers of a guarantee that bound an event: P(event) <= e^alpha * P(event from scratch) + beta."""

    @property
    def alpha(self) -> float: ...  # noqa: D102
    @property
    def beta(self) -> float: ...  # noqa: D102


_FORM: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_PATTERN: Final = "%Y-%m-%dT%H:%M:%SZ"


def utc(moment: datetime | float) -> str:
    """A point in time (aware, or seconds since 1970) in whole seconds, rounded down."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ParameterError(f"a point in time needs a time zone, got {moment!r}")
        moment = moment.timestamp()
    return _write(math.floor(moment))


def seconds_of(at: str) -> int:
    """Seconds since 1970 of a point in time."""
    if not isinstance(at, str) or not _FORM.fullmatch(at):
        raise ParameterError(f"a time must be written like 2026-11-16T02:00:00Z, got {at!r:.80}")
    try:
        return int(datetime.strptime(at, _PATTERN).replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise ParameterError(f"there is no such time as {at!r}") from None


def round_up(moment: datetime | float | str, *, tick_seconds: int) -> str:
    """The first tick at or after `moment`."""
    require_tick(tick_seconds)
    if isinstance(moment, str):
        moment = seconds_of(moment)
    seconds = moment.timestamp() if isinstance(moment, datetime) else moment
    return _write(math.ceil(seconds / tick_seconds) * tick_seconds)


def is_on_tick(at: str, *, tick_seconds: int) -> bool:
    """Whether `at` is a tick of the clock."""
    return seconds_of(at) % tick_seconds == 0


def require_tick(tick_seconds: object) -> None:
    """Refuse what is no clock tick."""
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


def factor(guarantee: Claim) -> str:
    """e^α, rounded up."""
    return in_digits(_factor(guarantee), 3, ROUND_CEILING)


def bound(guarantee: Claim, probability: float) -> Decimal:
    """The most that the guarantee allows of what has this probability after training from scratch, rounded up."""
    return min(Decimal(1), _UP.fma(_factor(guarantee), _exact(probability), _exact(guarantee.beta)))


def _factor(guarantee: Claim) -> Decimal:
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
