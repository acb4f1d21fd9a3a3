"""The survival table from its regimes: the second half of designing it (Theorem B, solved for the steps).

Going down from d = T_max, ln S rises by the largest step that the regime of the current level allows. With the tangent
at π_d = min(d/k, π*) Theorem B's Γ_d is k·max_{π ≤ d/k} h(π, sΔ_d), up to the neighbour's A_{d+1} (a relative 1/k). Its
integrated form asks that the mean of Γ_d(s)/s² over 1 ≤ s ≤ 1 + λ be at most R. Small overshoots (the maximum over d
inside the integral, the neighbour) are for the caller's slack to absorb; the certificate decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from expunge.guarantees._consensus_regimes import Floats, Regime

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_NEWTON_STEPS = 4


def survival_ladder(num_shards: int, top: int, regimes: Sequence[Regime], *, scale: float, slack: float) -> Floats:
    """P(threshold ≥ d) for d = 0..top, rising from the lowest floor at `top` by the largest allowed steps.

    `scale` multiplies floors and steps alike (½ a side when two-sided, Theorem E). Without regimes there is no noise.
    """
    if not regimes or regimes[0].floor * scale >= 1:
        return np.ones(top + 1)
    floors = [math.log(regime.floor * scale) for regime in regimes]
    levels = np.zeros(top + 1)
    levels[top] = floors[0]
    d = top
    for i, regime in enumerate(regimes):
        ceiling = floors[i + 1] if i + 1 < len(regimes) else 0.0
        while d > 0 and levels[d] < ceiling:
            guess = scale * float(np.exp(_leading_order(num_shards, np.array([d]), regime.rate)[0]))
            count = min(d, math.ceil(1.2 * (ceiling - levels[d]) / guess) + 1)
            steps = scale * _steps(num_shards, np.arange(d, d - count, -1), regime, slack)
            rising = levels[d] + np.cumsum(steps)
            taken = min(int(np.searchsorted(rising, ceiling)) + 1, count)
            levels[d - taken : d] = rising[:taken][::-1]
            d -= taken
            levels[d] = _capped(float(levels[d]), float(steps[taken - 1]), regimes[i:], floors[i:])
    return np.exp(np.minimum(levels, 0.0))


def _capped(level: float, step: float, regimes: Sequence[Regime], floors: Sequence[float]) -> float:
    """The level reached by a step of the first regime that crosses floors: above each floor its own regime's rules.

    A step of another regime at the same depth is in proportion to √R, to leading order.
    """
    for regime, floor in zip(regimes[1:], floors[1:], strict=True):
        if floor >= level:
            break
        level = min(level, floor + step * math.sqrt(regime.rate / regimes[0].rate))
    return level


def _leading_order(num_shards: int, depths: NDArray[np.int64], rate: float) -> Floats:
    """ln Δ_d from h ≈ π(1 − π)x²/2."""
    pi = np.minimum(depths / num_shards, 0.5)
    return np.asarray(0.5 * np.log(2 * rate / (num_shards * pi * (1 - pi))))


def _steps(num_shards: int, depths: NDArray[np.int64], regime: Regime, slack: float) -> Floats:
    """The largest Δ_d with mean over s of k·max_{π ≤ d/k} h(π, sΔ)/s² ≤ R(1 − slack), by Newton's method in ln Δ."""
    rate = regime.rate * (1 - slack)
    s = 1 + regime.moment * (_NODES + 1) / 2
    weights = num_shards * _WEIGHTS / (2 * s**2)
    share = depths[:, None] / num_shards
    # ln(mean) against ln Δ is nearly a line of slope 2.
    log_step = _leading_order(num_shards, depths, rate)
    for _ in range(_NEWTON_STEPS):
        x = np.exp(log_step)[:, None] * s
        loss, slope = _loss(share, x)
        mean = loss @ weights
        log_step -= np.clip(np.log(mean / rate) * mean / ((slope * x) @ weights), -1.0, 1.0)
    return np.asarray(np.exp(log_step))


def _loss(share: Floats, x: Floats) -> tuple[Floats, Floats]:
    """max over π ≤ share of h(π, x) = ln(1 + π(e^x − 1)) − πx, for x > 0, and its derivative by x."""
    small = np.minimum(x, 30.0)
    peak = np.where(x < 1e-3, 0.5 - x / 12, 1 / x - 1 / np.expm1(small))
    pi = np.minimum(share, peak)
    mixed = pi + (1 - pi) * np.exp(-x)
    # ln(1 + π(e^x − 1)) without overflow: past 30 the e^x dominates.
    log_mean = np.where(x < 30.0, np.log1p(pi * np.expm1(small)), x + np.log(mixed))
    return log_mean - pi * x, pi / mixed - pi
