"""What the facts of a certificate must look like; every complaint is one line that names the fact."""

from __future__ import annotations

import math
import re
from numbers import Real
from operator import index
from typing import Any, Final

from expunge.core.errors import ParameterError
from expunge.core.words import seconds_of
from expunge.evidence.canonical import INFINITY

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_LARGEST: Final = 2**63 - 1


def text(name: str, value: object, *, empty: bool = False) -> str:
    """Text; half of a surrogate pair, which the name of a folder may hold, becomes a question mark."""
    if not isinstance(value, str) or not (value or empty):
        raise ParameterError(f"{name} must be {'text' if empty else 'text that is not empty'}, got {value!r:.80}")
    return value.encode("utf-8", "replace").decode("utf-8")


def count(name: str, value: object, *, least: int = 0) -> int:
    """A whole number of at least `least`."""
    found = index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else -1
    if not least <= found <= _LARGEST:
        raise ParameterError(f"{name} must be a whole number of at least {least}, got {value!r:.80}")
    return found


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise ParameterError(f"{name} must be true or false, got {value!r:.80}")
    return value


def number(name: str, value: object) -> float:
    """A number of at least zero, perhaps infinite."""
    if value == INFINITY:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value) or value < 0:
        raise ParameterError(f"{name} must be a number of at least 0, got {value!r:.80}")
    return float(value)


def moment(name: str, value: object) -> str:
    """A point in time."""
    try:
        seconds_of(value)  # type: ignore[arg-type]
    except ParameterError as error:
        raise ParameterError(f"{name}: {error}") from None
    return str(value)


def digest(name: str, value: object) -> str:
    """SHA-256 in hexadecimal."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ParameterError(f"{name} must be 64 hexadecimal digits, got {value!r:.80}")
    return value


def sequence_of(name: str, value: object) -> tuple[Any, ...]:
    """A list or a tuple."""
    if not isinstance(value, list | tuple):
        raise ParameterError(f"{name} must be a list, got {value!r:.80}")
    return tuple(value)
