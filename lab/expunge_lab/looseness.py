"""How loose the certificates are: certified α beside the α that is really needed, on small exact systems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypedDict

import numpy as np

from expunge.privacy.mechanisms import (
    ConfidentGaussianNoisyMax,
    ExponentialMechanism,
    GaussianNoisyMax,
    LaplaceNoisyMax,
    Majority,
    Mechanism,
    PermuteAndFlip,
)
from expunge.theory.certify import certify
from expunge.theory.exact import ExactSystem, Strategy, voting_system

_NUM_CLASSES: Final = 2
# Each shard's secret takes one of two or three values; queries map the value to a vote.
_PRIORS: Final = ((0.5, 0.5), (0.7, 0.3), (0.9, 0.1), (0.4, 0.3, 0.3))
_VOTES: Final = ((0, 1, 1), (1, 0, 1), (0, 0, 1))


class LoosenessRow(TypedDict):
    """One mechanism: what is certified, and what its worst system here really needs."""

    mechanism: str
    num_shards: int
    num_queries: int
    theorem: str
    certified: float
    needed: float
    is_violated: bool


def looseness_table(
    *,
    num_shards: int = 5,
    num_queries: int = 3,
    epsilon: float = 0.3,
    beta: float = 0.01,
    gamma: float = 0.05,
) -> list[LoosenessRow]:
    """Certified against needed α at the same β and γ, per mechanism, over several priors and adaptive requesters.

    "Needed" is the largest over the systems tried, each computed exactly; a sound certificate is never below it.
    """
    return [
        _row(mechanism, num_shards=num_shards, num_queries=num_queries, beta=beta, gamma=gamma)
        for mechanism in _mechanisms(epsilon, num_shards)
    ]


def example_systems(mechanism: Mechanism, *, num_shards: int, num_queries: int) -> Iterator[ExactSystem]:
    """Exact systems for one mechanism: every prior with every requester."""

    def law(counts: Sequence[int]) -> Sequence[float]:
        return [float(probability) for probability in mechanism.law(np.asarray(counts, dtype=np.int64))]

    for prior in _PRIORS:
        for strategy in _STRATEGIES:
            yield voting_system(
                shard_priors=[prior] * num_shards,
                votes=_VOTES,
                law=law,
                num_classes=_NUM_CLASSES,
                num_queries=num_queries,
                strategy=strategy,
            )


def _row(mechanism: Mechanism, *, num_shards: int, num_queries: int, beta: float, gamma: float) -> LoosenessRow:
    num_outcomes = len(mechanism.law(np.zeros(_NUM_CLASSES, dtype=np.int64)))
    guarantee = certify(
        {mechanism.event: num_queries},
        num_shards=num_shards,
        beta=beta,
        gamma=gamma,
        num_outcomes=num_outcomes,
    )
    systems = list(example_systems(mechanism, num_shards=num_shards, num_queries=num_queries))
    return LoosenessRow(
        mechanism=mechanism.name,
        num_shards=num_shards,
        num_queries=num_queries,
        theorem=guarantee.theorem,
        certified=guarantee.alpha,
        needed=max(system.smallest_alpha(beta=beta, gamma=gamma) for system in systems),
        is_violated=any(system.violates(guarantee) for system in systems),
    )


def _mechanisms(epsilon: float, num_shards: int) -> tuple[Mechanism, ...]:
    return (
        ExponentialMechanism(epsilon=epsilon),
        PermuteAndFlip(epsilon=epsilon),
        LaplaceNoisyMax(epsilon=epsilon),
        GaussianNoisyMax.from_epsilon(epsilon=epsilon),
        ConfidentGaussianNoisyMax.from_epsilon(epsilon=epsilon, threshold=0.6 * num_shards),
        Majority(),
    )


def _repeat(transcript: tuple[int, ...]) -> int:
    """Ask the first query again and again."""
    return 0


def _cycle(transcript: tuple[int, ...]) -> int:
    """Ask the queries in turn."""
    return len(transcript) % len(_VOTES)


def _follow(transcript: tuple[int, ...]) -> int:
    """Let the last answers choose the next query."""
    return sum((position + 1) * outcome for position, outcome in enumerate(transcript)) % len(_VOTES)


_STRATEGIES: Final[tuple[Strategy, ...]] = (_repeat, _cycle, _follow)
