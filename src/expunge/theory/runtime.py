"""How many shards one update of one record retrains (Theorem 4.2), for any inclusion probability p, corrected.

About updates that are not full retrainings: an update that ends a generation retrains all k shards.
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
    """N ≤ `num_retrained` except with probability ξ; `is_bound` is False for what is shown only as printed."""

    name: str
    num_retrained: float
    is_bound: bool = True


def binomial_quantile(*, num_shards: int, inclusion_probability: float, level: float) -> int:
    """The smallest q with P(Bin(k,p) > q) ≤ level, exactly."""
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
    """Shards retrained by an update chosen in advance, except with probability ξ = `failure`: N ~ Bin(k,p)."""
    require_number("failure", failure, above=0, below=1)
    return binomial_quantile(num_shards=num_shards, inclusion_probability=inclusion_probability, level=failure)


def adaptive_quantile(
    *, num_shards: int, inclusion_probability: float, failure: float, num_records: int, num_generations: int = 1
) -> int:
    """Shards retrained by an update chosen adaptively: the oblivious quantile at level ξ/(G(n+t)).

    `num_records` is n+t: records at the start plus updates since. The union is over every record that could be
    named, and over the generations in which a requester may have waited for an unlucky draw.
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

    P(N > q) ≤ e^a P(Bin(k,p) > q) + δ' with δ' = b + g, where g already counts all generations.
    Needs ξ > δ'; otherwise nothing better than k is known.
    """
    require_number("failure", failure, above=0, below=1)
    left = failure - guarantee.beta - guarantee.gamma
    if left <= 0 or guarantee.note or math.isinf(guarantee.alpha):
        return num_shards
    level = left * math.exp(-guarantee.alpha)
    return binomial_quantile(num_shards=num_shards, inclusion_probability=inclusion_probability, level=level)


def closed_form(*, mean: float, log_inverse: float) -> float:
    """μ + (Λ + √(Λ²+8μΛ))/2: the corrected closed form, with Λ = `log_inverse`.

    Λ = ln(1/ξ) for an oblivious update, ln(G(n+t)/ξ) for an adaptive one, a + ln(1/(ξ−δ')) by max-information.
    """
    require_number("mean", mean, least=0, infinite=True)
    require_number("log_inverse", log_inverse, least=0, infinite=True)
    return mean + (log_inverse + math.sqrt(log_inverse) * math.sqrt(log_inverse + 8 * mean)) / 2


def printed_form(*, mean: float, log_inverse: float) -> float:
    """μ + √(2μΛ), as printed in the paper: too small, for display only."""
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
    """All of Theorem 4.2's bounds for one update of one record that is no full retraining, exact and closed.

    The printed ones are among them, marked as such.
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
