from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from expunge.core.errors import InputError
from expunge.tables import match_key, match_keys
from expunge.tables.keys import as_whole, as_whole_column, kind_of_keys, read_keys, refuse_duplicates

WHERE = "column 'id' of a.csv"


def text(*values):
    return pd.Series(list(values), dtype="str")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (text("17", "-3", "0"), [17, -3, 0]),
        (text("17", "007"), ["17", "007"]),
        (text("17", "x9"), ["17", "x9"]),
        (text("1.0"), ["1.0"]),
        (text("+1", "1_0", " 2"), ["+1", "1_0", " 2"]),
        (text("-0"), ["-0"]),
        (text(str(2**63 - 1), str(-(2**63))), [2**63 - 1, -(2**63)]),
        (text(str(2**63)), [str(2**63)]),
        (text("9" * 40, "1"), ["9" * 40, "1"]),
        (pd.Series([2**62, 5]), [2**62, 5]),
        (pd.Series([2**63 + 5, 5], dtype="uint64"), [str(2**63 + 5), "5"]),
        (pd.Series([1.0, 2.0]), [1, 2]),
        (pd.Series([5, "x"], dtype=object), ["5", "x"]),
        (pd.Series([2**53 + 1, 4], dtype=object), [2**53 + 1, 4]),
    ],
)
def test_whole_numbers_where_all_are_text_otherwise(values, expected):
    found = read_keys(values, WHERE)
    assert found.tolist() == expected
    assert [type(key) for key in found.tolist()] == [type(key) for key in expected]
    assert kind_of_keys(found) == type(expected[0]).__name__


@pytest.mark.parametrize(
    "candidate", ["0", "-1", "12", "-0", "01", "1.", "+1", "", "１", "9" * 19, "9" * 18, "-9" + "0" * 18]
)
def test_a_column_is_whole_if_each_of_it_is(candidate):
    column = as_whole_column([candidate])
    assert (None if column is None else int(column[0])) == as_whole(candidate)


def test_missing_ids():
    with pytest.raises(InputError, match=r"row 2 of column 'id' of a.csv is empty"):
        read_keys(text("1", None), WHERE)
    assert read_keys(text("1", None), WHERE, missing=True).tolist() == [1, None]
    assert read_keys(text("a", None), WHERE, missing=True).tolist() == ["a", None]
    assert read_keys(pd.Series([1.0, np.nan]), WHERE, missing=True).tolist() == [1, None]


@pytest.mark.parametrize("value", [1.5, 2.0**60, True])
def test_what_is_no_id(value):
    with pytest.raises(InputError, match=r"row 1 of column 'id'.*an id is a whole number or text"):
        read_keys(pd.Series([value]).astype(object if value is True else None), WHERE)


def test_ids_of_a_later_file_take_the_kind_of_the_deployment():
    assert match_keys(pd.Series([1, 2]), WHERE, kind="str").tolist() == ["1", "2"]
    assert match_keys(text("1", "2"), WHERE, kind="int").tolist() == [1, 2]
    assert match_keys(text("1", None), WHERE, kind="str", missing=True).tolist() == ["1", None]
    with pytest.raises(InputError, match=r"row 2 of column 'id' of a.csv is 'x'; the ids of this deployment are whole"):
        match_keys(text("1", "x"), WHERE, kind="int")
    assert match_key("17", kind="int", what="--id") == 17
    assert match_key("017", kind="str", what="--id") == "017"
    with pytest.raises(InputError, match="--id '017': the ids of this deployment are whole numbers"):
        match_key("017", kind="int", what="--id")


def test_duplicates_are_named_with_their_rows():
    with pytest.raises(InputError, match=r"rows 1 and 3 of column 'id' of a.csv are both 'x' \(2 rows repeat an id\)"):
        refuse_duplicates(np.array(["x", "y", "x", "x"], dtype=object), WHERE)
    refuse_duplicates(np.arange(5), WHERE)
