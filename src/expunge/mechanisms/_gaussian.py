"""Report-noisy-max with Gaussian noise, and its confident form (Papernot et al. 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expunge.accounting.events import GaussianDP
from expunge.mechanisms._laws import gaussian_noisy_max_law
from expunge.mechanisms._mechanism import DECLINED, Mechanism, check_number, gaps_of, scaled_gaps
from expunge.mechanisms._noise import GAUSSIAN, draw_noise
from expunge.mechanisms._noisy_max import noisy_argmax, passes_threshold
from expunge.randomness import Randomness


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class GaussianNoisyMax(Mechanism):
    """The class whose count is largest after adding Gaussian noise of standard deviation σ to each (GNMax).

    Sensitivity: a changed vote moves two counts by 1, so the l2-sensitivity of the counts is √2.
    Privacy: the noisy counts are a Gaussian mechanism and the answer is computed from them:
    `GaussianDP(noise_multiplier=σ/√2)`, which is 1/σ²-zCDP.
    Utility: a class that is g votes ahead of each other one wins with probability 1 − (c−1) Φ(−g/(√2 σ)) at least.
    Sampling: exact. The noise is a real number of which as many bits are drawn as the comparison needs, so neither
    floating point nor ties enter; noisy counts are never formed, let alone released.
    """

    name: ClassVar[str] = "gaussian"
    sigma: float

    def __post_init__(self) -> None:
        check_number("sigma", self.sigma)

    @classmethod
    def from_epsilon(cls, *, epsilon: float) -> Self:
        """The one that costs as much zCDP as the exponential mechanism at ε0 = `epsilon`: σ = √8/ε0, ρ = ε0²/8.

        It is not ε0-DP: a Gaussian mechanism is not pure for any ε.
        """
        check_number("epsilon", epsilon)
        return cls(sigma=math.sqrt(8) / epsilon)

    @property
    def event(self) -> GaussianDP:
        """A Gaussian mechanism of l2-sensitivity √2."""
        return GaussianDP(self.sigma / math.sqrt(2))

    def _release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        return noisy_argmax(gaps_of(counts), 1 / Fraction(self.sigma), GAUSSIAN, rng)

    def _law(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return gaussian_noisy_max_law(scaled_gaps(counts, 1 / self.sigma))


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ConfidentGaussianNoisyMax(Mechanism):
    """GNMax where the largest count, with noise of its own, reaches a threshold; DECLINED elsewhere (Confident-GNMax).

    `threshold` is in votes and `threshold_sigma` is the standard deviation of the noise of that check; `sigma` is that
    of the answer (σ_1 and σ_2 of Papernot et al. 2018, Algorithm 1).

    Sensitivity: the largest count moves by at most 1, the counts by √2 in l2.
    Privacy: two Gaussian mechanisms in turn, whose squared ratios of sensitivity to noise add up:
    `GaussianDP(1/√(1/threshold_sigma² + 2/sigma²))`, charged for every query, declined ones too. (That declined queries
    cost less is a data-dependent analysis, which would itself be a release.)
    Utility: answers with probability Φ((top − threshold)/threshold_sigma), and then as GNMax.
    Sampling: exact, as for GNMax.
    """

    name: ClassVar[str] = "confident"
    sigma: float
    threshold: float
    threshold_sigma: float

    def __post_init__(self) -> None:
        check_number("sigma", self.sigma)
        check_number("threshold_sigma", self.threshold_sigma)
        check_number("threshold", self.threshold, lowest=-1e100)

    @classmethod
    def from_epsilon(cls, *, epsilon: float, threshold: float) -> Self:
        """As much zCDP as the exponential mechanism at ε0 = `epsilon`, half for the check and half for the answer."""
        check_number("epsilon", epsilon)
        return cls(sigma=4 / epsilon, threshold=threshold, threshold_sigma=math.sqrt(8) / epsilon)

    @property
    def event(self) -> GaussianDP:
        """The check and the answer together."""
        return GaussianDP(1 / math.hypot(1 / self.threshold_sigma, math.sqrt(2) / self.sigma))

    def _release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        noise = draw_noise(GAUSSIAN, len(counts), rng)
        passes = passes_threshold(noise, counts.max(axis=1), float(self.threshold), float(self.threshold_sigma), rng)
        winners = noisy_argmax(gaps_of(counts), 1 / Fraction(self.sigma), GAUSSIAN, rng)
        return np.where(passes, winners, DECLINED)

    def _law(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        lead = (int(counts.max()) - self.threshold) / self.threshold_sigma
        answers = special.ndtr(lead) * gaussian_noisy_max_law(scaled_gaps(counts, 1 / self.sigma))
        return np.append(answers, special.ndtr(-lead))
