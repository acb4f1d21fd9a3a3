"""A fallback for tables with categories and gaps, by the fixed encoding of the learners that unlearn exactly.

Its model is that of `ExactLearner`: a function of the rows alone, whatever came and went. Categories are hashed into a
fixed number of columns, so that no number of them stops an update.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.core.errors import InputError, ParameterError, RecordError
from expunge.core.features import Features, as_features, is_frame, num_rows, take
from expunge.core.records import Change, Records
from expunge.training.fallback import (
    NO_ANSWER,
    Assessment,
    Fallback,
    FallbackModel,
    RidgeFallback,
)
from expunge.training.fallback.protocol import Codes, Floats, Rows
from expunge.training.learners.exact import ExactLearner, ExactModel
from expunge.training.learners.named import column_kinds

_BUCKETS = 512  # hashed categories of one column, at most
_ALL_BUCKETS = 2000  # and of all columns together


@dataclass(frozen=True, kw_only=True)
class TableFallback(Fallback):
    """A fallback for any records: tables of numbers and categories with gaps, or arrays.

    For records that are all numbers, without gaps, it is `kind` itself. Otherwise columns that hold no numbers are
    categories, each hashed into one of 512 columns (fewer where there are more than three such columns), and a gap is
    a value of its own. Which columns hold numbers is read from the types of the table, never from its values.

    Parameters
    ----------
    kind
        `RidgeFallback`, `GaussianNaiveBayes` or `NearestNeighbours`, with its options.
    ignored
        Columns that it does not look at, such as text in words.

    Raises
    ------
    ParameterError
        If `kind` is none of these.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [20.0, None, 60.0, 70.0], "plan": ["a", "a", "b", "b"]})
    >>> model = TableFallback().fit(table, [0, 0, 1, 1], num_classes=2)
    >>> model.predict(table)
    array([0, 0, 1, 1])
    """

    kind: Fallback = field(default_factory=RidgeFallback)
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ExactLearner(self.kind)

    def __str__(self) -> str:
        return type(self.kind).__name__

    def _fit(self, rows: Rows, num_classes: int) -> FallbackModel:
        return self.kind._fit(rows, num_classes)

    def fit(self, X: Features, y: ArrayLike, *, num_classes: int, slots: ArrayLike | None = None) -> FallbackModel:
        """Fit the model of rows and class codes, as `Fallback.fit` does. The slots of tables decide nothing."""
        X = as_features(X)
        if not is_frame(X):
            return self.kind.fit(X, y, num_classes=num_classes, slots=slots)
        return self._made(X, num_classes)._with_rows(X, np.asarray(y))

    def fit_records(self, records: Records) -> FallbackModel:
        """Fit the model of a dataset, as `Fallback.fit_records` does."""
        if not self._has_own_form(records):
            return self.kind.fit_records(records)
        X, codes = read_records(records, records.live_slots())
        return self._made(X, records.num_classes)._with_rows(X, codes)

    def check(self, records: Records) -> None:
        """Refuse records that it cannot learn from, by name."""
        if not self._has_own_form(records):
            self.kind.check(records)
            return
        slots = records.live_slots()
        X, _ = read_records(records, slots)
        learner = self._made(X, records.num_classes).learner
        try:
            learner.table(self.read(X))
        except InputError:
            for place, slot in enumerate(slots):
                try:
                    learner.table(self.read(take(X, [place])))
                except InputError as error:
                    record = records.id_of(int(slot))
                    raise RecordError(f"record {record!r}: {error}", record) from None
            raise

    def read(self, X: Features) -> Features:
        """The columns that it looks at."""
        if not is_frame(X) or not self.ignored:
            return X
        return X[[name for name in X.columns if name not in self.ignored]]

    def _has_own_form(self, records: Records) -> bool:
        """Whether the records are not just numbers: by their types, and by what the schema allows."""
        kinds = column_kinds(records.blocks[0].features)
        return records.allow_missing or any(kind == "category" for kind in (kinds or {}).values())

    def _made(self, pattern: Features, num_classes: int) -> TableFallbackModel:
        kinds = column_kinds(self.read(pattern))
        if kinds == {}:
            raise ParameterError("a fallback needs a column of numbers or categories, and there is none")
        names = tuple(str(name) for name, kind in (kinds or {}).items() if kind == "category")
        buckets = min(_BUCKETS, _ALL_BUCKETS // len(names)) if names else 0
        learner = ExactLearner(self.kind, num_classes, categories=names, has_gaps=True, buckets=buckets)
        return TableFallbackModel(self, learner, int(np.prod(pattern.shape[1:])), None)


def read_records(records: Records, slots: NDArray[np.int64]) -> tuple[Features, Codes]:
    """Features and class codes; records of weight zero are left out, and other weights than 1 are refused."""
    features, codes, weights = records.gather(slots)
    if weights is None:
        return features, codes
    for place in np.flatnonzero((weights != 0) & (weights != 1))[:1]:
        record = records.id_of(int(slots[place]))
        raise RecordError(
            f"record {record!r} has the weight {weights[place]}: an exact model counts every record once", record
        )
    counted = np.flatnonzero(weights)
    return take(features, counted), codes[counted]


@dataclass(frozen=True, eq=False)
class TableFallbackModel(FallbackModel):
    """The exact model of the records of a table. `TableFallback` makes it.

    Parameters
    ----------
    recipe
        What made it.
    learner
        The learner of the exact model.
    width
        The number of columns of a row.
    model
        The exact model; None without records.
    """

    recipe: TableFallback
    learner: ExactLearner
    width: int
    model: ExactModel | None

    @property
    def num_classes(self) -> int:
        """The number of classes, whether or not a record has them."""
        return int(self.learner.num_classes or 0)

    @property
    def num_features(self) -> int:
        """How many columns a row has."""
        return self.width

    @property
    def num_records(self) -> int:
        """|D^t|: how many records the model is fitted to."""
        return 0 if self.model is None else self.model.num_records

    def assess(self, X: Features) -> Assessment:
        """Answer queries and say how easy they were, in one call, as `FallbackModel.assess` does."""
        X = as_features(X)
        if self.model is None or not num_rows(X):
            return Assessment(np.full(num_rows(X), NO_ANSWER, dtype=np.int64), np.zeros(num_rows(X)))
        return self.model.assess(self.recipe.read(X))

    def add(self, X: Features, y: ArrayLike, slots: ArrayLike) -> Self:
        """The model after rows are added. The slots decide nothing."""
        return self._with_rows(as_features(X), np.asarray(y))

    def delete(self, X: Features, y: ArrayLike, slots: ArrayLike) -> Self:
        """The model after rows are deleted. The slots decide nothing."""
        return self._without_rows(as_features(X), np.asarray(y))

    def updated(self, before: Records, after: Records, change: Change) -> Self:
        """The model of `after`, made from this model of `before`, as `FallbackModel.updated` does."""
        left = self._without_rows(*read_records(before, change.removed))
        return left._with_rows(*read_records(after, np.arange(change.added.start, change.added.stop)))

    def _with_rows(self, X: Features, y: Codes) -> Self:
        if not num_rows(X):
            return self
        rows = self.learner.read(self.recipe.read(X), y)
        made = self.learner.model.of(self.learner, rows, self.num_classes) if self.model is None else None
        return replace(self, model=made if self.model is None else self.model.with_rows(rows))

    def _without_rows(self, X: Features, y: Codes) -> Self:
        if not num_rows(X):
            return self
        if self.num_records < num_rows(X):
            raise InputError("the rows to delete are not in the dataset")
        if self.model is None or self.num_records == num_rows(X):
            return replace(self, model=None)
        return replace(self, model=self.model.without(self.learner.read(self.recipe.read(X), y)))

    def _with(self, rows: Rows) -> Self:
        return self._with_rows(rows.table, rows.codes.astype(np.int64))

    def _without(self, rows: Rows) -> Self:
        return self._without_rows(rows.table, rows.codes.astype(np.int64))

    def _assess(self, table: Floats) -> Assessment:
        return self.assess(table)
