"""Which rate of loss each level of the survival table may have: the first half of designing it (Theorems C and D).

A regime (floor η, rate R, moment λ) says: the steps of ln S above level η must satisfy Theorem B with R_λ ≤ R. By
Theorem C it then bounds H at main-path probability p by (1 + ω)·B_R(α − ln(1 + ω)), with ω = η/p. Nothing here is
trusted: the finished table is certified afresh by `consensus_certificate`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_OMEGAS: Floats = np.geomspace(2e-3, 8.0, 48)
_NUM_MOMENTS = 72


class Regime(NamedTuple):
    """Steps of ln S above ln `floor` lose at rate at most `rate` up to the moment `moment` (η, R and λ)."""

    floor: float
    rate: float
    moment: float


class Plan(NamedTuple):
    """Regimes from the lowest floor to the highest, and their leading-order length Σ ln(η_{i+1}/η_i)/√R_i."""

    regimes: tuple[Regime, ...]
    length: float


def _moments(alpha: float, target: float) -> Floats:
    """A grid of λ around the optimum, which is near 2 ln(1/target)/α."""
    centre = 2 * (1 + math.log(1 / target)) / alpha
    return np.geomspace(min(0.05, centre / 40), max(8.0, 4 * centre), _NUM_MOMENTS)


def _rates(alpha: float, targets: Floats, omegas: Floats, moments: Floats) -> tuple[Floats, Floats]:
    """The largest R with (1 + ω)·B_R(α − ln(1 + ω)) ≤ target and its λ, by (target, ω); R ≤ 0 where there is none.

    The condition is linear in R for each λ, so the best R is a maximum over λ; any λ of the grid is valid.
    """
    log_c = moments * np.log(moments) - (1 + moments) * np.log1p(moments)
    inflation = np.log1p(omegas)[None, :, None]
    numerator = np.log(targets)[:, None, None] - inflation - log_c + moments * (alpha - inflation)
    rates = numerator / (moments * (1 + moments))
    best = rates.argmax(axis=2)
    return np.take_along_axis(rates, best[:, :, None], axis=2)[:, :, 0], moments[best]


def transcript_plan(*, alpha: float, beta: float, budget: float) -> Plan | None:
    """One regime: H ≤ β for every p ≥ `budget`, with the ω that leaves the shortest table (Theorem D, transcript)."""
    return _shortest(alpha, np.array([budget]), np.array([beta]))


def paper_plan(*, alpha: float, beta1: float, budget: float, ratio: float) -> Plan | None:
    """Regimes with p·(bound(p) − β1) ≤ `budget` for every p (Theorem D, paper form), p on a grid of this ratio.

    Each cell of p is asked at its worst corner: the bound at its lower end, the weight at its upper end. One ω = η/p
    serves all cells; choosing it afresh for each cell gains less than a percent.
    """
    lowest, highest = budget / (1 - beta1), math.exp(-alpha)
    if lowest >= highest:
        return Plan((), 0.0)
    edges = np.geomspace(lowest, highest, 1 + max(1, math.ceil(math.log(highest / lowest) / math.log(ratio))))
    return _shortest(alpha, edges[:-1], np.minimum(beta1 + budget / edges[1:], 1.0))


def _shortest(alpha: float, points: Floats, targets: Floats) -> Plan | None:
    """The plan with bound(p) ≤ target at each of the (increasing) points whose ω = η/p gives the shortest table."""
    rates, moments = _rates(alpha, targets, _OMEGAS, _moments(alpha, float(targets[-1])))
    floors = np.minimum(points[:, None] * _OMEGAS, 1.0)
    usable = (rates > 0).all(axis=0)
    if not usable.any():
        return None
    # A step above η_i has to satisfy every regime before i too.
    rates = np.minimum.accumulate(np.where(usable, rates, 1.0), axis=0)
    moments = np.maximum.accumulate(moments, axis=0)
    rises = np.diff(np.log(floors), axis=0, append=0.0)
    lengths = np.where(usable, (rises / np.sqrt(rates)).sum(axis=0), np.inf)
    best = int(lengths.argmin())
    chain = [Regime(*map(float, row)) for row in zip(floors[:, best], rates[:, best], moments[:, best], strict=True)]
    return Plan(tuple(regime for regime in chain if regime.floor < 1), float(lengths[best]))
