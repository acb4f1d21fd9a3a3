"""How many predictions there were in each of the last seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

SECONDS: Final = 300


class Traffic:
    """Rows that were answered, second by second. The number depends on who asks, not on the models.

    Parameters
    ----------
    clock
        Gives the time in seconds.

    Examples
    --------
    >>> now = [1000.0]
    >>> traffic = Traffic(lambda: now[0])
    >>> traffic.count(5)
    >>> now[0] += 2
    >>> traffic.rows(3)
    [0, 5, 0]
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rows = [0] * (SECONDS + 1)
        self._last = int(clock())

    def count(self, rows: int) -> None:
        """So many rows were answered now."""
        self._rows[self._now() % len(self._rows)] += rows

    def rows(self, seconds: int = SECONDS) -> list[int]:
        """The rows of each of the last whole seconds, oldest first."""
        now = self._now()
        return [self._rows[each % len(self._rows)] for each in range(now - seconds, now)]

    def _now(self) -> int:
        """The present second, after the places of seconds that went by without a row were emptied."""
        now = int(self._clock())
        if now == self._last:
            return now
        for each in range(max(self._last + 1, now - SECONDS), now + 1):
            self._rows[each % len(self._rows)] = 0
        self._last = max(now, self._last)
        return self._last
