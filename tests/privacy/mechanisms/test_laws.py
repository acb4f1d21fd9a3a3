"""The laws, against definitions computed another way."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, permutations, product

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from expunge.privacy.mechanisms.laws import (
    exponential_law,
    gaussian_noisy_max_law,
    laplace_noisy_max_law,
    permute_and_flip_law,
)

LAWS = [exponential_law, permute_and_flip_law, laplace_noisy_max_law, gaussian_noisy_max_law]
GAPS = [
    [0.0],
    [0.0, 0.0],
    [0.0, 0.25, 1.5],
    [3.0, 0.0, 0.5, 0.5],
    [0.0, 30.0, 0.125, 700.0],
    [0.0, 1e-6, 2e-6],
]


def permute_and_flip_by_permutations(gaps: list[float]) -> np.ndarray:
    weights = [Fraction(float(np.exp(-gap))) for gap in gaps]
    law = [Fraction(0)] * len(gaps)
    orders = list(permutations(range(len(gaps))))
    for order in orders:
        reached = Fraction(1, len(orders))
        for code in order:
            law[code] += reached * weights[code]
            reached *= 1 - weights[code]
    return np.array([float(p) for p in law])


def permute_and_flip_by_coins(gaps: list[float]) -> np.ndarray:
    """E[1{j heads} / heads] by dynamic programming over the number of the other heads, in high precision."""
    with mpmath.workdps(60):
        weights = [mpmath.exp(-mpmath.mpf(gap)) for gap in gaps]
        law = []
        for code, own in enumerate(weights):
            heads = [mpmath.mpf(1)]
            for weight in weights[:code] + weights[code + 1 :]:
                stay, move = [p * (1 - weight) for p in heads] + [0], [0] + [p * weight for p in heads]
                heads = [a + b for a, b in zip(stay, move, strict=True)]
            law.append(own * sum(p / (n + 1) for n, p in enumerate(heads)))
        return np.array([float(p) for p in law])


def noisy_max_by_quadrature(gaps: list[float], noise) -> np.ndarray:
    def integrand(y: float, code: int) -> float:
        others = np.delete(np.array(gaps), code)
        return float(noise.pdf(y + gaps[code]) * np.prod(noise.cdf(y + others)))

    kinks = sorted({-gap for gap in gaps if gap < 40})
    edges = [-60.0, *kinks, 0.75, 5.0, 60.0]
    return np.array(
        [
            sum(integrate.quad(integrand, a, b, args=(code,), epsabs=1e-12, limit=200)[0] for a, b in pairwise(edges))
            for code in range(len(gaps))
        ]
    )


@pytest.mark.parametrize("gaps", GAPS)
def test_exponential(gaps):
    with mpmath.workdps(40):
        weights = [mpmath.exp(-mpmath.mpf(gap)) for gap in gaps]
        expected = [float(weight / sum(weights)) for weight in weights]
    np.testing.assert_allclose(exponential_law(np.array(gaps)), expected, rtol=1e-13)


@pytest.mark.parametrize("gaps", GAPS)
def test_permute_and_flip(gaps):
    law = permute_and_flip_law(np.array(gaps))
    np.testing.assert_allclose(law, permute_and_flip_by_permutations(gaps), rtol=1e-13)
    np.testing.assert_allclose(law, permute_and_flip_by_coins(gaps), rtol=1e-13)


@pytest.mark.parametrize("gap", [0.0, 1e-9, 0.01, 1.0, 50.0])
@pytest.mark.parametrize("num_classes", [10, 20, 41])
def test_permute_and_flip_with_many_classes(num_classes, gap):
    gaps = [0.0, *(gap * code / num_classes for code in range(1, num_classes))]
    np.testing.assert_allclose(permute_and_flip_law(np.array(gaps)), permute_and_flip_by_coins(gaps), rtol=1e-12)


@pytest.mark.parametrize("gaps", GAPS)
@pytest.mark.parametrize(
    ("law", "noise"), [(laplace_noisy_max_law, stats.laplace), (gaussian_noisy_max_law, stats.norm)]
)
def test_noisy_max(law, noise, gaps):
    np.testing.assert_allclose(law(np.array(gaps)), noisy_max_by_quadrature(gaps, noise), atol=1e-10)


@pytest.mark.parametrize("gap", [0.0, 1e-6, 0.3, 4.0, 40.0])
def test_noisy_max_of_two_in_closed_form(gap):
    gaps = np.array([0.0, gap])
    assert laplace_noisy_max_law(gaps)[1] == pytest.approx((2 + gap) * np.exp(-gap) / 4, rel=1e-11)
    assert gaussian_noisy_max_law(gaps)[1] == pytest.approx(stats.norm.sf(gap / np.sqrt(2)), rel=1e-9)


@pytest.mark.parametrize("law", LAWS)
def test_laws_are_laws_and_follow_the_classes(law):
    for gaps in [*GAPS, [0.0] * 500, list(np.linspace(0, 9, 60)), [0.0] + [1e120] * 3]:
        array = np.array(gaps)
        probabilities = law(array)
        assert probabilities.min() >= 0
        assert probabilities.sum() == pytest.approx(1, abs=1e-11)
        np.testing.assert_allclose(law(array[::-1])[::-1], probabilities, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("law", LAWS)
def test_fewer_votes_never_help(law):
    for a, b in product(np.linspace(0, 12, 7), repeat=2):
        assert law(np.array([0.0, a, b + 0.5]))[2] < law(np.array([0.0, a, b]))[2]
