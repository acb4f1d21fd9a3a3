"""The exponential mechanism (McSherry and Talwar 2007)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from expunge.accounting.events import BoundedRange
from expunge.mechanisms._choice import choose_by_weight
from expunge.mechanisms._laws import exponential_law
from expunge.mechanisms._mechanism import Mechanism, check_number, gaps_of, scaled_gaps
from expunge.randomness import Randomness


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ExponentialMechanism(Mechanism):
    """Class y with probability proportional to exp(ε0 · count_y / 2): the paper's PrivatePredict (Section 4.1).

    Sensitivity: a changed vote moves one count up and another down by 1, so the factor 1/2 is needed (the paper names
    the mechanism and leaves its weights open): log-weights move by at most ε0/2 either way.
    Privacy: between neighbours the log-weights move within an interval of length ε0 and the normaliser shifts all of
    them alike, so the log-likelihood ratio lies in an interval of length ε0 that contains 0: `BoundedRange(ε0)`, which
    is ε0-DP and ε0²/8-zCDP (Lemma 0).
    Utility: a class that is g votes ahead of each other one wins with probability 1 / (1 + (c−1) exp(−ε0 g/2)) at
    least, c the number of classes.
    Sampling: exact, without floating-point error in the law (`choose_by_weight`).
    """

    name: ClassVar[str] = "exponential"
    epsilon: float

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon)

    @property
    def event(self) -> BoundedRange:
        """ε0-DP with bounded range."""
        return BoundedRange(self.epsilon)

    def _release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        return choose_by_weight(gaps_of(counts), Fraction(self.epsilon) / 2, rng)

    def _law(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return exponential_law(scaled_gaps(counts, self.epsilon / 2))
