"""The table "What the numbers say"."""

from __future__ import annotations

import math

import pytest

from expunge.theory.ceiling import repeated_query_failure
from expunge_lab.theory_table import TABLE_TARGET, theory_table, unanimous_table

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
