"""The table "What the numbers say"."""

import pytest

from expunge_lab.theory_table import theory_table

KEYS = [(100, 0.01), (100, 0.001), (1000, 0.01), (1000, 0.001), (10_000, 0.001)]
PUBLISHED_CEILINGS = [26, 2477, 4, 256, 26]


@pytest.fixture(scope="module")
def rows():
    return theory_table()


def test_columns(rows):
    assert [(row["k"], row["epsilon0"]) for row in rows] == KEYS
