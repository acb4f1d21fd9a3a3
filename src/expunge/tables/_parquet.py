"""Parquet into columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from expunge.errors import InputError
from expunge.tables.reading import Numbers

if TYPE_CHECKING:
    import pandas as pd

NEEDS_PYARROW = "Parquet needs pyarrow: pip install 'expunge[parquet]'"


def read_parquet(path: Path, *, numbers: Numbers, exact: frozenset[str] | None) -> pd.DataFrame:
    """All columns; those in `exact` (all, if None) keep their whole numbers whole even where some are missing."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(NEEDS_PYARROW) from error
    import pandas as pd

    try:
        table = pq.ParquetFile(path).read()  # the file alone: a name that looks like a partition stays a name
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path} is not a Parquet file that can be read: {str(error).splitlines()[0]}") from error
    names = table.column_names
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise InputError(f"{path} has two columns named {twice[0]!r}")
    columns = {name: _column(table.column(name), numbers, exact=exact is None or name in exact) for name in names}
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows))


def _column(values: Any, numbers: Numbers, *, exact: bool) -> Any:
    import numpy as np
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if kinds.is_null(kind):
        return np.full(len(values), np.nan, dtype=numbers)
    if kinds.is_integer(kind) and exact:
        return values.to_pandas(integer_object_nulls=True)
    if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
        return values.cast(pa.float64(), safe=False).to_numpy().astype(numbers, copy=False)
    if kinds.is_date(kind):
        values = values.cast(pa.date32()).cast(pa.string())  # as CSV has it: 2026-11-16
    return values.to_pandas()  # text; anything else is refused by whoever wants to use the column
