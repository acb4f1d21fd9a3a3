"""Exact random choices: every prefix by enumeration, and the slow step by short prefixes."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from expunge.privacy.mechanisms.choice import choose_among, choose_by_weight, flip_by_weight
from expunge.privacy.mechanisms.laws import exponential_law

HALF = Fraction(1, 2)
DRAWS = 6_000


def boundaries(gaps: list[int], unit: Fraction) -> list[mpmath.mpf]:
    """The cumulative law of the exponential mechanism, to 80 digits."""
    weights = [mpmath.exp(-mpmath.mpf(gap) * unit.numerator / unit.denominator) for gap in gaps]
    return [sum(weights[: code + 1]) / sum(weights) for code in range(len(gaps))]


@pytest.mark.parametrize("gaps", [[0, 1], [2, 0, 5], [1, 1, 0, 0, 40]])
def test_every_prefix_gets_a_class_that_it_can_have(gaps, scripted):
    bits = 10
    prefixes = np.arange(2**bits)
    source = scripted((prefixes << (32 - bits)).tolist(), words=[2**63] * 40)
    chosen = choose_by_weight(np.tile(gaps, (2**bits, 1)), HALF, source, bits=bits)
    with mpmath.workdps(80):
        edges = [mpmath.mpf(0), *boundaries(gaps, HALF)]
        for prefix, code in zip(prefixes.tolist(), chosen.tolist(), strict=True):
            assert edges[code] < mpmath.mpf(prefix + 1) / 2**bits
            assert edges[code + 1] > mpmath.mpf(prefix) / 2**bits


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 3.0])
@pytest.mark.parametrize(
    ("step", "rest", "is_past"), [(-1, 2**64 - 1, False), (0, 0, False), (0, 2**64 - 1, True), (1, 0, True)]
)
def test_choices_next_to_a_boundary_are_exact(epsilon, step, rest, is_past, scripted):
    # 96 bits of U that lie on a boundary or one unit to a side, then a rest: far finer than any float could tell.
    gaps, unit = [0, 3, 1], Fraction(epsilon) / 2
    with mpmath.workdps(80):
        numerators = [int(mpmath.floor(edge * mpmath.mpf(2) ** 96)) + step for edge in boundaries(gaps, unit)[:2]]
    for code, numerator in enumerate(numerators):
        source = scripted([numerator >> 64], words=[numerator % 2**64, rest])
        chosen = choose_by_weight(np.array([gaps]), unit, source)
        assert chosen.tolist() == [code + is_past]


@pytest.mark.parametrize("step", [-1, 1])
def test_flips_next_to_their_weight_are_exact(step, scripted):
    with mpmath.workdps(80):
        numerator = int(mpmath.floor(mpmath.exp(-mpmath.mpf(3) / 2) * mpmath.mpf(2) ** 96)) + step
    source = scripted([numerator >> 64], words=[numerator % 2**64, 2**63])
    assert flip_by_weight(np.array([[3]]), HALF, source).tolist() == [[step < 0]]


@pytest.mark.parametrize("bits", [1, 3, 32])
def test_choices_have_the_law_however_short_the_prefix(bits, rng, chi_square):
    gaps = np.array([1, 0, 4, 2])
    chosen = choose_by_weight(np.tile(gaps, (DRAWS, 1)), HALF, rng, bits=bits)
    # False alarm: 1e-6.
    assert chi_square(np.bincount(chosen, minlength=4), exponential_law(gaps / 2)) > 1e-6


@pytest.mark.parametrize("bits", [1, 3, 32])
def test_flips_have_their_probability_however_short_the_prefix(bits, rng, chi_square):
    gaps = np.array([0, 1, 3])
    heads = flip_by_weight(np.tile(gaps, (DRAWS, 1)), HALF, rng, bits=bits)
    assert heads[:, 0].all()
    codes = heads[:, 1] + 2 * heads[:, 2]
    one, three = np.exp(-0.5), np.exp(-1.5)
    law = np.array([(1 - one) * (1 - three), one * (1 - three), (1 - one) * three, one * three])
    # False alarm: 1e-6.
    assert chi_square(np.bincount(codes, minlength=4), law) > 1e-6


@pytest.mark.parametrize("bits", [1, 3, 32])
def test_all_eligible_classes_are_equally_likely(bits, rng, chi_square):
    eligible = np.array([True, False, True, True, False])
    chosen = choose_among(np.tile(eligible, (DRAWS, 1)), rng, bits=bits)
    observed = np.bincount(chosen, minlength=5)
    assert observed[~eligible].sum() == 0
    # False alarm: 1e-6.
    assert chi_square(observed[eligible], np.full(3, 1 / 3)) > 1e-6


def test_a_single_eligible_class_is_chosen(rng):
    assert choose_among(np.eye(4, dtype=np.bool_), rng).tolist() == [0, 1, 2, 3]
