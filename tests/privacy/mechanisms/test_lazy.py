"""Uniform numbers that are drawn bit by bit."""

from __future__ import annotations

from fractions import Fraction
from itertools import repeat

import mpmath
import numpy as np
import pytest

from expunge.privacy.mechanisms.lazy import LazyUniform, draw_prefixes, exp_bounds, is_below_exp

EXPONENTS = [
    Fraction(0),
    Fraction(1, 10**30),
    Fraction(1e-6),
    Fraction(1, 3),
    Fraction(1),
    Fraction(40),
    Fraction(10**9),
]


@pytest.mark.parametrize("bits", [0, 1, 5, 32, 96, 160, 1000])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_exp_bounds_hold_and_are_tight(exponent, bits):
    low, high = exp_bounds(exponent, bits=bits)
    with mpmath.workdps(bits // 3 + 60):
        exact = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator) * 2**bits
        assert 0 <= low <= exact <= high <= 2**bits
    assert high - low <= 3


def test_a_uniform_number_only_ever_gets_more_precise(rng):
    uniform = LazyUniform(5, bits=3)
    previous = uniform.bounds()
    assert previous == (Fraction(5, 8), Fraction(6, 8))
    for _ in range(4):
        uniform.extend(rng)
        low, high = uniform.bounds()
        assert previous[0] <= low < high <= previous[1]
        assert high - low == Fraction(1, 2**uniform.bits)
        previous = low, high


@pytest.mark.parametrize("bits", [1, 7, 32])
def test_prefixes_fill_their_range(bits, rng):
    prefixes = draw_prefixes(4001, rng, bits=bits)
    assert prefixes.shape == (4001,)
    assert prefixes.dtype == np.uint32
    # Both the first and the last 16th of the range are hit; missing one has probability (15/16)^4001 < 1e-100.
    assert prefixes.min() <= 2**bits // 16
    assert prefixes.max() >= 2**bits - 1 - 2**bits // 16


@pytest.mark.parametrize("exponent", [Fraction(1, 7), Fraction(3), Fraction(20)])
@pytest.mark.parametrize("step", [-1, 0, 1])
def test_decisions_next_to_the_boundary_are_exact(exponent, step, scripted):
    # U agrees with e^(−x) to 160 bits but for `step` units in the last place; only the bits after that settle step 0.
    with mpmath.workdps(120):
        exact = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
        numerator = int(mpmath.floor(exact * mpmath.mpf(2) ** 160)) + step
        rest = int(mpmath.floor((exact * mpmath.mpf(2) ** 160 % 1) * 2**64))
    words = [(numerator >> 64) % 2**64, numerator % 2**64, max(rest - 8, 0)]
    uniform = LazyUniform(numerator >> 128, bits=32)
    below = is_below_exp(uniform, repeat((exponent, exponent)), scripted([], words))
    assert below == (step <= 0)
