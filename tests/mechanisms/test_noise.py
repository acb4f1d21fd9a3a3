"""Real-valued noise, and the comparisons of noisy counts, with prefixes of every length."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from expunge.mechanisms._laws import gaussian_noisy_max_law, laplace_noisy_max_law
from expunge.mechanisms._noise import GAUSSIAN, LAPLACE, Noise, draw_noise
from expunge.mechanisms._noisy_max import _exceeds_exactly, _largest_exactly, noisy_argmax, passes_threshold

SHAPES = [pytest.param(LAPLACE, stats.laplace, id="laplace"), pytest.param(GAUSSIAN, stats.norm, id="gaussian")]


@pytest.mark.parametrize(("shape", "noise"), SHAPES)
@pytest.mark.parametrize(("bits", "size"), [(2, 1500), (5, 4000), (32, 200_000)])
def test_noise_has_its_distribution(shape, noise, bits, size, rng):
    drawn = draw_noise(shape, size, rng, bits=bits)
    if bits == 32:
        values = drawn.approximate()
    else:
        for position in range(size):
            drawn.refine(position, rng)
        values = np.array([float(drawn.bounds(position)[0]) for position in range(size)])
    # False alarm: 1e-6. (Prefixes of 32 bits move the empirical distribution by 2^-33, far below what it can tell.)
    assert stats.kstest(values, noise.cdf).pvalue > 1e-6


@pytest.mark.parametrize("shape", [LAPLACE, GAUSSIAN])
def test_what_is_known_better_continues_what_is_known(shape, rng):
    # A fraction that a rejected proposal had revealed must not stay behind.
    bits = 2
    drawn = draw_noise(shape, 400, rng, bits=bits)
    assert len(drawn.refined) > 20
    for position, fraction in drawn.refined.items():
        assert fraction.numerator >> (fraction.bits - bits) == drawn.prefixes[position]


@pytest.mark.parametrize("words", [(5, 9), (9, 5), (5, 5, 2**64 - 1, 1), (7, 7, 1, 7)])
@pytest.mark.parametrize("is_negative", [False, True])
def test_equal_prefixes_are_told_apart_by_later_bits(words, is_negative, scripted):
    noise = Noise(np.full(2, is_negative), np.ones(2, dtype=np.int64), np.full(2, 3, dtype=np.uint32), bits=32)
    largest = _largest_exactly(noise, {0: Fraction(0), 1: Fraction(0)}, scripted([], words))
    # Words are drawn in the order best, rival; while nothing is known apart, the best is position 0.
    last = dict(zip((0, 1), words[-2:], strict=True))
    assert largest == (min if is_negative else max)(last, key=last.__getitem__)


def test_a_shift_far_below_the_prefix_counts(scripted):
    noise = Noise(np.zeros(2, dtype=bool), np.ones(2, dtype=np.int64), np.full(2, 3, dtype=np.uint32), bits=32)
    shifts = {0: Fraction(1, 2**120), 1: Fraction(0)}
    words = [6, 6, 0, 0]  # 160 bits, the same for both.
    assert _largest_exactly(noise, shifts, scripted([], words)) == 1


@pytest.mark.parametrize(("word", "passes"), [(5, False), (6, True)])
def test_a_threshold_within_the_prefix_is_decided_by_later_bits(word, passes, scripted):
    noise = Noise(np.zeros(1, dtype=bool), np.ones(1, dtype=np.int64), np.full(1, 3, dtype=np.uint32), bits=32)
    shift = 1 + Fraction(3 * 2**64 + 6, 2**96)
    assert _exceeds_exactly(noise, 0, shift, scripted([], [word])) == passes


@pytest.mark.parametrize("bits", [2, 32])
def test_the_approximation_lies_in_the_bounds(bits, rng):
    drawn = draw_noise(GAUSSIAN, 500, rng, bits=bits)
    drawn.refined.clear()
    approximate = drawn.approximate()
    for position in range(500):
        low, high = drawn.bounds(position)
        assert low < approximate[position] < high
        assert high - low == Fraction(1, 2**bits)
        drawn.refine(position, rng)
        finer_low, finer_high = drawn.bounds(position)
        assert low <= finer_low < finer_high <= high


@pytest.mark.parametrize(("shape", "law"), [(LAPLACE, laplace_noisy_max_law), (GAUSSIAN, gaussian_noisy_max_law)])
@pytest.mark.parametrize(("bits", "rows"), [(2, 700), (6, 3000), (32, 100_000)])
def test_the_largest_noisy_count_has_the_law(shape, law, bits, rows, rng, chi_square):
    gaps = np.array([0, 1, 1, 3])
    winners = noisy_argmax(np.tile(gaps, (rows, 1)), Fraction(1, 2), shape, rng, bits=bits)
    # False alarm: 1e-6.
    assert chi_square(np.bincount(winners, minlength=4), law(gaps / 2)) > 1e-6


@pytest.mark.parametrize(("bits", "size"), [(2, 1500), (32, 100_000)])
def test_thresholds_are_passed_with_their_probability(bits, size, rng, chi_square):
    passes = passes_threshold(np.full(size, 7), Fraction(19, 2), Fraction(2), GAUSSIAN, rng, bits=bits)
    chance = stats.norm.sf(1.25)
    # False alarm: 1e-6.
    assert chi_square(np.bincount(passes, minlength=2), np.array([1 - chance, chance])) > 1e-6


def test_far_thresholds_and_far_classes_are_certain(rng):
    counts = np.array([0, 10**6])
    assert passes_threshold(counts, Fraction(10**5), Fraction(1e-100), GAUSSIAN, rng).tolist() == [False, True]
    gaps = np.array([[2**53, 0], [0, 2**53]])
    assert noisy_argmax(gaps, Fraction(10**100), LAPLACE, rng).tolist() == [1, 0]
