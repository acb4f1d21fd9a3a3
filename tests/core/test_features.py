"""The codes of labels."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from expunge.core.errors import InputError
from expunge.core.features import codes_of, digest_values


def test_the_code_is_the_position_in_the_list_sorted_or_not():
    for classes in (np.array(["a", "b", "c"]), np.array(["c", "a", "b"]), np.array([3, 1, 2])):
        assert codes_of(classes[[2, 0, 1, 1]], classes).tolist() == [2, 0, 1, 1]


def test_an_unknown_label_gets_a_code_in_range():
    classes = np.array(["c", "a", "b"])
    codes = codes_of(np.array(["", "zzz", "b0"]), classes)
    assert ((codes >= 0) & (codes < 3)).all()


def column_of(*values):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def test_a_digest_tells_every_value_of_an_object():
    long, other = np.arange(3000), np.arange(3000)
    other[1500] = -1  # in the middle, which numpy does not print
    different = [
        long, other, long.astype(np.int32), [1, 2], (1, 2), [1, "2"], {"a": 1}, {"a": 1.0}, {"b", "a"}, {"a"},
        datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), 1, 1.0, True, "1", None,
    ]  # fmt: skip
    assert len({digest_values(column_of(value)) for value in different}) == len(different)
    assert digest_values(column_of({"a", "b"}, long)) == digest_values(column_of({"b", "a"}, long.copy()))


def test_what_has_no_text_but_its_place_in_memory_is_refused():
    with pytest.raises(InputError, match="a value of type object cannot be a feature"):
        digest_values(column_of(object()))
    with pytest.raises(InputError, match="a value of type function"):
        digest_values(column_of([codes_of]))
