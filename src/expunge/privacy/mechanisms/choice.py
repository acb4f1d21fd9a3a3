"""Mechanisms that choose a class by exponential weights, sampled exactly.

The exponential mechanism (McSherry and Talwar 2007) and permute-and-flip (McKenna and Sheldon 2020).

The functions work on many queries at once. `gaps` says how many votes each class is behind the first: integers ≥ 0,
with a 0 in each row. `unit` is an exact rational, and the weight of a class is e^(−gap·unit). Outcomes have exactly the
law that the function names; `lazy` explains how. `bits` is the length of the fast step's prefix. Tests shorten it to
reach the slow step.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import repeat
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from expunge.core.randomness import Randomness
from expunge.privacy.accounting.events import BoundedRange, PureDP
from expunge.privacy.mechanisms import laws, lazy
from expunge.privacy.mechanisms.lazy import LazyUniform
from expunge.privacy.mechanisms.mechanism import Mechanism, gaps_of, require_parameter, scaled_gaps


def choose_by_weight(
    gaps: NDArray[np.int64], unit: Fraction, rng: Randomness, *, bits: int = lazy.PREFIX_BITS
) -> NDArray[np.int64]:
    """Choose one class per row, with probability proportional to e^(−gap·unit).

    With U uniform and C_j the sum of the first j + 1 weights over the sum of all, class j is chosen when
    C_(j−1) ≤ U < C_j. Bracket: a weight carries a relative error of at most 2^-50 from the exponential and, from the
    rounded exponent x, an absolute one of at most 2^-52·x·e^(−x) < 2^-53; adding n of them adds n·2^-53 of the sum,
    which is at least 1. So numerator, denominator and their ratio C_j are within (n + 16)·2^-50; the bracket takes
    four times that. U is known to 2^-bits.
    """
    rows, num_classes = gaps.shape
    prefixes = lazy.draw_prefixes(rows, rng, bits=bits)
    cumulative = np.cumsum(_weights(gaps, unit), axis=1)
    boundaries = cumulative[:, :-1] / cumulative[:, -1:]
    middle = ((prefixes + 0.5) * 2.0**-bits)[:, np.newaxis]
    chosen: NDArray[np.int64] = np.count_nonzero(boundaries <= middle, axis=1).astype(np.int64)
    unsure = np.abs(boundaries - middle) <= 2.0 ** -(bits + 1) + (num_classes + 16) * 2.0**-48
    for row in np.flatnonzero(unsure.any(axis=1)):
        uniform = LazyUniform(int(prefixes[row]), bits=bits)
        chosen[row] = _choose_exactly([gap * unit for gap in gaps[row].tolist()], uniform, rng)
    return chosen


def _choose_exactly(exponents: list[Fraction], uniform: LazyUniform, rng: Randomness) -> int:
    """Find the class j with C_(j−1) ≤ uniform < C_j, by integer brackets of the weights."""
    while True:
        uniform.extend(rng)
        lows, highs = zip(*(lazy.exp_bounds(exponent, bits=uniform.bits) for exponent in exponents), strict=True)
        total_low, total_high = sum(lows), sum(highs)
        low = high = 0
        for code in range(len(exponents) - 1):
            low += lows[code]
            high += highs[code]
            if (uniform.numerator + 1) * total_high <= low << uniform.bits:
                return code
            if uniform.numerator * total_low < high << uniform.bits:
                break
        else:
            return len(exponents) - 1


def flip_by_weight(
    gaps: NDArray[np.int64], unit: Fraction, rng: Randomness, *, bits: int = lazy.PREFIX_BITS
) -> NDArray[np.bool_]:
    """Flip independent coins that show heads with probability e^(−gap·unit); a gap of 0 is always heads.

    Bracket: the weight is within 2^-49 (see `choose_by_weight`), which FLOAT_SLACK covers; U is known to 2^-bits.
    """
    prefixes = lazy.draw_prefixes(gaps.size, rng, bits=bits).reshape(gaps.shape)
    weights = _weights(gaps, unit)
    middle = (prefixes + 0.5) * 2.0**-bits
    heads = middle < weights
    unsure = (np.abs(weights - middle) <= 2.0 ** -(bits + 1) + lazy.FLOAT_SLACK) & (gaps > 0)
    for row, code in np.argwhere(unsure):
        exponent = int(gaps[row, code]) * unit
        uniform = LazyUniform(int(prefixes[row, code]), bits=bits)
        heads[row, code] = lazy.is_below_exp(uniform, repeat((exponent, exponent)), rng)
    return heads


def choose_among(eligible: NDArray[np.bool_], rng: Randomness, *, bits: int = lazy.PREFIX_BITS) -> NDArray[np.int64]:
    """Choose one of the eligible classes of each row (there is at least one), all equally likely."""
    amounts = np.count_nonzero(eligible, axis=1).astype(np.uint64)
    prefixes = lazy.draw_prefixes(len(eligible), rng, bits=bits).astype(np.uint64)
    shift = np.uint64(bits)
    ranks = (prefixes * amounts) >> shift
    unsure = ranks != ((prefixes + np.uint64(1)) * amounts - np.uint64(1)) >> shift
    for row in np.flatnonzero(unsure):
        ranks[row] = _rank_exactly(int(amounts[row]), LazyUniform(int(prefixes[row]), bits=bits), rng)
    running = np.cumsum(eligible, axis=1)
    chosen: NDArray[np.int64] = np.argmax(running > ranks[:, np.newaxis].astype(np.int64), axis=1)
    return chosen


def _rank_exactly(amount: int, uniform: LazyUniform, rng: Randomness) -> int:
    """Compute the integer part of amount · uniform."""
    while True:
        rank = (uniform.numerator * amount) >> uniform.bits
        if rank == ((uniform.numerator + 1) * amount - 1) >> uniform.bits:
            return rank
        uniform.extend(rng)


def _weights(gaps: NDArray[np.int64], unit: Fraction) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = np.exp(gaps * -float(unit))
    return weights


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ExponentialMechanism(Mechanism):
    """Release class y with probability proportional to exp(ε0 · count_y / 2).

    This is the paper's PrivatePredict (Section 4.1).

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
    Sensitivity: a changed vote moves one count up and another down by 1, so log-weights move by at most ε0/2 either
    way. This is why the factor 1/2 is needed (the paper names the mechanism and leaves its weights open).

    Privacy: between neighbours the log-weights move within an interval of length ε0, and the normaliser shifts all of
    them alike. So the log-likelihood ratio lies in an interval of length ε0 that contains 0. The event is
    `BoundedRange(ε0)`, which is ε0-DP and ε0²/8-zCDP (Lemma 0).

    Utility: with c classes, a class that is g votes ahead of every other one wins with probability at least
    1 / (1 + (c−1) exp(−ε0 g/2)).

    Sampling: exact, without floating-point error in the law (`choose_by_weight`).

    Examples
    --------
    >>> ExponentialMechanism(epsilon=0.5).law([8, 2]).round(3)
    array([0.818, 0.182])
    """

    name: ClassVar[str] = "exponential"
    epsilon: float

    def __post_init__(self) -> None:
        require_parameter("epsilon", self.epsilon)

    @property
    def event(self) -> BoundedRange:
        """ε0-DP with bounded range."""
        return BoundedRange(self.epsilon)

    def _release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        return choose_by_weight(gaps_of(counts), Fraction(self.epsilon) / 2, rng)

    def _law(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return laws.exponential_law(scaled_gaps(counts, self.epsilon / 2))


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class PermuteAndFlip(Mechanism):
    """Visit classes in random order, accept each with probability exp(−ε0 · gap / 2), release the first accepted one.

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
    Sensitivity: as for the exponential mechanism, counts move by at most 1, hence the 1/2.

    Privacy: ε0-DP (McKenna and Sheldon 2020, Theorem 1), so the event is `PureDP(ε0)`. Its range is not bounded by ε0:
    on two tied classes a changed vote already moves the log-ratio by −ε0 at one output and by more than 0 at the other.

    Utility: the expected error is never larger than that of the exponential mechanism at the same ε0, and down to half
    of it. With c classes, a class that is g votes ahead of every other one wins with probability at least
    1 − (c−1) exp(−ε0 g/2) / 2.

    Sampling: exact, without floating-point error in the law. All coins are flipped at once. They do not depend on the
    order, so the first accepted class is a uniform one among the accepted.

    Examples
    --------
    >>> PermuteAndFlip(epsilon=0.5).law([8, 2]).round(3)
    array([0.888, 0.112])
    """

    name: ClassVar[str] = "permute-and-flip"
    epsilon: float

    def __post_init__(self) -> None:
        require_parameter("epsilon", self.epsilon)

    @property
    def event(self) -> PureDP:
        """ε0-DP."""
        return PureDP(self.epsilon)

    def _release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        accepted = flip_by_weight(gaps_of(counts), Fraction(self.epsilon) / 2, rng)
        return choose_among(accepted, rng)

    def _law(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return laws.permute_and_flip_law(scaled_gaps(counts, self.epsilon / 2))
