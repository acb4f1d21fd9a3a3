from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.core.errors import InputError
from expunge.evidence import read_canonical, write_canonical
from expunge.evidence.canonical import MAX_DEPTH

KEYS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


def test_the_bytes_are_exactly_these():
    value = {"b": [1, 1.0, 0.001, 1e-05, 5e-324, True, None], "a": 'é\n"\\\x01/', "c": math.inf}
    expected = '{"a":"é\\n\\"\\\\\\u0001/","b":[1,1.0,0.001,1e-05,5e-324,true,null],"c":"infinity"}'
    assert write_canonical(value) == expected.encode()


def test_minus_zero_is_zero_and_tuples_are_lists():
    assert write_canonical(-0.0) == b"0.0"
    assert write_canonical((1, (2,))) == write_canonical([1, [2]])


@given(VALUES)
def test_what_is_written_reads_back_and_is_written_the_same(value):
    data = write_canonical(value)
    assert read_canonical(data) == value
    assert write_canonical(read_canonical(data)) == data


@given(VALUES)
def test_spaces_order_and_escapes_do_not_matter(value):
    assert write_canonical(read_canonical(json.dumps(value, indent=3).encode())) == write_canonical(value)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (math.nan, "NaN"),
        (-math.inf, "minus infinity"),
        (2**63, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        ({1: 2}, "name"),
        ({"": 2}, "name"),
        ({"é": 2}, "name"),
        ({"a\n": 2}, "name"),
        ("\ud800", "surrogate"),
        (b"bytes", "bytes"),
        ({1, 2}, "set"),
        (object(), "object"),
    ],
)
def test_what_cannot_be_written_is_refused(value, word):
    with pytest.raises(InputError, match=word):
        write_canonical([value])


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "not JSON"),
        (b"{", "line 1, column 2"),
        (b'{"a":1,"a":1}', "'a' occurs twice"),
        (b'{"b":{"x":1,"y":2,"x":3}}', "'x' occurs twice"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"-Infinity", "Infinity"),
        (b"1e999", "too large"),
        (b"9" * 10_000, "64 bits"),
        (b"9223372036854775808", "64 bits"),
        (b"\xff\xfe", "UTF-8"),
        ('{"a":1}'.encode("utf-16"), "UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'"\\ud800"', "surrogate"),
        ('{"é":1}'.encode(), "name"),
        (b"[" * 100_000, "deep"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "deep"),
        (b'{"a":' * 100_000, "deep"),
    ],
)
def test_what_could_not_have_been_written_is_not_read(data, word):
    with pytest.raises(InputError, match=word):
        read_canonical(data)
