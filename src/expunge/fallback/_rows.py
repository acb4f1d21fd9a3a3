"""Labelled rows of numbers as fallback models read them, checked once at the door."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.errors import InputError, RecordError
from expunge.features import Features, as_features, is_frame, is_sparse
from expunge.records import Records

LARGEST = 2.0**400
SMALLEST = 2.0**-400

_WRONG = "hold NaN, infinity or a number beyond 2^400, which a fallback model cannot use"


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Records as a table of floats; `slots` tells them apart and orders them."""

    table: NDArray[np.float64]
    codes: NDArray[np.int32]
    slots: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def num_features(self) -> int:
        """How many columns the table has."""
        return int(self.table.shape[1])

    def take(self, positions: NDArray[Any]) -> Rows:
        """The rows at `positions`, in that order."""
        return Rows(self.table[positions], self.codes[positions], self.slots[positions])

    def slice(self, first: int, last: int) -> Rows:
        """A run of rows."""
        return Rows(self.table[first:last], self.codes[first:last], self.slots[first:last])

    def counts(self, num_classes: int) -> NDArray[np.int64]:
        """How many rows each class has."""
        return np.bincount(self.codes, minlength=num_classes).astype(np.int64)


def join_rows(first: Rows, second: Rows) -> Rows:
    """Two runs of rows one after the other."""
    return Rows(
        np.concatenate([first.table, second.table]),
        np.concatenate([first.codes, second.codes]),
        np.concatenate([first.slots, second.slots]),
    )


def read_table(features: Features) -> NDArray[np.float64]:
    """Features as a table of floats, one row per record; sparse ones are made dense, images are flattened.

    Magnitudes below 2^-400 are read as zero. That is a function of each value alone, so it remembers nothing.
    """
    table = _as_floats(as_features(features))
    for row in _bad_rows(table)[:1]:
        raise InputError(f"the features of row {row} {_WRONG}")
    return _flushed(table)


def read_rows(features: Features, codes: ArrayLike, slots: ArrayLike | None, *, num_classes: int) -> Rows:
    """Checked rows; slots default to 0, 1, …"""
    table = read_table(features)
    labels = np.asarray(codes)
    if labels.shape != (len(table),):
        raise InputError(f"y must be one class code per row ({len(table)}), got shape {labels.shape}")
    if len(labels) and (labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= num_classes):
        raise InputError(f"y must be class codes from 0 to {num_classes - 1}")
    places = np.arange(len(table)) if slots is None else np.asarray(slots, dtype=np.int64)
    if places.shape != labels.shape or (np.diff(places) <= 0).any():
        raise InputError("slots must be one per row, ascending and distinct")
    return Rows(table, labels.astype(np.int32), places)


def rows_of_records(records: Records, slots: NDArray[np.int64]) -> Rows:
    """The records in some slots, which are ascending; one of weight zero is left out; the first at fault is named."""
    features, codes, weights = records.gather(slots)
    if weights is not None:
        for place in np.flatnonzero((weights != 0) & (weights != 1))[:1]:
            record = records.id_of(int(slots[place]))
            raise RecordError(
                f"record {record!r} has the weight {weights[place]}: a fallback model counts every record once", record
            )
    table = _as_floats(features)
    for place in _bad_rows(table)[:1]:
        record = records.id_of(int(slots[place]))
        raise RecordError(f"the features of record {record!r} {_WRONG}", record)
    rows = Rows(_flushed(table), codes.astype(np.int32), np.asarray(slots, dtype=np.int64))
    return rows if weights is None else rows.take(np.flatnonzero(weights))


def _as_floats(features: Features) -> NDArray[np.float64]:
    if is_sparse(features):
        features = features.toarray()
    try:
        table = features.to_numpy(dtype=np.float64) if is_frame(features) else np.asarray(features, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"the fallback model of a router needs features that are numbers: {error}") from error
    if table.ndim < 2 or 0 in table.shape[1:]:
        raise InputError(f"a fallback model needs a table with at least one column, got shape {table.shape}")
    return np.ascontiguousarray(table.reshape(len(table), -1 if len(table) else int(np.prod(table.shape[1:]))))


def _bad_rows(table: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.flatnonzero(~(np.abs(table) <= LARGEST).all(axis=1))


def _flushed(table: NDArray[np.float64]) -> NDArray[np.float64]:
    tiny = np.abs(table) < SMALLEST
    return np.where(tiny, 0.0, table) if (tiny & (table != 0)).any() else table
