"""Report-noisy-max with Laplace noise (Dwork and Roth 2014, Section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from expunge.accounting.events import PureDP
from expunge.mechanisms._laws import laplace_noisy_max_law
from expunge.mechanisms._mechanism import Mechanism, check_number, gaps_of, scaled_gaps
from expunge.mechanisms._noise import LAPLACE
from expunge.mechanisms._noisy_max import noisy_argmax
from expunge.randomness import Randomness


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class LaplaceNoisyMax(Mechanism):
    """The class whose count is largest after adding Laplace noise of scale 2/ε0 to each.

    Sensitivity: a changed vote moves two counts by 1, so the l1-sensitivity of the counts is 2.
    Privacy: the noisy counts are ε0-DP (the Laplace mechanism) and the answer is computed from them: `PureDP(ε0)`, and
    no more than that is claimed (no bounded range; ε0²/2-zCDP).
    Utility: a class that is g votes ahead of each other one wins with probability
    1 − (c−1)(2 + ε0 g/2) exp(−ε0 g/2) / 4 at least: the difference of two such noises exceeds g with probability
    (2 + ε0 g/2) exp(−ε0 g/2) / 4.
    Sampling: exact. The noise is a real number of which as many bits are drawn as the comparison needs, so neither
    floating point nor ties enter; noisy counts are never formed, let alone released.
    """

    name: ClassVar[str] = "laplace"
    epsilon: float

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon)

    @property
    def event(self) -> PureDP:
        """ε0-DP."""
        return PureDP(self.epsilon)

    def _release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        return noisy_argmax(gaps_of(counts), Fraction(self.epsilon) / 2, LAPLACE, rng)

    def _law(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return laplace_noisy_max_law(scaled_gaps(counts, self.epsilon / 2))
