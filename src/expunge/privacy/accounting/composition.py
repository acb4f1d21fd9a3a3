"""Composition of events: a frozen summary of what a whole transcript costs, with its privacy curve.

The summary keeps three facts about an adaptive sequence of releases. They hold for events fixed in advance, in any
order:

- `failure`: an (ε_i,δ_i)-DP release is a post-processing of a release that reveals everything with probability δ_i and
  is ε_i-DP otherwise (Kairouz, Oh, Viswanath 2015). So something is revealed with probability 1 − Π(1−δ_i). Given that
  nothing is, only pure and concentrated releases remain.
- `pure_epsilon`: Σε_i (basic composition), infinite once a release has no pure bound.
- `rho`: Σρ_i, with ρ = ε²/8 for bounded range (Lemma 0), ε²/2 for pure DP, 1/(2m²) for a Gaussian.

The optimal Rényi conversion turns ρ-zCDP into (ε,δ)-DP. ρ-zCDP means D_order ≤ ρ·order for every Rényi order. With
x = order − 1, every x > 0 gives

    ln δ(ε) ≤ x(ρ(1+x) − ε) − x ln(1 + 1/x) − ln(1 + x)

(Canonne, Kamath, Steinke 2020, Proposition 12; it is the factor C(λ) = λ^λ/(1+λ)^(1+λ) of the theory's Conversion with
λ = x). Both the δ at a given ε and the ε at a given δ have one stationary point in x, which a safeguarded Newton
iteration finds. Every x is valid, so an imprecise root only loosens the bound.

At ε = 0 the total variation distance gives more: KL ≤ ρ, so δ(0) ≤ √(ρ/2) (Pinsker) and δ(0) ≤ √(1 − e^{−ρ})
(Bretagnolle and Huber).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from expunge.core.checks import require_count, require_number
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

_TINY = sys.float_info.min
_ITERATIONS = 200


def epsilon_from_rho(rho: float, delta: float) -> float:
    """Return an ε such that every ρ-zCDP release is (ε,δ)-DP; non-decreasing in ρ, non-increasing in δ."""
    if rho == 0:
        return 0.0
    if delta == 0 or rho == math.inf:
        return math.inf
    if delta >= total_variation(rho):
        return 0.0
    log_inverse = -math.log(delta)

    # The derivative in x vanishes where ρx² + ln(1+x) = ln(1/δ), whose left side increases.
    def slope(x: float) -> float:
        return rho * x * x + math.log1p(x) - log_inverse

    x = _root(slope, lambda x: 2 * rho * x + 1 / (1 + x), high=_over(math.sqrt(log_inverse), math.sqrt(rho)))
    return max(0.0, rho * (1 + x) - math.log1p(1 / x) + (log_inverse - math.log1p(x)) / x)


def log_delta_from_rho(rho: float, epsilon: float) -> float:
    """Return ln δ such that every ρ-zCDP release is (ε,δ)-DP; −∞ where δ = 0."""
    if rho == 0 or epsilon == math.inf:
        return -math.inf
    if rho == math.inf:
        return 0.0

    # The bound is convex in x; its derivative is ρ(1+2x) − ε − ln(1 + 1/x), and ln(1 + 1/x) ≤ 1/x bounds the root.
    def slope(x: float) -> float:
        return rho * (1 + 2 * x) - epsilon - math.log1p(1 / x)

    excess = epsilon - rho
    high = _over(excess + math.hypot(excess, math.sqrt(8 * rho)), 4 * rho)
    x = _root(slope, lambda x: 2 * rho + 1 / (x * (1 + x)), high=high)
    bound = x * (rho * (1 + x) - epsilon) - x * math.log1p(1 / x) - math.log1p(x)
    # An overflow must not read as δ = 0.
    return min(0.0, max(bound, -sys.float_info.max), math.log(total_variation(rho)))


def total_variation(rho: float) -> float:
    """Return a bound on the total variation distance between neighbours of a ρ-zCDP release."""
    return min(1.0, math.sqrt(rho / 2), math.sqrt(-math.expm1(-rho)))


def _over(numerator: float, denominator: float) -> float:
    """Return the quotient, kept within 1e-150..1e150 so that its square and inverse stay finite."""
    return min(max(numerator / max(denominator, _TINY), 1e-150), 1e150)


def _root(slope: Callable[[float], float], derivative: Callable[[float], float], *, high: float) -> float:
    """Return (nearly) the root of an increasing function on (0, high]; Newton steps, or halving in ln x."""
    low, x = 1e-300, high
    if slope(high) <= 0:
        return high
    for _ in range(_ITERATIONS):
        value = slope(x)
        low, high = (x, high) if value < 0 else (low, x)
        candidate = x - value / derivative(x)
        if not low < candidate < high:
            candidate = math.sqrt(low) * math.sqrt(high)
        if abs(candidate - x) <= 1e-12 * x:
            return candidate
        x = candidate
    return x


Events = Mapping[Event, int]
"""How often each event happened. These are counts, not lists, because a generation may hold 10^9 events."""


@dataclass(frozen=True, slots=True)
class Composition:
    """A summary of composed events: all is revealed with probability `failure`; else two privacy bounds hold.

    Make one with `compose`. A transcript without (ε,δ) events has `failure == 0`. Then `rho` and `pure_epsilon` are
    plain bounds, as T1 and the zCDP form of T2 need them. Otherwise use the curve `delta`.

    Parameters
    ----------
    pure_epsilon
        Without failure, the transcript is `pure_epsilon`-DP; infinite if no such bound is known.
    rho
        Without failure, the transcript is `rho`-zCDP; infinite if no such bound is known.
    failure
        The probability that everything is revealed.
    """

    pure_epsilon: float
    rho: float
    failure: float

    def epsilon(self, delta: float) -> float:
        """Return an ε at which the transcript is (ε,δ)-DP, infinite if there is none."""
        inner = within_success(require_delta(delta), self.failure)
        if inner is None:
            return math.inf
        return min(epsilon_from_rho(self.rho, inner), _pure_epsilon_at(self.pure_epsilon, inner))

    def delta(self, epsilon: float) -> float:
        """Return a δ at which the transcript is (ε,δ)-DP: an upper bound on its privacy curve, non-increasing."""
        return delta_of(self.log_delta(epsilon))

    def log_delta(self, epsilon: float) -> float:
        """Return ln δ(ε), for tails far below the smallest float; −∞ where δ = 0."""
        require_epsilon(epsilon)
        if self.failure >= 1:
            return 0.0
        inner = min(log_delta_from_rho(self.rho, epsilon), _pure_log_delta_at(self.pure_epsilon, epsilon))
        return log_with_failure(inner, self.failure)


def compose(events: Events) -> Composition:
    """Summarise adaptively composed events. This takes a few microseconds for each kind of event.

    Parameters
    ----------
    events
        How often each event happened.

    Returns
    -------
    Composition
        The summary.

    Raises
    ------
    UnknownEventError
        If a key is not a privacy event.
    ParameterError
        If a count is not an integer >= 0.

    Examples
    --------
    >>> from expunge.privacy.accounting import BoundedRange
    >>> summary = compose({BoundedRange(0.1): 1000})
    >>> round(summary.rho, 6), round(summary.epsilon(delta=1e-6), 2)
    (1.25, 8.85)
    """
    counts = require_events(events)
    if not has_bound(counts):
        return Composition(math.inf, math.inf, 1.0)
    remaining, failure = split_failure(counts)
    return Composition(pure_epsilon=total_pure_epsilon(remaining), rho=total_rho(remaining), failure=failure)


def pure_epsilon_of(event: Event) -> float:
    """Return the ε of pure differential privacy that one event guarantees (given no failure), or infinity."""
    if isinstance(event, PureDP | BoundedRange | ApproximateDP):
        return event.epsilon
    if isinstance(event, ConcentratedDP) and event.rho == 0:
        return 0.0
    return math.inf


def rho_of(event: Event) -> float:
    """Return the ρ of zero-concentrated differential privacy that one event guarantees (given no failure)."""
    match event:
        case PureDP(epsilon) | ApproximateDP(epsilon, _):
            return square(epsilon) / 2
        case BoundedRange(epsilon):
            return square(epsilon) / 8
        case GaussianDP(noise_multiplier):
            return square(1 / noise_multiplier) / 2
        case ConcentratedDP(rho):
            return rho
        case _:
            return math.inf


def has_bound(counts: Events) -> bool:
    """Tell whether every event has some privacy bound, that is, none is `NonPrivate`."""
    return not any(isinstance(event, NonPrivate) for event in counts)


def is_free(event: Event) -> bool:
    """Tell whether an event reveals nothing at all, so that any number of them costs nothing."""
    match event:
        case PureDP(epsilon) | BoundedRange(epsilon):
            return epsilon == 0
        case ApproximateDP(epsilon, delta):
            return epsilon == 0 and delta == 0
        case ConcentratedDP(rho):
            return rho == 0
        case _:
            return False


def total(counts: Events, cost: Callable[[Event], float]) -> float:
    """Return Σ count·cost(event), infinite when it leaves the range of floats."""
    try:
        return math.fsum(count * cost(event) for event, count in counts.items())
    except OverflowError:
        return math.inf


def total_pure_epsilon(counts: Events) -> float:
    """Return Σε_i, the ε of basic composition (given no failure)."""
    return total(counts, pure_epsilon_of)


def total_rho(counts: Events) -> float:
    """Return Σρ_i, the ρ of zCDP composition (given no failure)."""
    return total(counts, rho_of)


def split_failure(counts: Events) -> tuple[dict[Event, int], float]:
    """Replace (ε,δ) events by ε-DP ones; also return the probability that any of them fails."""
    remaining: dict[Event, int] = {}
    for event, count in counts.items():
        kept: Event = event
        if isinstance(event, ApproximateDP):
            kept = PureDP(event.epsilon)
        remaining[kept] = remaining.get(kept, 0) + count
    return remaining, -math.expm1(-total(counts, _failure_rate))


def _failure_rate(event: Event) -> float:
    """Return −ln(1 − δ) of one event."""
    if not isinstance(event, ApproximateDP):
        return 0.0
    return -math.log1p(-event.delta) if event.delta < 1 else math.inf


def within_success(delta: float, failure: float) -> float | None:
    """Return the δ left for the case without failure, or None when the failure alone exceeds δ."""
    if failure >= 1 or delta < failure:
        return None
    return (delta - failure) / (1 - failure)


def log_with_failure(log_inner: float, failure: float) -> float:
    """Return ln(failure + (1 − failure)·e^log_inner), the δ with the failure put back."""
    if failure == 0:
        return log_inner
    return math.log(min(1.0, failure + (1 - failure) * math.exp(log_inner)))


def delta_of(log_delta: float) -> float:
    """Return e^log_delta, never rounded down to zero: only ln δ = −∞ says that δ = 0."""
    return max(math.exp(log_delta), math.ulp(0.0)) if log_delta > -math.inf else 0.0


def square(value: float) -> float:
    """Return value², never rounded down to zero: an underflow must not make an event free."""
    return max(value * value, 8 * sys.float_info.min) if value > 0 else 0.0


def require_events(events: Events) -> dict[Event, int]:
    """Check events and their counts; return those that happened at least once."""
    counts: dict[Event, int] = {}
    for event, count in events.items():
        if not isinstance(event, Event):
            raise UnknownEventError(f"not a privacy event: {event!r}")
        number = require_event_count(count)
        if number:
            counts[event] = number
    return counts


def require_event_count(count: object) -> int:
    """Check how often an event happened."""
    return require_count("count of an event", count, least=0)


def require_delta(delta: object) -> float:
    """Check a δ: 0 ≤ δ < 1."""
    return require_number("delta", delta, least=0, below=1)


def require_epsilon(epsilon: object) -> float:
    """Check an ε: finite and not negative."""
    return require_number("epsilon", epsilon, least=0)


def _pure_epsilon_at(pure: float, delta: float) -> float:
    """Return the ε at δ of randomised response with parameter `pure`, which dominates every pure-DP release."""
    if pure == math.inf:
        return math.inf
    loss = delta * (1 + math.exp(-pure))
    return max(0.0, pure + math.log1p(-loss)) if loss < 1 else 0.0


def _pure_log_delta_at(pure: float, epsilon: float) -> float:
    """Return ln δ at ε of randomised response with parameter `pure`: (e^pure − e^ε)/(e^pure + 1)."""
    if epsilon >= pure:
        return -math.inf
    if pure == math.inf:
        return 0.0
    return math.log(-math.expm1(epsilon - pure)) - math.log1p(math.exp(-pure))
