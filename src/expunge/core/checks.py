"""Checks of options: each refuses a bad value with one line that names the option and the value.

Every function returns the value as a plain Python object, so that a check and a conversion are one step.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any, Final

from expunge.core.errors import ParameterError

#: The largest whole number that names a record, or is quoted.
MOST_BITS: Final = 1024
_QUOTED: Final = 80  # characters


def quoted(value: object) -> str:
    """A value as a message quotes it: 80 characters at most. Python writes no number of more than 4,300 digits.

    Parameters
    ----------
    value
        Anything.

    Returns
    -------
    str
        Its beginning.

    Examples
    --------
    >>> quoted("17"), quoted(10**5000)
    ("'17'", 'a number of 16,610 bits')
    """
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return f"a number of {value.bit_length():,} bits"
    return repr(value)[:_QUOTED]


def require_count(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """Check that an option is an integer in a range.

    Parameters
    ----------
    name
        The option's name, for the message.
    value
        What the caller gave. Booleans are refused; NumPy integers are accepted.
    least, most
        The range, both ends included. `most=None` means no upper limit.

    Returns
    -------
    int
        The value as a Python integer.

    Raises
    ------
    ParameterError
        If the value is not an integer, or is out of range.

    Examples
    --------
    >>> require_count("n_shards", 10)
    10
    >>> require_count("n_shards", 0)
    Traceback (most recent call last):
    expunge.core.errors.ParameterError: n_shards must be an integer >= 1, got 0
    """
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or int(value) < least or (most is not None and int(value) > most):  # type: ignore[call-overload]
        allowed = f">= {least}" if most is None else f"from {least} to {most:,}"
        raise ParameterError(f"{name} must be an integer {allowed}, got {quoted(value)}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def require_number(
    name: str,
    value: object,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    infinite: bool = False,
) -> float:
    """Check that an option is a number in a range.

    Parameters
    ----------
    name
        The option's name, for the message.
    value
        What the caller gave. Booleans and NaN are refused.
    least, most
        The ends of the range, included.
    above, below
        The ends of the range, excluded.
    infinite
        Whether infinity is allowed.

    Returns
    -------
    float
        The value as a Python float.

    Raises
    ------
    ParameterError
        If the value is not a number, or is out of range.

    Examples
    --------
    >>> require_number("epsilon", 0.5, above=0)
    0.5
    >>> require_number("epsilon", -1, above=0, most=10)
    Traceback (most recent call last):
    expunge.core.errors.ParameterError: epsilon must be a number > 0 and <= 10, got -1
    """
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:  # an integer beyond the range of floats
        number = math.nan
    ends = [(">=", least), (">", above), ("<=", most), ("<", below)]
    inside = (
        (least is None or number >= least)
        and (above is None or number > above)
        and (most is None or number <= most)
        and (below is None or number < below)
    )
    if math.isnan(number) or not inside or (math.isinf(number) and not infinite):
        limits = " and ".join(f"{sign} {end:g}" for sign, end in ends if end is not None)
        kind = "a number" if infinite or most is not None or below is not None else "a finite number"
        raise ParameterError(f"{name} must be {kind}{limits and ' '}{limits}, got {value!r:.80}")
    return number


def require_probability(name: str, value: object) -> float:
    """Check that an option is a number in [0, 1].

    Parameters
    ----------
    name
        The option's name, for the message.
    value
        What the caller gave.

    Returns
    -------
    float
        The value as a Python float.

    Raises
    ------
    ParameterError
        If the value is not a number in [0, 1].

    Examples
    --------
    >>> require_probability("beta", 0.001)
    0.001
    """
    try:
        return require_number(name, value, least=0, most=1)
    except ParameterError:
        raise ParameterError(f"{name} must be a probability in [0, 1], got {value!r:.80}") from None


def require_choice(name: str, value: object, choices: Collection[str]) -> str:
    """Check that an option is one of several words.

    Parameters
    ----------
    name
        The option's name, for the message.
    value
        What the caller gave.
    choices
        The words that are allowed.

    Returns
    -------
    str
        The value.

    Raises
    ------
    ParameterError
        If the value is not one of the words. The message lists them.

    Examples
    --------
    >>> require_choice("format", "csv", ["csv", "npz"])
    'csv'
    """
    if not isinstance(value, str) or value not in choices:
        raise ParameterError(f"{name} must be one of {', '.join(choices)}, got {value!r:.80}")
    return value


def require_text(name: str, value: object, *, empty: bool = False) -> str:
    """Check that an option is text.

    Parameters
    ----------
    name
        The option's name, for the message.
    value
        What the caller gave.
    empty
        Whether empty text is allowed.

    Returns
    -------
    str
        The value.

    Raises
    ------
    ParameterError
        If the value is not text, or is empty.

    Examples
    --------
    >>> require_text("label", "churn")
    'churn'
    """
    if not isinstance(value, str) or not (value or empty):
        raise ParameterError(f"{name} must be {'text' if empty else 'text that is not empty'}, got {value!r:.80}")
    return value


def require_flag(name: str, value: object) -> bool:
    """Check that an option is True or False.

    Parameters
    ----------
    name
        The option's name, for the message.
    value
        What the caller gave.

    Returns
    -------
    bool
        The value.

    Raises
    ------
    ParameterError
        If the value is neither.

    Examples
    --------
    >>> require_flag("shuffle", True)
    True
    """
    if not isinstance(value, bool):
        raise ParameterError(f"{name} must be true or false, got {value!r:.80}")
    return value


def as_number(value: Any) -> float:
    """A number as a float; NaN for what is none, and infinity for one that is too large.

    Examples
    --------
    >>> as_number(3), as_number("3"), as_number(10**400)
    (3.0, nan, inf)
    """
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        return math.inf


def canonical(name: Any) -> Any:
    """An id or subject in its one canonical form: texts in Unicode's form NFC, numbers as they are.

    Examples
    --------
    >>> canonical("Zoe\\u0308") == canonical("Zo\\u00eb")
    True
    """
    if isinstance(name, str) and not name.isascii():
        return unicodedata.normalize("NFC", name)
    return name
