"""Privacy loss distributions: numerical composition, the sharpest for pure and Gaussian events."""

from __future__ import annotations

import math
from typing import ClassVar, final

from expunge.accounting._accountant import Accountant
from expunge.accounting._loss_distributions import compose_distributions
from expunge.accounting.budget import PrivacyBudget
from expunge.accounting.composition import Events, pure_epsilon_of, total
from expunge.accounting.events import ApproximateDP, BoundedRange, Event, GaussianDP, PureDP
from expunge.accounting.zcdp import ZCDPAccountant

_FLOOR = 1e-15
"""No δ below this is claimed from a numerical convolution: it is of the order of its rounding errors."""


@final
class PLDAccountant(Accountant):
    """Pessimistic privacy loss distributions, composed by dp-accounting; never above the sum of the ε.

    Bounded-range events use the dominating pair of their whole family (loss variance ε²/3, against ε² for plain ε-DP
    and ε²/4 for the zCDP bound), so for very many of them `zcdp` is better. The numerical floor of δ is about 1e-15
    and grows with the number of events; below it only the sum of the ε is left. Concentrated events are refused: their
    worst case has no known dominating pair.
    """

    name: ClassVar[str] = "pld"
    supported: ClassVar[tuple[type, ...]] = (PureDP, BoundedRange, GaussianDP, ApproximateDP)

    def _epsilon(self, counts: Events, delta: float) -> float:
        pure = total(counts, pure_epsilon_of)
        if pure == 0 or delta < _FLOOR:
            return pure
        distribution = compose_distributions(counts)
        return pure if distribution is None else min(pure, float(distribution.get_epsilon_for_delta(delta)))

    def _log_delta(self, counts: Events, epsilon: float) -> float:
        if epsilon >= total(counts, pure_epsilon_of):
            return -math.inf
        distribution = compose_distributions(counts)
        if distribution is None:
            return 0.0
        return math.log(min(1.0, max(float(distribution.get_delta_for_epsilon(epsilon)), _FLOOR)))

    def _guess(self, spent: Events, event: Event, budget: PrivacyBudget) -> int:
        # Each ε costs tens of milliseconds here and microseconds there, and the counts are of the same order.
        guess = ZCDPAccountant().remaining(spent, event, budget)
        return max(1, int(guess)) if math.isfinite(guess) else 1
