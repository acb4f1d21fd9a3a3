"""Records as columns of bytes: rows of fixed width lie in a slab, others in a heap.

A `Form` says how one deployment's records become columns, and is kept in the folder. Nothing that is read is executed:
numbers are raw bytes of a known type, and everything else is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from expunge.core.blocks import Block
from expunge.core.checks import MOST_BITS, quoted
from expunge.core.errors import FormatError, InputError, RecordError
from expunge.core.features import Features, describe, is_frame, is_sparse
from expunge.core.records import Records

_ROWS_AT_ONCE = 1 << 16
_PLAIN = (str, int, float, bool, type(None))


@dataclass(frozen=True)
class Column:
    """One column. A row in a slab has this `dtype` and `shape`; without a `dtype`, rows of any length lie in a heap."""

    name: str
    dtype: str | None = None
    shape: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """The bytes of a row in the slab. A heap has a slab too, with the start and length of each row."""
        if self.dtype is None:
            return 16
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class FrameColumn:
    """How a data frame's column becomes a `Column`: as numbers, as codes of listed categories, or as JSON values."""

    label: Any
    dtype: str
    stored: str  # "numbers", "codes" or "values"
    categories: tuple[Any, ...] = ()
    ordered: bool = False


@dataclass(frozen=True)
class Form:
    """How the records of one deployment are stored."""

    kind: str  # "array", "objects", "data frame" or "sparse matrix"
    features: tuple[Column, ...]
    frame: tuple[FrameColumn, ...] = ()
    width: int = 0  # columns of a sparse matrix
    number_ids: bool = True
    has_subjects: bool = False
    has_weights: bool = False
    outputs: tuple[int, ...] | None = None  # None: labels are class codes; else the shape of a record's numbers

    @classmethod
    def of(cls, block: Block) -> Form:
        """Make the form of a dataset from its first block."""
        kind, features, frame, width = _feature_columns(block.features)
        outputs = tuple(block.labels.shape[1:]) if block.labels.dtype.kind == "f" else None
        return cls(kind, features, frame, width, outputs=outputs).widened(block)

    @classmethod
    def of_records(cls, records: Records) -> Form:
        """Make the form of the records that a dataset has now: a deleted one leaves no column behind."""
        live = records.live_slots()
        return cls(
            *_feature_columns(records.blocks[0].features),
            number_ids=_are_numbers(records.ids_of(live)),
            has_subjects=_has_names(records.subjects_of(live)),
            has_weights=records.has_weights,
            outputs=records.outputs,
        )

    def widened(self, block: Block) -> Form:
        """Return the form that also holds this block's ids, subjects and weights."""
        return replace(
            self,
            number_ids=self.number_ids and _are_numbers(block.ids),
            has_subjects=self.has_subjects or _has_names(block.subjects),
            has_weights=self.has_weights or block.weights is not None,
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, features first."""
        return (*self.features, *self.names)

    @property
    def names(self) -> tuple[Column, ...]:
        """All columns but the features."""
        labels = Column("labels", "<i4") if self.outputs is None else Column("labels", "<f8", self.outputs)
        own = [labels, Column("ids", "<i8" if self.number_ids else None)]
        own += [Column("subjects")] if self.has_subjects else []
        own += [Column("weights", "<f8")] if self.has_weights else []
        return tuple(own)

    def split(self, block: Block) -> dict[str, Any]:
        """Cut a block into columns: an array for each slab, a list of bytes for each heap."""
        return self.split_features(block.features) | self.split_names(block)

    def split_features(self, features: Features) -> dict[str, Any]:
        """Cut features into columns. Arrays have the types of their columns."""
        parts = dict(zip((c.name for c in self.features), self._split_features(features), strict=True))
        for column in self.features:
            if column.dtype is not None:
                parts[column.name] = np.ascontiguousarray(parts[column.name], dtype=column.dtype)
        return parts

    def split_names(self, block: Block) -> dict[str, Any]:
        """Cut all but the features of a block into columns."""
        ids = np.arange(block.start, block.start + len(block)) if block.ids is None else block.ids
        parts: dict[str, Any] = {"labels": np.asarray(block.labels, dtype="<i4" if self.outputs is None else "<f8")}
        parts["ids"] = np.array(ids, dtype="<i8") if self.number_ids else [_named(i, "id") for i in ids.tolist()]
        if self.has_subjects:
            named = [None] * len(block) if block.subjects is None else block.subjects.tolist()
            parts["subjects"] = [_named(subject, "subject") for subject in named]
        if self.has_weights:
            parts["weights"] = np.ones(len(block)) if block.weights is None else block.weights
        return parts

    def join(self, parts: dict[str, Any], *, start: int = 0) -> Block:
        """Make the block that `split` cut into columns. An empty row of a heap (an erased record) becomes None."""
        ids = parts["ids"] if self.number_ids else _objects(_values(parts["ids"]))
        subjects = _objects(_values(parts["subjects"])) if self.has_subjects else None
        weights = np.asarray(parts["weights"], dtype=np.float64) if self.has_weights else None
        features = self.join_features(parts, len(parts["labels"]))
        labels = np.array(parts["labels"], dtype=np.int32 if self.outputs is None else np.float64)
        return Block(start, features, labels, ids, subjects, weights)

    def join_features(self, parts: dict[str, Any], length: int) -> Features:
        """The features that `split_features` cut into columns."""
        return self._join_features([parts[column.name] for column in self.features], length)

    def empty(self) -> Block:
        """A block of this form without a record."""
        return self.join({each.name: [] if each.dtype is None else _rows_of(each) for each in self.columns})

    def _split_features(self, features: Features) -> list[Any]:
        match self.kind:
            case "array":
                return [np.ascontiguousarray(features)]
            case "objects":
                rows = features.tolist()
                return [[_json([_plain(cell) for cell in row] if self.width else _plain(row)) for row in rows]]
            case "sparse matrix":
                return [_sparse_rows(features)]
        pairs = zip(self.frame, range(features.shape[1]), strict=True)
        return [_split_series(how, features.iloc[:, place]) for how, place in pairs]

    def _join_features(self, parts: list[Any], length: int) -> Features:
        match self.kind:
            case "array":
                return parts[0]
            case "objects":
                rows = _values(parts[0])
                if not self.width:
                    return _objects(rows)
                cells = np.empty((len(rows), self.width), dtype=object)
                for place, row in enumerate(rows):
                    cells[place] = row
                return cells
            case "sparse matrix":
                return _sparse_matrix(parts[0], self.width, np.dtype(self.frame[0].dtype))
        import pandas as pd

        columns = [_join_series(how, values) for how, values in zip(self.frame, parts, strict=True)]
        table = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(length))
        table.columns = pd.Index([how.label for how in self.frame])
        return table

    def to_json(self) -> dict[str, Any]:
        """Return the form as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Form:
        """Read what `to_json` wrote."""
        try:
            features = tuple(Column(c["name"], c["dtype"], tuple(c["shape"])) for c in data["features"])
            frame = tuple(FrameColumn(**{**c, "categories": tuple(c["categories"])}) for c in data["frame"])
            outputs = None if data["outputs"] is None else tuple(data["outputs"])
            return cls(**{**data, "features": features, "frame": frame, "outputs": outputs})
        except (KeyError, TypeError) as error:
            raise FormatError(f"the description of the records' columns is damaged: {error}") from None

    @property
    def has_heaps(self) -> bool:
        """Whether a column has rows of any length, in a heap."""
        return any(column.dtype is None for column in self.columns)

    @property
    def is_mapped(self) -> bool:
        """Whether features stay on the disk when the records are read."""
        return self.kind == "array"

    @property
    def layout(self) -> tuple[str, tuple[Any, ...]]:
        """What `expunge.core.features.describe` returns for such features."""
        match self.kind:
            case "array":
                return "array", self.features[0].shape
            case "objects":
                return "array", (self.width,) if self.width else ()
            case "sparse matrix":
                return "sparse matrix", (self.width,)
        return "data frame", tuple(how.label for how in self.frame)


def _is_number(record: Any) -> bool:
    return isinstance(record, int) and -(2**63) <= record < 2**63


def _are_numbers(ids: NDArray[Any] | None) -> bool:
    return ids is None or ids.dtype.kind == "i" or all(map(_is_number, ids.tolist()))


def _has_names(subjects: NDArray[Any] | None) -> bool:
    return subjects is not None and any(subject is not None for subject in subjects.tolist())


def _feature_columns(features: Features) -> tuple[str, tuple[Column, ...], tuple[FrameColumn, ...], int]:
    if is_frame(features):
        frame = tuple(_frame_column(features.columns[i], features.iloc[:, i]) for i in range(features.shape[1]))
        return "data frame", tuple(_stored(how, place) for place, how in enumerate(frame)), frame, 0
    if is_sparse(features):
        how = FrameColumn("values", features.dtype.str, "numbers")
        return "sparse matrix", (Column("features"),), (how,), int(features.shape[1])
    if features.dtype.kind in "fiubcmM":
        if features.dtype.hasobject:
            raise InputError(f"features of type {features.dtype} cannot be stored")
        return "array", (Column("features", features.dtype.str, tuple(features.shape[1:])),), (), 0
    if features.dtype == object and (features.ndim == 1 or (features.ndim == 2 and features.shape[1])):
        return "objects", (Column("features"),), (), int(features.shape[1]) if features.ndim == 2 else 0
    raise InputError(f"features of type {features.dtype} and form {describe(features)} cannot be stored")


def _frame_column(label: Any, series: Any) -> FrameColumn:
    import pandas as pd

    label = label.item() if isinstance(label, np.generic) else label
    if not isinstance(label, int | str):
        raise InputError(f"column {label!r} must be named by a str or an int to be stored")
    if isinstance(series.dtype, pd.CategoricalDtype):
        categories = tuple(_plain(value) for value in series.cat.categories.tolist())
        return FrameColumn(label, "category", "codes", categories, bool(series.dtype.ordered))
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "fiubmM":
        return FrameColumn(label, series.dtype.str, "numbers")
    return FrameColumn(label, str(series.dtype), "values")


def _stored(how: FrameColumn, place: int) -> Column:
    name = f"feature-{place}"
    if how.stored == "values":
        return Column(name)
    return Column(name, how.dtype if how.stored == "numbers" else "<i4")


def _split_series(how: FrameColumn, series: Any) -> Any:
    if how.stored == "numbers":
        return series.to_numpy(dtype=np.dtype(how.dtype))
    if how.stored == "codes":
        return series.cat.codes.to_numpy(dtype="<i4")
    if how.dtype == "object":  # where None and NaN are two values
        return [_json(_plain(value)) for value in series.tolist()]
    missing = series.isna().to_numpy()
    return [_json(None if gone else _plain(v)) for v, gone in zip(series.tolist(), missing.tolist(), strict=True)]


def _rows_of(column: Column) -> NDArray[Any]:
    return np.empty((0, *column.shape), dtype=column.dtype)


def _join_series(how: FrameColumn, values: Any) -> Any:
    import pandas as pd

    if how.stored == "numbers":
        return pd.Series(np.array(values))
    if how.stored == "codes":
        dtype = pd.CategoricalDtype(list(how.categories), ordered=how.ordered)
        codes = np.where(np.asarray(values) < len(how.categories), values, -1)  # an erased row is 0
        return pd.Series(pd.Categorical.from_codes(codes, dtype=dtype))
    plain = _values(values)
    if how.dtype in ("object", "str", "string"):
        return pd.Series(plain, dtype=how.dtype)
    values_of: Any = pd.array(plain, dtype=how.dtype)  # type: ignore[call-overload]
    return pd.Series(values_of)


def _sparse_rows(matrix: Any) -> list[bytes]:
    """Write each row as the positions of its numbers (4 bytes each), then the numbers."""
    table = matrix.tocsr()
    positions = np.ascontiguousarray(table.indices, dtype="<i4")
    bounds = zip(table.indptr[:-1].tolist(), table.indptr[1:].tolist(), strict=True)
    return [positions[low:high].tobytes() + table.data[low:high].tobytes() for low, high in bounds]


def _sparse_matrix(rows: Sequence[bytes], width: int, dtype: np.dtype[Any]) -> Any:
    sizes = [len(raw) // (4 + dtype.itemsize) for raw in rows]
    positions = [np.frombuffer(raw, dtype="<i4", count=size) for raw, size in zip(rows, sizes, strict=True)]
    numbers = [np.frombuffer(raw, dtype, size, 4 * size) for raw, size in zip(rows, sizes, strict=True)]
    joined = np.concatenate([np.empty(0, dtype), *numbers]), np.concatenate([np.empty(0, np.int32), *positions])
    ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return scipy.sparse.csr_matrix((*joined, ends), shape=(len(rows), width))


def _plain(value: Any) -> Any:
    """Return a value that JSON keeps as it is, or refuse it."""
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, _PLAIN) or (isinstance(plain, int) and plain.bit_length() > MOST_BITS):
        raise InputError(f"a value of type {type(value).__name__} cannot be stored: {quoted(value)}")
    return plain


def _named(name: Any, what: str) -> bytes:
    """Write an id or a subject as bytes."""
    if isinstance(name, int) and not _is_number(name):
        raise RecordError(f"the {what} {name!r} cannot be stored: a number has at most 64 bits", name)
    return _json(name)


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InputError(f"a text that is not Unicode cannot be stored: {value!r:.80}") from None


def _values(rows: Sequence[bytes]) -> list[Any]:
    """Read values that were written one by one, many at once; an empty row (an erased record) is None."""
    found: list[Any] = []
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[first : first + _ROWS_AT_ONCE]
        try:
            found += json.loads(b"[" + b",".join([raw or b"null" for raw in some]) + b"]")
        except ValueError as error:
            raise FormatError(f"a stored value is damaged: {error}") from None
        if len(found) != first + len(some):
            raise FormatError("a stored value is damaged: it is more than one")
    return found


def _objects(values: list[Any]) -> NDArray[Any]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
