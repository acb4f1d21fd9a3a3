"""Exact comparisons of noisy counts: which is largest, and which pass a threshold.

The noise is a real number (`_noise`), so ties have probability 0. Floats decide where the brackets are apart; otherwise
more of the noises is revealed and rationals are compared.

Report-noisy-max with Laplace noise (Dwork and Roth 2014, Section 3.3).

Report-noisy-max with Gaussian noise, and its confident form (Papernot et al. 2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expunge.core.randomness import Randomness
from expunge.privacy.accounting.events import GaussianDP, PureDP
from expunge.privacy.mechanisms.laws import gaussian_noisy_max_law, laplace_noisy_max_law
from expunge.privacy.mechanisms.lazy import FLOAT_SLACK, PREFIX_BITS
from expunge.privacy.mechanisms.mechanism import DECLINED, Mechanism, gaps_of, require_parameter, scaled_gaps
from expunge.privacy.mechanisms.noise import GAUSSIAN, LAPLACE, Noise, NoiseShape, draw_noise

# Shifts are clipped to FAR and whole parts from NEAR on are left to the slow step (they have probability below
# e^-500), so a clipped shift cannot change a fast decision, and float64 is good to FLOAT_SLACK on all that remain.
FAR = 1024.0
NEAR = 512


def noisy_argmax(
    gaps: NDArray[np.int64], unit: Fraction, shape: NoiseShape, rng: Randomness, *, bits: int = PREFIX_BITS
) -> NDArray[np.int64]:
    """The class with the largest noise − gap·unit in each row, one independent noise for each class and row."""
    return find_largest(draw_noise(shape, gaps.size, rng, bits=bits), gaps, unit, rng)


def find_largest(noise: Noise, gaps: NDArray[np.int64], unit: Fraction, rng: Randomness) -> NDArray[np.int64]:
    """The class with the largest noise − gap·unit in each row; `rng` only reveals more of the noise.

    Bracket: each value is known to 2^-(bits+1) and rounding, so a lead above 2^-bits + 2·FLOAT_SLACK is certain.
    """
    rows, num_classes = gaps.shape
    values = noise.approximate().reshape(gaps.shape) - np.minimum(gaps * float(unit), FAR)
    winners: NDArray[np.int64] = np.argmax(values, axis=1)
    every = np.arange(rows)
    best = values[every, winners]
    values[every, winners] = -np.inf
    unsure = best - values.max(axis=1) <= 2.0**-noise.bits + 2 * FLOAT_SLACK
    unsure |= (noise.whole.reshape(gaps.shape) >= NEAR).any(axis=1)
    for row in np.flatnonzero(unsure):
        first = int(row) * num_classes
        shifts = {first + code: gap * unit for code, gap in enumerate(gaps[row].tolist())}
        winners[row] = _largest_exactly(noise, shifts, rng) - first
    return winners


def _largest_exactly(noise: Noise, shifts: dict[int, Fraction], rng: Randomness) -> int:
    """The position with the largest noise − shift."""
    while True:
        bounds = {position: noise.bounds(position) for position in shifts}
        best = max(shifts, key=lambda position: bounds[position][0] - shifts[position])
        lead = bounds[best][0] - shifts[best]
        rivals = [position for position in shifts if position != best and bounds[position][1] - shifts[position] > lead]
        if not rivals:
            return best
        for position in (best, *rivals):
            noise.refine(position, rng)


def passes_threshold(
    noise: Noise, counts: NDArray[np.int64], threshold: float, scale: float, rng: Randomness
) -> NDArray[np.bool_]:
    """Whether count + scale·noise ≥ threshold, for each count; `rng` only reveals more of the noise.

    Bracket: the noise is known to 2^-(bits+1) and, since counts are floats too, the clipped shift to 2^-41.
    """
    shifts = np.clip((threshold - counts) / scale, -FAR, FAR)
    margin = noise.approximate() - shifts
    passes: NDArray[np.bool_] = margin >= 0
    unsure = (np.abs(margin) <= 2.0 ** -(noise.bits + 1) + FLOAT_SLACK) | (noise.whole >= NEAR)
    for position in np.flatnonzero(unsure):
        shift = (Fraction(threshold) - int(counts[position])) / Fraction(scale)
        passes[position] = _exceeds_exactly(noise, int(position), shift, rng)
    return passes


def _exceeds_exactly(noise: Noise, position: int, shift: Fraction, rng: Randomness) -> bool:
    while True:
        low, high = noise.bounds(position)
        if low >= shift:
            return True
        if high <= shift:
            return False
        noise.refine(position, rng)


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
        require_parameter("epsilon", self.epsilon)

    @property
    def event(self) -> PureDP:
        """ε0-DP."""
        return PureDP(self.epsilon)

    def _release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        return noisy_argmax(gaps_of(counts), Fraction(self.epsilon) / 2, LAPLACE, rng)

    def _law(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return laplace_noisy_max_law(scaled_gaps(counts, self.epsilon / 2))


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
        require_parameter("sigma", self.sigma)

    @classmethod
    def from_epsilon(cls, *, epsilon: float) -> Self:
        """The one that costs as much zCDP as the exponential mechanism at ε0 = `epsilon`: σ = √8/ε0, ρ = ε0²/8.

        It is not ε0-DP: a Gaussian mechanism is not pure for any ε.
        """
        require_parameter("epsilon", epsilon)
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
        require_parameter("sigma", self.sigma)
        require_parameter("threshold_sigma", self.threshold_sigma)
        require_parameter("threshold", self.threshold, least=-1e100)

    @classmethod
    def from_epsilon(cls, *, epsilon: float, threshold: float) -> Self:
        """As much zCDP as the exponential mechanism at ε0 = `epsilon`, half for the check and half for the answer."""
        require_parameter("epsilon", epsilon)
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
