"""Rows of features in any container that a learner accepts, and the codes of labels.

Containers are arrays, sparse matrices, data frames and lists of texts. The other modules use the functions below, and
never look inside a container.

The code of a label is its position in the list of classes, which need not be sorted.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from decimal import Decimal
from hashlib import blake2b
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from expunge.core.checks import quoted
from expunge.core.errors import InputError, MissingExtraError

_SCALARS = (np.bool_, np.number, np.str_, np.bytes_)  # NumPy's forms of Python values
_PLAIN = {str, int, float, bool, bytes, type(None)}

Features = Any  # a numpy array, a scipy sparse array in CSR form, a pandas data frame, or a 1-d object array
_NUMBERS = "fiub"  # kinds of types


def as_features(rows: Any, *, keeps_values: bool = False) -> Features:
    """Return a container: `rows` itself if it is one, otherwise an array made of it.

    Lists with texts become arrays of Python values, so that a number among them stays a number. With `keeps_values`
    lists of numbers do too.
    """
    rows = pandas_form(rows)
    if is_sparse(rows):
        if rows.ndim != 2:
            raise InputError(f"features must be a table with one row per record, got shape {rows.shape}")
        return rows.tocsr()
    if is_frame(rows):
        if not rows.columns.is_unique:
            raise InputError(f"column {rows.columns[rows.columns.duplicated()][0]!r} occurs twice")
        return rows
    is_array = hasattr(rows, "dtype")
    array = np.array(rows, dtype=object) if keeps_values and not is_array else as_array(rows, "features")
    if array.dtype.kind in "US":
        array = array.astype(object) if is_array else np.array(rows, dtype=object)
    if array.ndim == 0:
        raise InputError("features must be a table with one row per record, got a single value")
    return array


def as_array(values: Any, name: str) -> NDArray[Any]:
    """Return values as an array; rows of several lengths, and a masked array with hidden values, are refused."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{name} are a masked array with hidden values: fill these in, or leave their records out")
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as error:
        why = "rows differ in length" if "inhomogeneous" in str(error) else " ".join(str(error).split())[:200]
        raise InputError(f"{name} cannot be made into an array: {why}") from None


def require_exact(rows: Features) -> None:
    """Refuse numbers that cannot be kept to the bit: of extended precision, some bytes of which have no meaning."""
    for kind in set(rows.dtypes) if is_frame(rows) else [rows.dtype]:
        if isinstance(kind, np.dtype) and kind.kind in "fc" and kind.itemsize > (8 if kind.kind == "f" else 16):
            raise InputError(f"features of type {kind.name} cannot be kept to the bit: convert them to float64")


def pandas_form(rows: Any) -> Any:
    """A frame of Polars, or a table of Arrow, as a pandas data frame; anything else as it is.

    Truth values get pandas' own type, which has room for gaps: NumPy's has none, so that the type would remember a gap
    that has left with its record.
    """
    kind, package = type(rows).__name__, type(rows).__module__.partition(".")[0]
    if (package, kind) == ("polars", "LazyFrame"):
        rows, kind = rows.collect(), "DataFrame"
    if (package, kind) not in (("polars", "DataFrame"), ("pyarrow", "Table")):
        return rows
    try:
        found = rows.to_pandas()
        types = rows.schema.items() if package == "polars" else zip(rows.schema.names, rows.schema.types, strict=True)
        truths = [name for name, type_ in types if str(type_) in ("Boolean", "bool")]
        return found.astype(dict.fromkeys(truths, "boolean")) if truths else found
    except ImportError as error:
        raise MissingExtraError(f"a frame of Polars needs pyarrow: pip install 'expunge[polars]' ({error})") from None
    except ValueError as error:
        raise InputError(f"the table cannot be made into a data frame: {' '.join(str(error).split())[:200]}") from None


def is_sparse(rows: Any) -> bool:
    """Tell whether `rows` is a SciPy sparse matrix or array."""
    return bool(scipy.sparse.issparse(rows))


def is_frame(rows: Any) -> bool:
    """Tell whether `rows` is a data frame (pandas, or anything with `iloc` and `columns`)."""
    return hasattr(rows, "iloc") and hasattr(rows, "columns")


def num_rows(rows: Features) -> int:
    """Count the records in a container."""
    return int(rows.shape[0])


def take(rows: Features, positions: ArrayLike) -> Features:
    """The rows at `positions`, in that order, as the same kind of container; rows of a data frame are numbered anew."""
    return rows.iloc[positions].reset_index(drop=True) if is_frame(rows) else rows[positions]


def concatenate(parts: Sequence[Features]) -> Features:
    """Return the rows of all parts, one after another."""
    if len(parts) == 1:
        return parts[0]
    if any(is_sparse(part) for part in parts):
        return scipy.sparse.vstack(parts, format="csr")
    if is_frame(parts[0]):
        import pandas as pd

        return pd.concat(list(parts), ignore_index=True)
    return np.concatenate(parts)


def describe(rows: Features) -> tuple[str, tuple[Any, ...]]:
    """Return the layout of a container: its kind and columns, which must agree before rows are mixed."""
    if is_frame(rows):
        return "data frame", tuple(rows.columns)
    return ("sparse matrix" if is_sparse(rows) else "array"), tuple(rows.shape[1:])


def copy_rows(rows: Features) -> Features:
    """Copy a container, so that the caller cannot change it later."""
    return np.array(rows, order="C") if isinstance(rows, np.ndarray) else rows.copy()


def is_shared(rows: Features, given: Any) -> bool:
    """Whether rows made of what a caller gave may still share memory with it."""
    if isinstance(rows, np.ndarray):
        return isinstance(given, np.ndarray) and np.may_share_memory(rows, given)
    return rows is given or is_sparse(given)


def plain_form(rows: Features) -> Features:
    """The rows in a form that depends on their values and types alone, and not on how they were put together.

    Arrays are in C order and in the byte order of this machine. Rows of a sparse matrix list each column at most once,
    in order, and no zeros. Python values are Python's own, and not NumPy's. Gaps in a data frame's columns of them are
    NaN: pandas makes None, NaN or NA of them, which depends on the other values of the column. The result may share
    memory with `rows`.
    """
    if is_frame(rows):
        return _with_plain_values(rows)
    if is_sparse(rows):
        return _plain_sparse(rows)
    table = np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("="))
    return _plain_objects(table) if table.dtype == np.dtype(object) else table


def _plain_objects(values: NDArray[Any]) -> NDArray[Any]:
    """Python values instead of NumPy's numbers and texts; the array itself if it has none of them."""
    listed = values.ravel().tolist()
    if not any(issubclass(kind, _SCALARS) for kind in {*map(type, listed)}):
        return values
    plain = np.empty(len(listed), dtype=object)
    plain[:] = [one.item() if isinstance(one, _SCALARS) else one for one in listed]
    return plain.reshape(values.shape)


def _with_plain_values(frame: Any) -> Any:
    """The frame with plain values, and NaN for every gap, in its columns of Python values; itself if it has these."""
    filled: dict[Any, Any] = {}
    for name, kind in zip(frame.columns, frame.dtypes, strict=True):
        if kind != np.dtype(object):
            continue
        column, gone = frame[name], frame[name].isna()
        values = column.to_numpy()
        if (plain := _plain_objects(values)) is not values:
            filled[name] = column = type(column)(plain, index=column.index, dtype=object)
        if gone.any():
            filled[name] = column.where(~gone, np.nan)
    return _with_columns(frame, filled)


def _with_columns(frame: Any, columns: dict[Any, Any]) -> Any:
    if columns:
        frame = frame.copy()
        for name, column in columns.items():
            frame[name] = column
    return frame


def _plain_sparse(rows: Any) -> Any:
    table = scipy.sparse.csr_matrix(rows)
    has_zeros = bool((table.data == 0).any())
    if has_zeros or not table.has_canonical_format:
        table = table.copy()
        table.sum_duplicates()
        table.eliminate_zeros()
    limit = np.iinfo(np.int32).max
    if table.indices.dtype != np.int32 and max(table.nnz, *table.shape) <= limit:
        parts = table.data, table.indices.astype(np.int32), table.indptr.astype(np.int32)
        table = scipy.sparse.csr_matrix(parts, shape=table.shape)
    return table


def settle(rows: Features) -> Features:
    """The rows laid out in memory as a new container of these values would be, after they were gathered from several.

    Block layout and column index of a data frame, and the index types of a sparse matrix, remember what a container
    was made of, and a learner may read them.
    """
    if is_sparse(rows):
        return _plain_sparse(rows)
    if is_frame(rows) and type(rows).__module__.partition(".")[0] == "pandas":
        import pandas as pd

        made = pd.DataFrame({place: rows.iloc[:, place] for place in range(rows.shape[1])}, index=rows.index)
        made.columns = pd.Index(rows.columns.tolist())
        made.attrs = {}
        return made
    return rows


def standard_types(rows: Features) -> Features:
    """The rows in types that do not depend on which values happen to be there.

    Numbers in NumPy's default types (what a list or a file is read as) become float64, and categories plain values, so
    that no type remembers a record that was deleted since. For the same reason a data frame counts time in
    microseconds. Any other type, such as float32 or uint8, is declared.
    """
    if is_frame(rows):
        wanted = {name: kind for name in rows.columns if (kind := _standard_column(rows[name].dtype)) is not None}
        return _with_types(rows, wanted) if wanted else rows
    return rows if (kind := _standard_column(rows.dtype)) is None or rows.dtype.kind in "mM" else rows.astype(kind)


def _standard_column(dtype: Any) -> Any:
    """The type that a data frame's column is kept in; None if it stays as it is."""
    name = str(dtype).lower()
    if name in ("int64", "uint64"):
        return np.float64 if isinstance(dtype, np.dtype) else "Float64"
    if name.startswith(("datetime64[", "timedelta64[")) and "[us" not in name:
        return str(dtype).replace(name[name.index("[") + 1 :].partition(",")[0].rstrip("]"), "us", 1)
    return object if name == "category" else None


def cast_like(rows: Features, pattern: Features) -> Features:
    """Convert `rows` to the number types of `pattern`, so that updated and fresh datasets are the same input.

    Whole numbers must keep their value: 3.0 may join a column of integers, 3.5 may not and raises `InputError`.
    """
    if is_frame(rows):
        for name, kind, own in zip(rows.columns, rows.dtypes, pattern.dtypes, strict=True):
            if getattr(kind, "kind", "O") == "c" and _is_numeric(own):
                raise InputError(f"column {name!r} does not fit the type {own}")
        return _with_types(rows, dict(zip(pattern.columns, pattern.dtypes, strict=True)))
    if rows.dtype == pattern.dtype:
        return rows
    if rows.dtype == object and pattern.dtype.kind in _NUMBERS:
        rows = _numbers(rows)
    if rows.dtype.kind not in _NUMBERS and rows.dtype.kind != pattern.dtype.kind and pattern.dtype != object:
        raise InputError(f"values of type {rows.dtype} do not fit the type {pattern.dtype}")
    with np.errstate(over="ignore"):  # an overflow becomes infinite, and is refused as such
        cast = rows.astype(pattern.dtype)
    dense, before = (cast.data, rows.data) if is_sparse(rows) else (cast, rows)
    if not _same_values(dense, before):
        raise InputError(f"values of type {rows.dtype} do not fit the type {pattern.dtype}")
    return cast


def _with_types(frame: Any, types: dict[Any, Any]) -> Any:
    """The frame with other types in some columns, which must hold the same values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unknown category becomes missing, which is refused below
        cast = frame.astype(types)
    for name in types:
        column, before = cast[name], frame[name]
        is_time = column.dtype.kind == before.dtype.kind and column.dtype.kind in "mM"
        is_same = (
            ((column == before) | before.isna()).all() if is_time else _same_values(*map(np.asarray, (column, before)))
        )
        if not is_same or not (column.isna() == before.isna()).all():
            raise InputError(f"column {name!r} does not fit the type {column.dtype}")
    return cast


def _same_values(cast: NDArray[Any], before: NDArray[Any]) -> bool:
    if cast.dtype.kind == before.dtype.kind and cast.dtype.kind in "mM":
        return bool(((cast == before) | np.isnat(before)).all())
    return cast.dtype.kind not in "iub" or bool((cast == before).all())


def missing_rows(rows: Features) -> NDArray[np.intp]:
    """Find the rows that hold a NaN or an infinity (numeric columns only)."""
    if is_frame(rows):
        numeric = rows.select_dtypes(["number", "boolean"])
        return np.flatnonzero(~np.isfinite(numeric.to_numpy(dtype=float, na_value=np.nan)).all(axis=1))
    if is_sparse(rows):
        bad = np.flatnonzero(~np.isfinite(rows.data)) if rows.dtype.kind in "fc" else np.empty(0, dtype=np.intp)
        return np.unique(np.searchsorted(np.asarray(rows.indptr), bad, side="right") - 1)
    if rows.dtype.kind not in "fc":
        return np.empty(0, dtype=np.intp)
    # In the usual case nothing is missing, and one sum decides for the whole table.
    with np.errstate(all="ignore"):
        if np.isfinite(rows.sum()):
            return np.empty(0, dtype=np.intp)
    return np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(axis=1))


def conform(rows: Features, layout: tuple[str, tuple[Any, ...]], pattern: Features) -> Features:
    """Bring queries into the layout of the records: add or drop a data frame's columns, and check the width.

    Where the records have numbers (`pattern` has their types), queries must have numbers, or texts that are some.
    """
    kind, columns = layout
    found, own = describe(rows)
    if kind == "data frame" and found == "array" and own == (len(columns),):
        import pandas as pd

        return _numbers_in(pd.DataFrame(rows, columns=list(columns)), pattern)
    if found == "data frame" and kind != "data frame":
        rows = rows.to_numpy()
        found, own = describe(rows)
    if found == "sparse matrix" and kind == "array" and own == columns:
        rows = rows.toarray()
    if (found == "data frame") != (kind == "data frame") or own != columns:
        raise InputError(f"queries must have the form {kind} of {columns}, got {found} of {own}")
    return _with_plain_values(_numbers_in(rows, pattern)) if found == "data frame" else _as_numbers(rows, pattern)


def _as_numbers(rows: Features, pattern: Features) -> Features:
    """Queries with the numbers that the records have there; others, such as texts, stay as they are."""
    if pattern.dtype.kind not in _NUMBERS or rows.dtype.kind in _NUMBERS:
        return rows
    if rows.dtype != object:
        raise InputError(f"queries of type {rows.dtype} do not fit the records, which are of type {pattern.dtype}")
    return _numbers(rows)


def _numbers_in(frame: Any, pattern: Any) -> Any:
    changed = {}
    for place, name in enumerate(frame.columns):
        kind, own = frame.dtypes.iloc[place], pattern.dtypes.iloc[place]
        if _is_numeric(own) and not _is_numeric(kind):
            cells = frame.iloc[:, place].to_numpy(dtype=object)
            try:
                changed[name] = _numbers(cells)
            except InputError as error:
                raise InputError(f"column {name!r}: {error}") from None
    return _with_columns(frame, changed)


def _is_numeric(kind: Any) -> bool:
    return getattr(kind, "kind", "O") in _NUMBERS


def _numbers(values: NDArray[Any]) -> NDArray[np.float64]:
    """Python values as numbers; a gap is NaN. What is no number is named."""
    plain = []
    for place, value in enumerate(values.ravel().tolist()):
        try:
            plain.append(_number(value))
        except (TypeError, ValueError, OverflowError) as error:
            row, why = place // max(1, values[:1].size) + 1, "not a number"
            why = "too large" if isinstance(error, OverflowError) else why
            raise InputError(f"row {row:,} has {quoted(value)}, which is {why}") from None
    return np.array(plain, dtype=np.float64).reshape(values.shape)


def _number(value: Any) -> float:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return np.nan
    if isinstance(value, Real | Decimal | str):
        return float(value)
    raise TypeError


def row_keys(rows: Features) -> list[bytes]:
    """Compute a 128-bit digest of every row's values. Equal rows have equal keys, also in different number types."""
    if is_frame(rows):
        numbers = rows.select_dtypes(["number", "bool"]).columns
        same_type = rows.astype(dict.fromkeys(numbers, float))
        same_type[numbers] += 0.0  # -0.0 and 0.0 are the same value
        raw = [repr(row).encode() for row in same_type.itertuples(index=False, name=None)]
    elif is_sparse(rows):
        table = rows.tocsr().astype(np.float64)
        table.sum_duplicates()
        table.eliminate_zeros()
        bounds = zip(table.indptr[:-1], table.indptr[1:], strict=True)
        raw = [
            table.indices[low:high].astype(np.int64).tobytes() + table.data[low:high].tobytes() for low, high in bounds
        ]
    elif rows.dtype.kind in "fiub":
        table = np.ascontiguousarray(rows, dtype=np.float64) + 0.0  # -0.0 and 0.0 are the same value
        raw = [row.tobytes() for row in table]
    else:
        raw = [repr(row.tolist() if isinstance(row, np.ndarray) else row).encode() for row in rows]
    return [blake2b(value, digest_size=16).digest() for value in raw]


def digest_values(values: Any) -> bytes:
    """A digest of a container's values in order, with their types; None has one of its own.

    Equal digests mean the same input to a learner: the same kind of container, columns, number types and values.
    """
    state = blake2b(digest_size=32)
    if values is None:
        return state.digest()
    if is_frame(values):
        state.update(repr([*map(str, values.columns)]).encode())
        for name in values.columns:
            state.update(digest_values(values[name].to_numpy()))
    elif is_sparse(values):
        table = values.tocsr()
        state.update(repr(table.shape).encode())
        for part in (table.indptr.astype(np.int64), table.indices.astype(np.int64), table.data):
            state.update(digest_values(part))
    elif values.dtype.kind == "O":
        listed = values.ravel().tolist()
        is_plain = {*map(type, listed)} <= _PLAIN
        kept = [(type(one).__name__, one if is_plain else _text_of(one)) for one in listed]
        state.update(repr((values.shape, kept)).encode())
    else:
        state.update(f"{values.dtype.str}{values.shape}".encode())
        state.update(np.ascontiguousarray(values).tobytes())
    return state.digest()


def _text_of(value: Any) -> Any:
    """A text of a value that depends on nothing else, such as where it lies in memory; a plain value is its own."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.ndarray):
        return digest_values(value).hex()
    if isinstance(value, list | tuple):
        return [(type(one).__name__, _text_of(one)) for one in value]
    if isinstance(value, dict):
        return [(_text_of(key), type(one).__name__, _text_of(one)) for key, one in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(repr((type(one).__name__, _text_of(one))) for one in value)
    text = repr(value)
    if " at 0x" in text:
        kind = type(value).__name__
        raise InputError(f"a value of type {kind} cannot be a feature: its text tells a place in memory, and no value")
    return text


def codes_of(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Find the position of every label in `classes`; a label that is not there gets the position of another."""
    order = np.argsort(classes, kind="stable")
    places = np.searchsorted(classes, labels, sorter=order)
    return np.asarray(order[np.minimum(places, len(classes) - 1)], dtype=np.int64)
