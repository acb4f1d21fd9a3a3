"""Exact enumeration of small systems: the joint law of (r, m), and how much a transcript really reveals.

The theorems bound H(m) = sup_F [P(F|m) − e^a P(F)]. Here H(m) is computed, so that a certificate can be checked and its
looseness measured. A guarantee (α,β,γ) is violated exactly if P(H(m) > β) > γ at a = α.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.theory.conversion import Array

#: From a row of vote counts to the probabilities of the outcomes (labels first, then abstentions if any).
Law = Callable[[Sequence[int]], Sequence[float]]
#: From the outcomes so far to the number of the next query.
Strategy = Callable[[tuple[int, ...]], int]


@dataclass(frozen=True)
class ExactSystem:
    """A small system, enumerated: the prior of r and the channel P(m|r).

    Parameters
    ----------
    prior
        P(r), one entry per secret state.
    channel
        P(m|r), one row per transcript and one column per secret state.

    Raises
    ------
    ParameterError
        If the prior or a column of the channel does not sum to 1.

    Examples
    --------
    >>> system = ExactSystem(prior=np.array([0.5, 0.5]), channel=np.array([[0.9, 0.1], [0.1, 0.9]]))
    >>> round(system.failure(alpha=0.5, beta=0.01), 12)
    1.0
    >>> system.violates(Guarantee(0.5, 0.01, 0.1))
    True
    """

    prior: Array
    channel: Array

    def __post_init__(self) -> None:
        if not np.allclose(self.channel.sum(axis=0), 1, atol=1e-9) or not math.isclose(self.prior.sum(), 1):
            raise ParameterError("the prior and every column of the channel must sum to 1")

    def harm(self, alpha: float) -> tuple[Array, Array]:
        """P(m) and H(m) at a = alpha, for every transcript."""
        joint = self.channel * self.prior
        marginal = joint.sum(axis=1)
        product = marginal[:, None] * self.prior
        growth = math.exp(min(alpha, 700.0))
        excess = np.maximum(joint - growth * product, 0.0).sum(axis=1)
        return marginal, np.divide(excess, marginal, out=np.zeros_like(excess), where=marginal > 0)

    def failure(self, *, alpha: float, beta: float) -> float:
        """P(H(m) > β): the smallest γ with which (α,β,γ) is true."""
        marginal, harm = self.harm(alpha)
        # What differs by rounding only is not counted as a violation.
        return float(marginal[harm > beta + 1e-12].sum())

    def violates(self, guarantee: Guarantee) -> bool:
        """Whether the system refutes the guarantee."""
        if math.isinf(guarantee.alpha):
            return False
        return self.failure(alpha=guarantee.alpha, beta=guarantee.beta) > guarantee.gamma * (1 + 1e-9)

    def smallest_alpha(self, *, beta: float, gamma: float) -> float:
        """The smallest α with which (α,β,γ) is true, to six digits (from above); infinite if there is none."""
        low, high = 0.0, 1.0

        def fails(alpha: float) -> bool:
            return self.failure(alpha=alpha, beta=beta) > gamma * (1 + 1e-9)

        if not fails(low):
            return low
        while fails(high):
            low, high = high, 2 * high
            if high > 600:
                return math.inf
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if fails(middle) else (low, middle)
        return high


def voting_system(
    *,
    shard_priors: Sequence[Sequence[float]],
    votes: Sequence[Sequence[int]],
    law: Law,
    num_classes: int,
    num_queries: int,
    strategy: Strategy,
) -> ExactSystem:
    """Enumerate k independent shards, adaptively chosen queries, and one mechanism.

    Shard i holds a secret value v with probability `shard_priors[i][v]`; on query j it then votes for class
    `votes[j][v]`. Every transcript is enumerated, so the system must be small.

    Parameters
    ----------
    shard_priors
        One law of the secret value for each shard.
    votes
        For each query, the class for each secret value.
    law
        From a row of vote counts to the probabilities of the outcomes.
    num_classes
        The number of classes.
    num_queries
        How many queries are asked.
    strategy
        Names the next query after the outcomes so far.

    Returns
    -------
    ExactSystem
        One state for each combination of secret values, one row for each transcript.

    Examples
    --------
    >>> system = voting_system(
    ...     shard_priors=[[0.5, 0.5]] * 3,
    ...     votes=[[0, 1]],
    ...     law=lambda counts: [count / 3 for count in counts],
    ...     num_classes=2,
    ...     num_queries=2,
    ...     strategy=lambda outcomes: 0,
    ... )
    >>> round(system.smallest_alpha(beta=0.01, gamma=0.05), 4)
    1.0716
    """
    states = list(itertools.product(*(range(len(prior)) for prior in shard_priors)))
    prior = np.array([math.prod(p[v] for p, v in zip(shard_priors, state, strict=True)) for state in states])
    answers = [_answer_laws(states, query, law, num_classes) for query in votes]
    rows: list[Array] = []

    def extend(transcript: tuple[int, ...], likelihood: Array) -> None:
        if len(transcript) == num_queries:
            rows.append(likelihood)
            return
        outcomes = answers[strategy(transcript)]
        for outcome in range(outcomes.shape[0]):
            extend((*transcript, outcome), likelihood * outcomes[outcome])

    extend((), np.ones(len(states)))
    return ExactSystem(prior=prior, channel=np.array(rows))


def _answer_laws(states: Sequence[tuple[int, ...]], query: Sequence[int], law: Law, num_classes: int) -> Array:
    """P(outcome | state) for one query, outcomes by rows; states with the same counts share one evaluation."""
    cache: dict[tuple[int, ...], Array] = {}
    columns = []
    for state in states:
        counts = [0] * num_classes
        for value in state:
            counts[query[value]] += 1
        key = tuple(counts)
        if key not in cache:
            cache[key] = np.asarray(law(counts), dtype=np.float64)
        columns.append(cache[key])
    return np.array(columns).T
