"""PrivatePredict under a budget: the publishing half of PrivatePredictionInteraction (Algorithm 4)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_choice
from expunge.core.errors import BudgetExhaustedError
from expunge.core.guarantee import Guarantee
from expunge.core.randomness import Randomness
from expunge.privacy.accounting import Accountant, Event, Ledger, NonPrivate, PrivacyBudget
from expunge.privacy.mechanisms import Majority, Mechanism
from expunge.serving.publishing.publisher import BudgetStatus, Exhaustion, Journal, require_limit
from expunge.theory import LARGEST_COUNT, certify

DEFAULT_FAILURE = 1e-3
_NO_BUDGET = "no budget was set, so the number of predictions in a generation has no limit"
_NOTHING_ALLOWED = "No prediction fits the limit, so an update after any prediction is a full retraining."
_NO_PRIVACY = "plain majority is published without privacy, so what it reveals about the shards has no bound"


class NoisyPublisher:
    """Release answers through a noisy mechanism, counted in a ledger. Every release is charged before it is drawn.

    A generation is limited by an (ε,δ) budget, by a number of predictions (what a target (α,β,γ) allows), or by both.
    Without either, no (α,β,γ) is claimed.

    Parameters
    ----------
    mechanism
        The mechanism that turns votes into a label.
    budget
        The (ε,δ) of a generation; None for no limit.
    max_predictions
        The number of predictions of a generation; None for no limit.
    accountant
        How privacy losses are added up: an accountant or its name.
    on_exhausted
        What happens when the limit is reached: "retrain_on_update", "retrain_now" or "refuse".

    Raises
    ------
    ParameterError
        If an option is out of range.
    UnknownEventError
        If the accountant cannot bound the mechanism.

    Examples
    --------
    >>> from expunge.privacy.mechanisms import calibrated_mechanism
    >>> mechanism = calibrated_mechanism("exponential", num_shards=60, num_classes=10)
    >>> publisher = NoisyPublisher(mechanism, budget=PrivacyBudget(1.0, 1e-6))
    >>> publisher.status.predictions
    0
    """

    journal: Journal | None = None

    def __init__(
        self,
        mechanism: Mechanism,
        *,
        budget: PrivacyBudget | None,
        max_predictions: int | None = None,
        accountant: Accountant | str = "best",
        on_exhausted: Exhaustion = "retrain_on_update",
    ) -> None:
        require_choice("on_exhausted", on_exhausted, get_args(Exhaustion))
        self.mechanism = mechanism
        self.on_exhausted = on_exhausted
        self._ledger = Ledger(budget, accountant=accountant)
        # This refuses a mechanism that the accountant cannot bound, and gives the capacity of a generation.
        allowed = self._ledger.predictions_left(mechanism.event)
        self._max_predictions = max_predictions
        limit = math.inf if max_predictions is None else require_limit(max_predictions)
        capacity = min(allowed, limit)
        # A search for a certificate does not go beyond this number, so no more may be published.
        self._capacity = capacity if math.isinf(capacity) else min(capacity, LARGEST_COUNT)

    @property
    def is_repeatable(self) -> bool:
        """Whether the mechanism is plain majority, which is a function of the round alone."""
        return isinstance(self.mechanism, Majority)

    @property
    def capacity(self) -> float:
        """How many predictions a generation allows; infinite without a limit."""
        return self._capacity

    @property
    def shows_budget(self) -> bool:
        """True: the books depend on the number of queries alone."""
        return True

    @property
    def must_retrain(self) -> bool:
        """Whether more was published than the budget covers (or, when refusing, all of it is used up)."""
        if self.on_exhausted == "refuse":
            return self._predictions >= self._capacity
        return self._predictions > self._capacity

    @property
    def _predictions(self) -> int:
        return sum(self._ledger.events.values())

    @property
    def status(self) -> BudgetStatus:
        """What is spent, and what is left."""
        ledger = self._ledger
        return BudgetStatus(
            spent=ledger.spent,
            left=ledger.left,
            predictions=self._predictions,
            predictions_left=self._predictions_left,
            exhausted=self.must_retrain,
        )

    def release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        """Charge for all rows together, then draw the answers."""
        if self.on_exhausted == "refuse" and len(counts) > self._predictions_left:
            raise BudgetExhaustedError(
                f"the budget allows {self._predictions_left} more predictions in this generation, {len(counts)} were "
                "asked for; an update after it is used up starts anew"
            )
        if self.journal is not None and len(counts):
            self.journal.reserve(self._predictions + len(counts), self._capacity)
        self._ledger.charge(self.mechanism.event, len(counts), enforce=False)
        return self.mechanism.release(counts, rng)

    @property
    def _predictions_left(self) -> float:
        return max(0, self._capacity - self._predictions)

    def guarantee(self, *, num_shards: int, beta: float | None, gamma: float | None, num_generations: int) -> Guarantee:
        """The best theorem for a generation that publishes as much as the budget allows.

        The whole budget is certified, and not what is spent so far, because a requester may choose when to stop.
        """
        event = self.mechanism.event
        beta = DEFAULT_FAILURE if beta is None else beta
        gamma = DEFAULT_FAILURE if gamma is None else gamma
        if isinstance(event, NonPrivate):
            return Guarantee(math.inf, beta, gamma, note=_NO_PRIVACY)
        if math.isinf(self._capacity):
            return Guarantee(math.inf, beta, gamma, note=_NO_BUDGET)
        events: dict[Event, int] = {event: int(self._capacity)} if self._capacity else {}
        found = certify(events, num_shards=num_shards, beta=beta, gamma=gamma, num_generations=num_generations)
        return found if events else replace(found, assumptions=(*found.assumptions, _NOTHING_ALLOWED))

    def new_generation(self, rng: Randomness) -> NoisyPublisher:
        """A publisher with the same options and empty books."""
        return NoisyPublisher(
            self.mechanism,
            budget=self._ledger.budget,
            max_predictions=self._max_predictions,
            accountant=self._ledger.accountant,
            on_exhausted=self.on_exhausted,
        )

    def snapshot(self) -> dict[str, Any]:
        """The ledger, as plain data."""
        return self._ledger.snapshot()

    @property
    def secret(self) -> dict[str, Any]:
        """Empty: every answer has noise of its own."""
        return {}

    def restore(self, *, predictions: int, dirty: bool, secret: dict[str, Any]) -> None:
        """Count the predictions that were paid for before. More than the budget covers makes the generation dirty."""
        self._ledger.charge(self.mechanism.event, predictions - self._predictions, enforce=False)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "mechanism": self.mechanism,
            "on_exhausted": self.on_exhausted,
            "max_predictions": self._max_predictions,
            "capacity": self._capacity,
            "budget": self._ledger.budget,
            "accountant": self._ledger.accountant,
            "events": dict(self._ledger.events),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.mechanism = state["mechanism"]
        self.on_exhausted = state["on_exhausted"]
        self._max_predictions = state["max_predictions"]
        self._capacity = state["capacity"]
        self._ledger = Ledger(state["budget"], accountant=state["accountant"])
        for event, count in state["events"].items():
            self._ledger.charge(event, count, enforce=False)
