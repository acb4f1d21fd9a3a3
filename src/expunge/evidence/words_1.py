"""How certificates of format 1 write numbers: some round values come out a little too large (7% as 7.01%).

Kept as it was, for the certificates that are there already.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from expunge.core.words import in_digits
from expunge.evidence.facts import GuaranteeFacts


def percent(probability: float) -> str:
    """An upper bound on a probability, as a percentage rounded up."""
    return f"{_ceiling(100 * probability)}%"


def chance(probability: float) -> str:
    """An upper bound on a probability as "1 in so many", the number rounded down (but for the last of 12 digits)."""
    if probability == 0:
        return "never"
    many = 1 / probability
    if many < 1.5:
        return "always"
    return f"1 in {in_digits(Decimal(repr(many * (1 + 1e-12))), 3, ROUND_FLOOR)}"


def factor(guarantee: GuaranteeFacts) -> str:
    """e^α, rounded up."""
    return _ceiling(math.exp(guarantee.alpha))


def bound(guarantee: GuaranteeFacts, probability: float) -> float:
    """The most that the guarantee allows of what has this probability after training from scratch."""
    return min(1.0, math.exp(guarantee.alpha) * probability + guarantee.beta)


def _ceiling(value: float) -> str:
    return in_digits(Decimal(repr(value)), 3, ROUND_CEILING)
