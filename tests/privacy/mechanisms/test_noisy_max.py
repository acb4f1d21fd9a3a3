"""Real-valued noise, and the comparisons of noisy counts, with prefixes of every length."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from expunge.privacy.mechanisms.laws import gaussian_noisy_max_law, laplace_noisy_max_law
from expunge.privacy.mechanisms.noisy_max import (
    GAUSSIAN,
    LAPLACE,
    Noise,
    draw_noise,
    find_largest,
    noisy_argmax,
    passes_threshold,
)

HALF = Fraction(1, 2)
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


def twins(size: int, *, is_negative: bool = False) -> Noise:
    """Noises of which the same 32 bits are known: ±(1 + 3/2^32) and a little more."""
    return Noise(np.full(size, is_negative), np.ones(size, dtype=np.int64), np.full(size, 3, dtype=np.uint32), bits=32)


@pytest.mark.parametrize("words", [(5, 9), (9, 5), (5, 5, 2**64 - 1, 1), (7, 7, 1, 7)])
@pytest.mark.parametrize("is_negative", [False, True])
def test_equal_prefixes_are_told_apart_by_later_bits(words, is_negative, scripted):
    # The script is read for class 0, then for class 1, and so on until they differ.
    found = find_largest(twins(2, is_negative=is_negative), np.array([[0, 0]]), HALF, scripted([], words))
    assert found.tolist() == [int((words[-1] > words[-2]) != is_negative)]


def test_a_shift_far_below_the_prefix_counts(scripted):
    # 160 bits, the same for both; class 0 is behind by 2^-120.
    found = find_largest(twins(2), np.array([[1, 0]]), Fraction(1, 2**120), scripted([], [6, 6, 0, 0]))
    assert found.tolist() == [1]


@pytest.mark.parametrize(("word", "passes"), [(5, False), (6, True)])
def test_a_threshold_within_the_prefix_is_decided_by_later_bits(word, passes, scripted):
    # The first 16 bits after the prefix stand against 6.
    threshold = 1 + (3 * 2**16 + 6) / 2**48
    found = passes_threshold(twins(1), np.array([0]), threshold, 1.0, scripted([], [word << 48]))
    assert found.tolist() == [passes]


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
    winners = noisy_argmax(np.tile(gaps, (rows, 1)), HALF, shape, rng, bits=bits)
    # False alarm: 1e-6.
    assert chi_square(np.bincount(winners, minlength=4), law(gaps / 2)) > 1e-6


@pytest.mark.parametrize(("bits", "size"), [(2, 1500), (32, 100_000)])
def test_thresholds_are_passed_with_their_probability(bits, size, rng, chi_square):
    noise = draw_noise(GAUSSIAN, size, rng, bits=bits)
    passes = passes_threshold(noise, np.full(size, 7), 9.5, 2.0, rng)
    chance = stats.norm.sf(1.25)
    # False alarm: 1e-6.
    assert chi_square(np.bincount(passes, minlength=2), np.array([1 - chance, chance])) > 1e-6


def test_far_thresholds_and_far_classes_are_certain(rng):
    counts = np.array([0, 10**6])
    noise = draw_noise(GAUSSIAN, 2, rng)
    assert passes_threshold(noise, counts, 1e5, 1e-100, rng).tolist() == [False, True]
    gaps = np.array([[2**53, 0], [0, 2**53]])
    assert noisy_argmax(gaps, Fraction(10**100), LAPLACE, rng).tolist() == [1, 0]
