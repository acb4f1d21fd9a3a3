"""Permute-and-flip (McKenna and Sheldon 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from expunge.accounting.events import PureDP
from expunge.mechanisms._choice import choose_among, flip_by_weight
from expunge.mechanisms._laws import permute_and_flip_law
from expunge.mechanisms._mechanism import Mechanism, check_number, gaps_of, scaled_gaps
from expunge.randomness import Randomness


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class PermuteAndFlip(Mechanism):
    """Classes in a random order, each accepted with probability exp(−ε0 · gap / 2), the first accepted one answered.

    Sensitivity: as for the exponential mechanism, counts move by at most 1, hence the 1/2.
    Privacy: ε0-DP (McKenna and Sheldon 2020, Theorem 1), `PureDP(ε0)`. Its range is not bounded by ε0: on two tied
    classes a changed vote already moves the log-ratio by −ε0 at one output and by more than 0 at the other.
    Utility: never a larger expected error than the exponential mechanism at the same ε0, and up to half of it; a class
    that is g votes ahead of each other one wins with probability 1 − (c−1) exp(−ε0 g/2) / 2 at least.
    Sampling: exact, without floating-point error in the law. All coins are flipped at once; as they do not depend on
    the order, the first accepted class is a uniform one among the accepted.
    """

    name: ClassVar[str] = "permute-and-flip"
    epsilon: float

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon)

    @property
    def event(self) -> PureDP:
        """ε0-DP."""
        return PureDP(self.epsilon)

    def _release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        accepted = flip_by_weight(gaps_of(counts), Fraction(self.epsilon) / 2, rng)
        return choose_among(accepted, rng)

    def _law(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return permute_and_flip_law(scaled_gaps(counts, self.epsilon / 2))
