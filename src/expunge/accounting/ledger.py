"""The books of one generation: what was published, and how much the budget still allows."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self, final

from expunge.accounting._accountant import Accountant
from expunge.accounting._allowance import Allowance
from expunge.accounting._snapshot import FORMAT, dump_budget, dump_events, load_budget, load_events
from expunge.accounting.budget import PrivacyBudget
from expunge.accounting.composition import Events, require_count, require_delta
from expunge.accounting.events import Event
from expunge.accounting.registry import accountant as accountant_by_name
from expunge.errors import BudgetExhaustedError, ParameterError


@final
class Ledger:
    """What one generation has published, as event counts, against a budget (paper: the counter l).

    `charge` checks, then records, then commits, all or nothing, and is called *before* the release it pays for. A
    charge is never given back. With `enforce=False` it always records, and the ledger is exhausted from the first
    charge that does not fit on: the caller must then retrain in full at the next update. With `budget=None` nothing is
    ever refused, and ε is reported at `report_delta`.

    Assumes that the kinds of events and their order do not depend on the secret randomness other than through what was
    released, and, except under `basic` and `zcdp` (whose bounds hold as privacy filters: Rogers et al. 2016, Feldman
    and Zrnic 2021), that the mechanism of a generation is fixed before it starts. Stopping early is always fine.

    Safe to share between threads. Repeated charges of the same kinds cost microseconds, whatever the accountant.
    """

    def __init__(
        self, budget: PrivacyBudget | None, *, accountant: Accountant | str = "best", report_delta: float = 1e-6
    ) -> None:
        self._budget = budget
        self._accountant = accountant_by_name(accountant) if isinstance(accountant, str) else accountant
        self._report_delta = require_delta(report_delta) if budget is None else budget.delta
        self._allowance = None if budget is None else Allowance(self._accountant, budget)
        self._counts: dict[Event, int] = {}
        self._exhausted = False
        self._lock = threading.RLock()
        self._spent: tuple[dict[Event, int], float] | None = None

    @property
    def budget(self) -> PrivacyBudget | None:
        """The budget, or None if nothing is enforced."""
        return self._budget

    @property
    def accountant(self) -> Accountant:
        """The rule by which events are composed."""
        return self._accountant

    @property
    def events(self) -> Events:
        """What was charged so far: a read-only copy."""
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
        """The ε left in the budget; infinite without one."""
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
            return self._fits(event, require_count(count))

    def charge(self, event: Event, count: int = 1, *, enforce: bool = True) -> None:
        """Pay for `count` releases before they happen, all or nothing.

        Raises `UnknownEventError` for an event that the accountant cannot bound, and `BudgetExhaustedError` if told to
        enforce a budget that they do not fit; nothing is changed then.
        """
        self._accountant.check(event)
        count = require_count(count)
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
        """Return the whole ledger as plain JSON-able data, under an integer format version."""
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
        """Read what `snapshot` wrote. Exhaustion is decided anew as well: a stored "no" is not trusted."""
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
