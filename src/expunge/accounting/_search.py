"""The largest affordable count, with few evaluations of an expensive cost."""

from __future__ import annotations

import math
from collections.abc import Callable

MAX_COUNT = 2**53
"""No count above this is looked for (it is also the largest run of integers that floats hold exactly)."""


def largest_count(cost: Callable[[int], float], limit: float, *, guess: int = 1) -> int:
    """Return the largest n in 0..MAX_COUNT with cost(n) ≤ limit, for a non-decreasing cost with cost(0) ≤ limit.

    Galloping from `guess` finds a bracket; interpolation in log-log coordinates (costs grow like powers of n) with a
    nudge of one towards the middle of the bracket, and a plain bisection every other step, closes it.
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
    """Return low, high with cost(low) ≤ limit < cost(high), where high = MAX_COUNT + 1 stands for "no limit met"."""
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
