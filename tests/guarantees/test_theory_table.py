"""The table "What the numbers say"."""

import itertools
import math

import numpy as np
import pytest

from expunge.guarantees import (
    TABLE_TARGET,
    Guarantee,
    paper_predictions,
    repeated_query_ceiling,
    repeated_query_failure,
    rogers_style,
    theory_table,
    unanimous_table,
    voting_system,
)

KEYS = [(100, 0.01), (100, 0.001), (1000, 0.01), (1000, 0.001), (10_000, 0.001)]
PUBLISHED_CEILINGS = [26, 2477, 4, 256, 26]


@pytest.fixture(scope="module")
def rows():
    return theory_table()


def test_columns(rows):
    assert [(row["k"], row["epsilon0"]) for row in rows] == KEYS
    assert [row["paper"] for row in rows] == [0] * 5
    assert [row["t1"] for row in rows] == [6, 68, 2, 21, 6]
    for row, published, ceiling in zip(rows, [6, 306, 2, 26, 6], PUBLISHED_CEILINGS, strict=True):
        assert published <= row["best"] <= row["ceiling"] <= ceiling


def test_ceilings_are_broken_one_prediction_later(rows):
    for row in rows:
        worst = max(
            repeated_query_failure(
                num_shards=row["k"],
                epsilon=row["epsilon0"],
                num_predictions=row["ceiling"] + 1,
                target=TABLE_TARGET,
                vote_probability=probability,
            )
            for probability in (0.5, 0.48, 0.46, 0.44, 0.42)
        )
        assert worst > TABLE_TARGET.gamma


def test_unanimous_votes():
    rows = unanimous_table()
    assert [row["best"] for row in rows] == [2, 7, 223]
    for row in rows:
        assert 1 / (1 + math.exp(-row["epsilon0"] * row["k"] / 2)) == pytest.approx(0.99)


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
