"""T1: what pure differential privacy of the whole transcript guarantees, for every transcript (γ = 0)."""

from __future__ import annotations

import math

from expunge.core.checks import require_count, require_number, require_probability
from expunge.core.guarantee import PRODUCT_ASSUMPTIONS, Guarantee
from expunge.theory.conversion import rounded_up, smallest_alpha


def t1(*, num_shards: int, epsilon: float, beta: float) -> Guarantee:
    """T1: bound what a transcript reveals if it is ε-DP in r = (r_1, …, r_k) as a whole.

    E[e^{λL}|m] ≤ e^{λ(1+λ)kε²/8} for every transcript m, and L ≤ kε always. If β ≥ ε√k/4, then α = 0 (Pinsker).
    The bound holds for every transcript, so γ = 0 and further generations cost nothing.

    Parameters
    ----------
    num_shards
        k, the number of shards. Their randomness must be independent.
    epsilon
        ε of the whole transcript.
    beta
        β of the guarantee.

    Returns
    -------
    Guarantee
        (α, β, 0), with α rounded up. α is infinite if `epsilon` is and β < 1.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> print(t1(num_shards=100, epsilon=0.05, beta=1e-3))
    (0.688, 0.001, 0)-unlearning by T1 (pure DP)
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
    """T1 by its closed tail form: (kε²/8 + ε√(k ln(1/β)/2), β, 0). It is weaker than `t1` and easy to check by hand.

    Parameters
    ----------
    num_shards, epsilon, beta
        As for `t1`.

    Returns
    -------
    Guarantee
        (α, β, 0), with α rounded up.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> print(t1_closed_form(num_shards=100, epsilon=0.05, beta=1e-3))
    (0.9605, 0.001, 0)-unlearning by T1 (closed form)
    """
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
