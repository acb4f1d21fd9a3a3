"""What a fallback is: a deterministic model that is a function of the current dataset D^t alone.

The router in front of the ensemble may depend on D^t and on the query, but not on the secret randomness r, and it must
forget a deleted record completely (the router under T4). A fallback model draws no randomness, and after any sequence
of additions and deletions it answers exactly, bit for bit, as the same model fitted to D^t from scratch. It decides
which queries are easy (`margin`) and answers the others itself (`predict`). Nothing here knows of the ensemble or of r.

A `Fallback` is a recipe; a `FallbackModel` is a recipe fitted to some D^t. Models are immutable: an update returns a
new model that shares storage with the old one, which stays valid, so that a deployment switches rounds all or nothing.
How a model is laid out in memory may depend on its history; what it answers does not. So keep a model in memory and fit
it anew from the records when a deployment is opened; do not store it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.errors import InputError
from expunge.fallback._checks import require_count
from expunge.fallback._rows import Rows, read_rows, read_table, rows_of_records
from expunge.features import Features
from expunge.records import Change, Records

NO_ANSWER = -1  # the code that a model of an empty dataset answers

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """Answers and how easy they were, row by row."""

    codes: Codes
    margins: Floats


class FallbackModel(ABC):
    """A fallback fitted to D^t: immutable, deterministic, and without memory of what was deleted."""

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """How many classes may be answered."""

    @property
    @abstractmethod
    def num_features(self) -> int:
        """How many columns a row has."""

    @property
    @abstractmethod
    def num_records(self) -> int:
        """|D^t|."""

    @abstractmethod
    def _with(self, rows: Rows) -> Self:
        """The model of D^t and these rows, which come after all others in order."""

    @abstractmethod
    def _without(self, rows: Rows) -> Self:
        """The model of D^t without these rows, which are in it."""

    @abstractmethod
    def _assess(self, table: Floats) -> Assessment:
        """Answers to queries, for a dataset that is not empty."""

    def assess(self, X: Features) -> Assessment:
        """Answers and margins in one go; every row's is a function of D^t and that row alone."""
        table = self._checked(read_table(X))
        if self.num_records == 0:
            return Assessment(np.full(len(table), NO_ANSWER, dtype=np.int64), np.zeros(len(table)))
        return self._assess(table)

    def predict(self, X: Features) -> Codes:
        """A class code for every row; `NO_ANSWER` throughout if the dataset is empty."""
        return self.assess(X).codes

    def margin(self, X: Features) -> Floats:
        """How easy every row is, from 0 (undecided) to 1 (easiest)."""
        return self.assess(X).margins

    def add(self, X: Features, y: ArrayLike, slots: ArrayLike) -> Self:
        """The model after these rows were added in slots above all others."""
        rows = read_rows(X, y, slots, num_classes=self.num_classes)
        self._checked(rows.table)
        return self._with(rows) if len(rows) else self

    def delete(self, X: Features, y: ArrayLike, slots: ArrayLike) -> Self:
        """The model after these rows, as they were added, were deleted."""
        rows = read_rows(X, y, slots, num_classes=self.num_classes)
        self._checked(rows.table)
        return self._without(rows) if len(rows) else self

    def updated(self, before: Records, after: Records, change: Change) -> Self:
        """The model of `after`, from the model of `before`, where `after, change = before.apply(batch)`.

        Slot numbers must be those that the model was fitted with: after `Records.compacted`, fit anew.
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
    """A recipe for a model that is a deterministic function of the dataset."""

    @abstractmethod
    def _fit(self, rows: Rows, num_classes: int) -> FallbackModel:
        """The model of these rows."""

    def fit(self, X: Features, y: ArrayLike, *, num_classes: int, slots: ArrayLike | None = None) -> FallbackModel:
        """The model of the given rows and class codes; `slots` orders them (0, 1, … by default)."""
        require_count("num_classes", num_classes)
        return self._fit(read_rows(X, y, slots, num_classes=num_classes), num_classes)

    def fit_records(self, records: Records) -> FallbackModel:
        """The model of a dataset. Records of weight zero count as absent; other weights than 0 and 1 are refused."""
        return self._fit(rows_of_records(records, records.live_slots()), records.num_classes)
