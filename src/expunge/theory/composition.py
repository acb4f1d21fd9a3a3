"""Composition: a transcript's privacy events, summed up in the few numbers that the theorems read.

All events compose adaptively: a requester may choose every query after seeing all answers so far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from expunge.core.checks import require_count
from expunge.core.errors import UnknownEventError
from expunge.privacy.accounting.events import (
    ApproximateDP,
    BoundedRange,
    ConcentratedDP,
    Event,
    GaussianDP,
    NonPrivate,
    PureDP,
)


@dataclass(frozen=True, slots=True)
class PrivacyTotals:
    """The totals of a transcript's privacy events.

    Parameters
    ----------
    epsilon
        Pure DP of the whole; infinite if some event is not pure.
    rho
        zCDP of all events but the approximate ones.
    approximate_epsilon, delta
        The approximate events by basic composition.
    approximate_rho
        The approximate events as δ-approximate zCDP.
    mu
        Gaussian DP of the whole if every event is Gaussian, else None.
    num_events
        How many events there are.
    is_private
        False if some event publishes without privacy.

    Examples
    --------
    >>> PrivacyTotals.of({PureDP(0.25): 4}).epsilon
    1.0
    """

    epsilon: float = 0.0
    rho: float = 0.0
    approximate_epsilon: float = 0.0
    approximate_rho: float = 0.0
    delta: float = 0.0
    mu: float | None = None
    num_events: int = 0
    is_private: bool = True

    @classmethod
    def of(cls, events: Mapping[Event, int]) -> PrivacyTotals:
        """Sum up a mapping from event to how often it happened.

        Raises ParameterError if a count is not an integer >= 0, and UnknownEventError if no guarantee is known for an
        event.
        """
        for event, count in events.items():
            require_count(f"the count of {event!r}", count, least=0)
        parts = [(_one(event), count) for event, count in events.items() if count > 0]
        return cls(
            epsilon=sum(count * part.epsilon for part, count in parts),
            rho=sum(count * part.rho for part, count in parts),
            approximate_epsilon=sum(count * part.approximate_epsilon for part, count in parts),
            approximate_rho=sum(count * part.approximate_rho for part, count in parts),
            delta=min(1.0, sum(count * part.delta for part, count in parts)),
            mu=_gaussian(events),
            num_events=sum(count for _, count in parts),
            is_private=all(part.is_private for part, _ in parts),
        )


def pure_rho(epsilon: float) -> float:
    """The smallest ρ such that every ε-DP mechanism is ρ-zCDP: ε·tanh(ε/2) ≤ ε²/2.

    Randomised response dominates ε-DP and has (s−1)D_s = ln cosh((s−½)ε) − ln cosh(ε/2). ln cosh(ε√v) is concave in
    v, and s(s−1) = (s−½)² − ¼, so the tangent at v = ¼ gives D_s ≤ s·ε·tanh(ε/2); equality as s → 1.
    """
    return epsilon * math.tanh(epsilon / 2)


def bounded_range_rho(epsilon: float) -> float:
    """ρ of an ε-bounded-range mechanism: ε²/8 (Lemma 0), or what ε-DP alone gives when that is smaller (ε > 8)."""
    return min(epsilon * (epsilon / 8), pure_rho(epsilon))


def _one(event: Event) -> PrivacyTotals:
    """The totals of one event."""
    match event:
        case PureDP(epsilon=epsilon):
            return PrivacyTotals(epsilon=epsilon, rho=pure_rho(epsilon))
        case BoundedRange(epsilon=epsilon):
            return PrivacyTotals(epsilon=epsilon, rho=bounded_range_rho(epsilon))
        case GaussianDP(noise_multiplier=multiplier):
            return PrivacyTotals(epsilon=math.inf, rho=(1 / multiplier) * (0.5 / multiplier))
        case ConcentratedDP(rho=rho):
            return PrivacyTotals(epsilon=math.inf if rho > 0 else 0.0, rho=rho)
        case ApproximateDP(epsilon=epsilon, delta=delta) if delta == 0:
            return PrivacyTotals(epsilon=epsilon, rho=pure_rho(epsilon))
        case ApproximateDP(epsilon=epsilon, delta=delta) if delta < 1:
            # (ε,δ)-DP is δ-approximately what ε-DP is: with probability 1−δ each, the two laws are ε-close.
            return PrivacyTotals(
                epsilon=math.inf, approximate_epsilon=epsilon, approximate_rho=pure_rho(epsilon), delta=delta
            )
        case ApproximateDP() | NonPrivate():
            return PrivacyTotals(epsilon=math.inf, rho=math.inf, is_private=False)
        case _:
            raise UnknownEventError(f"no guarantee is known for the event {event!r}")


def _gaussian(events: Mapping[Event, int]) -> float | None:
    """√(Σ 1/multiplier²) if all events are Gaussian: Gaussian DP composes exactly."""
    squares = []
    for event, count in events.items():
        if count > 0:
            if not isinstance(event, GaussianDP):
                return None
            squares.append(count * (1 / event.noise_multiplier) * (1 / event.noise_multiplier))
    return math.sqrt(sum(squares)) if squares else None
