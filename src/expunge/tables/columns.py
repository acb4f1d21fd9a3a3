"""Feature columns: numbers, truth values (learned from as 0 and 1) and text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from expunge.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

FeatureKind = Literal["number", "boolean", "text"]

_TRUTHS: Final = {"true": 1.0, "false": 0.0}


def feature_kind(values: pd.Series[Any], where: str) -> FeatureKind:
    """What the column holds; one without a single value, or of something else, is refused."""
    if values.isna().all():
        raise InputError(f"{where} has no value; leave it out with --ignore")
    kind = values.dtype.kind
    if kind in "iuf":
        return "number"
    if kind == "b":
        return "boolean"
    present = values[values.notna()].tolist()
    if all(isinstance(value, bool) or (isinstance(value, str) and value.lower() in _TRUTHS) for value in present):
        return "boolean"
    if all(isinstance(value, str) for value in present):
        return "text"
    if all(isinstance(value, int | float) for value in present):
        return "number"
    raise InputError(f"{where} holds neither numbers nor text; leave it out with --ignore")


def as_feature(values: pd.Series[Any], kind: FeatureKind, numbers: str, where: str) -> NDArray[Any]:
    """The column as its kind wants it, missing values as NaN (numbers) or None (text); a row at fault is named."""
    if kind == "text":
        return _texts(values)
    if kind == "boolean":
        values = _truths(values, where)
    if values.dtype.kind not in "iufb":
        values = _numbers(values, where)
    with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused as such
        column: NDArray[Any] = values.to_numpy().astype(numbers)
    for row in np.flatnonzero(np.isinf(column))[:1]:
        raise InputError(f"row {row + 1:,} of {where} is not a finite number")
    return column


def _texts(values: pd.Series[Any]) -> NDArray[Any]:
    """Whole numbers among text are what they look like in a file."""
    column = np.empty(len(values), dtype=object)
    column[:] = [None if gone else _text(value) for value, gone in zip(values.tolist(), values.isna(), strict=True)]
    return column


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _truths(values: pd.Series[Any], where: str) -> pd.Series[Any]:
    """True, "true" and 1 are 1."""
    if values.dtype.kind == "b":
        return values
    if values.dtype.kind in "iuf":
        wrong = values.notna() & ~values.isin([0, 1])
    else:
        values = values.astype(object).where(values.notna(), np.nan).map(_truth, na_action="ignore").astype("float64")
        wrong = values == -1
    for row in np.flatnonzero(wrong.to_numpy())[:1]:
        raise InputError(f"row {row + 1:,} of {where} is neither true nor false")
    return values.astype("float64")


def _truth(value: Any) -> float:
    if isinstance(value, bool):
        return float(value)
    return _TRUTHS.get(str(value).lower(), {"1": 1.0, "0": 0.0}.get(str(value), -1.0))


def _numbers(values: pd.Series[Any], where: str) -> pd.Series[Any]:
    import pandas as pd

    found = pd.to_numeric(values, errors="coerce")
    for row in np.flatnonzero((found.isna() & values.notna()).to_numpy())[:1]:
        raise InputError(f"row {row + 1:,} of {where} is {values.iloc[row]!r:.80}, which is not a number")
    return found
