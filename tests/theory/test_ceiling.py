"""Ceilings: a concrete system breaks every certificate that would allow more."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from expunge.core.guarantee import Guarantee
from expunge.theory.ceiling import paper_predictions, repeated_query_ceiling, repeated_query_failure, rogers_style
from expunge.theory.exact import voting_system


@pytest.mark.parametrize("probability", [0.5, 0.3])
def test_the_repeated_query_system_is_the_enumerated_one(probability):
    """Counting votes and ones must give what full enumeration over shards and transcripts gives."""
    epsilon, num_shards, count = 0.8, 6, 5
    system = voting_system(
        shard_priors=[(1 - probability, probability)] * num_shards,
        votes=[(0, 1)],
        law=lambda counts: [1 / (1 + math.exp(epsilon * (counts[1 - y] - counts[y]) / 2)) for y in (0, 1)],
        num_classes=2,
        num_queries=count,
        strategy=lambda transcript: 0,
    )
    for alpha, beta in itertools.product((0.1, 0.5, 1.0, 2.0), (1e-3, 0.05)):
        found = repeated_query_failure(
            num_shards=num_shards,
            epsilon=epsilon,
            num_predictions=count,
            target=Guarantee(alpha, beta, 0.1),
            vote_probability=probability,
        )
        assert found == pytest.approx(system.failure(alpha=alpha, beta=beta), rel=1e-9)


def test_no_ceiling_where_nothing_breaks():
    assert repeated_query_ceiling(num_shards=1, epsilon=0.1, target=Guarantee(1.0, 1e-3, 1e-3)) is None


def test_the_papers_count_is_the_best_feasible_one():
    """Against a plain grid over (ε, δ) on a target that leaves room."""
    k, epsilon0, target = 10, 1e-4, Guarantee(5.0, 0.1, 0.1)
    best = 0
    for epsilon in np.geomspace(1e-3, 2, 200):
        for delta in np.geomspace(1e-30, 1e-3, 120):
            common = {"num_shards": k, "epsilon": epsilon, "delta": delta}
            if rogers_style(**common, beta=target.beta, gamma=target.gamma).alpha <= target.alpha:
                best = max(best, math.floor(epsilon**2 / (8 * epsilon0**2 * math.log(1 / delta))))
    found = paper_predictions(num_shards=k, epsilon=epsilon0, alpha=target.alpha, beta=target.beta, gamma=target.gamma)
    assert best <= found <= 1.1 * best
