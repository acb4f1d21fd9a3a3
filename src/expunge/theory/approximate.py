"""T2: transcripts with a bounded privacy-loss tail (approximate DP, zCDP, Gaussian DP, any privacy curve).

Let τ(c) bound the probability that the privacy loss of the transcript between neighbouring r exceeds c, derived from
a jointly quasi-convex divergence. For any ω in (0,1) and n = −ln(1−ω) there is an event G with P(G^c) ≤ kτ/ω and
E[e^{λL}1_G|m] ≤ exp((1+λ)kn + λ(1+λ)kc²/8) for every m. With β = b1 + b2 and τ = ωγb2/k this gives (α,β,γ),
α = min [ln(C(λ)/b1) + (1+λ)kn + λ(1+λ)kc²/8]/λ.

λ is minimised exactly (`conversion`). ν = kn and b2/β run over fixed grids: every point is valid, and a minimum over a
fixed set of monotone functions is monotone in every argument. (ν rather than ω is fixed, because τ then falls and c
grows with k.)

The tails give the thresholds: the smallest known c with P(loss > c) ≤ τ, for each way to know a transcript.
`threshold(log_tau)` maps ln τ to c, elementwise, and to infinity where no c is known. For zCDP the tail is Markov's
inequality on the Rényi divergence. Every other tail goes through a hockey-stick divergence δ(·):
P(loss > ε+s) ≤ δ(ε)/(1−e^{−s}), so c = ε − ln(1 − δ(ε)/τ) for any ε with δ(ε) < τ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from scipy.special import erfcx, log_ndtr

from expunge.core.checks import require_count, require_number, require_probability
from expunge.core.errors import ParameterError
from expunge.core.guarantee import PRODUCT_ASSUMPTIONS, Guarantee, Parameter
from expunge.theory.conversion import Array, smallest_alpha

# ln τ is rounded down to a multiple of this before an expensive threshold is computed: c only grows.
_LOG_TAU_STEP: Final = 0.05
_SLACKS: Final = np.geomspace(1e-7, 50.0, 90)
_STANDARD_LOSSES: Final = np.linspace(0.0, 40.0, 600)
_CURVE_POINTS: Final = 400
# Beyond it the guarantee means nothing, and e^ε overflows in many curves.
_LARGEST_EPSILON: Final = 600.0
_LARGEST_MU: Final = 1e60


class LossTail(Protocol):
    """What T2 needs to know of a transcript: a privacy-loss threshold."""

    def threshold(self, log_tau: Array) -> Array:
        """The loss that is exceeded with probability at most τ."""
        ...


@dataclass(frozen=True, slots=True)
class ConcentratedTail:
    """ρ-zCDP: τ(c) = exp(−(c−ρ)²/(4ρ)), so c = ρ + 2√(ρ ln(1/τ))."""

    rho: float

    def threshold(self, log_tau: Array) -> Array:
        """The loss that is exceeded with probability at most τ."""
        return np.asarray(self.rho + 2 * np.sqrt(self.rho * np.maximum(-log_tau, 0.0)) if self.rho else 0 * log_tau)


@dataclass(frozen=True, slots=True)
class ApproximateTail:
    """(ε,δ)-DP: c = ε + s with s = −ln(1 − δ/τ)."""

    epsilon: float
    delta: float

    def threshold(self, log_tau: Array) -> Array:
        """The loss that is exceeded with probability at most τ."""
        log_delta = math.log(self.delta) if self.delta else -math.inf
        return self.epsilon + _slack(log_delta - log_tau)


@dataclass(frozen=True, slots=True)
class ApproximateConcentratedTail:
    """δ-approximate ρ-zCDP composed with ε-DP: δ(c) ≤ δ + min_λ C(λ)e^{−λ(c−ε)+λ(1+λ)ρ}."""

    rho: float
    epsilon: float
    delta: float

    def threshold(self, log_tau: Array) -> Array:
        """The loss that is exceeded with probability at most τ."""
        return _on_grid(self._threshold, log_tau)

    def _threshold(self, log_tau: Array) -> Array:
        log_delta = math.log(self.delta) if self.delta else -math.inf
        # For each slack s, what τ(1−e^{−s}) leaves after δ is there for the concentrated part.
        log_whole = log_tau[:, None] + np.log(-np.expm1(-_SLACKS))
        left = -np.expm1(np.minimum(log_delta - log_whole, 0.0))
        with np.errstate(divide="ignore"):
            log_inverse = -(log_whole + np.log(left))
        concentrated = smallest_alpha(log_inverse, curvature=self.rho, shift=self.rho)
        return np.asarray(self.epsilon + np.min(_SLACKS + concentrated, axis=1))


@dataclass(frozen=True, slots=True)
class GaussianTail:
    """μ-Gaussian DP: δ(ε) = Φ(−ε/μ+μ/2) − e^ε Φ(−ε/μ−μ/2), on a fixed grid of ε/μ (which keeps c monotone in μ)."""

    mu: float

    def threshold(self, log_tau: Array) -> Array:
        """The loss that is exceeded with probability at most τ."""
        if self.mu == 0:
            return 0 * log_tau
        if self.mu > _LARGEST_MU:
            return np.full_like(log_tau, np.inf)
        epsilons = self.mu * (_STANDARD_LOSSES + self.mu / 2)
        log_first = log_ndtr(-_STANDARD_LOSSES)
        # At ε = μu + μ²/2 the second term over the first is a ratio of Mills ratios, at u+μ and at u. For small μ it is
        # nearly 1: lowering it by more than its rounding error is safe.
        mills = erfcx((_STANDARD_LOSSES + self.mu) / math.sqrt(2)) / erfcx(_STANDARD_LOSSES / math.sqrt(2))
        log_deltas = log_first + np.log1p(-np.minimum(mills, 1.0) * (1 - 1e-14))
        return _from_pairs(epsilons, log_deltas, log_tau)


class CurveTail:
    """A privacy curve δ(·) given as a function, sampled where it falls from one half to 1e-40 (or to its floor)."""

    def __init__(self, curve: Callable[[float], float]) -> None:
        floor = _delta(curve, _LARGEST_EPSILON)
        lowest = _crossing(curve, 0.5)
        highest = _crossing(curve, max(1e-40, 1.001 * floor))
        self._epsilons = np.linspace(lowest, highest, _CURVE_POINTS)
        deltas = np.array([_delta(curve, float(epsilon)) for epsilon in self._epsilons])
        with np.errstate(divide="ignore"):
            self._log_deltas = np.log(deltas)

    def threshold(self, log_tau: Array) -> Array:
        """The loss that is exceeded with probability at most τ."""
        return _from_pairs(self._epsilons, self._log_deltas, log_tau)


def _slack(log_ratio: Array) -> Array:
    """s with 1 − e^{−s} = δ/τ, from ln(δ/τ); infinite when δ ≥ τ."""
    possible = log_ratio < 0
    ratio = np.where(possible, np.exp(np.minimum(log_ratio, 0.0)), 0.0)
    with np.errstate(divide="ignore"):
        return np.where(possible, -np.log1p(-ratio), np.inf)


def _from_pairs(epsilons: Array, log_deltas: Array, log_tau: Array) -> Array:
    """The smallest c over several (ε,δ) statements about the same transcript."""

    def smallest(levels: Array) -> Array:
        return np.asarray(np.min(epsilons + _slack(log_deltas - levels[:, None]), axis=1))

    return _on_grid(smallest, log_tau)


def _on_grid(function: Callable[[Array], Array], log_tau: Array) -> Array:
    """`function` of ln τ rounded down to the grid: conservative, monotone, and evaluated once per grid point."""
    steps = np.floor(log_tau / _LOG_TAU_STEP)
    unique, inverse = np.unique(steps, return_inverse=True)
    return np.asarray(function(unique * _LOG_TAU_STEP)[inverse].reshape(log_tau.shape))


def _delta(curve: Callable[[float], float], epsilon: float) -> float:
    delta = float(curve(epsilon))
    if math.isnan(delta):
        raise ParameterError(f"the privacy curve is not a number at epsilon = {epsilon!r}")
    return min(max(delta, 0.0), 1.0)


def _crossing(curve: Callable[[float], float], level: float) -> float:
    """An ε near the smallest with curve(ε) ≤ level (where exactly does not matter: every ε is valid)."""
    if _delta(curve, 0.0) <= level:
        return 0.0
    low, high = 1e-9, _LARGEST_EPSILON
    if _delta(curve, high) > level:
        return high
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _delta(curve, middle) <= level else (middle, high)
    return high


_NU: Final = np.geomspace(1e-9, 30.0, 180)[:, None]
_SHARE: Final = np.geomspace(1e-3, 0.97, 40)[None, :]


def t2_approximate(*, num_shards: int, epsilon: float, delta: float, beta: float, gamma: float) -> Guarantee:
    """T2 for an (ε,δ)-DP transcript: c = ε+s, τ = δ/(1−e^{−s}) for any s > 0.

    Parameters
    ----------
    num_shards
        k, the number of shards. Their randomness must be independent.
    epsilon, delta
        (ε,δ) of the whole transcript.
    beta, gamma
        β and γ of the guarantee; γ is for one generation.

    Returns
    -------
    Guarantee
        (α,β,γ) for one generation. α is 0 if β = 1 or γ = 1, and infinite where T2 gives no bound.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> print(t2_approximate(num_shards=10, epsilon=0.1, delta=1e-12, beta=1e-3, gamma=1e-3))
    (0.5042, 0.001, 0.001)-unlearning by T2 (approximate DP)
    """
    require_number("epsilon", epsilon, least=0, infinite=True)
    require_probability("delta", delta)
    tail = ApproximateTail(epsilon=epsilon, delta=delta)
    return _t2("T2 (approximate DP)", tail, num_shards, beta, gamma, {"epsilon": epsilon, "delta": delta})


def t2_zcdp(*, num_shards: int, rho: float, beta: float, gamma: float) -> Guarantee:
    """T2 for a ρ-zCDP transcript: τ(c) = exp(−(c−ρ)²/(4ρ)) for c > ρ.

    Parameters
    ----------
    num_shards
        k, the number of shards. Their randomness must be independent.
    rho
        ρ of the whole transcript.
    beta, gamma
        β and γ of the guarantee; γ is for one generation.

    Returns
    -------
    Guarantee
        (α,β,γ) for one generation. α is 0 if β = 1 or γ = 1, and infinite where T2 gives no bound.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> print(t2_zcdp(num_shards=10, rho=1e-3, beta=1e-3, gamma=1e-3))
    (1.567, 0.001, 0.001)-unlearning by T2 (zCDP)
    """
    require_number("rho", rho, least=0, infinite=True)
    return _t2("T2 (zCDP)", ConcentratedTail(rho=rho), num_shards, beta, gamma, {"rho": rho})


def t2_gaussian(*, num_shards: int, mu: float, beta: float, gamma: float) -> Guarantee:
    """T2 for a μ-Gaussian-DP transcript, through its privacy curve. (The exact loss tail would not be valid.)

    Parameters
    ----------
    num_shards
        k, the number of shards. Their randomness must be independent.
    mu
        μ of the whole transcript.
    beta, gamma
        β and γ of the guarantee; γ is for one generation.

    Returns
    -------
    Guarantee
        (α,β,γ) for one generation. α is 0 if β = 1 or γ = 1, and infinite where T2 gives no bound.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> print(t2_gaussian(num_shards=10, mu=0.04, beta=1e-3, gamma=1e-3))
    (1.317, 0.001, 0.001)-unlearning by T2 (Gaussian DP)
    """
    require_number("mu", mu, least=0, infinite=True)
    return _t2("T2 (Gaussian DP)", GaussianTail(mu=mu), num_shards, beta, gamma, {"mu": mu})


def t2_mixed(
    *, num_shards: int, rho: float, epsilon: float = 0.0, delta: float = 0.0, beta: float, gamma: float
) -> Guarantee:
    """T2 for a δ-approximate ρ-zCDP transcript, composed with (ε,0) more: δ(c) ≤ δ + curve_ρ(c−ε).

    The transcript's laws are (1−δ)P' + δP'' and (1−δ)Q' + δQ''; the hockey-stick divergence is jointly convex.

    Parameters
    ----------
    num_shards
        k, the number of shards. Their randomness must be independent.
    rho, delta
        The part of the transcript that is δ-approximate ρ-zCDP.
    epsilon
        The part that is ε-DP.
    beta, gamma
        β and γ of the guarantee; γ is for one generation.

    Returns
    -------
    Guarantee
        (α,β,γ) for one generation. α is 0 if β = 1 or γ = 1, and infinite where T2 gives no bound.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> print(t2_mixed(num_shards=10, rho=1e-3, epsilon=0.01, delta=1e-12, beta=1e-3, gamma=1e-3))
    (1.672, 0.001, 0.001)-unlearning by T2 (zCDP and approximate DP)
    """
    require_number("rho", rho, least=0, infinite=True)
    require_number("epsilon", epsilon, least=0, infinite=True)
    require_probability("delta", delta)
    tail = ApproximateConcentratedTail(rho=rho, epsilon=epsilon, delta=delta)
    parameters = {"rho": rho, "epsilon": epsilon, "delta": delta}
    theorem = "T2 (zCDP and approximate DP)" if epsilon > 0 else "T2 (approximate zCDP)"
    return _t2(theorem, tail, num_shards, beta, gamma, parameters)


def t2_curve(*, num_shards: int, curve: Callable[[float], float], beta: float, gamma: float) -> Guarantee:
    """T2 for a transcript with the privacy curve δ(ε) = `curve(ε)`: τ(c) = min_s δ(c−s)/(1−e^{−s}).

    Parameters
    ----------
    num_shards
        k, the number of shards. Their randomness must be independent.
    curve
        The privacy curve of the whole transcript. It must be a valid δ for every ε >= 0 it is asked about, for both
        orders of every neighbouring pair. It is asked a few hundred times.
    beta, gamma
        β and γ of the guarantee; γ is for one generation.

    Returns
    -------
    Guarantee
        (α,β,γ) for one generation. α is 0 if β = 1 or γ = 1, and infinite where T2 gives no bound.

    Raises
    ------
    ParameterError
        If an option is out of range, or if the curve gives NaN.

    Examples
    --------
    >>> def curve(epsilon):
    ...     return 1e-12 if epsilon >= 0.1 else 1.0
    >>> print(t2_curve(num_shards=10, curve=curve, beta=1e-3, gamma=1e-3))
    (0.5053, 0.001, 0.001)-unlearning by T2 (privacy curve)
    """
    tail = CurveTail(curve)
    return _t2("T2 (privacy curve)", tail, num_shards, beta, gamma, {})


def _t2(
    theorem: str,
    tail: LossTail,
    num_shards: int,
    beta: float,
    gamma: float,
    parameters: Mapping[str, Parameter],
) -> Guarantee:
    require_count("num_shards", num_shards, least=1)
    require_probability("beta", beta)
    require_probability("gamma", gamma)
    return Guarantee(
        _alpha(tail, num_shards, beta, gamma),
        beta,
        gamma,
        theorem=theorem,
        parameters={"num_shards": num_shards, **parameters, "gamma_per_generation": gamma},
        assumptions=PRODUCT_ASSUMPTIONS,
    )


def _alpha(tail: LossTail, num_shards: int, beta: float, gamma: float) -> float:
    if beta >= 1 or gamma >= 1:
        return 0.0
    if beta == 0 or gamma == 0:
        return math.inf
    log_omega = np.log(-np.expm1(-_NU / num_shards))
    log_tau = log_omega + np.log(_SHARE) + math.log(beta) + math.log(gamma) - math.log(num_shards)
    threshold = tail.threshold(log_tau)
    with np.errstate(over="ignore"):
        curvature = num_shards * threshold * (threshold / 8)
    log_inverse = _NU - np.log1p(-_SHARE) - math.log(beta)
    return float(np.min(smallest_alpha(log_inverse, curvature=curvature, shift=_NU + curvature)))
