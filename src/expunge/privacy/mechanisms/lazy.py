"""Uniform random numbers drawn bit by bit, so that comparisons with them are exact.

A mechanism's proof speaks of real numbers. A sampler that rounds them has another law, and the difference can be
attacked (Mironov 2012; Haney et al. 2022). Here a uniform number U in [0, 1) is an endless string of random bits of
which only a prefix is known. Every decision ("is U below this real number?") takes up to two steps:

1. Fast, for whole arrays: U is known to PREFIX_BITS bits and the real number to a float64 with a proven error. Where
   the two brackets do not touch, every continuation of the bits gives the same answer, so the answer is exact.
2. Slow, for about 2^-31 of the decisions: draw more bits of U and bracket the real number by integers (correctly
   rounded decimals), both ever finer, until the brackets part. That happens with probability 1.

So the law of the outcome is exactly the one of the real numbers. Only step 1 rests on floats. Its brackets allow
FLOAT_SLACK = 2^-40 for errors that are below 2^-48 on any platform with an exponential good to 8 units in the last
place. How long a release takes is not covered.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expunge.core.randomness import Randomness

PREFIX_BITS = 32
FLOAT_SLACK = 2.0**-40
WORD_BITS = 64


class LazyUniform:
    """A uniform number in [0, 1) of which `bits` bits are known: it lies in [numerator, numerator + 1) / 2^bits."""

    __slots__ = ("bits", "numerator")

    def __init__(self, numerator: int, *, bits: int) -> None:
        self.numerator = numerator
        self.bits = bits

    def extend(self, rng: Randomness) -> None:
        """Draw another word of bits."""
        self.numerator = (self.numerator << WORD_BITS) | int(rng.words(1)[0])
        self.bits += WORD_BITS

    def bounds(self) -> tuple[Fraction, Fraction]:
        """Return the interval in which the number is known to lie."""
        unit = 1 << self.bits
        return Fraction(self.numerator, unit), Fraction(self.numerator + 1, unit)


def draw_prefixes(size: int, rng: Randomness, *, bits: int = PREFIX_BITS) -> NDArray[np.uint32]:
    """Draw the first `bits` (at most 32) bits of `size` independent uniform numbers."""
    halves = rng.words((size + 1) // 2).view(np.uint32)[:size]
    return halves >> np.uint32(32 - bits)


def exp_bounds(exponent: Fraction, *, bits: int) -> tuple[int, int]:
    """Return integers low ≤ 2^bits · e^(−exponent) ≤ high with high − low ≤ 3, for exponent ≥ 0.

    The decimal module rounds quotients, products and exponentials correctly. With P ≥ 0.301·bits + 19 digits and
    exponent ≤ bits the three roundings move the scaled result by less than (bits + 3) · 10^-18 < 1, so its floor t
    satisfies t − 1 ≤ 2^bits · e^(−exponent) ≤ t + 2.
    """
    one = 1 << bits
    if exponent == 0:
        return one, one
    if exponent > bits:
        return 0, 1
    context = Context(prec=bits // 3 + 20, Emin=MIN_EMIN, Emax=MAX_EMAX)
    quotient = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    scaled = context.multiply(context.exp(context.minus(quotient)), Decimal(one))
    floor = int(scaled)
    return max(floor - 1, 0), min(floor + 2, one)


def is_below_exp(uniform: LazyUniform, exponents: Iterator[tuple[Fraction, Fraction]], rng: Randomness) -> bool:
    """Tell exactly whether `uniform` < e^(−x).

    `exponents` yields brackets of x ≥ 0, each at least as fine as the last.
    """
    while True:
        smallest, largest = next(exponents)
        low = exp_bounds(largest, bits=uniform.bits)[0]
        high = exp_bounds(smallest, bits=uniform.bits)[1]
        if uniform.numerator < low:
            return True
        if uniform.numerator >= high:
            return False
        uniform.extend(rng)
