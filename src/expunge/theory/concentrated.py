"""Bounds that hold on average over transcripts: T3 (few shards) and mutual information for ρ-zCDP, description length.

Description length needs no privacy: few possible transcripts reveal little, even those of a plain majority vote.
"""

from __future__ import annotations

import math

from expunge.core.checks import require_count, require_number, require_probability
from expunge.core.guarantee import BASE_ASSUMPTIONS, PRODUCT_ASSUMPTIONS, Guarantee
from expunge.theory.conversion import rounded_up, smallest_alpha


def t3(*, num_shards: int, rho: float, beta: float, gamma: float) -> Guarantee:
    """T3: bound what a ρ-zCDP transcript reveals; good for few shards.

    E e^{λL} ≤ e^{λkρ+λ²k²ρ} (Hölder over shards), so E_m H(m) ≤ βγ and, by Markov, (α,β,γ). The conversion with C(λ)
    replaces the tail L ≤ kρ + 2k√(ρ ln(1/βγ)) and is never worse.

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
        (α,β,γ) for one generation. α is 0 if β = 1 or γ = 1, and infinite where T3 gives no bound.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> print(t3(num_shards=5, rho=1e-3, beta=1e-3, gamma=1e-3))
    (0.9941, 0.001, 0.001)-unlearning by T3 (zCDP, few shards)
    """
    _check(num_shards, rho, beta, gamma)
    if beta >= 1 or gamma >= 1:
        alpha = 0.0
    elif beta == 0 or gamma == 0:
        alpha = math.inf
    else:
        drift = num_shards * rho
        log_inverse = -math.log(beta) - math.log(gamma)
        alpha = float(smallest_alpha(log_inverse, curvature=num_shards * drift, shift=drift))
    return _guarantee(alpha, beta, gamma, "T3 (zCDP, few shards)", num_shards, rho)


def mutual_information(*, num_shards: int, rho: float, gamma: float) -> Guarantee:
    """Bound what a ρ-zCDP transcript reveals by mutual information (a companion of T3): α = 0, and β grows instead.

    I(r;m) ≤ kρ; Markov on KL(r|m ‖ r), then Pinsker: (0, √(kρ/(2γ)), γ).

    Parameters
    ----------
    num_shards
        k, the number of shards. Their randomness must be independent.
    rho
        ρ of the whole transcript.
    gamma
        γ of the guarantee, for one generation.

    Returns
    -------
    Guarantee
        (0, β, γ) for one generation, with β rounded up. β is infinite if γ = 0 < ρ.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> print(mutual_information(num_shards=5, rho=1e-6, gamma=1e-3))
    (0, 0.05, 0.001)-unlearning by mutual information
    """
    _check(num_shards, rho, 0.0, gamma)
    information = num_shards * rho
    beta = 0.0
    if information > 0:
        beta = rounded_up(math.sqrt(information / (2 * gamma))) if gamma > 0 else math.inf
    return _guarantee(0.0, beta, gamma, "mutual information", num_shards, rho)


def _check(num_shards: int, rho: float, beta: float, gamma: float) -> None:
    require_count("num_shards", num_shards, least=1)
    require_number("rho", rho, least=0, infinite=True)
    require_probability("beta", beta)
    require_probability("gamma", gamma)


def _guarantee(alpha: float, beta: float, gamma: float, theorem: str, num_shards: int, rho: float) -> Guarantee:
    parameters = {"num_shards": num_shards, "rho": rho, "gamma_per_generation": gamma}
    return Guarantee(alpha, beta, gamma, theorem=theorem, parameters=parameters, assumptions=PRODUCT_ASSUMPTIONS)


def description_length(*, log_num_transcripts: float, gamma: float) -> Guarantee:
    """Description length: (ln(N/γ), 0, γ) if at most N transcripts are possible in a generation, for a fixed requester.

    P(r|m)/P(r) ≤ 1/P(m), and the transcripts with P(m) < γ/N have probability at most γ together. This needs no privacy
    and no independence between shards.

    Parameters
    ----------
    log_num_transcripts
        ln N. For l answers out of c outcomes it is l·ln c.
    gamma
        γ of the guarantee, for one generation.

    Returns
    -------
    Guarantee
        (ln(N/γ), 0, γ) for one generation. α = 0 if N = 1; otherwise α is infinite if γ = 0.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> import math
    >>> print(description_length(log_num_transcripts=3 * math.log(2), gamma=1e-3))
    (8.987, 0, 0.001)-unlearning by description length
    """
    require_number("log_num_transcripts", log_num_transcripts, least=0, infinite=True)
    require_probability("gamma", gamma)
    alpha = rounded_up(log_num_transcripts - math.log(gamma)) if gamma > 0 else math.inf
    if log_num_transcripts == 0:
        alpha = 0.0  # a single transcript says nothing
    return Guarantee(
        alpha,
        0.0,
        gamma,
        theorem="description length",
        parameters={"log_num_transcripts": log_num_transcripts, "gamma_per_generation": gamma},
        assumptions=BASE_ASSUMPTIONS,
    )
