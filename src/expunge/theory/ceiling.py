"""A ceiling for every possible certificate, and what the literature's own statements give beside the theorems here.

The ceiling is a concrete system that breaks the target after so many predictions: k shards vote 0 or 1 independently,
each 1 with probability q; the same query is asked l times through the exponential mechanism. The posterior of r depends
on the votes' sum alone, so H(m) is computed exactly for every transcript m (through its number of ones). If
P(H(m) > β) > γ, no sound theorem can certify l predictions, nor more.

Of the literature's statements `rogers_style` is a valid bound, only weaker. `paper_illustration` sets the constants
that the paper leaves inside O(·) to one. It is no bound at all and has a type of its own, so that it can never be taken
for a `Guarantee`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.special import gammaln, log_expit, logsumexp

from expunge.core.checks import require_count, require_number, require_probability
from expunge.core.errors import ParameterError
from expunge.core.guarantee import PRODUCT_ASSUMPTIONS, Guarantee
from expunge.theory.conversion import Array

# Off-centre votes make one of the two answers rare, and so more telling. The first two find a break, all lower it.
_VOTE_PROBABILITIES: Final = (0.46, 0.5, 0.48, 0.44, 0.42)
_NUM_FINDERS: Final = 2
_LARGEST_SEARCH: Final = 1 << 16
# P(H > β) zigzags with the parity of l: look this far below the first break that bisection finds.
_LOOK_BACK: Final = 4


def repeated_query_failure(
    *, num_shards: int, epsilon: float, num_predictions: int, target: Guarantee, vote_probability: float
) -> float:
    """P(H(m) > β) at a = α, exactly, for the repeated-query system.

    Parameters
    ----------
    num_shards
        k, the number of shards that vote.
    epsilon
        ε0 of the exponential mechanism.
    num_predictions
        l, how often the query is asked.
    target
        The (α,β,γ) to test.
    vote_probability
        q, the probability of a vote for 1; above 0 and below 1.

    Returns
    -------
    float
        The probability. The target is broken, in transcript form, if it is above γ.

    Examples
    --------
    >>> target = Guarantee(1.0, 1e-3, 1e-3)
    >>> failure = repeated_query_failure(
    ...     num_shards=100, epsilon=0.01, num_predictions=30, target=target, vote_probability=0.46
    ... )
    >>> failure > target.gamma
    True
    """
    log_prior = _log_binomial(num_shards, vote_probability)
    ones = np.arange(num_predictions + 1.0)[:, None]
    logit = epsilon * (np.arange(num_shards + 1.0) - num_shards / 2)
    log_likelihood = ones * log_expit(logit) + (num_predictions - ones) * log_expit(-logit)
    log_marginal = logsumexp(log_likelihood + log_prior, axis=1)
    loss = log_likelihood - log_marginal[:, None]
    excess = np.maximum(0.0, -np.expm1(np.minimum(target.alpha - loss, 0.0)))
    harm = np.sum(np.exp(log_prior + loss) * excess, axis=1)
    log_count = _log_choose(num_predictions)
    return float(np.sum(np.exp(log_count + log_marginal)[harm > target.beta]))


def repeated_query_ceiling(*, num_shards: int, epsilon: float, target: Guarantee) -> int | None:
    """A number of predictions that cannot be exceeded: one more is broken by the repeated-query system.

    Parameters
    ----------
    num_shards
        k, the number of shards.
    epsilon
        ε0 of the exponential mechanism.
    target
        The wanted (α,β,γ) for one generation.

    Returns
    -------
    int or None
        The smallest such number that the search finds; None if the system breaks nothing up to 65,536 predictions.

    Raises
    ------
    ParameterError
        If `num_shards` is not an integer >= 1.

    Examples
    --------
    >>> repeated_query_ceiling(num_shards=100, epsilon=0.01, target=Guarantee(1.0, 1e-3, 1e-3))
    24
    """
    require_count("num_shards", num_shards, least=1)

    def breaks(num_predictions: int, probabilities: tuple[float, ...]) -> bool:
        return any(
            repeated_query_failure(
                num_shards=num_shards,
                epsilon=epsilon,
                num_predictions=num_predictions,
                target=target,
                vote_probability=probability,
            )
            > target.gamma
            for probability in probabilities
        )

    broken = 1
    finders = _VOTE_PROBABILITIES[:_NUM_FINDERS]
    while not breaks(broken, finders):
        broken *= 2
        if broken > _LARGEST_SEARCH:
            return None
    intact = broken // 2
    while broken - intact > 1:
        middle = (intact + broken) // 2
        intact, broken = (intact, middle) if breaks(middle, finders) else (middle, broken)
    return _lower_break(lambda count: breaks(count, _VOTE_PROBABILITIES), broken) - 1


def _lower_break(breaks: Callable[[int], bool], broken: int) -> int:
    while True:
        lower = [count for count in range(max(1, broken - _LOOK_BACK), broken) if breaks(count)]
        if not lower:
            return broken
        broken = lower[0]


def _log_choose(n: int) -> Array:
    j = np.arange(n + 1.0)
    return np.asarray(gammaln(n + 1.0) - gammaln(j + 1) - gammaln(n - j + 1))


def _log_binomial(n: int, probability: float) -> Array:
    j = np.arange(n + 1.0)
    return np.asarray(_log_choose(n) + j * np.log(probability) + (n - j) * np.log1p(-probability))


_SHARES: Final = np.geomspace(1e-6, 0.999, 400)


@dataclass(frozen=True, slots=True)
class IllustrativeBound:
    """Numbers that look like (α,β,γ) and promise nothing.

    Parameters
    ----------
    alpha, beta, gamma
        The numbers.
    label
        A warning that is always shown with them.
    """

    alpha: float
    beta: float
    gamma: float
    label: str = "illustrative, not a bound"

    def __str__(self) -> str:
        return f"({self.alpha:.4g}, {self.beta:.4g}, {self.gamma:.4g}), {self.label}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return {"alpha": self.alpha, "beta": self.beta, "gamma": self.gamma, "label": self.label}


def paper_illustration(*, num_shards: int, epsilon: float, delta: float) -> IllustrativeBound:
    """Theorem 4.1 with every constant inside O(·) set to 1: α = ε²k + k√(δ/ε), β = γ = √(e^{−ε²k} + k√(δ/ε)).

    Illustrative, not a bound.

    Parameters
    ----------
    num_shards
        k, the number of shards.
    epsilon, delta
        (ε,δ) of the transcript. The paper needs 0 < ε ≤ 1/2 and 0 < δ < ε.

    Returns
    -------
    IllustrativeBound
        The numbers, which promise nothing.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> print(paper_illustration(num_shards=10, epsilon=0.5, delta=1e-9))
    (2.5, 0.2873, 0.2873), illustrative, not a bound
    """
    require_count("num_shards", num_shards, least=1)
    if not 0 < epsilon <= 0.5:
        raise ParameterError(f"epsilon must be in (0, 0.5] for the paper's theorem, got {epsilon!r}")
    if not 0 < delta < epsilon:
        raise ParameterError(f"delta must be in (0, epsilon) for the paper's theorem, got {delta!r}")
    leak = num_shards * math.sqrt(delta / epsilon)
    alpha = epsilon * epsilon * num_shards + leak
    beta = math.sqrt(math.exp(-epsilon * epsilon * num_shards) + leak)
    return IllustrativeBound(alpha, beta, beta)


def rogers_style(*, num_shards: int, epsilon: float, delta: float, beta: float, gamma: float) -> Guarantee:
    """The theorem of Rogers et al. with explicit constants, for an (ε,δ)-DP transcript; weaker than T2.

    c = 2ε, τ = δ/(1−e^{−ε}), ω = √τ, R = kε²/2, n = −ln(1−ω): L ≤ kn + R + 2√(R(ln(1/δ1)+kn)) except with probability
    δ1 + k√τ ≤ βγ.

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
        (α,β,γ) for one generation. α is infinite if k√τ alone is too large.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> print(rogers_style(num_shards=10, epsilon=0.01, delta=1e-30, beta=1e-3, gamma=1e-3))
    (0.1667, 0.001, 0.001)-unlearning by Rogers-style closed form
    """
    require_count("num_shards", num_shards, least=1)
    require_number("epsilon", epsilon, least=0, infinite=True)
    require_probability("delta", delta)
    require_probability("beta", beta)
    require_probability("gamma", gamma)
    return Guarantee(
        _rogers_alpha(num_shards, epsilon, delta, beta * gamma),
        beta,
        gamma,
        theorem="Rogers-style closed form",
        parameters={"num_shards": num_shards, "epsilon": epsilon, "delta": delta, "gamma_per_generation": gamma},
        assumptions=PRODUCT_ASSUMPTIONS,
    )


def paper_predictions(*, num_shards: int, epsilon: float, alpha: float, beta: float, gamma: float) -> int:
    """Predictions of ε0 = `epsilon` that the paper's count certifies through the Rogers-style form.

    This is the largest ⌊ε²/(8ε0² ln(1/δ))⌋ over all (ε,δ) whose Rogers-style α is within target, with δ1 free. For each
    way to share βγ between δ1 and k√τ the largest ε has a closed form, so the search is over that share alone.

    Parameters
    ----------
    num_shards
        k, the number of shards. Their randomness must be independent.
    epsilon
        ε0, what one prediction costs.
    alpha, beta, gamma
        The target for one generation.

    Returns
    -------
    int
        The number of predictions.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> paper_predictions(num_shards=100, epsilon=1e-4, alpha=1.0, beta=1e-3, gamma=1e-3)
    98
    """
    require_count("num_shards", num_shards, least=1)
    require_number("alpha", alpha, least=0, infinite=True)
    budget = beta * gamma
    if budget <= 0 or epsilon <= 0:
        return 0
    omega = _SHARES * budget / num_shards
    drift = -num_shards * np.log1p(-omega)
    log_inverse = -np.log1p(-_SHARES) - math.log(budget) + drift
    # α − kn = R + 2√(R·log_inverse), solved for R = kε²/2.
    room = np.maximum(alpha - drift, 0.0)
    largest = np.sqrt(2 / num_shards) * (np.sqrt(log_inverse + room) - np.sqrt(log_inverse))
    log_inverse_delta = -2 * np.log(omega) - np.log(-np.expm1(-np.maximum(largest, 1e-300)))
    counts = (largest / epsilon) ** 2 / (8 * log_inverse_delta)
    return math.floor(float(np.max(counts)))


def _rogers_alpha(num_shards: int, epsilon: float, delta: float, budget: float) -> float:
    if budget >= 1 or epsilon == delta == 0:
        return 0.0
    tau = delta / -math.expm1(-epsilon) if epsilon > 0 else math.inf
    omega = math.sqrt(tau)
    tail = budget - num_shards * omega
    if tail <= 0 or omega >= 1:
        return math.inf
    drift = -num_shards * math.log1p(-omega)
    curvature = num_shards * epsilon * (epsilon / 2)
    return drift + curvature + 2 * math.sqrt(curvature * (drift - math.log(tail)))
