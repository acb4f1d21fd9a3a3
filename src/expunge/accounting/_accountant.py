"""What every accountant can answer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

from expunge.accounting._search import largest_count
from expunge.accounting.budget import PrivacyBudget
from expunge.accounting.composition import (
    Events,
    delta_of,
    is_free,
    log_with_failure,
    require_count,
    require_delta,
    require_epsilon,
    require_events,
    split_failure,
    within_success,
)
from expunge.accounting.events import Event, NonPrivate
from expunge.errors import UnknownEventError

ROUNDING = 1e-12
"""Relative slack with which an ε meets a budget, so that three events of 0.1 fit into 0.3."""


class Accountant(ABC):
    """A rule that composes events into (ε,δ)-differential privacy of the transcript in the secret randomness r.

    Formal guarantees, each pinned by the conformance suite:
    - the adaptive composition of the events is (`epsilon(events, delta)`, delta)-DP, for events fixed in advance;
    - more events never lower ε, a larger δ never raises it;
    - `NonPrivate` makes ε infinite; an event that the rule cannot bound raises `UnknownEventError`.
    """

    name: ClassVar[str]
    supported: ClassVar[tuple[type, ...]]

    def check(self, event: Event) -> None:
        """Raise `UnknownEventError` unless this accountant can bound the event."""
        if not isinstance(event, (*self.supported, NonPrivate)):
            raise UnknownEventError(f"accountant {self.name!r} cannot bound {event!r}")

    def epsilon(self, events: Events, delta: float) -> float:
        """Return an ε such that the composed events are (ε,δ)-DP, infinite if there is none."""
        require_delta(delta)
        counts = self._checked(events)
        if any(isinstance(event, NonPrivate) for event in counts):
            return math.inf
        remaining, failure = split_failure(counts)
        inner = within_success(delta, failure)
        return math.inf if inner is None else self._epsilon(remaining, inner)

    def delta(self, events: Events, epsilon: float) -> float:
        """Return a δ such that the composed events are (ε,δ)-DP; 1 where the rule says nothing."""
        require_epsilon(epsilon)
        counts = self._checked(events)
        if any(isinstance(event, NonPrivate) for event in counts):
            return 1.0
        remaining, failure = split_failure(counts)
        return delta_of(log_with_failure(self._log_delta(remaining, epsilon), failure))

    def affords(self, events: Events, budget: PrivacyBudget) -> bool:
        """Tell whether the events together stay within the budget."""
        return self.epsilon(events, budget.delta) <= _limit(budget)

    def remaining(self, spent: Events, event: Event, budget: PrivacyBudget) -> int | float:
        """Return how many more of `event` the budget allows after `spent`; `math.inf` if they cost nothing.

        Counts beyond 2^53 are not looked for: 2^53 then stands for "at least that many".
        """
        self.check(event)
        if not self.affords(spent, budget):
            return 0
        if is_free(event):
            return math.inf
        before = require_count(spent.get(event, 0))

        def cost(count: int) -> float:
            return self.epsilon({**spent, event: before + count}, budget.delta)

        return largest_count(cost, _limit(budget), guess=self._guess(spent, event, budget))

    @abstractmethod
    def _epsilon(self, counts: Events, delta: float) -> float:
        """Return ε at δ for supported events without `NonPrivate` and `ApproximateDP`."""

    @abstractmethod
    def _log_delta(self, counts: Events, epsilon: float) -> float:
        """Return ln δ at ε for supported events without `NonPrivate` and `ApproximateDP`."""

    def _guess(self, spent: Events, event: Event, budget: PrivacyBudget) -> int:
        """Return where the search for the largest count starts; worth overriding when ε is slow to compute."""
        return 1

    def _checked(self, events: Events) -> dict[Event, int]:
        counts = require_events(events)
        for event in counts:
            self.check(event)
        return counts


def _limit(budget: PrivacyBudget) -> float:
    return budget.epsilon * (1 + ROUNDING)
