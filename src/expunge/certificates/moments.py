"""Points in time: whole seconds of UTC, written like 2026-11-16T02:00:00Z, and the deployment's clock tick.

How long a retraining takes depends on how many shards it touches, which is secret. So whatever shows when a retraining
was done is rounded up to the next tick of a clock that is fixed beforehand. Ticks are
counted from 1970-01-01T00:00:00Z.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final

from expunge.errors import ParameterError

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
