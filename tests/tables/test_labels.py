from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from expunge.core.errors import InputError
from expunge.tables import parse_classes
from expunge.tables.keys import match_labels, read_labels, refuse_quantities

WHERE = "column 'y' of a.csv"


def text(*values):
    return pd.Series(list(values), dtype="str")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (text("0", "1"), [0, 1]),
        (text("1.0", "0.0"), [1, 0]),
        (text("0.5", "1"), ["0.5", "1"]),
        (pd.Series([0.5, 1.0]), ["0.5", "1"]),
        (text("01", "02"), ["01", "02"]),
        (text("yes", "no"), ["yes", "no"]),
        (text("True", "False"), ["True", "False"]),
        (text("1", "nan"), ["1", "nan"]),
        (pd.Series([True, False]), [True, False]),
        (pd.Series([True, False], dtype=object), [True, False]),
        (pd.Series([1.0, 3.0]), [1, 3]),
        (pd.Series([3, 4], dtype="uint8"), [3, 4]),
    ],
)
def test_labels_in_the_simplest_type(values, expected):
    found = read_labels(values, WHERE).tolist()
    assert found == expected
    assert [type(label) for label in found] == [type(label) for label in expected]


def test_bad_labels_are_named():
    with pytest.raises(InputError, match=r"row 2 of column 'y' of a.csv is empty"):
        read_labels(text("a", None), WHERE)
    with pytest.raises(InputError, match=r"row 2 .* is inf"):
        read_labels(pd.Series([1.0, np.inf]), WHERE)
    with pytest.raises(InputError, match=r"row 1 .* 300 letters"):
        read_labels(text("x" * 300), WHERE)
    with pytest.raises(InputError, match=r"row 1 .* a label is a number or text"):
        read_labels(pd.Series([[1, 2]]), WHERE)


def test_what_was_meant_to_be_something_else():
    with pytest.raises(InputError, match=r"100 different values in 100 rows; a label is a class"):
        refuse_quantities(np.arange(100) / 7, WHERE)
    with pytest.raises(InputError, match=r"is 3 in every row; declare the other classes with --class"):
        refuse_quantities(np.full(10, 3), WHERE)
    refuse_quantities(np.arange(20), WHERE)


@pytest.mark.parametrize(
    ("classes", "values", "expected"),
    [
        ([0, 1], text("1", "0"), [1, 0]),
        ([0, 1], pd.Series([1.0, 0.0]), [1, 0]),
        (["0", "x"], pd.Series([0]), ["0"]),
        ([False, True], text("true", "False"), [True, False]),
        (["False", "True"], pd.Series([True]), ["True"]),
        (["0.5", "1"], pd.Series([1.0, 0.5]), ["1", "0.5"]),
    ],
)
def test_later_labels_take_the_type_of_the_classes(classes, values, expected):
    assert match_labels(values, WHERE, np.array(classes)).tolist() == expected


def test_a_label_of_no_class_is_named():
    with pytest.raises(InputError, match=r"row 2 of column 'y' of a.csv is maybe, .* the classes are 'no', 'yes'"):
        match_labels(text("no", "maybe"), WHERE, np.array(["no", "yes"]))


def test_declared_classes():
    assert parse_classes(["b", "a"], np.array(["a"])).tolist() == ["a", "b"]
    assert parse_classes(["2", "1"], np.array([1])).tolist() == [1, 2]
    assert parse_classes(["true", "false"], np.array([True])).tolist() == [False, True]
    with pytest.raises(InputError, match=r"--class no, 1: the labels in the file are whole numbers"):
        parse_classes(["no", "1"], np.array([1]))
