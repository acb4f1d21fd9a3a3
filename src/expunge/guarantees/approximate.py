"""T2: transcripts with a bounded privacy-loss tail (approximate DP, zCDP, Gaussian DP, any privacy curve).

Let τ(c) bound the probability that the privacy loss of the transcript between neighbouring r exceeds c, derived from
a jointly quasi-convex divergence. For any ω in (0,1) and n = −ln(1−ω) there is an event G with P(G^c) ≤ kτ/ω and
E[e^{λL}1_G|m] ≤ exp((1+λ)kn + λ(1+λ)kc²/8) for every m. With β = b1 + b2 and τ = ωγb2/k this gives (α,β,γ),
α = min [ln(C(λ)/b1) + (1+λ)kn + λ(1+λ)kc²/8]/λ.

λ is minimised exactly (`conversion`). ν = kn and b2/β run over fixed grids: every point is valid, and a minimum over a
fixed set of monotone functions is monotone in every argument. (ν rather than ω is fixed, because τ then falls and c
grows with k.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from expunge.guarantees._checks import require_count, require_nonnegative, require_probability
from expunge.guarantees._loss_tail import (
    ApproximateConcentratedTail,
    ApproximateTail,
    ConcentratedTail,
    CurveTail,
    GaussianTail,
    LossTail,
)
from expunge.guarantees.assumptions import PRODUCT_ASSUMPTIONS
from expunge.guarantees.conversion import smallest_alpha
from expunge.guarantees.guarantee import Guarantee, Parameter

_NU: Final = np.geomspace(1e-9, 30.0, 180)[:, None]
_SHARE: Final = np.geomspace(1e-3, 0.97, 40)[None, :]


def t2_approximate(*, num_shards: int, epsilon: float, delta: float, beta: float, gamma: float) -> Guarantee:
    """T2 for an (ε,δ)-DP transcript: c = ε+s, τ = δ/(1−e^{−s}) for any s > 0."""
    require_nonnegative("epsilon", epsilon)
    require_probability("delta", delta)
    tail = ApproximateTail(epsilon=epsilon, delta=delta)
    return _t2("T2 (approximate DP)", tail, num_shards, beta, gamma, {"epsilon": epsilon, "delta": delta})


def t2_zcdp(*, num_shards: int, rho: float, beta: float, gamma: float) -> Guarantee:
    """T2 for a ρ-zCDP transcript: τ(c) = exp(−(c−ρ)²/(4ρ)) for c > ρ."""
    require_nonnegative("rho", rho)
    return _t2("T2 (zCDP)", ConcentratedTail(rho=rho), num_shards, beta, gamma, {"rho": rho})


def t2_gaussian(*, num_shards: int, mu: float, beta: float, gamma: float) -> Guarantee:
    """T2 for a μ-Gaussian-DP transcript, through its privacy curve (the exact loss tail would not be valid)."""
    require_nonnegative("mu", mu)
    return _t2("T2 (Gaussian DP)", GaussianTail(mu=mu), num_shards, beta, gamma, {"mu": mu})


def t2_mixed(
    *, num_shards: int, rho: float, epsilon: float = 0.0, delta: float = 0.0, beta: float, gamma: float
) -> Guarantee:
    """T2 for a δ-approximate ρ-zCDP transcript, composed with (ε,0) more: δ(c) ≤ δ + curve_ρ(c−ε).

    The transcript's laws are (1−δ)P' + δP'' and (1−δ)Q' + δQ''; the hockey-stick divergence is jointly convex.
    """
    require_nonnegative("rho", rho)
    require_nonnegative("epsilon", epsilon)
    require_probability("delta", delta)
    tail = ApproximateConcentratedTail(rho=rho, epsilon=epsilon, delta=delta)
    parameters = {"rho": rho, "epsilon": epsilon, "delta": delta}
    theorem = "T2 (zCDP and approximate DP)" if epsilon > 0 else "T2 (approximate zCDP)"
    return _t2(theorem, tail, num_shards, beta, gamma, parameters)


def t2_curve(*, num_shards: int, curve: Callable[[float], float], beta: float, gamma: float) -> Guarantee:
    """T2 for a transcript with the privacy curve δ(ε) = `curve(ε)`: τ(c) = min_s δ(c−s)/(1−e^{−s}).

    `curve` must be a valid δ for every ε >= 0 it is asked about, for both orders of every neighbouring pair; it is
    asked a few hundred times.
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
