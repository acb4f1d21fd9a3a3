"""Laplace and Gaussian noise as real numbers, and exact decisions about them.

A noise is sign · (whole + fraction) in units of its scale: the sign a fair coin, `whole` an integer, `fraction` a
uniform number in [0, 1) known to a prefix (`_lazy`). Whole and fraction come from rejection, after Karney (2016,
"Sampling exactly from the normal distribution"): propose whole = k with P(k ≥ m) = e^(−m·rate) and a uniform fraction
x, and accept with probability e^(−g(k, x)). The accepted k + x has a density proportional to e^(−k·rate − g(k, x)):

- Laplace: rate 1, g = x, so the density is e^(−(k+x));
- Gaussian: rate 1/2, g = ((k+x)² − k)/2, so the density is proportional to e^(−(k+x)²/2).

Only what a comparison needs of the noise is ever known, and the noise itself is never released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.randomness import Randomness
from expunge.privacy.mechanisms.lazy import (
    FLOAT_SLACK,
    PREFIX_BITS,
    LazyUniform,
    draw_prefixes,
    exp_bounds,
    is_below_exp,
)


@dataclass(frozen=True, slots=True)
class NoiseShape:
    """What to propose and how to accept. `exponent` is g, for floats and for rationals, increasing in x.

    The bracket of the acceptance needs |d e^(−g)/dx| ≤ 1, which holds for both shapes: e^(−x) for Laplace, and
    z·e^(−(z²−k)/2) at z = k + x for Gaussian, whose largest values are .61, 1 and .74 for k = 0, 1, 2, then less.
    """

    rate: Fraction
    exponent: Callable[[Any, Any], Any]


LAPLACE = NoiseShape(rate=Fraction(1), exponent=lambda whole, x: x)
GAUSSIAN = NoiseShape(rate=Fraction(1, 2), exponent=lambda whole, x: ((whole + x) ** 2 - whole) / 2)


@dataclass(frozen=True, slots=True)
class Noise:
    """Independent noises in units of their scale, each known to 2^-bits or, if in `refined`, better."""

    is_negative: NDArray[np.bool_]
    whole: NDArray[np.int64]
    prefixes: NDArray[np.uint32]
    bits: int
    refined: dict[int, LazyUniform] = field(default_factory=dict)

    def approximate(self) -> NDArray[np.float64]:
        """The noises to within 2^-(bits + 1), up to rounding."""
        magnitude = self.whole + (self.prefixes + 0.5) * 2.0**-self.bits
        return np.where(self.is_negative, -magnitude, magnitude)

    def bounds(self, position: int) -> tuple[Fraction, Fraction]:
        """The interval in which one noise is known to lie."""
        low, high = (int(self.whole[position]) + bound for bound in self._fraction(position).bounds())
        return (-high, -low) if self.is_negative[position] else (low, high)

    def refine(self, position: int, rng: Randomness) -> None:
        """Reveal more of one noise."""
        self._fraction(position).extend(rng)

    def _fraction(self, position: int) -> LazyUniform:
        return self.refined.setdefault(position, LazyUniform(int(self.prefixes[position]), bits=self.bits))


def draw_noise(shape: NoiseShape, size: int, rng: Randomness, *, bits: int = PREFIX_BITS) -> Noise:
    """`size` independent noises of that shape, by vectorised rejection."""
    whole = np.empty(size, dtype=np.int64)
    prefixes = np.empty(size, dtype=np.uint32)
    refined: dict[int, LazyUniform] = {}
    pending = np.arange(size)
    while pending.size:
        wholes = _propose_whole(shape, pending.size, rng, bits=bits)
        fractions = draw_prefixes(pending.size, rng, bits=bits)
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
    """Integers with P(whole ≥ m) = e^(−m·rate): the number of m ≥ 1 with U < e^(−m·rate)."""
    prefixes = draw_prefixes(size, rng, bits=bits)
    edges, certain, is_unsure = _whole_table(shape, bits)
    cells = np.searchsorted(edges, prefixes, side="right")
    wholes = certain[cells]
    for index in np.flatnonzero(is_unsure[cells]):
        wholes[index] = _whole_exactly(shape, LazyUniform(int(prefixes[index]), bits=bits), rng)
    return wholes


def _whole_exactly(shape: NoiseShape, uniform: LazyUniform, rng: Randomness) -> int:
    whole = 0
    while is_below_exp(uniform, repeat(((whole + 1) * shape.rate,) * 2), rng):
        whole += 1
    return whole


@lru_cache
def _whole_table(shape: NoiseShape, bits: int) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.bool_]]:
    """What a prefix says about `whole`: cell edges and, for each cell, the answer and whether it is still open.

    A prefix p puts U in [p, p + 1) / 2^bits, hence below e^(−m·rate) for sure when p < low_m, and not below it for
    sure when p ≥ high_m, with integers around 2^bits · e^(−m·rate) that are found with 64 bits to spare.
    """
    lows: list[int] = []
    highs: list[int] = []
    while not lows or lows[-1] > 0:
        low, high = exp_bounds((len(lows) + 1) * shape.rate, bits=bits + 64)
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
    """Coins with probability e^(−g(whole, x)), and the accepted fractions of which they had to see more.

    Bracket: x and the coin are known to 2^-(bits+1) around their middles and |d e^(−g)/dx| ≤ 1. Bits of x that a coin
    did not need stay uniform whichever way it fell, since it falls that way for all of them.
    """
    coins = draw_prefixes(wholes.size, rng, bits=bits)
    chance = np.exp(-shape.exponent(wholes.astype(np.float64), (fractions + 0.5) * 2.0**-bits))
    margin = chance - (coins + 0.5) * 2.0**-bits
    accepted = margin > 0
    longer: dict[int, LazyUniform] = {}
    for index in np.flatnonzero(np.abs(margin) <= 2.0**-bits + FLOAT_SLACK):
        fraction = LazyUniform(int(fractions[index]), bits=bits)
        exponents = _exponents(shape, int(wholes[index]), fraction, rng)
        accepted[index] = is_below_exp(LazyUniform(int(coins[index]), bits=bits), exponents, rng)
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
