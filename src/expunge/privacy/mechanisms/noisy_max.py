"""Noisy max: release the class whose noisy count is largest, with Laplace or Gaussian noise, sampled exactly.

The noise is a real number: sign · (whole + fraction) in units of its scale. The sign is a fair coin, `whole` is an
integer, and `fraction` is a uniform number in [0, 1) of which a prefix is known (see `lazy`). Whole and fraction come
from rejection, after Karney (2016, "Sampling exactly from the normal distribution"): propose whole = k with
P(k ≥ m) = e^(−m·rate) and a uniform fraction x, and accept with probability e^(−g(k, x)). The accepted k + x has a
density proportional to e^(−k·rate − g(k, x)):

- Laplace: rate 1, g = x, so the density is e^(−(k+x));
- Gaussian: rate 1/2, g = ((k+x)² − k)/2, so the density is proportional to e^(−(k+x)²/2).

Ties have probability 0, because the noise is a real number. Floats decide where the brackets are apart. Otherwise more
bits of the noises are drawn and rationals are compared. Only the bits that a comparison needs are ever drawn, and the
noise itself is never released.

The mechanisms: report-noisy-max with Laplace noise (Dwork and Roth 2014, Section 3.3); with Gaussian noise, and its
confident form (Papernot et al. 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import repeat
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from expunge.core.randomness import Randomness
from expunge.privacy.accounting.events import GaussianDP, PureDP
from expunge.privacy.mechanisms import laws, lazy
from expunge.privacy.mechanisms.lazy import LazyUniform
from expunge.privacy.mechanisms.mechanism import DECLINED, Mechanism, gaps_of, require_parameter, scaled_gaps

# Shifts are clipped to SHIFT_LIMIT. Whole parts from WHOLE_LIMIT on are left to the slow step; they have probability
# below e^-500. So a clipped shift cannot change a fast decision, and float64 is good to FLOAT_SLACK on all that remain.
SHIFT_LIMIT = 1024.0
WHOLE_LIMIT = 512


@dataclass(frozen=True, slots=True)
class NoiseShape:
    """How to propose and accept a noise. `exponent` is g, for floats and for rationals, increasing in x.

    The bracket of the acceptance needs |d e^(−g)/dx| ≤ 1, which holds for both shapes: e^(−x) for Laplace, and
    z·e^(−(z²−k)/2) at z = k + x for Gaussian, whose largest values are .61, 1 and .74 for k = 0, 1, 2, then less.
    """

    rate: Fraction
    exponent: Callable[[Any, Any], Any]


LAPLACE = NoiseShape(rate=Fraction(1), exponent=lambda whole, x: x)
GAUSSIAN = NoiseShape(rate=Fraction(1, 2), exponent=lambda whole, x: ((whole + x) ** 2 - whole) / 2)


@dataclass(frozen=True, slots=True)
class Noise:
    """Independent noises in units of their scale, each known to 2^-bits, or better if it is in `refined`."""

    is_negative: NDArray[np.bool_]
    whole: NDArray[np.int64]
    prefixes: NDArray[np.uint32]
    bits: int
    refined: dict[int, LazyUniform] = field(default_factory=dict)

    def approximate(self) -> NDArray[np.float64]:
        """Return the noises to within 2^-(bits + 1), up to rounding."""
        magnitude = self.whole + (self.prefixes + 0.5) * 2.0**-self.bits
        return np.where(self.is_negative, -magnitude, magnitude)

    def bounds(self, position: int) -> tuple[Fraction, Fraction]:
        """Return the interval in which one noise is known to lie."""
        low, high = (int(self.whole[position]) + bound for bound in self._fraction(position).bounds())
        return (-high, -low) if self.is_negative[position] else (low, high)

    def refine(self, position: int, rng: Randomness) -> None:
        """Draw more bits of one noise."""
        self._fraction(position).extend(rng)

    def _fraction(self, position: int) -> LazyUniform:
        return self.refined.setdefault(position, LazyUniform(int(self.prefixes[position]), bits=self.bits))


def draw_noise(shape: NoiseShape, size: int, rng: Randomness, *, bits: int = lazy.PREFIX_BITS) -> Noise:
    """Draw `size` independent noises of that shape, by vectorised rejection."""
    whole = np.empty(size, dtype=np.int64)
    prefixes = np.empty(size, dtype=np.uint32)
    refined: dict[int, LazyUniform] = {}
    pending = np.arange(size)
    while pending.size:
        wholes = _propose_whole(shape, pending.size, rng, bits=bits)
        fractions = lazy.draw_prefixes(pending.size, rng, bits=bits)
        accepted, longer = _accept(shape, wholes, fractions, rng, bits=bits)
        whole[pending] = wholes
        prefixes[pending] = fractions
        refined.update((int(pending[index]), fraction) for index, fraction in longer.items())
        pending = pending[~accepted]
    return Noise(_draw_coins(size, rng), whole, prefixes, bits, refined)


def _draw_coins(size: int, rng: Randomness) -> NDArray[np.bool_]:
    octets = rng.words((size + 63) // 64).view(np.uint8)
    return np.unpackbits(octets, count=size).astype(np.bool_)


def _propose_whole(shape: NoiseShape, size: int, rng: Randomness, *, bits: int) -> NDArray[np.int64]:
    """Draw integers with P(whole ≥ m) = e^(−m·rate): the number of m ≥ 1 with U < e^(−m·rate)."""
    prefixes = lazy.draw_prefixes(size, rng, bits=bits)
    edges, certain, is_unsure = _whole_table(shape, bits)
    cells = np.searchsorted(edges, prefixes, side="right")
    wholes = certain[cells]
    for index in np.flatnonzero(is_unsure[cells]):
        wholes[index] = _whole_exactly(shape, LazyUniform(int(prefixes[index]), bits=bits), rng)
    return wholes


def _whole_exactly(shape: NoiseShape, uniform: LazyUniform, rng: Randomness) -> int:
    whole = 0
    while lazy.is_below_exp(uniform, repeat(((whole + 1) * shape.rate,) * 2), rng):
        whole += 1
    return whole


@lru_cache
def _whole_table(shape: NoiseShape, bits: int) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.bool_]]:
    """Tabulate what a prefix says about `whole`: cell edges and, per cell, the answer and whether it is still open.

    A prefix p puts U in [p, p + 1) / 2^bits, hence below e^(−m·rate) for sure when p < low_m, and not below it for
    sure when p ≥ high_m, with integers around 2^bits · e^(−m·rate) that are found with 64 bits to spare.
    """
    lows: list[int] = []
    highs: list[int] = []
    while not lows or lows[-1] > 0:
        low, high = lazy.exp_bounds((len(lows) + 1) * shape.rate, bits=bits + 64)
        lows.append(low >> 64)
        highs.append(-(-high >> 64))
    edges = np.unique(np.array(lows + highs, dtype=np.uint32))
    starts = np.concatenate([np.zeros(1, dtype=np.uint32), edges])[:, np.newaxis]
    certain = np.count_nonzero(starts < np.array(lows), axis=1)
    possible = np.count_nonzero(starts < np.array(highs), axis=1)
    return edges, certain.astype(np.int64), certain != possible


def _accept(
    shape: NoiseShape, wholes: NDArray[np.int64], fractions: NDArray[np.uint32], rng: Randomness, *, bits: int
) -> tuple[NDArray[np.bool_], dict[int, LazyUniform]]:
    """Flip coins with probability e^(−g(whole, x)); also return the accepted fractions that needed more bits.

    Bracket: x and the coin are known to 2^-(bits+1) around their middles and |d e^(−g)/dx| ≤ 1. Bits of x that a coin
    did not need stay uniform, because the coin falls the same way for all their values.
    """
    coins = lazy.draw_prefixes(wholes.size, rng, bits=bits)
    chance = np.exp(-shape.exponent(wholes.astype(np.float64), (fractions + 0.5) * 2.0**-bits))
    margin = chance - (coins + 0.5) * 2.0**-bits
    accepted = margin > 0
    longer: dict[int, LazyUniform] = {}
    for index in np.flatnonzero(np.abs(margin) <= 2.0**-bits + lazy.FLOAT_SLACK):
        fraction = LazyUniform(int(fractions[index]), bits=bits)
        exponents = _exponents(shape, int(wholes[index]), fraction, rng)
        accepted[index] = lazy.is_below_exp(LazyUniform(int(coins[index]), bits=bits), exponents, rng)
        if accepted[index]:
            longer[int(index)] = fraction
    return accepted, longer


def _exponents(
    shape: NoiseShape, whole: int, fraction: LazyUniform, rng: Randomness
) -> Iterator[tuple[Fraction, Fraction]]:
    while True:
        low, high = fraction.bounds()
        yield shape.exponent(whole, low), shape.exponent(whole, high)
        fraction.extend(rng)


def noisy_argmax(
    gaps: NDArray[np.int64], unit: Fraction, shape: NoiseShape, rng: Randomness, *, bits: int = lazy.PREFIX_BITS
) -> NDArray[np.int64]:
    """Find the class with the largest noise − gap·unit in each row, with independent noise for each class and row."""
    return find_largest(draw_noise(shape, gaps.size, rng, bits=bits), gaps, unit, rng)


def find_largest(noise: Noise, gaps: NDArray[np.int64], unit: Fraction, rng: Randomness) -> NDArray[np.int64]:
    """Find the class with the largest noise − gap·unit in each row; `rng` only draws more bits of the noise.

    Bracket: each value is known to 2^-(bits+1) and rounding, so a lead above 2^-bits + 2·FLOAT_SLACK is certain.
    """
    rows, num_classes = gaps.shape
    values = noise.approximate().reshape(gaps.shape) - np.minimum(gaps * float(unit), SHIFT_LIMIT)
    winners: NDArray[np.int64] = np.argmax(values, axis=1)
    every = np.arange(rows)
    best = values[every, winners]
    values[every, winners] = -np.inf
    unsure = best - values.max(axis=1) <= 2.0**-noise.bits + 2 * lazy.FLOAT_SLACK
    unsure |= (noise.whole.reshape(gaps.shape) >= WHOLE_LIMIT).any(axis=1)
    for row in np.flatnonzero(unsure):
        first = int(row) * num_classes
        shifts = {first + code: gap * unit for code, gap in enumerate(gaps[row].tolist())}
        winners[row] = _largest_exactly(noise, shifts, rng) - first
    return winners


def _largest_exactly(noise: Noise, shifts: dict[int, Fraction], rng: Randomness) -> int:
    """Find the position with the largest noise − shift."""
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
    """Tell for each count whether count + scale·noise ≥ threshold; `rng` only draws more bits of the noise.

    Bracket: the noise is known to 2^-(bits+1) and, since counts are floats too, the clipped shift to 2^-41.
    """
    shifts = np.clip((threshold - counts) / scale, -SHIFT_LIMIT, SHIFT_LIMIT)
    margin = noise.approximate() - shifts
    passes: NDArray[np.bool_] = margin >= 0
    unsure = (np.abs(margin) <= 2.0 ** -(noise.bits + 1) + lazy.FLOAT_SLACK) | (noise.whole >= WHOLE_LIMIT)
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
    """Release the class whose count is largest after adding Laplace noise of scale 2/ε0 to each.

    Parameters
    ----------
    epsilon
        ε0, the privacy cost of one release.

    Raises
    ------
    ParameterError
        If `epsilon` is not a number from 1e-100 to 1e100.

    Notes
    -----
    Sensitivity: a changed vote moves two counts by 1, so the l1-sensitivity of the counts is 2.

    Privacy: the noisy counts are ε0-DP (the Laplace mechanism) and the answer is computed from them. The event is
    `PureDP(ε0)`, and no more than that is claimed (no bounded range; ε0²/2-zCDP).

    Utility: with c classes, a class that is g votes ahead of every other one wins with probability at least
    1 − (c−1)(2 + ε0 g/2) exp(−ε0 g/2) / 4: the difference of two such noises exceeds g with probability
    (2 + ε0 g/2) exp(−ε0 g/2) / 4.

    Sampling: exact. The noise is a real number, and as many of its bits are drawn as the comparison needs. So neither
    floating point nor ties enter, and noisy counts are never formed.

    Examples
    --------
    >>> LaplaceNoisyMax(epsilon=0.5).law([8, 2]).round(3)
    array([0.805, 0.195])
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
        return laws.laplace_noisy_max_law(scaled_gaps(counts, self.epsilon / 2))


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class GaussianNoisyMax(Mechanism):
    """Release the class whose count is largest after adding Gaussian noise of standard deviation σ to each (GNMax).

    Parameters
    ----------
    sigma
        σ, the standard deviation of the noise, in votes.

    Raises
    ------
    ParameterError
        If `sigma` is not a number from 1e-100 to 1e100.

    Notes
    -----
    Sensitivity: a changed vote moves two counts by 1, so the l2-sensitivity of the counts is √2.

    Privacy: the noisy counts are a Gaussian mechanism and the answer is computed from them. The event is
    `GaussianDP(noise_multiplier=σ/√2)`, which is 1/σ²-zCDP.

    Utility: with c classes, a class that is g votes ahead of every other one wins with probability at least
    1 − (c−1) Φ(−g/(√2 σ)).

    Sampling: exact. The noise is a real number, and as many of its bits are drawn as the comparison needs. So neither
    floating point nor ties enter, and noisy counts are never formed.

    Examples
    --------
    >>> GaussianNoisyMax(sigma=4.0).law([8, 2]).round(3)
    array([0.856, 0.144])
    """

    name: ClassVar[str] = "gaussian"
    sigma: float

    def __post_init__(self) -> None:
        require_parameter("sigma", self.sigma)

    @classmethod
    def from_epsilon(cls, *, epsilon: float) -> Self:
        """Choose σ so that a release costs as much zCDP as the exponential mechanism at ε0 = `epsilon`.

        That is σ = √8/ε0 and ρ = ε0²/8. The mechanism is not ε0-DP: a Gaussian mechanism is not pure for any ε.
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
        return laws.gaussian_noisy_max_law(scaled_gaps(counts, 1 / self.sigma))


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ConfidentGaussianNoisyMax(Mechanism):
    """Answer like GNMax if the largest count, with noise of its own, reaches a threshold; otherwise decline.

    This is Confident-GNMax. A declined query is released as `DECLINED`.

    Parameters
    ----------
    sigma
        The standard deviation of the noise of the answer, in votes (σ_2 of Papernot et al. 2018, Algorithm 1).
    threshold
        The threshold, in votes.
    threshold_sigma
        The standard deviation of the noise of the threshold check (σ_1 there).

    Raises
    ------
    ParameterError
        If a parameter is not a number up to 1e100, or a standard deviation is below 1e-100.

    Notes
    -----
    Sensitivity: the largest count moves by at most 1, the counts by √2 in l2.

    Privacy: two Gaussian mechanisms in turn, whose squared ratios of sensitivity to noise add up. The event is
    `GaussianDP(1/√(1/threshold_sigma² + 2/sigma²))`. It is charged for every query, declined ones too. (Charging less
    for declined queries needs a data-dependent analysis, which would itself be a release.)

    Utility: it answers with probability Φ((top − threshold)/threshold_sigma), and then as GNMax.

    Sampling: exact, as for GNMax.

    Examples
    --------
    The last probability is that of declining.

    >>> ConfidentGaussianNoisyMax(sigma=4.0, threshold=5, threshold_sigma=2.0).law([8, 2]).round(3)
    array([0.798, 0.135, 0.067])
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
        """Choose both σ so that a release costs as much zCDP as the exponential mechanism at ε0 = `epsilon`.

        Half of the cost is for the check and half for the answer.
        """
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
        answers = special.ndtr(lead) * laws.gaussian_noisy_max_law(scaled_gaps(counts, 1 / self.sigma))
        return np.append(answers, special.ndtr(-lead))
