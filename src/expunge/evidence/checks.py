"""Checks of the facts of a certificate. Each refuses a bad value with one line that names the fact."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from expunge.core.checks import require_count, require_number, require_text
from expunge.core.errors import ParameterError
from expunge.core.words import seconds_of
from expunge.evidence.canonical import INFINITY, LARGEST_INTEGER

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def text(name: str, value: object, *, empty: bool = False) -> str:
    """Check a text. Half of a surrogate pair, which the name of a folder may hold, becomes a question mark."""
    return require_text(name, value, empty=empty).encode("utf-8", "replace").decode("utf-8")


def count(name: str, value: object, *, least: int = 0) -> int:
    """Check a whole number that canonical JSON can hold."""
    found = require_count(name, value, least=least)
    return require_count(name, found, least=least, most=LARGEST_INTEGER)


def number(name: str, value: object) -> float:
    """Check a number of at least zero. Infinity is allowed, also as canonical JSON writes it."""
    return math.inf if value == INFINITY else require_number(name, value, least=0, infinite=True)


def moment(name: str, value: object) -> str:
    """Check a point in time."""
    try:
        seconds_of(value)  # type: ignore[arg-type]
    except ParameterError as error:
        raise ParameterError(f"{name}: {error}") from None
    return str(value)


def digest(name: str, value: object) -> str:
    """Check a SHA-256 in hexadecimal."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ParameterError(f"{name} must be 64 hexadecimal digits, got {value!r:.80}")
    return value


def sequence_of(name: str, value: object) -> tuple[Any, ...]:
    """Check a list or a tuple, and return it as a tuple."""
    if not isinstance(value, list | tuple):
        raise ParameterError(f"{name} must be a list, got {value!r:.80}")
    return tuple(value)
