"""Dates and times in columns of files, as numbers that a learner can use.

A date becomes the number of days since 1970-01-01, and its place in the year and in the week as points on a circle, so
that December is beside January. A time of day adds its place in the day. Each number is a function of its own value
alone: nothing is learned from other records. Times with an offset are taken in UTC, and those without one as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


DateKind = Literal["date", "time"]

_PARTS: Final = ("day", "year sin", "year cos", "week sin", "week cos")
_TIME_PARTS: Final = ("hour sin", "hour cos")
_SECONDS_A_DAY: Final = 86_400.0
_DAYS_A_YEAR: Final = 365.2425
_MONDAY: Final = 4.0  # 1970-01-05
_DAY: Final = r"(?:[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{4}/[0-9]{1,2}/[0-9]{1,2}|[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4})"
_TIME: Final = r"[T ][0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(?: ?(?:Z|[+-][0-9]{2}:?[0-9]{2}))?"
_EXAMPLES: Final = "2026-11-19, 19.11.2026 or 2026-11-19T08:30:00Z"


def date_kind(values: pd.Series[Any]) -> DateKind | None:
    """Whether the column holds dates, or dates with times of the day; None if it holds anything else.

    Parameters
    ----------
    values
        The column, as `read_table` gives it, with at least one value.

    Returns
    -------
    "date", "time" or None
        What every value is. Dates written with a slash and the year last are not read: it is not known which number is
        the month.

    Examples
    --------
    >>> import pandas as pd
    >>> date_kind(pd.Series(["2026-11-19", None])), date_kind(pd.Series(["2026-11-19 08:30"]))
    ('date', 'time')
    >>> date_kind(pd.Series(["11/19/2026"])) is None
    True
    """
    present = values[values.notna()]
    if values.dtype.kind not in "OM" and values.dtype != "str":
        return None
    seconds = _seconds(present)
    if np.isnan(seconds).any():
        return None
    return "time" if (seconds % _SECONDS_A_DAY).any() else "date"


def _written_as_dates(present: pd.Series[Any]) -> pd.Series[Any]:
    texts = present.astype("str")
    return texts.str.fullmatch(f"{_DAY}(?:{_TIME})?")


def date_columns(name: str, kind: DateKind) -> list[str]:
    """The names of the columns of numbers that a column of dates becomes."""
    return [f"{name} {part}" for part in (*_PARTS, *(_TIME_PARTS if kind == "time" else ()))]


def as_date_parts(values: pd.Series[Any], kind: DateKind, where: str) -> NDArray[np.float64]:
    """The numbers that a column of dates becomes, one row for each value; NaN where a value is missing.

    Parameters
    ----------
    values
        The column.
    kind
        "date", or "time" if the time of the day counts.
    where
        The column's name in error messages.

    Returns
    -------
    array
        float64, one column for each of `date_columns`.

    Raises
    ------
    InputError
        If a value is no date. The message names the row.

    Examples
    --------
    >>> import pandas as pd
    >>> as_date_parts(pd.Series(["1970-01-05"]), "date", "column 'born'").round(3).tolist()
    [[4.0, 0.069, 0.998, 0.0, 1.0]]
    """
    seconds = np.full(len(values), np.nan)
    present = values.notna().to_numpy()
    seconds[present] = _seconds(values[values.notna()])
    for row in np.flatnonzero(present & np.isnan(seconds))[:1]:
        raise InputError(
            f"row {row + 1:,} of {where} is {str(values.iloc[row])!r:.80}, which is not a date: {_EXAMPLES}"
        )
    days = seconds / _SECONDS_A_DAY
    whole = np.floor(days)
    angles = [whole / _DAYS_A_YEAR, (whole - _MONDAY) / 7.0]
    if kind == "time":
        angles.append(days - whole)
    circles = [part(2 * np.pi * (angle % 1.0)) for angle in angles for part in (np.sin, np.cos)]
    return np.stack([days if kind == "time" else whole, *circles], axis=1)


def _seconds(present: pd.Series[Any]) -> NDArray[np.float64]:
    """Seconds since 1970-01-01, UTC; NaN for what is no date."""
    import pandas as pd

    if present.dtype.kind != "M":
        if not len(present) or not all(isinstance(value, str) for value in present.tolist()):
            return np.full(len(present), np.nan)
        is_date = _written_as_dates(present)
        texts = present.astype("str").where(is_date)
        texts = texts.str.replace(r"^([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})", r"\3-\2-\1", regex=True)
        texts = texts.str.replace(r"^([0-9]{4})[-/]([0-9]{1,2})[-/]([0-9]{1,2})", _padded, regex=True)
        texts = texts.str.replace(r"[T ]([0-9]):", r"T0\1:", regex=True).str.replace(",", ".")
        found = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    else:
        found = pd.to_datetime(present, utc=True)
    plain = found.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    seconds = plain.astype(np.int64) / 1e6
    return np.asarray(np.where(np.isnat(plain), np.nan, seconds))


def _padded(match: Any) -> str:
    return f"{match[1]}-{int(match[2]):02d}-{int(match[3]):02d}"
