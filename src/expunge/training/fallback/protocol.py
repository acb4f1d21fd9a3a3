"""What a fallback is: a deterministic model that is a function of the current dataset D^t alone.

The router in front of the ensemble may depend on D^t and on the query, but not on the secret randomness r. It must
also forget a deleted record completely (the router under T4). A fallback model draws no randomness: after any sequence
of additions and deletions it answers exactly, bit for bit, as the same model fitted to D^t from scratch. It decides
which queries are easy (`margin`) and answers the others itself (`predict`). Nothing here depends on the ensemble or r.

A `Fallback` is a recipe; a `FallbackModel` is a recipe fitted to some D^t. Models are immutable: an update returns a
new model that shares storage with the old one. The old one stays valid, so a deployment can switch rounds in one step.
How a model is laid out in memory may depend on its history; what it answers does not. So keep a model in memory, and
fit it again from the records when a deployment is opened; do not store it.

This file also reads and checks the labelled rows of numbers that all fallback models share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.core.checks import require_count
from expunge.core.errors import InputError, RecordError
from expunge.core.features import Features, as_features, is_frame, is_sparse
from expunge.core.records import Change, Records

LARGEST = 2.0**400
SMALLEST = 2.0**-400
NO_ANSWER = -1  # the answer of a model of an empty dataset

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]

_BAD_NUMBERS = "hold NaN, infinity or a number beyond 2^400, which an exact model cannot use"


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Records as a table of floats with class codes.

    Parameters
    ----------
    table
        One row of features per record.
    codes
        The class code of every record.
    slots
        A number for each record, ascending: it identifies the record and gives its place in the order.
    """

    table: Floats
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
        """The rows from `first` up to, but not including, `last`."""
        return Rows(self.table[first:last], self.codes[first:last], self.slots[first:last])

    def counts(self, num_classes: int) -> NDArray[np.int64]:
        """How many rows each class has."""
        return np.bincount(self.codes, minlength=num_classes).astype(np.int64)


def join_rows(first: Rows, second: Rows) -> Rows:
    """Two sets of rows, one after the other."""
    return Rows(
        np.concatenate([first.table, second.table]),
        np.concatenate([first.codes, second.codes]),
        np.concatenate([first.slots, second.slots]),
    )


def read_table(features: Features) -> Floats:
    """Features as a table of floats, one row per record; sparse ones are made dense, images are flattened.

    Magnitudes below 2^-400 are read as zero. That is a function of each value alone, so it holds no memory of others.
    """
    table = _as_floats(as_features(features))
    for row in _bad_rows(table)[:1]:
        raise InputError(f"the features of row {row} {_BAD_NUMBERS}")
    return _tiny_to_zero(table)


def read_rows(features: Features, codes: ArrayLike, slots: ArrayLike | None, *, num_classes: int) -> Rows:
    """Check rows that a caller gives; slots default to 0, 1, …"""
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
    """Read the records in the given slots, which are ascending.

    Records of weight zero are left out, and numbers beyond 2^400 are read as 2^400. A record that cannot be used is an
    error that names it.
    """
    features, codes, weights = records.gather(slots)
    if weights is not None:
        for place in np.flatnonzero((weights != 0) & (weights != 1))[:1]:
            record = records.id_of(int(slots[place]))
            raise RecordError(
                f"record {record!r} has the weight {weights[place]}: an exact model counts every record once", record
            )
    table = np.clip(_as_floats(features), -LARGEST, LARGEST)  # accepted once, a record must never stop an update
    for place in _bad_rows(table)[:1]:
        record = records.id_of(int(slots[place]))
        raise RecordError(f"the features of record {record!r} {_BAD_NUMBERS}", record)
    rows = Rows(_tiny_to_zero(table), codes.astype(np.int32), np.asarray(slots, dtype=np.int64))
    return rows if weights is None else rows.take(np.flatnonzero(weights))


def _as_floats(features: Features) -> Floats:
    if is_sparse(features):
        features = features.toarray()
    try:
        table = features.to_numpy(dtype=np.float64) if is_frame(features) else np.asarray(features, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"an exact model needs features that are numbers: {error}") from error
    if table.ndim < 2 or 0 in table.shape[1:]:
        raise InputError(f"an exact model needs a table with at least one column, got shape {table.shape}")
    return np.ascontiguousarray(table.reshape(len(table), -1 if len(table) else int(np.prod(table.shape[1:]))))


def _bad_rows(table: Floats) -> NDArray[np.intp]:
    return np.flatnonzero(~(np.abs(table) <= LARGEST).all(axis=1))


def _tiny_to_zero(table: Floats) -> Floats:
    tiny = np.abs(table) < SMALLEST
    return np.where(tiny, 0.0, table) if (tiny & (table != 0)).any() else table


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """Answers to queries, and how easy each query was.

    Parameters
    ----------
    codes
        A class code for every query; `NO_ANSWER` if the dataset is empty.
    margins
        How easy every query was, from 0 (undecided) to 1 (easiest).
    """

    codes: Codes
    margins: Floats


class FallbackModel(ABC):
    """A fallback that is fitted to D^t: immutable, deterministic, and without memory of deleted records.

    `Fallback.fit` and `Fallback.fit_records` make one. `add`, `delete` and `updated` return a new model and leave the
    old one as it was.

    Examples
    --------
    >>> from expunge.training.fallback import NearestNeighbours
    >>> model = NearestNeighbours(num_neighbours=1).fit([[0.0], [1.0], [9.0]], [0, 0, 1], num_classes=2)
    >>> model.predict([[8.0]])
    array([1])
    >>> model.delete([[9.0]], [1], slots=[2]).predict([[8.0]])
    array([0])
    >>> model.num_records
    3
    """

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """The number of classes, whether or not a record has them."""

    @property
    @abstractmethod
    def num_features(self) -> int:
        """How many columns a row has."""

    @property
    @abstractmethod
    def num_records(self) -> int:
        """|D^t|: how many records the model is fitted to."""

    @abstractmethod
    def _with(self, rows: Rows) -> Self:
        """The model of D^t and these rows, which come after all others in order."""

    @abstractmethod
    def _without(self, rows: Rows) -> Self:
        """The model of D^t without these rows, which are in it."""

    @abstractmethod
    def _assess(self, table: Floats) -> Assessment:
        """Answer queries from a dataset that is not empty."""

    def assess(self, X: Features) -> Assessment:
        """Answer queries and say how easy they were, in one call.

        Each row's answer and margin are a function of D^t and of that row alone. Raises `InputError` if the rows are
        not numbers, or do not have `num_features` columns.
        """
        table = self._checked(read_table(X))
        if self.num_records == 0:
            return Assessment(np.full(len(table), NO_ANSWER, dtype=np.int64), np.zeros(len(table)))
        return self._assess(table)

    def predict(self, X: Features) -> Codes:
        """A class code for every row; `NO_ANSWER` for every row if the dataset is empty."""
        return self.assess(X).codes

    def margin(self, X: Features) -> Floats:
        """How easy every row is, from 0 (undecided) to 1 (easiest)."""
        return self.assess(X).margins

    def add(self, X: Features, y: ArrayLike, slots: ArrayLike) -> Self:
        """The model after rows are added.

        `y` holds one class code per row. `slots` are ascending and above all slots that the model has seen. Raises
        `InputError` if the rows cannot be used.
        """
        rows = read_rows(X, y, slots, num_classes=self.num_classes)
        self._checked(rows.table)
        return self._with(rows) if len(rows) else self

    def delete(self, X: Features, y: ArrayLike, slots: ArrayLike) -> Self:
        """The model after rows are deleted.

        Give features, class codes and slots as they were when the rows were added. Raises `InputError` if the model
        finds that the rows are not in the dataset.
        """
        rows = read_rows(X, y, slots, num_classes=self.num_classes)
        self._checked(rows.table)
        return self._without(rows) if len(rows) else self

    def updated(self, before: Records, after: Records, change: Change) -> Self:
        """The model of `after`, made from this model of `before`, where `after, change = before.apply(batch)`.

        The slot numbers must be those that the model was fitted with: after `Records.compacted`, fit the model again.
        Raises `RecordError` if a record cannot be used; the error names the record.
        """
        removed = rows_of_records(before, change.removed)
        added = rows_of_records(after, np.arange(change.added.start, change.added.stop))
        model = self._without(removed) if len(removed) else self
        return model._with(added) if len(added) else model

    def _checked(self, table: Floats) -> Floats:
        if table.shape[1] != self.num_features:
            raise InputError(f"X must have {self.num_features} columns, got {table.shape[1]}")
        return table


class Fallback(ABC):
    """A recipe for a model that is a deterministic function of the dataset.

    `NearestNeighbours`, `GaussianNaiveBayes`, `MultinomialNaiveBayes` and `RidgeFallback` are such recipes. They hold
    options only; `fit` and `fit_records` return a `FallbackModel`.
    """

    @abstractmethod
    def _fit(self, rows: Rows, num_classes: int) -> FallbackModel:
        """The model of these rows."""

    def fit(self, X: Features, y: ArrayLike, *, num_classes: int, slots: ArrayLike | None = None) -> FallbackModel:
        """Fit the model of rows and class codes.

        `slots` are ascending numbers that identify the rows and order them; they default to 0, 1, … Raises
        `ParameterError` if `num_classes` is not an integer >= 1, and `InputError` if the rows cannot be used.
        """
        require_count("num_classes", num_classes)
        return self._fit(read_rows(X, y, slots, num_classes=num_classes), num_classes)

    def fit_records(self, records: Records) -> FallbackModel:
        """Fit the model of a dataset.

        A record of weight zero counts as absent. Raises `RecordError` if a record has a weight other than 0 and 1, or
        features that cannot be used; the error names the record.
        """
        return self._fit(rows_of_records(records, records.live_slots()), records.num_classes)

    def check(self, records: Records) -> None:
        """Raise a `RecordError` that names the first record that cannot be used."""
        rows_of_records(records, records.live_slots())
