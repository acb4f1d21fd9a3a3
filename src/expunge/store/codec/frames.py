"""Data frames, column by column: public points that a student learns from may be a table."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from expunge.errors import ModelFormatError

_KINDS = re.compile(r"object|str|string|boolean|U?Int(8|16|32|64)|Float(32|64)")


def is_pandas_frame(value: Any) -> bool:
    """Whether this is a data frame of pandas, which is not imported to find out."""
    return type(value).__name__ == "DataFrame" and type(value).__module__.partition(".")[0] == "pandas"


def frame_parts(frame: Any) -> tuple[list[Any], list[Any]]:
    """The names of the columns, and the columns as plain values; row labels are not kept."""
    return list(frame.columns), [_column_parts(frame.iloc[:, place]) for place in range(frame.shape[1])]


def make_frame(names: list[Any], columns: list[Any]) -> Any:
    """The data frame of `frame_parts`."""
    import pandas as pd

    made = pd.concat([pd.Series(_column(parts)) for parts in columns], axis=1) if columns else pd.DataFrame()
    made.columns = pd.Index(names)
    return made


def _column_parts(column: Any) -> tuple[Any, ...]:
    import pandas as pd

    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = np.asarray(column.cat.codes)
        return "categories", codes, list(dtype.categories), bool(dtype.ordered)
    if isinstance(dtype, np.dtype) and not dtype.hasobject:
        return "numbers", column.to_numpy()
    if not _KINDS.fullmatch(dtype.name):
        raise ModelFormatError(f"column {column.name!r} cannot be stored: columns of type {dtype} are not supported")
    return "values", dtype.name, [None if _is_gap(value) else value for value in column]


def _is_gap(value: Any) -> bool:
    """Whether a value becomes None: marks of missing values, but not a NaN, which is a number and stays one."""
    import pandas as pd

    return value is pd.NA or value is pd.NaT


def _column(parts: tuple[Any, ...]) -> Any:
    import pandas as pd

    kind, *rest = parts
    if kind == "categories":
        codes, categories, ordered = rest
        return pd.Categorical.from_codes(codes, categories=categories, ordered=ordered)
    if kind == "numbers":
        return rest[0]
    name, values = rest
    if kind != "values" or not _KINDS.fullmatch(name):
        raise ModelFormatError(f"the stored model is malformed: a column of {kind!r}")
    return pd.array(values, dtype=name)
