"""A ceiling for every possible certificate: a concrete system that breaks the target after so many predictions.

The system: k shards vote 0 or 1 independently, each 1 with probability q; the same query is asked l times through the
exponential mechanism. The posterior of r depends on the votes' sum alone, so H(m) is computed exactly for every
transcript m (through its number of ones). If P(H(m) > β) > γ, no sound theorem can certify l predictions, nor more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from scipy.special import gammaln, log_expit, logsumexp

from expunge.guarantees._checks import require_count
from expunge.guarantees.conversion import Array
from expunge.guarantees.guarantee import Guarantee

# Off-centre votes make one of the two answers rare, and so more telling. The first two find a break, all lower it.
_VOTE_PROBABILITIES: Final = (0.46, 0.5, 0.48, 0.44, 0.42)
_NUM_FINDERS: Final = 2
_LARGEST_SEARCH: Final = 1 << 16
# P(H > β) zigzags with the parity of l: look this far below the first break that bisection finds.
_LOOK_BACK: Final = 4


def repeated_query_failure(
    *, num_shards: int, epsilon: float, num_predictions: int, target: Guarantee, vote_probability: float
) -> float:
    """P(H(m) > β) at a = α, exactly, for the repeated-query system."""
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

    The smallest that the search finds; None if the system breaks nothing up to 65,536 predictions.
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
