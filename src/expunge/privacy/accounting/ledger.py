"""The ledger of one generation: what was published, how much the budget still allows, and both as plain data."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Self, final

from expunge.core.errors import BudgetExhaustedError, ParameterError
from expunge.privacy.accounting import accountants
from expunge.privacy.accounting.accountants import Accountant
from expunge.privacy.accounting.composition import Events, require_delta, require_event_count
from expunge.privacy.accounting.events import EVENT_KINDS, Event, PrivacyBudget


@final
class Allowance:
    """A cache of which charges fit a budget, so that a slow accountant is asked rarely.

    It remembers a corner: event counts that are known to fit. Accountants are monotone, so every vector of counts that
    is nowhere above the corner fits too, and most charges need one comparison. A charge beyond the corner asks the
    accountant, which also moves the corner out: by doubling at first, and by ever smaller parts near the edge of the
    budget. So n charges ask the accountant O(log n) times, for one kind of event or several in turn. Hold the ledger's
    lock to call `admits`.
    """

    def __init__(self, accountant: Accountant, budget: PrivacyBudget) -> None:
        self._accountant = accountant
        self._budget = budget
        self._corner: dict[Event, int] = {}
        self._growth = 1.0
        self._remaining: tuple[Event, dict[Event, int], int | float] | None = None

    def admits(self, counts: Events, event: Event, count: int) -> bool:
        """Tell whether `count` more of `event` fit after `counts`, which must have been admitted before."""
        if counts.get(event, 0) + count <= self._corner.get(event, 0):
            return True
        target = {**counts, event: counts.get(event, 0) + count}
        if not self._accountant.affords(target, self._budget):
            return False
        self._corner = self._extend(target)
        return True

    def remaining(self, counts: Events, event: Event) -> int | float:
        """Return how many more of `event` fit. This is quick if only `event` was charged since the last call."""
        others = {other: count for other, count in counts.items() if other != event}
        now = counts.get(event, 0)
        cached = self._remaining
        if cached is None or cached[0] != event or cached[1] != others:
            cached = (event, others, now + self._accountant.remaining(counts, event, self._budget))
            self._remaining = cached
        return max(0, cached[2] - now)

    def _extend(self, target: dict[Event, int]) -> dict[Event, int]:
        """Return a corner beyond `target`, as far as the budget allows with at most a doubling."""
        while any(int(count * self._growth) for count in target.values()):
            corner = {event: count + int(count * self._growth) for event, count in target.items()}
            if self._accountant.affords(corner, self._budget):
                self._growth = min(1.0, 2 * self._growth)
                return corner
            self._growth /= 2
        return target


FORMAT = 1
"""Raise this number when the meaning or the form of a snapshot changes, and keep reading every older number."""

_NAMES = {kind: name for name, kind in EVENT_KINDS.items()}


def dump_events(events: Events) -> list[dict[str, Any]]:
    """Return the events as rows for JSON: kind, count and the event's own fields."""
    return [
        {"kind": _NAMES[type(event)], "count": count}
        | {field.name: float(getattr(event, field.name)) for field in fields(event)}
        for event, count in events.items()
    ]


def load_events(rows: Any) -> dict[Event, int]:
    """Read what `dump_events` wrote; refuse anything else."""
    if not isinstance(rows, list):
        raise ParameterError(f"events of a snapshot must be a list, got {rows!r}")
    events: dict[Event, int] = {}
    for row in rows:
        event, count = _load_row(row)
        events[event] = events.get(event, 0) + count
    return events


def dump_budget(budget: PrivacyBudget | None) -> dict[str, float] | None:
    """Return the budget as data for JSON."""
    return None if budget is None else {"epsilon": float(budget.epsilon), "delta": float(budget.delta)}


def load_budget(data: Any) -> PrivacyBudget | None:
    """Read what `dump_budget` wrote."""
    if data is None:
        return None
    try:
        return PrivacyBudget(**{name: float(value) for name, value in data.items()})
    except (TypeError, AttributeError) as error:
        raise ParameterError(f"budget of a snapshot is malformed: {data!r}") from error


def _load_row(row: Any) -> tuple[Event, int]:
    kind = row.get("kind") if isinstance(row, Mapping) else None
    if not isinstance(kind, str) or kind not in EVENT_KINDS or "count" not in row:
        raise ParameterError(f"event of a snapshot is malformed: {row!r}")
    parameters = {name: value for name, value in row.items() if name not in ("kind", "count")}
    try:
        return EVENT_KINDS[kind](**parameters), require_event_count(row["count"])
    except TypeError as error:
        raise ParameterError(f"event of a snapshot is malformed: {row!r}") from error


@final
class Ledger:
    """What one generation has published, as event counts, measured against a budget (paper: the counter l).

    Call `charge` *before* the release that it pays for. A charge is complete or changes nothing, and is never given
    back. A ledger may be shared between threads. Repeated charges of the same kinds take microseconds with any
    accountant.

    Parameters
    ----------
    budget
        What the generation may spend. With None, no charge is ever refused, and ε is reported at `report_delta`.
    accountant
        The rule that composes the events, or its name.
    report_delta
        The δ at which `spent` is reported when there is no budget.

    Raises
    ------
    ParameterError
        If the accountant's name is unknown, or `report_delta` is not in [0, 1).

    Notes
    -----
    The bounds assume that the kinds of events and their order depend on the secret randomness only through what was
    released. Except under `basic` and `zcdp` (whose bounds hold as privacy filters: Rogers et al. 2016, Feldman and
    Zrnic 2021), they also assume that the mechanism of a generation is fixed before it starts. Stopping early is always
    allowed.

    Examples
    --------
    >>> from expunge.privacy.accounting import PrivacyBudget, PureDP
    >>> ledger = Ledger(PrivacyBudget(epsilon=1.0, delta=0.0), accountant="basic")
    >>> ledger.charge(PureDP(0.25))
    >>> ledger.spent, ledger.predictions_left(PureDP(0.25))
    (0.25, 3)
    """

    def __init__(
        self, budget: PrivacyBudget | None, *, accountant: Accountant | str = "best", report_delta: float = 1e-6
    ) -> None:
        self._budget = budget
        self._accountant = accountants.accountant(accountant) if isinstance(accountant, str) else accountant
        self._report_delta = require_delta(report_delta) if budget is None else budget.delta
        self._allowance = None if budget is None else Allowance(self._accountant, budget)
        self._counts: dict[Event, int] = {}
        self._exhausted = False
        self._lock = threading.RLock()
        self._spent: tuple[dict[Event, int], float] | None = None

    @property
    def budget(self) -> PrivacyBudget | None:
        """The budget, or None if there is no limit."""
        return self._budget

    @property
    def accountant(self) -> Accountant:
        """The rule that composes the events."""
        return self._accountant

    @property
    def events(self) -> Events:
        """How often each event was charged so far: a read-only copy."""
        with self._lock:
            return MappingProxyType(dict(self._counts))

    @property
    def is_exhausted(self) -> bool:
        """Whether more was charged than the budget allows (the paper's "l exceeds the count")."""
        return self._exhausted

    @property
    def spent(self) -> float:
        """The ε spent so far, at the budget's δ (or `report_delta`)."""
        counts = dict(self.events)
        cached = self._spent
        if cached is None or cached[0] != counts:
            cached = (counts, self._accountant.epsilon(counts, self._report_delta))
            self._spent = cached
        return cached[1]

    @property
    def left(self) -> float:
        """The ε left in the budget; infinite without a budget."""
        return math.inf if self._budget is None else max(0.0, self._budget.epsilon - self.spent)

    def epsilon(self, delta: float) -> float:
        """Return the ε spent so far at any δ."""
        return self._accountant.epsilon(self.events, delta)

    def predictions_left(self, event: Event) -> int | float:
        """Return how many more charges of `event` fit; `math.inf` if there is no limit."""
        self._accountant.check(event)
        if self._allowance is None:
            return math.inf
        if self._exhausted:
            return 0
        return self._allowance.remaining(self.events, event)

    def can_afford(self, event: Event, count: int = 1) -> bool:
        """Tell whether `charge(event, count)` would fit now."""
        self._accountant.check(event)
        with self._lock:
            return self._fits(event, require_event_count(count))

    def charge(self, event: Event, count: int = 1, *, enforce: bool = True) -> None:
        """Pay for `count` releases before they happen, all of them or none.

        Parameters
        ----------
        event
            What one release costs.
        count
            How many releases follow.
        enforce
            Whether to refuse a charge that does not fit the budget. With False it is recorded anyway, and the ledger
            is exhausted from then on: the caller must retrain in full at the next update.

        Raises
        ------
        UnknownEventError
            If the accountant cannot bound the event. Nothing is changed.
        BudgetExhaustedError
            If `enforce` is true and the charge does not fit the budget. Nothing is changed.
        """
        self._accountant.check(event)
        count = require_event_count(count)
        if count == 0:
            return
        with self._lock:
            fits = self._fits(event, count)
            if enforce and not fits:
                raise BudgetExhaustedError(
                    f"the privacy budget does not allow {count} more; {self._budget} is spent for this generation"
                )
            self._counts[event] = self._counts.get(event, 0) + count
            self._exhausted = self._exhausted or not fits

    def snapshot(self) -> dict[str, Any]:
        """Return the whole ledger as plain data for JSON, with an integer format version."""
        with self._lock:
            return {
                "format": FORMAT,
                "budget": dump_budget(self._budget),
                "accountant": self._accountant.name,
                "report_delta": self._report_delta,
                "events": dump_events(self._counts),
                "exhausted": self._exhausted,
            }

    @classmethod
    def from_snapshot(cls, data: Mapping[str, Any]) -> Self:
        """Read what `snapshot` wrote.

        Exhaustion is computed again from the events, so a stored "not exhausted" is not trusted.

        Raises
        ------
        ParameterError
            If the data is not a complete and valid snapshot.
        """
        if data.get("format") != FORMAT:
            raise ParameterError(f"format of a ledger snapshot must be {FORMAT}, got {data.get('format')!r}")
        try:
            budget, name, report_delta, rows = (data[k] for k in ("budget", "accountant", "report_delta", "events"))
            exhausted = bool(data["exhausted"])
        except KeyError as error:
            raise ParameterError(f"a ledger snapshot lacks the field {error}") from None
        ledger = cls(load_budget(budget), accountant=name, report_delta=report_delta)
        for event, count in load_events(rows).items():
            ledger.charge(event, count, enforce=False)
        ledger._exhausted = ledger._exhausted or exhausted
        return ledger

    def _fits(self, event: Event, count: int) -> bool:
        if self._allowance is None:
            return True
        return not self._exhausted and self._allowance.admits(self._counts, event, count)
