"""Records that do not fit into memory: everything but their features, and where these are read from when needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.core.blocks import Block, FeatureSource, class_list, id_column, object_column
from expunge.core.checks import quoted
from expunge.core.errors import InputError, RecordError
from expunge.core.features import (
    Features,
    as_features,
    cast_like,
    codes_of,
    describe,
    missing_rows,
    plain_form,
    require_exact,
    standard_types,
    take,
)
from expunge.core.index import IdIndex, SubjectIndex
from expunge.core.records import RecordId, Records


@dataclass(frozen=True)
class RecordStream:
    """Records whose features are read some at a time, for `expunge.create` with `records_at`.

    Parameters
    ----------
    features
        Where they are read from. They are read twice: some of them to try the learner, and all of them to be written.
    pattern
        Some rows of them, which tell columns and types.
    labels
        For each record the place of its label in `classes`, or the number to predict.
    classes
        The labels that occur; empty if they are numbers to predict.
    ids, subjects, weights
        As for `expunge.create`.
    """

    features: FeatureSource
    pattern: Features
    labels: NDArray[Any]
    classes: NDArray[Any]
    ids: Sequence[RecordId] | NDArray[Any] | None = None
    subjects: Sequence[RecordId | None] | NDArray[Any] | None = None
    weights: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def records(self, *, classes: ArrayLike | None = None, allow_missing: bool = False) -> Records:
        """The dataset. Features are checked when they are read.

        Parameters
        ----------
        classes
            All labels that may occur; those that do occur if it is None.
        allow_missing
            Whether features may hold NaN or infinity.

        Returns
        -------
        Records
            The dataset.

        Raises
        ------
        InputError
            If a label is not among `classes`, or columns differ in length.
        RecordError
            If an id occurs twice.
        """
        table = standard_types(plain_form(as_features(self.pattern)))
        require_exact(table)
        none = take(table, np.empty(0, dtype=np.intp))
        is_regression = self.labels.dtype.kind == "f"
        known, labels = self.classes, self.labels
        if classes is not None and not is_regression:
            known = class_list(classes)
            codes = codes_of(self.classes, known)
            for label in self.classes[known[codes] != self.classes][:1].tolist():
                raise InputError(f"the label {quoted(label)} is not a known class")
            labels = codes.astype(np.int32)[self.labels]
        size = len(labels)
        ids = None if self.ids is None else id_column(self.ids, size, "ids")
        subjects = None if self.subjects is None else object_column(id_column(self.subjects, size, "subjects"))
        source = _Checked(self.features, none, ids, allow_missing)
        block = Block(0, none, labels, ids, subjects, self.weights, None, source)
        return Records(
            classes=known,
            blocks=(block,),
            index=IdIndex.build(ids, size),
            subjects=SubjectIndex.build(subjects),
            num_live=size,
            num_slots=size,
            allow_missing=allow_missing,
            layout=describe(none),
            has_weights=self.weights is not None,
        )


@dataclass(frozen=True, eq=False)
class _Checked:
    """Features in the types of the first ones, with no gaps unless these are allowed."""

    rows: FeatureSource
    pattern: Features
    ids: NDArray[Any] | None
    allow_missing: bool

    def take(self, rows: NDArray[np.int64]) -> Features:
        """The features of some rows."""
        return self._sound(rows, self.rows.take(rows))

    def runs(self) -> Iterator[tuple[NDArray[np.int64], Features]]:
        """All rows with their features."""
        for rows, features in self.rows.runs():
            yield rows, self._sound(rows, features)

    def _sound(self, rows: NDArray[np.int64], features: Features) -> Features:
        found = plain_form(cast_like(standard_types(plain_form(as_features(features))), self.pattern))
        for row in [] if self.allow_missing else missing_rows(found)[:1]:
            place = int(rows[row])
            record = place if self.ids is None else self.ids[place]
            message = f"the features of record {record!s} hold NaN or infinity, and the records are made without"
            raise RecordError(f"{message} allow_missing", record)
        return found
