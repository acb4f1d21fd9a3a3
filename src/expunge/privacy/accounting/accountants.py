"""Accountants: rules that compose events into one (ε,δ) statement, and find how many more events a budget allows.

- `paper`, `basic`, `advanced`: the paper's count, basic and advanced composition of pure differential privacy.
- `zcdp`: zero-concentrated differential privacy. ρ adds up and is converted once, at the end.
- `pld`: privacy loss distributions. Composition is numerical, and the sharpest for pure and Gaussian events.
- `best`: the strongest of these that can bound the events.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, final

from expunge.core.checks import require_choice
from expunge.core.errors import UnknownEventError
from expunge.privacy.accounting import composition
from expunge.privacy.accounting.composition import Events
from expunge.privacy.accounting.events import (
    ApproximateDP,
    BoundedRange,
    ConcentratedDP,
    Event,
    GaussianDP,
    NonPrivate,
    PrivacyBudget,
    PureDP,
)
from expunge.privacy.accounting.loss_distributions import compose_distributions

MAX_COUNT = 2**53
"""The search for a count stops here. Floats hold all integers up to this one exactly."""


def largest_count(cost: Callable[[int], float], limit: float, *, guess: int = 1) -> int:
    """Find the largest n in 0..MAX_COUNT with cost(n) ≤ limit, for a non-decreasing cost with cost(0) ≤ limit.

    A cost may be slow to compute, so the search asks for few of them. Steps that double and redouble from `guess` find
    a bracket. Interpolation in log-log coordinates (costs grow like powers of n), moved by one towards the middle of
    the bracket, closes it, with a plain bisection every other step.
    """
    low, high, costs = _bracket(cost, limit, max(1, min(guess, MAX_COUNT)))
    step = 0
    while high - low > 1:
        middle = (low + high) // 2 if high < 4 * low else math.isqrt(max(low, 1) * high)
        probe = middle if step % 2 else _interpolate(low, high, costs, limit, middle)
        probe = min(max(probe, low + 1), high - 1)
        costs[probe] = cost(probe)
        if costs[probe] <= limit:
            low = probe
        else:
            high = probe
        step += 1
    return low


def _bracket(cost: Callable[[int], float], limit: float, guess: int) -> tuple[int, int, dict[int, float]]:
    """Return low, high with cost(low) ≤ limit < cost(high); high = MAX_COUNT + 1 means that no limit was met."""
    costs = {guess: cost(guess)}
    low, high, factor = 0, MAX_COUNT + 1, 2
    if costs[guess] <= limit:
        low = guess
        while low < MAX_COUNT:
            probe = min(low * factor, MAX_COUNT)
            costs[probe] = cost(probe)
            if costs[probe] > limit:
                return low, probe, costs
            low, factor = probe, factor * 2
        return MAX_COUNT, MAX_COUNT + 1, costs
    high = guess
    while high > 1:
        probe = max(high // factor, 1)
        costs[probe] = cost(probe)
        if costs[probe] <= limit:
            return probe, high, costs
        high, factor = probe, factor * 2
    return 0, 1, costs


def _interpolate(low: int, high: int, costs: dict[int, float], limit: float, middle: int) -> int:
    at_low, at_high = costs.get(low, 0.0), costs.get(high, math.inf)
    if not (low > 0 and 0 < at_low < at_high < math.inf):
        return middle
    weight = (math.log(limit) - math.log(at_low)) / (math.log(at_high) - math.log(at_low))
    guess = round(math.exp(math.log(low) + weight * (math.log(high) - math.log(low))))
    return guess + (1 if guess < middle else -1)


ROUNDING = 1e-12
"""The relative slack with which an ε meets a budget, so that three events of 0.1 fit into 0.3."""


class Accountant(ABC):
    """A rule that composes events into (ε,δ)-differential privacy of the transcript in the secret randomness r.

    Accountants keep no state. Get one with `accountant(name)`.

    Formal guarantees, each tested by the conformance suite:

    - The adaptive composition of the events is (`epsilon(events, delta)`, delta)-DP, for events fixed in advance.
    - More events never lower ε, and a larger δ never raises it.
    - `NonPrivate` makes ε infinite. An event that the rule cannot bound raises `UnknownEventError`.
    """

    name: ClassVar[str]
    supported: ClassVar[tuple[type, ...]]

    def check(self, event: Event) -> None:
        """Raise `UnknownEventError` unless this accountant can bound the event."""
        if not isinstance(event, (*self.supported, NonPrivate)):
            raise UnknownEventError(f"accountant {self.name!r} cannot bound {event!r}")

    def epsilon(self, events: Events, delta: float) -> float:
        """Return an ε such that the composed events are (ε,δ)-DP, infinite if there is none.

        Parameters
        ----------
        events
            How often each event happened.
        delta
            δ, in [0, 1).

        Raises
        ------
        UnknownEventError
            If the rule cannot bound an event.
        ParameterError
            If δ or a count is out of range.
        """
        composition.require_delta(delta)
        counts = self._checked(events)
        if not composition.has_bound(counts):
            return math.inf
        remaining, failure = composition.split_failure(counts)
        inner = composition.within_success(delta, failure)
        return math.inf if inner is None else self._epsilon(remaining, inner)

    def delta(self, events: Events, epsilon: float) -> float:
        """Return a δ such that the composed events are (ε,δ)-DP; 1 where the rule gives no bound.

        Parameters
        ----------
        events
            How often each event happened.
        epsilon
            ε, finite and not negative.

        Raises
        ------
        UnknownEventError
            If the rule cannot bound an event.
        ParameterError
            If ε or a count is out of range.
        """
        composition.require_epsilon(epsilon)
        counts = self._checked(events)
        if not composition.has_bound(counts):
            return 1.0
        remaining, failure = composition.split_failure(counts)
        return composition.delta_of(composition.log_with_failure(self._log_delta(remaining, epsilon), failure))

    def affords(self, events: Events, budget: PrivacyBudget) -> bool:
        """Tell whether the events together stay within the budget."""
        return self.epsilon(events, budget.delta) <= _limit(budget)

    def remaining(self, spent: Events, event: Event, budget: PrivacyBudget) -> int | float:
        """Return how many more of `event` the budget allows after `spent`; `math.inf` if they cost nothing.

        The search stops at 2^53, which then means "at least that many".
        """
        self.check(event)
        if not self.affords(spent, budget):
            return 0
        if composition.is_free(event):
            return math.inf
        before = composition.require_event_count(spent.get(event, 0))

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
        """Return where the search for the largest count starts. Override it where ε is slow to compute."""
        return 1

    def _checked(self, events: Events) -> dict[Event, int]:
        counts = composition.require_events(events)
        for event in counts:
            self.check(event)
        return counts


def _limit(budget: PrivacyBudget) -> float:
    return budget.epsilon * (1 + ROUNDING)


@final
class PaperAccountant(Accountant):
    """The paper's count ⌊ε²/(8ε0² ln(1/δ))⌋ (Algorithm PrivatePredictionInteraction), made safe.

    Events: any mixture of pure DP and bounded range. With S = Σε_i² the transcript is (ε,δ)-DP with
    ε = √(8 S ln(1/δ)), provided that ln(1/δ) ≥ (ε/4)·c, c = (e^{ε_max} − 1)/ε_max.

    Proof. Advanced composition gives ε' = √(2 S ln(1/δ)) + Σε_i(e^{ε_i} − 1). Since (e^x − 1)/x increases, the sum is
    at most cS. The condition says 4 ln(1/δ) ≥ c√(8 S ln(1/δ)), that is cS ≤ √(2 S ln(1/δ)); hence
    ε' ≤ 2√(2 S ln(1/δ)) = ε. ∎

    The condition is the same as ln(1/δ) ≥ c²S/2. Where it fails, the theorem is used at the smaller δ' that meets it,
    because (ε,δ')-DP with δ' ≤ δ is stronger: ε = √(8 S max(ln(1/δ), c²S/2)), which is monotone in events and in δ.
    """

    name: ClassVar[str] = "paper"
    supported: ClassVar[tuple[type, ...]] = (PureDP, BoundedRange)

    def _epsilon(self, counts: Events, delta: float) -> float:
        squares = _sum_of_squares(counts)
        if squares == 0:
            return 0.0
        return math.sqrt(8 * max(_log_inverse(delta), _least_log_inverse(counts))) * math.sqrt(squares)

    def _log_delta(self, counts: Events, epsilon: float) -> float:
        squares = _sum_of_squares(counts)
        if squares == 0:
            return -math.inf
        log_inverse = epsilon * (epsilon / (8 * squares))
        return -log_inverse if log_inverse >= _least_log_inverse(counts) else 0.0


@final
class BasicAccountant(Accountant):
    """Basic composition: the ε add up, and (ε,δ) events fail with probability 1 − Π(1−δ_i) in total."""

    name: ClassVar[str] = "basic"
    supported: ClassVar[tuple[type, ...]] = (PureDP, BoundedRange, ApproximateDP)

    def _epsilon(self, counts: Events, delta: float) -> float:
        return composition.total_pure_epsilon(counts)

    def _log_delta(self, counts: Events, epsilon: float) -> float:
        return -math.inf if epsilon >= composition.total_pure_epsilon(counts) else 0.0


@final
class AdvancedAccountant(Accountant):
    """Advanced composition (Dwork, Rothblum, Vadhan 2010), in its exact form and for mixed events.

    ε = Σε_i(e^{ε_i} − 1) + √(2 ln(1/δ) Σε_i²). Proof: given the past, the privacy loss of release i lies in
    [−ε_i, ε_i] and has mean at most ε_i(e^{ε_i} − 1); Azuma's inequality bounds the sum. ∎
    (Sharper constants exist, for the mean ε_i·tanh(ε_i/2); `zcdp` and `pld` are never worse than either.)
    """

    name: ClassVar[str] = "advanced"
    supported: ClassVar[tuple[type, ...]] = (PureDP, BoundedRange, ApproximateDP)

    def _epsilon(self, counts: Events, delta: float) -> float:
        squares = _sum_of_squares(counts)
        if squares == 0:
            return 0.0
        return _drift(counts) + math.sqrt(2 * _log_inverse(delta)) * math.sqrt(squares)

    def _log_delta(self, counts: Events, epsilon: float) -> float:
        excess = epsilon - _drift(counts)
        if _sum_of_squares(counts) == 0:
            return -math.inf
        return -excess * (excess / (2 * _sum_of_squares(counts))) if excess > 0 else 0.0


def _sum_of_squares(counts: Events) -> float:
    return composition.total(counts, lambda event: composition.square(composition.pure_epsilon_of(event)))


def _drift(counts: Events) -> float:
    """Return Σε_i(e^{ε_i} − 1), the bound on the mean privacy loss."""

    def mean_loss(event: Event) -> float:
        epsilon = composition.pure_epsilon_of(event)
        return composition.square(epsilon) * _growth(epsilon)

    return composition.total(counts, mean_loss)


def _least_log_inverse(counts: Events) -> float:
    """Return c²S/2, the least ln(1/δ) at which the paper's form is proved."""
    largest = max(map(composition.pure_epsilon_of, counts))
    return _growth(largest) * _growth(largest) * _sum_of_squares(counts) / 2


def _growth(epsilon: float) -> float:
    """Return (e^ε − 1)/ε."""
    if epsilon == 0:
        return 1.0
    return math.expm1(epsilon) / epsilon if epsilon < 700 else math.inf


def _log_inverse(delta: float) -> float:
    return -math.log(delta) if delta > 0 else math.inf


@final
class ZCDPAccountant(Accountant):
    """zCDP composition with the optimal Rényi conversion, as a Rényi accountant with all real orders computes it.

    One event costs ρ = ε²/8 if it has bounded range (Lemma 0; Cesar and Rogers 2021), ε²/2 if it is only ε-DP (Bun and
    Steinke 2016), and 1/(2m²) if it is Gaussian. The rule bounds every kind of event.
    """

    name: ClassVar[str] = "zcdp"
    supported: ClassVar[tuple[type, ...]] = (PureDP, BoundedRange, GaussianDP, ConcentratedDP, ApproximateDP)

    def _epsilon(self, counts: Events, delta: float) -> float:
        return composition.epsilon_from_rho(composition.total_rho(counts), delta)

    def _log_delta(self, counts: Events, epsilon: float) -> float:
        return composition.log_delta_from_rho(composition.total_rho(counts), epsilon)


_FLOOR = 1e-15
"""A numerical convolution never claims a δ below this; its rounding errors are of that order."""


@final
class PLDAccountant(Accountant):
    """Pessimistic privacy loss distributions, composed by dp-accounting; never above the sum of the ε.

    Bounded-range events use the dominating pair of their whole family (loss variance ε²/3, against ε² for plain ε-DP
    and ε²/4 for the zCDP bound). So for very many of them `zcdp` is better. The numerical floor of δ is about 1e-15
    and grows with the number of events; below it the answer is the sum of the ε. Concentrated events are refused,
    because their worst case has no known dominating pair.
    """

    name: ClassVar[str] = "pld"
    supported: ClassVar[tuple[type, ...]] = (PureDP, BoundedRange, GaussianDP, ApproximateDP)

    def _epsilon(self, counts: Events, delta: float) -> float:
        pure = composition.total_pure_epsilon(counts)
        if pure == 0 or delta < _FLOOR:
            return pure
        distribution = compose_distributions(counts)
        return pure if distribution is None else min(pure, float(distribution.get_epsilon_for_delta(delta)))

    def _log_delta(self, counts: Events, epsilon: float) -> float:
        if epsilon >= composition.total_pure_epsilon(counts):
            return -math.inf
        distribution = compose_distributions(counts)
        if distribution is None:
            return 0.0
        return math.log(min(1.0, max(float(distribution.get_delta_for_epsilon(epsilon)), _FLOOR)))

    def _guess(self, spent: Events, event: Event, budget: PrivacyBudget) -> int:
        # One ε takes tens of milliseconds here but microseconds under zCDP, and the counts are of the same order.
        guess = ZCDPAccountant().remaining(spent, event, budget)
        return max(1, int(guess)) if math.isfinite(guess) else 1


@final
class BestAccountant(Accountant):
    """The smallest ε, at every δ, of all accountants that can bound the events. Each is valid, so their minimum is."""

    name: ClassVar[str] = "best"
    supported: ClassVar[tuple[type, ...]] = (PureDP, BoundedRange, GaussianDP, ConcentratedDP, ApproximateDP)

    # Quick ones first: `affords` stops at the first that agrees.
    _members: ClassVar[tuple[Accountant, ...]] = (
        ZCDPAccountant(),
        BasicAccountant(),
        AdvancedAccountant(),
        PaperAccountant(),
        PLDAccountant(),
    )

    def affords(self, events: Events, budget: PrivacyBudget) -> bool:
        """Tell whether any accountant keeps the events within the budget."""
        counts = self._checked(events)
        return any(member.affords(counts, budget) for member in self._members if _can_bound(member, counts))

    def remaining(self, spent: Events, event: Event, budget: PrivacyBudget) -> int | float:
        """Return how many more of `event` the budget allows: the largest answer of any accountant."""
        self.check(event)
        counts = self._checked(spent)
        before = counts.get(event, 0)
        most: int | float = 0
        for member in self._members:
            # Costs are monotone: skip a member that cannot afford one more than the best count so far.
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


_ACCOUNTANTS: dict[str, Accountant] = {
    each.name: each
    for each in (
        PaperAccountant(),
        BasicAccountant(),
        AdvancedAccountant(),
        ZCDPAccountant(),
        PLDAccountant(),
        BestAccountant(),
    )
}

ACCOUNTANT_NAMES = tuple(_ACCOUNTANTS)
"""The names that `accountant` knows, weakest first."""


def accountant(name: str) -> Accountant:
    """Return the accountant of a given name.

    Parameters
    ----------
    name
        One of `ACCOUNTANT_NAMES`.

    Returns
    -------
    Accountant
        The accountant. All callers share one instance, because accountants keep no state.

    Raises
    ------
    ParameterError
        If the name is unknown. The message lists the names.

    Examples
    --------
    >>> from expunge.privacy.accounting import BoundedRange, PrivacyBudget
    >>> accountant("paper").remaining({}, BoundedRange(0.01), PrivacyBudget(epsilon=1.0, delta=1e-6))
    90
    """
    return _ACCOUNTANTS[require_choice("accountant", name, ACCOUNTANT_NAMES)]
