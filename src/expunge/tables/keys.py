"""Ids of records and subjects: whole numbers where every one of a column is written as one, text otherwise.

"17" is the number 17; "007", "1e3" or a column that mixes numbers and names is text. Whole numbers never pass through
floating point, and those beyond 64 bits are text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from expunge.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

KeyKind = Literal["int", "str"]

_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_LIMIT: Final = 2**63
_LONGEST: Final = 20  # the digits of -2**63
_EXACT_FLOAT: Final = 2**53


def as_whole(text: str) -> int | None:
    """The number that the text is the usual way to write, within 64 bits; None if there is none."""
    if not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if -_LIMIT <= number < _LIMIT else None


def as_whole_column(texts: list[str]) -> NDArray[np.int64] | None:
    """`as_whole` of a column, None if it is None for any: the numbers, where they are written as the texts are."""
    written = np.array(texts, dtype=np.str_)
    if written.dtype.itemsize > _LONGEST * np.dtype("U1").itemsize:
        return None
    try:
        numbers = written.astype(np.int64)
    except (ValueError, OverflowError):
        return None
    return numbers if bool((numbers.astype(f"U{_LONGEST}") == written).all()) else None


def read_keys(values: pd.Series[Any], where: str, *, missing: bool = False) -> NDArray[Any]:
    """A column of ids: int64, or objects that are all str (or None, where `missing` allows it)."""
    kind = values.dtype.kind
    if kind in "iu" and (kind == "i" or int(values.max() if len(values) else 0) < _LIMIT):
        return values.to_numpy(dtype=np.int64)
    gone = np.flatnonzero(values.isna().to_numpy())
    if len(gone) and not missing:
        raise InputError(f"row {gone[0] + 1:,} of {where} is empty; every record needs one")
    if values.dtype == "str" and not len(gone):
        whole = as_whole_column(values.tolist())
        return _objects(values.tolist()) if whole is None else whole
    plain = _plain(values, where)
    numbers = [as_whole(value) if isinstance(value, str) else value for value in plain if value is not None]
    if None in numbers:
        return _objects([None if value is None else str(value) for value in plain])
    if not len(gone):
        return np.array(numbers, dtype=np.int64)
    present = iter(numbers)
    return _objects([None if value is None else next(present) for value in plain])


def match_keys(values: pd.Series[Any], where: str, *, kind: KeyKind, missing: bool = False) -> NDArray[Any]:
    """A column of ids in the kind that a deployment has; the first that is of another kind is named."""
    found = read_keys(values, where, missing=missing)
    if found.dtype.kind == "i":
        return found if kind == "int" else _objects([str(number) for number in found.tolist()])
    for row, value in enumerate(found.tolist(), 1):
        if kind == "int" and isinstance(value, str) and as_whole(value) is None:
            raise InputError(f"row {row:,} of {where} is {value!r}; the ids of this deployment are whole numbers")
    matched = [value if value is None else match_key(str(value), kind=kind, what=where) for value in found.tolist()]
    return _objects(matched)


def match_key(text: str, *, kind: KeyKind, what: str) -> int | str:
    """One id from the command line, in the kind that a deployment has."""
    if kind == "str":
        return text
    number = as_whole(text.strip())
    if number is None:
        raise InputError(f"{what} must be a whole number, as the ids of this deployment are; got {text!r}")
    return number


def kind_of_keys(keys: NDArray[Any]) -> KeyKind:
    """Whether `read_keys` found numbers or text."""
    if keys.dtype.kind == "i":
        return "int"
    return "int" if all(isinstance(key, int) for key in keys if key is not None) else "str"


def refuse_duplicates(keys: NDArray[Any], where: str) -> None:
    """Name an id that is there twice, and the rows."""
    import pandas as pd

    repeated = np.flatnonzero(pd.Series(keys).duplicated().to_numpy())
    if len(repeated):
        second = int(repeated[0])
        first = int(np.flatnonzero(keys == keys[second])[0])
        more = f" ({len(repeated):,} rows repeat an id)" if len(repeated) > 1 else ""
        raise InputError(f"rows {first + 1:,} and {second + 1:,} of {where} are both {keys.tolist()[second]!r}{more}")


def _plain(values: pd.Series[Any], where: str) -> list[Any]:
    """The values as int, str or None; anything else is no id."""
    kind = values.dtype.kind
    if kind == "f":
        return [
            None if value != value else _whole_float(value, row, where) for row, value in enumerate(values.tolist())
        ]
    if kind in "iu":
        return [str(value) for value in values.tolist()]
    plain = [None if empty else value for value, empty in zip(values.tolist(), values.isna(), strict=True)]
    for row, value in enumerate(plain, 1):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | str)):
            raise InputError(f"row {row:,} of {where} is {value!r}; an id is a whole number or text")
    return plain


def _whole_float(value: float, row: int, where: str) -> int:
    if value != int(value) or abs(value) > _EXACT_FLOAT:
        raise InputError(f"row {row + 1:,} of {where} is {value!r}; an id is a whole number or text")
    return int(value)


def _objects(values: list[Any]) -> NDArray[Any]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
