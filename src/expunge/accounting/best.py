"""The strongest valid accountant for whatever happened."""

from __future__ import annotations

import math
from typing import ClassVar, final

from expunge.accounting._accountant import Accountant
from expunge.accounting._search import MAX_COUNT
from expunge.accounting.budget import PrivacyBudget
from expunge.accounting.closed_forms import AdvancedAccountant, BasicAccountant, PaperAccountant
from expunge.accounting.composition import Events
from expunge.accounting.events import ApproximateDP, BoundedRange, ConcentratedDP, Event, GaussianDP, PureDP
from expunge.accounting.pld import PLDAccountant
from expunge.accounting.zcdp import ZCDPAccountant
from expunge.errors import UnknownEventError


@final
class BestAccountant(Accountant):
    """At every δ the smallest ε of all accountants that can bound the events (each is valid, so their minimum is)."""

    name: ClassVar[str] = "best"
    supported: ClassVar[tuple[type, ...]] = (PureDP, BoundedRange, GaussianDP, ConcentratedDP, ApproximateDP)

    # Quick ones first: `affords` stops at the first that says yes.
    _members: ClassVar[tuple[Accountant, ...]] = (
        ZCDPAccountant(),
        BasicAccountant(),
        AdvancedAccountant(),
        PaperAccountant(),
        PLDAccountant(),
    )

    def affords(self, events: Events, budget: PrivacyBudget) -> bool:
        """Tell whether some accountant keeps the events within the budget."""
        counts = self._checked(events)
        return any(member.affords(counts, budget) for member in self._members if _can_bound(member, counts))

    def remaining(self, spent: Events, event: Event, budget: PrivacyBudget) -> int | float:
        """Return how many more of `event` the budget allows: the largest answer of any accountant."""
        self.check(event)
        counts = self._checked(spent)
        before = counts.get(event, 0)
        most: int | float = 0
        for member in self._members:
            # Costs are monotone, so a member that cannot afford one more than the best so far need not be searched.
            one_more = {**counts, event: before + int(most) + 1}
            if _can_bound(member, one_more) and member.affords(one_more, budget):
                most = member.remaining(counts, event, budget)
            if most >= MAX_COUNT:
                break
        return most

    def _epsilon(self, counts: Events, delta: float) -> float:
        able = [member for member in self._members if _can_bound(member, counts)]
        return min((member.epsilon(counts, delta) for member in able), default=math.inf)

    def _log_delta(self, counts: Events, epsilon: float) -> float:
        able = [member for member in self._members if _can_bound(member, counts)]
        return min((member._log_delta(counts, epsilon) for member in able), default=0.0)


def _can_bound(member: Accountant, counts: Events) -> bool:
    try:
        for event in counts:
            member.check(event)
    except UnknownEventError:
        return False
    return True
