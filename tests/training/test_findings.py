"""What looks like a mistake in the first data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from expunge.training.findings import inspect_data

RNG = np.random.default_rng(0)
LABELS = np.where(RNG.random(400) < 0.3, "yes", "no")


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (np.full(400, 7.0), "has the same value in every row"),
        (["AT"] * 400, "has the same value in every row"),
        (RNG.permutation(400) + 1000, "looks like an id: its values are different whole numbers"),
        (RNG.permutation(400) + 1000.0, "looks like an id: its values are different whole numbers"),
        ([f"c-{number}" for number in range(400)], "looks like an id or free text"),
        ([f"note {number % 300}" for number in range(400)], "is taken as categories and has 300 of them in 400 rows"),
        (np.where(LABELS == "yes", 1.0, 0.0), "alone tells the label of 100.0% of the rows"),
        (LABELS, "alone tells the label"),
        (RNG.normal(size=400), None),
        (RNG.integers(0, 100, 400), None),  # whole numbers that occur twice
        (RNG.permutation(400) * 50, None),  # with gaps: an amount
        ([f"region {number % 20}" for number in range(400)], None),
        (np.where(RNG.random(400) < 0.99, np.nan, 1.0), None),  # gaps say something
    ],
)
def test_columns(column, words):
    found = inspect_data(pd.DataFrame({"it": column}), LABELS, num_shards=10)
    assert len(found) == (words is not None), found
    assert all(each.startswith("column 'it'") and words in each for each in found)


def test_columns_of_arrays_have_numbers():
    table = np.stack([RNG.normal(size=50), np.ones(50)], axis=1)
    assert inspect_data(table, np.arange(50) % 2, num_shards=2)[0].startswith("column 1 has the same value")
    assert inspect_data(scipy.sparse.eye(50).tocsr(), np.arange(50) % 2, num_shards=2) == ()
    assert inspect_data(np.ones((50, 2, 2)), np.arange(50) % 2, num_shards=2) == ()


def test_text_that_is_read_word_by_word_may_differ_in_every_row():
    notes = [f"late again, case {number}" for number in range(400)]
    table = pd.DataFrame({"note": notes, "customer": [f"c-{number}" for number in range(400)], "year": 2024})
    found = inspect_data(table, LABELS, num_shards=2, kinds={"note": "text", "customer": "text", "year": "date"})
    assert [each[:17] for each in found] == ["column 'customer'"]


def test_classes_with_fewer_records_than_shards():
    labels = ["often"] * 90 + ["seldom"] * 10
    table = RNG.normal(size=(100, 1))
    assert inspect_data(table, labels, num_shards=10) == ()
    assert "class 'seldom' has 10 records, fewer than the 11 shards" in inspect_data(table, labels, num_shards=11)[0]


def test_numbers_to_predict_are_no_classes():
    target = RNG.normal(size=400)
    table = pd.DataFrame({"copy": np.where(target > 0, 1.0, 0.0), "same": 1})
    assert [each[:13] for each in inspect_data(table, target, num_shards=10, is_regression=True)] == ["column 'same'"]


def test_few_rows_say_nothing():
    assert inspect_data(pd.DataFrame({"a": np.arange(10)}), np.arange(10) % 2, num_shards=2) == ()
