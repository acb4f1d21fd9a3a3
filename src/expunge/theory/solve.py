"""From a target (α,β,γ) back to the design: how many predictions, which ε0, how many shards.

α grows with the number of predictions, with ε0 and with the number of shards (more shards carry more secret
randomness at the same ε0). So each answer is the largest value that still meets the target, found by bisection.
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

#: The searches stop here. An answer equal to it stands for no limit.
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
    """The largest number of predictions per generation, each costing `event`, that T1 to T3 certify within the target.

    Parameters
    ----------
    target
        The wanted (α,β,γ), over all generations.
    event
        What one prediction costs.
    num_shards
        k, the number of shards. Their randomness must be independent.
    num_generations
        G, the number of generations.
    num_outcomes
        If given, promises that every prediction releases one of at most that many values, and adds the
        description-length bound.

    Returns
    -------
    int
        The largest number, 0 if not even one prediction is certified, at most `LARGEST_COUNT`.

    Raises
    ------
    ParameterError
        If β or γ of the target is not below 1, or an option is out of range.
    UnknownEventError
        If no guarantee is known for the event.

    Examples
    --------
    >>> target = Guarantee(1.0, 1e-3, 1e-3)
    >>> max_predictions(target, event=BoundedRange(0.01), num_shards=100)
    6
    """

    def holds(count: int) -> bool:
        return _meets(target, {event: count}, num_shards, num_generations, num_outcomes)

    return largest_count(holds)


def max_epsilon(
    target: Guarantee,
    *,
    num_predictions: int,
    num_shards: int,
    num_generations: int = 1,
    event: Callable[[float], Event] = BoundedRange,
) -> float:
    """The largest ε0 at which `num_predictions` of `event(ε0)` are certified within the target by T1 to T3.

    Parameters
    ----------
    target
        The wanted (α,β,γ), over all generations.
    num_predictions
        How many predictions a generation publishes.
    num_shards
        k, the number of shards. Their randomness must be independent.
    num_generations
        G, the number of generations.
    event
        Makes the event from ε0: `BoundedRange` (the default) or `PureDP`.

    Returns
    -------
    float
        ε0 to nine digits, and always on the safe side; 0 if not even 1e-15 is certified, infinite if `num_predictions`
        is 0.

    Raises
    ------
    ParameterError
        If β or γ of the target is not below 1, or an option is out of range.

    Examples
    --------
    >>> target = Guarantee(1.0, 1e-3, 1e-3)
    >>> round(max_epsilon(target, num_predictions=6, num_shards=100), 4)
    0.0115
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
    """The largest number of shards for which `events` in each generation are certified within the target by T1 to T3.

    Fewer shards are always certified too. (A given *accuracy* allows a smaller ε0 with more shards. That is for the
    planner: there ε0 changes with k, here it does not.)

    Parameters
    ----------
    target
        The wanted (α,β,γ), over all generations.
    events
        What one generation may publish, as a mapping from event to count.
    num_generations
        G, the number of generations.

    Returns
    -------
    int
        The largest number, 0 if there is none, at most `LARGEST_COUNT`.

    Raises
    ------
    ParameterError
        If β or γ of the target is not below 1, or an option is out of range.
    UnknownEventError
        If no guarantee is known for an event.

    Examples
    --------
    >>> max_num_shards(Guarantee(1.0, 1e-3, 1e-3), events={BoundedRange(0.01): 6})
    131
    """

    def holds(num_shards: int) -> bool:
        return num_shards == 0 or _meets(target, events, num_shards, num_generations, None)

    return largest_count(holds)


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
    # One bound that covers the target is enough. Each bound is monotone; the smallest alpha of all need not be.
    return any(bound.covers(target) for bound in bounds)


def largest_count(holds: Callable[[int], bool], *, guess: int = 1) -> int:
    """The largest count up to LARGEST_COUNT for which a monotone condition holds; 0 if it does not hold at 1.

    The closer the guess, the fewer counts are tried: from it the steps double until they have passed the answer.
    """
    low, high = 0, LARGEST_COUNT + 1
    probe, step = max(1, min(guess, LARGEST_COUNT)), max(1, guess // 64)
    while low < probe < high:
        if holds(probe):
            low, probe = probe, probe + step
        else:
            high, probe = probe, probe - step
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
