"""From a target (α,β,γ) back to the design: how many predictions, which ε0, how many shards.

α grows with the number of predictions, with ε0 and with the number of shards (more shards carry more secret
randomness at the same ε0), so each answer is the largest value that still meets the target, found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from expunge.core.checks import require_count
from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.privacy.accounting.events import BoundedRange, Event
from expunge.theory.certify import all_bounds

#: No search goes beyond this; an answer equal to it means "more than anyone will need".
LARGEST_COUNT: Final = 10**15
_SMALLEST_EPSILON: Final = 1e-15
_LARGEST_EPSILON: Final = 1e6


def max_predictions(
    target: Guarantee,
    *,
    event: Event,
    num_shards: int,
    num_generations: int = 1,
    num_outcomes: int | None = None,
) -> int:
    """The largest number of predictions per generation, each costing `event`, that is certified within the target."""

    def holds(count: int) -> bool:
        return _meets(target, {event: count}, num_shards, num_generations, num_outcomes)

    return _largest(holds)


def max_epsilon(
    target: Guarantee,
    *,
    num_predictions: int,
    num_shards: int,
    num_generations: int = 1,
    event: Callable[[float], Event] = BoundedRange,
) -> float:
    """The largest ε0 at which `num_predictions` of `event(ε0)` are certified within the target.

    To nine digits, and always on the safe side; 0 if not even 1e-15 is certified, infinite if nothing is asked.
    `event` makes the event from ε0: `BoundedRange` (the default) or `PureDP`.
    """
    require_count("num_predictions", num_predictions, least=0)
    if num_predictions == 0:
        return math.inf

    def holds(epsilon: float) -> bool:
        return _meets(target, {event(epsilon): num_predictions}, num_shards, num_generations, None)

    low, high = 0.0, _SMALLEST_EPSILON
    while high < _LARGEST_EPSILON and holds(high):
        low, high = high, 8 * high
    while low > 0 and high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def max_num_shards(target: Guarantee, *, events: Mapping[Event, int], num_generations: int = 1) -> int:
    """The largest number of shards for which `events` in each generation are certified within the target; 0 if none.

    Fewer shards are always certified too. (That a given *accuracy* allows a smaller ε0 with more shards is for the
    planner: there ε0 changes with k, here it does not.)
    """

    def holds(num_shards: int) -> bool:
        return num_shards == 0 or _meets(target, events, num_shards, num_generations, None)

    return _largest(holds)


def _meets(
    target: Guarantee,
    events: Mapping[Event, int],
    num_shards: int,
    num_generations: int,
    num_outcomes: int | None,
) -> bool:
    if target.beta >= 1 or target.gamma >= 1:
        raise ParameterError(f"beta and gamma of a target must be below 1, got {target}")
    bounds = all_bounds(
        events,
        num_shards=num_shards,
        beta=target.beta,
        gamma=target.gamma,
        num_generations=num_generations,
        num_outcomes=num_outcomes,
    )
    # Any bound will do: each of them is monotone, the one with the smallest alpha need not be as a whole.
    return any(bound.covers(target) for bound in bounds)


def _largest(holds: Callable[[int], bool]) -> int:
    """The largest n in 0..LARGEST_COUNT with holds(n), for a monotone condition that holds at 0."""
    low, high = 0, 1
    while high <= LARGEST_COUNT and holds(high):
        low, high = high, 2 * high
    high = min(high, LARGEST_COUNT + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
