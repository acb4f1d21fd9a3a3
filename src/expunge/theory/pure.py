"""T1: what pure differential privacy of the whole transcript guarantees, for every transcript (γ = 0)."""

from __future__ import annotations

import math

from expunge.core.checks import require_count, require_number, require_probability
from expunge.core.guarantee import PRODUCT_ASSUMPTIONS, Guarantee
from expunge.theory.conversion import rounded_up, smallest_alpha


def t1(*, num_shards: int, epsilon: float, beta: float) -> Guarantee:
    """T1: a transcript that is ε-DP in r = (r_1..r_k) as a whole gives (α, β, 0).

    E[e^{λL}|m] ≤ e^{λ(1+λ)kε²/8} for every m, and L ≤ kε always. If β ≥ ε√k/4, α = 0 (Pinsker).
    Nothing is paid for further generations, because γ = 0.
    """
    _check(num_shards, epsilon, beta)
    curvature = num_shards * epsilon * (epsilon / 8)
    if beta >= 1 or beta >= rounded_up(epsilon * math.sqrt(num_shards) / 4):
        alpha = 0.0
    else:
        log_inverse_beta = -math.log(beta) if beta > 0 else math.inf
        by_moments = float(smallest_alpha(log_inverse_beta, curvature=curvature, shift=curvature))
        alpha = min(rounded_up(num_shards * epsilon), by_moments)
    return _guarantee(alpha, "T1 (pure DP)", num_shards, epsilon, beta)


def t1_closed_form(*, num_shards: int, epsilon: float, beta: float) -> Guarantee:
    """T1 by its closed tail form, (kε²/8 + ε√(k ln(1/β)/2), β, 0): weaker than `t1`, easy to check by hand."""
    _check(num_shards, epsilon, beta)
    log_inverse_beta = -math.log(beta) if beta > 0 else math.inf
    alpha = 0.0
    if epsilon > 0 and beta < 1:
        drift = num_shards * epsilon * (epsilon / 8)
        alpha = rounded_up(drift + epsilon * math.sqrt(num_shards * log_inverse_beta / 2))
    return _guarantee(alpha, "T1 (closed form)", num_shards, epsilon, beta)


def _check(num_shards: int, epsilon: float, beta: float) -> None:
    require_count("num_shards", num_shards, least=1)
    require_number("epsilon", epsilon, least=0, infinite=True)
    require_probability("beta", beta)


def _guarantee(alpha: float, theorem: str, num_shards: int, epsilon: float, beta: float) -> Guarantee:
    parameters = {"num_shards": num_shards, "epsilon": epsilon}
    return Guarantee(alpha, beta, 0.0, theorem=theorem, parameters=parameters, assumptions=PRODUCT_ASSUMPTIONS)
