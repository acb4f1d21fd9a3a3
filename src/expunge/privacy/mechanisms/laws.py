"""The exact laws of the mechanisms: the probability of each class.

Here `gaps` are floats ≥ 0 in the mechanism's units: (largest count − count) times the unit of its exponent or noise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

LOG_2 = float(np.log(2.0))
PANEL_NODES = 16
TAIL = 48.0
LARGEST_GAP = 700.0
GAUSSIAN_STEP = 1 / 64


def exponential_law(gaps: Floats) -> Floats:
    """Compute P(j) proportional to e^(−gap), to float64 accuracy."""
    return np.exp(-gaps - special.logsumexp(-gaps))


def permute_and_flip_law(gaps: Floats) -> Floats:
    """Compute P(j) = w_j ∫_0^1 Π_{i≠j} (1 − w_i + w_i t) dt with w = e^(−gap), to about 1e-14.

    Permute-and-flip answers the first class, in a random order, whose coin shows heads. Given all coins, that is a
    uniform one among the heads. So P(j) = w_j E[1/(1 + N_j)], N_j the number of other heads, and
    E[1/(1 + N)] = ∫ E[t^N] dt. The integrand is a polynomial with positive terms, which Gauss-Legendre integrates
    exactly and without cancellation.
    """
    nodes, weights = _gauss_legendre(len(gaps) // 2 + 1)
    nodes, weights = (nodes + 1) / 2, weights / 2
    chance = np.exp(-gaps)
    factors = -np.expm1(-gaps)[:, np.newaxis] + chance[:, np.newaxis] * nodes
    logs = np.log(factors)
    law: Floats = chance * (np.exp(logs.sum(axis=0) - logs) @ weights)
    return law


def laplace_noisy_max_law(gaps: Floats) -> Floats:
    """Compute P(noise_j − gap_j is the largest) for standard Laplace noise, to about 1e-12.

    Gauss-Legendre on panels of length at most 1 that end where a density has its kink.
    """
    deepest = min(float(gaps.max()), LARGEST_GAP)
    grid = np.arange(-np.ceil(deepest + TAIL), TAIL + 1)
    edges = np.unique(np.concatenate([grid, -gaps[gaps <= deepest]]))
    nodes, weights = _gauss_legendre(PANEL_NODES)
    half = np.diff(edges)[:, np.newaxis] / 2
    points = (edges[:-1, np.newaxis] + half * (nodes + 1)).ravel()
    return _noisy_max_law(gaps, points, (half * weights).ravel(), _laplace_log_density, _laplace_log_cdf)


def gaussian_noisy_max_law(gaps: Floats) -> Floats:
    """Compute P(noise_j − gap_j is the largest) for standard normal noise, to about 1e-12.

    The trapezoidal rule, which converges geometrically on analytic integrands with Gaussian tails.
    """
    points = np.arange(-TAIL, TAIL, GAUSSIAN_STEP)
    weights = np.full_like(points, GAUSSIAN_STEP)
    return _noisy_max_law(gaps, points, weights, _gaussian_log_density, special.log_ndtr)


def _noisy_max_law(
    gaps: Floats,
    points: Floats,
    weights: Floats,
    log_density: Callable[[Floats], Floats],
    log_cdf: Callable[[Floats], Floats],
) -> Floats:
    """Compute P(j) = ∫ density(y + gap_j) Π_{i≠j} cdf(y + gap_i) dy, in log space, once for each distinct gap."""
    distinct, inverse, repeats = np.unique(gaps, return_inverse=True, return_counts=True)
    shifted = distinct[:, np.newaxis] + points
    logs = log_cdf(shifted)
    integrand = np.exp(log_density(shifted) - logs + repeats @ logs)
    return (integrand @ weights)[inverse]


def _laplace_log_density(y: Floats) -> Floats:
    return -np.abs(y) - LOG_2


def _laplace_log_cdf(y: Floats) -> Floats:
    return np.where(y < 0, y - LOG_2, np.log1p(-0.5 * np.exp(-np.abs(y))))


def _gaussian_log_density(y: Floats) -> Floats:
    return -0.5 * y * y - 0.5 * float(np.log(2 * np.pi))


@lru_cache
def _gauss_legendre(size: int) -> tuple[Floats, Floats]:
    nodes, weights = special.roots_legendre(size)
    return np.asarray(nodes), np.asarray(weights)
