"""Parts of a lake's table: Parquet files with some records of one shard, in the order of their slots.

A part has the columns of the deployment's `Form`, and `slot` before them. Numbers are numbers, with a Parquet column
for each number of an array's row; texts and values of data frames are JSON. So any reader of Parquet can look into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from expunge.core.buckets import NEEDS_LAKE
from expunge.core.errors import FormatError, MissingExtraError
from expunge.folder.store.columns import Column, Form

Columns = dict[str, Any]  # an array for each column of fixed width, a list of bytes for each of the others

_MOST_NUMBERS: Final = 1 << 10  # of an array's row, that get a Parquet column each
_WHOLE: Final = {"b": "u1", "m": "<i8", "M": "<i8"}  # what numbers of these kinds are written as
_BYTES: Final = "sparse matrix"  # the form whose rows are no text


def encode_part(form: Form, slots: NDArray[np.int64], columns: Columns) -> bytes:
    """Write a part.

    Parameters
    ----------
    form
        The columns.
    slots
        Where the records lie, ascending.
    columns
        One row for each slot.

    Returns
    -------
    bytes
        A Parquet file.

    Raises
    ------
    MissingExtraError
        If pyarrow is not installed.
    """
    pa, pq = _arrow()
    names, arrays = ["slot"], [pa.array(slots)]
    for column in form.columns:
        for name, array in _written(pa, form, column, columns[column.name]):
            names.append(name)
            arrays.append(array)
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(arrays, names=names)
    pq.write_table(table, sink, compression="snappy", use_dictionary=False, write_page_checksum=True)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode_part(form: Form, content: bytes, wanted: Sequence[Column]) -> tuple[NDArray[np.int64], Columns]:
    """Read some columns of a part, and the slots of its rows.

    Parameters
    ----------
    form
        The columns that it was written with.
    content
        A Parquet file.
    wanted
        Which columns to read.

    Returns
    -------
    slots : ndarray of int64
        Ascending.
    columns : dict
        One row for each slot.

    Raises
    ------
    FormatError
        If it is none of these.
    """
    pa, pq = _arrow()
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        names = ["slot", *(name for column in wanted for name in _names_of(column))]
        table = file.read(columns=names, use_threads=False)
        slots = table.column("slot").to_numpy()
        found = {column.name: _read(pa, column, table) for column in wanted}
    except (pa.ArrowException, KeyError, OSError, ValueError) as error:
        raise FormatError(f"it is no part of a table: {' '.join(str(error).split()):.200}") from None
    if slots.dtype != np.int64 or (np.diff(slots) <= 0).any():
        raise FormatError("its rows are not in the order of their slots")
    return slots, found


def pick(columns: Columns, rows: NDArray[np.int64]) -> Columns:
    """Some rows of columns."""
    return {
        name: values[rows] if isinstance(values, np.ndarray) else [values[row] for row in rows.tolist()]
        for name, values in columns.items()
    }


def join(parts: Sequence[Columns]) -> Columns:
    """The rows of several sets of columns, one after another."""
    return {
        name: np.concatenate([each[name] for each in parts])
        if isinstance(values, np.ndarray)
        else [row for each in parts for row in each[name]]
        for name, values in parts[0].items()
    }


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError(NEEDS_LAKE) from None
    return pa, pq


def _is_spread(column: Column) -> bool:
    """Whether an array's row gets a Parquet column for each number."""
    return len(column.shape) == 1 and 0 < column.shape[0] <= _MOST_NUMBERS and _number(column) is not None


def _number(column: Column) -> str | None:
    """The type that a number of the column is written as; None if rows are written as bytes."""
    kind = np.dtype(column.dtype)
    if not kind.isnative:
        return None
    if kind.kind in _WHOLE:
        return _WHOLE[kind.kind]
    return kind.str if kind.kind in "iu" or (kind.kind == "f" and kind.itemsize in (4, 8)) else None


def _names_of(column: Column) -> list[str]:
    if column.dtype is None or not _is_spread(column):
        return [column.name] if column.dtype is None or column.width else []
    return [f"{column.name}-{place}" for place in range(column.shape[0])]


def _written(pa: Any, form: Form, column: Column, values: Any) -> Iterator[tuple[str, Any]]:
    if column.dtype is None:
        raw = pa.array(values, type=pa.binary())
        yield column.name, raw if form.kind == _BYTES and column in form.features else raw.cast(pa.string())
        return
    number = _number(column)
    if _is_spread(column):
        plain = np.asfortranarray(values.view(number))  # one copy for all columns
        yield from ((name, pa.array(plain[:, place])) for place, name in enumerate(_names_of(column)))
    elif number is not None and not column.shape:
        yield column.name, pa.array(np.ascontiguousarray(values).view(number))
    elif column.width:
        raw = pa.py_buffer(np.ascontiguousarray(values).tobytes())
        yield column.name, pa.Array.from_buffers(pa.binary(column.width), len(values), [None, raw])


def _read(pa: Any, column: Column, table: Any) -> Any:
    if column.dtype is None:
        return table.column(column.name).cast(pa.binary()).to_pylist()
    dtype, number = np.dtype(column.dtype), _number(column)
    if _is_spread(column):
        found = np.empty((len(table), *column.shape), dtype=dtype)
        for place, name in enumerate(_names_of(column)):
            found[:, place] = _numbers(table.column(name), number).view(dtype)
        return found
    if number is not None and not column.shape:
        return np.array(_numbers(table.column(column.name), number)).view(dtype)
    if not column.width:
        return np.empty((len(table), *column.shape), dtype=dtype)
    rows = b"".join(table.column(column.name).to_pylist())
    return np.frombuffer(rows, dtype=dtype).reshape(len(table), *column.shape)


def _numbers(values: Any, number: str | None) -> NDArray[Any]:
    found: NDArray[Any] = values.to_numpy()
    if found.dtype != np.dtype(number):
        raise ValueError(f"a column of {found.dtype} where {number} was written")
    return found
