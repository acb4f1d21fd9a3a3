"""Which charges fit a budget, remembered so that a slow accountant is asked rarely."""

from __future__ import annotations

from typing import final

from expunge.accounting._accountant import Accountant
from expunge.accounting.budget import PrivacyBudget
from expunge.accounting.composition import Events
from expunge.accounting.events import Event


@final
class Allowance:
    """Remembers a corner of event counts that is known to fit.

    Accountants are monotone, so every vector of counts that is nowhere above the corner fits too, and most charges need
    one comparison. A charge beyond the corner asks the accountant, which then also pushes the corner out: at first by
    doubling, near the edge of the budget by ever smaller parts. So the accountant is asked O(log n) times in n charges,
    for one kind of event or several in turn. Calls of `admits` need the ledger's lock.
    """

    def __init__(self, accountant: Accountant, budget: PrivacyBudget) -> None:
        self._accountant = accountant
        self._budget = budget
        self._corner: dict[Event, int] = {}
        self._growth = 1.0
        self._remaining: tuple[Event, dict[Event, int], int | float] | None = None

    def admits(self, counts: Events, event: Event, count: int) -> bool:
        """Tell whether `count` more of `event` fit after `counts`, which must have been admitted themselves."""
        if counts.get(event, 0) + count <= self._corner.get(event, 0):
            return True
        target = {**counts, event: counts.get(event, 0) + count}
        if not self._accountant.affords(target, self._budget):
            return False
        self._corner = self._push(target)
        return True

    def remaining(self, counts: Events, event: Event) -> int | float:
        """Return how many more of `event` fit; quick when only `event` was charged since it was last asked."""
        others = {other: count for other, count in counts.items() if other != event}
        now = counts.get(event, 0)
        cached = self._remaining
        if cached is None or cached[0] != event or cached[1] != others:
            cached = (event, others, now + self._accountant.remaining(counts, event, self._budget))
            self._remaining = cached
        return max(0, cached[2] - now)

    def _push(self, target: dict[Event, int]) -> dict[Event, int]:
        """Return a corner beyond `target`, as far as the budget allows with at most a doubling."""
        while any(int(count * self._growth) for count in target.values()):
            corner = {event: count + int(count * self._growth) for event, count in target.items()}
            if self._accountant.affords(corner, self._budget):
                self._growth = min(1.0, 2 * self._growth)
                return corner
            self._growth /= 2
        return target
