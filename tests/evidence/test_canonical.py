from __future__ import annotations

import json
import math
import struct

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from expunge.core.errors import InputError
from expunge.evidence import read_canonical, write_canonical
from expunge.evidence.canonical import MAX_DEPTH

KEYS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_the_bytes_are_those_of_the_standard(value):
    assert write_canonical(value) == rfc8785.dumps(value)


def test_the_bytes_are_exactly_these():
    value = {"b": [1, 1.0, 0.001, 1e-05, 5e-324, True, None], "a": 'é\n"\\\x01/', "c": math.inf}
    expected = '{"a":"é\\n\\"\\\\\\u0001/","b":[1,1,0.001,0.00001,5e-324,true,null],"c":"infinity"}'
    assert write_canonical(value) == expected.encode()


def test_minus_zero_is_zero_and_tuples_are_lists():
    assert write_canonical(-0.0) == b"0"
    assert write_canonical((1, (2,))) == write_canonical([1, [2]])


#: The examples of RFC 8785, appendix B: the bits of a double, and how it is written.
RFC_NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize("bits", RFC_NUMBERS)
def test_numbers_are_written_as_the_rfc_says(bits):
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    written = write_canonical(value)
    assert written.decode() == RFC_NUMBERS[bits]
    assert read_canonical(written) == value


def test_the_example_of_the_rfc():
    """RFC 8785, 3.2.2 and 3.2.3."""
    data = (
        r'{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],'
        r'"string":"\u20ac$\u000F\u000aA' + "'" + r'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}'
    )
    expected = (
        r'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        r'"string":"€$\u000f\nA' + "'" + r'B\"\\\\\"/"}'
    )
    assert write_canonical(read_canonical(data.encode())).decode() == expected


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
        (2**53, "2.53"),
        (-(2**53), "2.53"),
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
        (b"9" * 10_000, "2.53"),
        (b"9007199254740993", "2.53"),
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
