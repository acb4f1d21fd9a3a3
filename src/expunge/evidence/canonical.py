"""Canonical JSON (RFC 8785): every value has one sequence of bytes, so hashes and signatures are well-defined.

The values are fewer than RFC 8785 allows. Names are printable ASCII. Whole numbers are below 2^53, which every JSON
reader keeps. Infinity is the text "infinity", and NaN is refused. Reading refuses names that occur twice in one object,
and everything that could not have been written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import rfc8785

from expunge.core.errors import InputError

#: Written in place of the number infinity.
INFINITY: Final = "infinity"
#: The deepest nesting of a value. Certificates need only a fraction of it.
MAX_DEPTH: Final = 32
#: Larger files are refused before they are parsed.
MAX_BYTES: Final = 256 * 2**20
#: The largest whole number: what a double holds exactly.
LARGEST_INTEGER: Final = 2**53 - 1

_MAX_DIGITS: Final = 22  # of a double without an exponent, with its sign
_MAX_KEY: Final = 200


def write_canonical(value: Any) -> bytes:
    """Write a value as canonical JSON.

    Parameters
    ----------
    value
        Mappings, lists, tuples, texts, numbers, booleans and None, nested as needed.

    Returns
    -------
    bytes
        The JSON. Equal values give equal bytes.

    Raises
    ------
    InputError
        If something in the value cannot be written.

    Examples
    --------
    >>> write_canonical({"b": 1, "a": [0.5, None]})
    b'{"a":[0.5,null],"b":1}'
    """
    plain = _plain(value, MAX_DEPTH)
    if _has_fraction(plain):
        return rfc8785.dumps(plain)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()  # the same, and faster


def _has_fraction(plain: Any) -> bool:
    """Whether there is a number that JSON does not write like Python."""
    if isinstance(plain, dict):
        return any(map(_has_fraction, plain.values()))
    return isinstance(plain, float) or (isinstance(plain, list) and any(map(_has_fraction, plain)))


def read_canonical(data: bytes) -> Any:
    """Read a value from JSON. Other spaces and another order of keys are accepted; everything else must be canonical.

    Parameters
    ----------
    data
        The JSON.

    Returns
    -------
    Any
        The value, in plain Python objects.

    Raises
    ------
    InputError
        If the data is too large, is not JSON, or could not have been written by `write_canonical`.

    Examples
    --------
    >>> read_canonical(b'{ "a": 1 }')
    {'a': 1}
    """
    if len(data) > MAX_BYTES:
        raise InputError(f"the file has {len(data):,} bytes; more than {MAX_BYTES:,} are not read")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"not JSON: byte {error.start} is not UTF-8") from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise InputError(f"not canonical JSON: nested more than {MAX_DEPTH} deep") from None
    return _plain(value, MAX_DEPTH)


def _plain(value: Any, depth: int) -> Any:
    """The same in plain Python objects, or an error that says what cannot be written."""
    if depth == 0:
        raise InputError(f"not canonical JSON: nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _plain_text(value)
    if isinstance(value, int):
        return _plain_integer(value)
    if isinstance(value, float):
        return _plain_number(value)
    if isinstance(value, Mapping):
        return {_plain_key(key): _plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth - 1) for item in value]
    raise InputError(f"not canonical JSON: a {type(value).__name__} cannot be written")


def _plain_text(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError("not canonical JSON: a text holds half of a surrogate pair") from None
    return str(value)


def _plain_key(key: Any) -> str:
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or not 0 < len(key) <= _MAX_KEY:
        raise InputError(f"not canonical JSON: a name must be 1 to {_MAX_KEY} printable ASCII characters")
    return str(key)


def _plain_integer(value: int) -> int:
    if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
        raise InputError("not canonical JSON: a whole number is beyond 2^53")
    return int(value)


def _plain_number(value: float) -> float | str:
    if math.isnan(value) or value == -math.inf:
        raise InputError("not canonical JSON: NaN and minus infinity cannot be written")
    return INFINITY if math.isinf(value) else float(value)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"not canonical JSON: the name {twice[:_MAX_KEY]!r} occurs twice in one object")
    return found


def _integer(digits: str) -> int | float:
    """Read a whole number. One beyond 2^53 is a double, and must be written as a double is."""
    if len(digits) <= _MAX_DIGITS:
        value = int(digits)
        if abs(value) <= LARGEST_INTEGER:
            return value
        if rfc8785.dumps(float(value)) == digits.encode():
            return float(value)
    raise InputError("not canonical JSON: a whole number is beyond 2^53")


def _number(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise InputError("not canonical JSON: a number is too large")
    return value


def _constant(name: str) -> NoReturn:
    raise InputError(f"not canonical JSON: {name} is not a number")
