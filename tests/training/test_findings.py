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
        (
            np.where(LABELS == "yes", RNG.normal(size=400), np.nan),
            "whether column 'it' is empty tells the label of 100.0%",
        ),
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
    assert all("column 'it'" in each and words in each for each in found)


def test_whole_numbers_that_all_differ_are_hardly_amounts_in_many_rows():
    labels = np.arange(2000) % 2
    numbers = np.random.default_rng(1).choice(10**9, 2000, replace=False)
    told = inspect_data(pd.DataFrame({"it": numbers}), labels, num_shards=2)
    assert told == (
        "column 'it' looks like an id: its values are whole numbers, and no two of them are equal; learn "
        "without it (--ignore)",
    )
    assert inspect_data(pd.DataFrame({"it": numbers + 0.5}), labels, num_shards=2) == ()


def test_a_date_that_is_there_for_one_class_only():
    parts = {f"left {part}": np.where(LABELS == "yes", 1.0, np.nan) for part in ("day", "year sin", "year cos")}
    kinds = dict.fromkeys(parts, "date")
    told = inspect_data(pd.DataFrame(parts), LABELS, num_shards=2, kinds=kinds)
    assert told == (
        "whether column 'left' is empty tells the label of 100.0% of the rows: is it known when a prediction is made?",
    )


def test_a_few_mistakes_do_not_hide_what_tells_the_label():
    labels = np.array(["yes"] * 300 + ["no"] * 2700)
    leaks = np.where(labels == "yes", "left", "here").astype(object)
    leaks[:4] = "here"
    assert "alone tells the label of 99.9%" in inspect_data(pd.DataFrame({"it": leaks}), labels, num_shards=2)[0]
    leaks[:30] = "here"  # one in ten
    assert inspect_data(pd.DataFrame({"it": leaks}), labels, num_shards=2) == ()


def test_what_many_columns_or_classes_have_in_common_is_said_once():
    table = pd.DataFrame(dict.fromkeys([f"pixel {number}" for number in range(9)], 0), index=range(400))
    told = inspect_data(table, np.arange(400) % 100, num_shards=10)
    assert told[0] == (
        "columns 'pixel 0', 'pixel 1', 'pixel 2' and 6 more have one value each, in every row; learn without them "
        "(--ignore)"
    )
    assert told[1].startswith("the labels are 100 different numbers: if they are to be predicted as numbers")
    assert told[2].startswith("100 classes ('0', '1', '2', …) have fewer records than there are shards (10)")
    assert len(told) == 3
    two = inspect_data(table.iloc[:, :2], LABELS, num_shards=2)
    assert two == ("columns 'pixel 0' and 'pixel 1' have one value each, in every row; learn without them (--ignore)",)
    ages = inspect_data(np.zeros((4000, 1)), np.arange(4000) % 100, num_shards=10)
    assert len(ages) == 1  # many records of each: they may be classes


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
