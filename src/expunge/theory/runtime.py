"""Run time (Theorem 4.2, corrected): how many shards one update of one record retrains, for any p.

The bounds are about updates that are not full retrainings: an update that ends a generation retrains all k shards.
The printed theorem has a sign slip in its binomial fact: e^{−η²μ/(2+η)} = e^{−Λ} gives X ≤ μ + (Λ+√(Λ²+8μΛ))/2, not
μ + √(2μΛ), which is smaller and fails (N ~ Bin(100, 1/100), ξ = 1e-3: 4.72 printed, yet P(N > 4.72) = 3.4e-3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import bdtrc

from expunge.core.checks import require_count, require_number, require_probability
from expunge.core.guarantee import Guarantee


@dataclass(frozen=True, slots=True)
class RunTimeBound:
    """One bound on the shards that an update retrains: N ≤ `num_retrained` except with probability ξ.

    Parameters
    ----------
    name
        Which bound it is.
    num_retrained
        The number of shards.
    is_bound
        False for a form that is shown only because the paper prints it.
    """

    name: str
    num_retrained: float
    is_bound: bool = True


def binomial_quantile(*, num_shards: int, inclusion_probability: float, level: float) -> int:
    """The smallest q with P(Bin(k,p) > q) ≤ level, exactly.

    Parameters
    ----------
    num_shards, inclusion_probability
        k and p.
    level
        The probability that q is exceeded.

    Returns
    -------
    int
        q, from 0 to k.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> binomial_quantile(num_shards=100, inclusion_probability=0.01, level=1e-3)
    5
    """
    _check(num_shards, inclusion_probability)
    require_probability("level", level)
    if level <= 0:
        return num_shards if inclusion_probability > 0 else 0
    if level >= 1:
        return 0
    low, high = -1, num_shards  # P(Bin > low) > level >= P(Bin > high), with P(Bin > -1) = 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bdtrc(middle, num_shards, inclusion_probability) <= level else (middle, high)
    return high


def oblivious_quantile(*, num_shards: int, inclusion_probability: float, failure: float) -> int:
    """Shards retrained by an update chosen in advance, except with probability ξ: N ~ Bin(k,p) (Theorem 4.2).

    Parameters
    ----------
    num_shards, inclusion_probability
        k and p.
    failure
        ξ, above 0 and below 1.

    Returns
    -------
    int
        The number of shards.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> oblivious_quantile(num_shards=100, inclusion_probability=0.01, failure=1e-3)
    5
    """
    require_number("failure", failure, above=0, below=1)
    return binomial_quantile(num_shards=num_shards, inclusion_probability=inclusion_probability, level=failure)


def adaptive_quantile(
    *, num_shards: int, inclusion_probability: float, failure: float, num_records: int, num_generations: int = 1
) -> int:
    """Shards retrained by an update chosen adaptively: the oblivious quantile at level ξ/(G(n+t)) (Theorem 4.2).

    The union is over every record that could be named, and over the generations in which a requester may have waited
    for an unlucky draw.

    Parameters
    ----------
    num_shards, inclusion_probability
        k and p.
    failure
        ξ, above 0 and below 1.
    num_records
        n+t: records at the start plus updates since.
    num_generations
        G, the number of generations.

    Returns
    -------
    int
        The number of shards, exceeded with probability at most ξ.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> adaptive_quantile(num_shards=100, inclusion_probability=0.01, failure=1e-3, num_records=10_000)
    9
    """
    require_number("failure", failure, above=0, below=1)
    require_count("num_records", num_records, least=1)
    require_count("num_generations", num_generations, least=1)
    level = failure / num_records / num_generations
    return binomial_quantile(num_shards=num_shards, inclusion_probability=inclusion_probability, level=level)


def max_information_quantile(
    *, num_shards: int, inclusion_probability: float, failure: float, guarantee: Guarantee
) -> int:
    """Shards retrained by an adaptive update, through a guarantee (a,b,g): the quantile at level (ξ−δ')e^{−a}.

    Theorem 4.2: P(N > q) ≤ e^a P(Bin(k,p) > q) + δ' with δ' = b + g, where g already counts all generations.

    Parameters
    ----------
    num_shards, inclusion_probability
        k and p.
    failure
        ξ, above 0 and below 1. Unless ξ > δ', nothing better than k is known.
    guarantee
        (a,b,g).

    Returns
    -------
    int
        The number of shards, exceeded with probability at most ξ.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> guarantee = Guarantee(1.0, 1e-3, 1e-3)
    >>> max_information_quantile(num_shards=100, inclusion_probability=0.01, failure=1e-2, guarantee=guarantee)
    5
    """
    require_number("failure", failure, above=0, below=1)
    left = failure - guarantee.beta - guarantee.gamma
    if left <= 0 or guarantee.note or math.isinf(guarantee.alpha):
        return num_shards
    level = left * math.exp(-guarantee.alpha)
    return binomial_quantile(num_shards=num_shards, inclusion_probability=inclusion_probability, level=level)


def closed_form(*, mean: float, log_inverse: float) -> float:
    """The corrected closed form of Theorem 4.2: μ + (Λ + √(Λ²+8μΛ))/2.

    Parameters
    ----------
    mean
        μ = kp.
    log_inverse
        Λ: ln(1/ξ) for an oblivious update, ln(G(n+t)/ξ) for an adaptive one, a + ln(1/(ξ−δ')) by max-information.

    Returns
    -------
    float
        The bound on the number of shards.

    Raises
    ------
    ParameterError
        If an argument is negative or NaN.

    Examples
    --------
    >>> round(closed_form(mean=1.0, log_inverse=6.9), 2)
    9.52
    """
    require_number("mean", mean, least=0, infinite=True)
    require_number("log_inverse", log_inverse, least=0, infinite=True)
    return mean + (log_inverse + math.sqrt(log_inverse) * math.sqrt(log_inverse + 8 * mean)) / 2


def printed_form(*, mean: float, log_inverse: float) -> float:
    """The closed form as the paper prints it: μ + √(2μΛ). It is too small; for display only.

    Parameters
    ----------
    mean, log_inverse
        As for `closed_form`.

    Returns
    -------
    float
        The printed number, which is no bound.

    Raises
    ------
    ParameterError
        If an argument is negative or NaN.

    Examples
    --------
    >>> round(printed_form(mean=1.0, log_inverse=6.9), 2)
    4.71
    """
    require_number("mean", mean, least=0, infinite=True)
    require_number("log_inverse", log_inverse, least=0, infinite=True)
    return mean + math.sqrt(2 * mean) * math.sqrt(log_inverse)


def run_time_bounds(
    *,
    num_shards: int,
    inclusion_probability: float,
    failure: float,
    num_records: int,
    num_generations: int = 1,
    guarantee: Guarantee | None = None,
) -> list[RunTimeBound]:
    """All of Theorem 4.2's bounds for one update of one record that is not a full retraining, exact and closed.

    The printed forms are among them, marked as such.

    Parameters
    ----------
    num_shards, inclusion_probability
        k and p.
    failure
        ξ, above 0 and below 1.
    num_records
        n+t: records at the start plus updates since.
    num_generations
        G, the number of generations.
    guarantee
        (a,b,g), if the bounds by max-information are wanted too.

    Returns
    -------
    list of RunTimeBound
        One entry for each bound.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> bounds = run_time_bounds(num_shards=100, inclusion_probability=0.01, failure=1e-3, num_records=10_000)
    >>> [(bound.name, round(bound.num_retrained, 2)) for bound in bounds[:2]]
    [('oblivious, exact', 5), ('oblivious, closed form', 9.53)]
    """
    _check(num_shards, inclusion_probability)
    mean = num_shards * inclusion_probability
    oblivious = oblivious_quantile(num_shards=num_shards, inclusion_probability=inclusion_probability, failure=failure)
    adaptive = adaptive_quantile(
        num_shards=num_shards,
        inclusion_probability=inclusion_probability,
        failure=failure,
        num_records=num_records,
        num_generations=num_generations,
    )
    log_oblivious = -math.log(failure)
    log_adaptive = log_oblivious + math.log(num_records) + math.log(num_generations)
    bounds = [
        RunTimeBound("oblivious, exact", oblivious),
        RunTimeBound("oblivious, closed form", closed_form(mean=mean, log_inverse=log_oblivious)),
        RunTimeBound("oblivious, as printed", printed_form(mean=mean, log_inverse=log_oblivious), is_bound=False),
        RunTimeBound("adaptive, exact", adaptive),
        RunTimeBound("adaptive, closed form", closed_form(mean=mean, log_inverse=log_adaptive)),
        RunTimeBound("adaptive, as printed", printed_form(mean=mean, log_inverse=log_adaptive), is_bound=False),
    ]
    if guarantee is not None:
        bounds += _through(guarantee, num_shards, inclusion_probability, failure)
    return bounds


def _through(guarantee: Guarantee, num_shards: int, probability: float, failure: float) -> list[RunTimeBound]:
    exact = max_information_quantile(
        num_shards=num_shards, inclusion_probability=probability, failure=failure, guarantee=guarantee
    )
    left = failure - guarantee.beta - guarantee.gamma
    closed = math.inf
    if left > 0 and not guarantee.note and math.isfinite(guarantee.alpha):
        closed = closed_form(mean=num_shards * probability, log_inverse=guarantee.alpha - math.log(left))
    return [
        RunTimeBound("adaptive, max-information, exact", exact),
        RunTimeBound("adaptive, max-information, closed form", closed),
    ]


def _check(num_shards: int, inclusion_probability: float) -> None:
    require_count("num_shards", num_shards, least=1)
    require_probability("inclusion_probability", inclusion_probability)
