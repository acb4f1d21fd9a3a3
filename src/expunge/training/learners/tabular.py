"""Models behind the preprocessing of a table vote on rows that are coded once, and not once a shard.

For linear models a shard's preprocessing is linear in the common coding, so it goes into the weights, and all shards
vote in one matrix product. Any other classifier is handed the rows that its own pipeline would make, in 64 bits.

What the shards' pipelines make of a table's rows, read off them, so that rows are coded once and not once a shard.

Every shard fills gaps with its own medians, scales by its own deviations and knows its own categories. The common
coding of a row is its numbers, where they are missing, and the place of each of its categories among all that some
shard knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from expunge.core.features import Features, is_frame, is_sparse, match_codes, num_rows, take
from expunge.training.learners.linear import LinearScores, LinearVote, LinearVoter, linear_scores, scaler_factors
from expunge.training.learners.named import AsText
from expunge.training.learners.protocol import ABSTAIN, Codes, Voter, count_votes

Floats = NDArray[np.float64]

_ROWS_AT_ONCE = 1 << 13
_PARTS = [["numbers"], ["categories"], ["numbers", "categories"]]
_UNKNOWN = -1


@dataclass(frozen=True)
class Layout:
    """Which columns are numbers, by name (None: all of them), and which are categories."""

    num_numbers: int
    numbers: tuple[str, ...] | None
    categories: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Preparation:
    """One shard's preprocessing: numbers filled, then scaled, then a column for every category that it knows."""

    layout: Layout
    fill: Floats
    scalers: tuple[StandardScaler, ...]
    texts: tuple[tuple[str, ...], ...]
    is_sparse: bool

    @classmethod
    def of(cls, steps: Sequence[Any]) -> Self | None:
        """Read off the fitted steps in front of a classifier; None if they do anything else."""
        if not steps:
            return None
        if type(steps[0]) is ColumnTransformer:
            return cls._of_columns(steps[0]) if len(steps) == 1 else None
        found = _numbers_of(steps)
        return None if found is None else cls(Layout(len(found[0]), None, ()), *found, (), is_sparse=False)

    @classmethod
    def _of_columns(cls, table: ColumnTransformer) -> Self | None:
        """A transformer of numbers and categories, as the named learners have it."""
        parts = {name: (_steps(step), tuple(of)) for name, step, of in table.transformers_ if name != "remainder"}
        if [*parts] not in _PARTS or table.remainder != "drop" or table.transformer_weights:
            return None
        filling, names = parts.get("numbers", ([], ()))
        encoding, categories = parts.get("categories", ([], ()))
        numbers = _numbers_of(filling) if names else (np.empty(0), ())
        texts = _texts_of(encoding) if categories else ()
        if numbers is None or texts is None or len(numbers[0]) != len(names):
            return None
        return cls(Layout(len(names), names, categories), *numbers, texts, is_sparse=bool(table.sparse_output_))


class Coded(NamedTuple):
    """Rows in the common coding; a category that no shard knows is at -1.

    A pipeline fails on the rows that are not `sane`, with an infinite number or none at all where one is due. That must
    not become an error: whether shards vote in this way at all depends on what they hold.
    """

    numbers: Floats
    gaps: NDArray[np.bool_]
    places: NDArray[np.int64]
    sane: NDArray[np.bool_]

    def single_rows(self) -> list[Coded]:
        """Every row by itself."""
        rows = [slice(at, at + 1) for at in range(len(self.numbers))]
        return [Coded(self.numbers[row], self.gaps[row], self.places[row], self.sane[row]) for row in rows]


@dataclass(frozen=True, eq=False)
class Coder:
    """The common coding of several preparations of one layout."""

    layout: Layout
    vocabulary: tuple[dict[str, int], ...]

    @classmethod
    def of(cls, preparations: Sequence[Preparation]) -> Self | None:
        """None if they are not of one layout."""
        if len({each.layout for each in preparations}) != 1:
            return None
        layout = preparations[0].layout
        columns = [{text for each in preparations for text in each.texts[at]} for at in range(len(layout.categories))]
        return cls(layout, tuple({text: at for at, text in enumerate(sorted(column))} for column in columns))

    @property
    def num_categories(self) -> int:
        """In all columns together."""
        return sum(map(len, self.vocabulary))

    def chunks(self, X: Features) -> Iterator[Coded]:
        """The rows, many at a time."""
        for first in range(0, max(1, num_rows(X)), _ROWS_AT_ONCE):
            yield self.code(take(X, np.arange(first, min(first + _ROWS_AT_ONCE, num_rows(X)))))

    def code(self, rows: Features) -> Coded:
        """These rows."""
        numbers, sane = self._numbers(rows)
        names = list(self.layout.categories)
        texts = AsText().transform(rows[names]) if names else np.empty((num_rows(rows), 0), dtype=object)
        places = np.empty(texts.shape, dtype=np.int64)
        for column, known in enumerate(self.vocabulary):
            places[:, column] = [known.get(text, _UNKNOWN) for text in texts[:, column]]
        return Coded(numbers, np.isnan(numbers), places, sane)

    def _numbers(self, rows: Features) -> tuple[Floats, NDArray[np.bool_]]:
        """The numbers, zeros in the rows that are not sane, and which rows are."""
        try:
            table = self._floats(rows)
        except (TypeError, ValueError):
            if num_rows(rows) == 1:
                return np.zeros((1, self.layout.num_numbers)), np.zeros(1, dtype=np.bool_)
            single = [self._numbers(take(rows, np.array([row]))) for row in range(num_rows(rows))]
            return np.concatenate([numbers for numbers, _ in single]), np.concatenate([sane for _, sane in single])
        sane = np.asarray(~np.isinf(table).any(axis=1))
        return table if sane.all() else np.where(sane[:, np.newaxis], table, 0.0), sane

    def _floats(self, rows: Features) -> Floats:
        if not is_frame(rows):
            return np.asarray(rows, dtype=np.float64)
        columns = rows if self.layout.numbers is None else rows[list(self.layout.numbers)]
        table: Floats = columns.to_numpy(dtype=np.float64, na_value=np.nan)
        return table

    def marks(self, coded: Coded) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Which row has which category, counted through all columns."""
        starts = np.cumsum([0, *(len(known) for known in self.vocabulary)])[:-1]
        row, column = np.nonzero(coded.places != _UNKNOWN)
        return row, coded.places[row, column] + starts[column]

    def prepare(self, preparation: Preparation) -> Prepared:
        """What makes one shard's rows out of coded ones."""
        own: list[NDArray[np.int64]] = []
        start = preparation.layout.num_numbers
        for known, texts in zip(self.vocabulary, preparation.texts, strict=True):
            places = np.full(len(known) + 1, _UNKNOWN, dtype=np.int64)  # the last for what nobody knows
            places[[known[text] for text in texts]] = np.arange(start, start + len(texts))
            start += len(texts)
            own.append(places)
        return Prepared(preparation, tuple(own), start)


class Prepared(NamedTuple):
    """One shard's preparation, and where the common categories are among its own columns."""

    preparation: Preparation
    columns: tuple[NDArray[np.int64], ...]
    width: int

    def rows(self, coded: Coded) -> Any:
        """What the shard's own pipeline would hand to its classifier, in 64 bits."""
        numbers = np.where(coded.gaps, self.preparation.fill, coded.numbers)
        for scaler in self.preparation.scalers:
            if scaler.with_mean:
                numbers -= scaler.mean_
            if scaler.with_std:
                numbers /= scaler.scale_
        if not self.columns:
            return numbers
        own = np.stack([places[coded.places[:, at]] for at, places in enumerate(self.columns)], axis=1)
        row, column = np.nonzero(own != _UNKNOWN)
        place = own[row, column]
        shape = (len(numbers), self.width)
        if not self.preparation.is_sparse:
            table = np.zeros(shape)
            table[:, : numbers.shape[1]] = numbers
            table[row, place] = 1.0
            return table
        start = numbers.shape[1]
        marks = scipy.sparse.csr_matrix(
            (np.ones(len(row)), (row, place - start)), shape=(len(numbers), shape[1] - start)
        )
        return scipy.sparse.hstack([scipy.sparse.csr_matrix(numbers), marks], format="csr")


def _steps(step: Any) -> list[Any]:
    return [each for _, each in step.steps] if isinstance(step, Pipeline) else [step]


def _numbers_of(steps: Sequence[Any]) -> tuple[Floats, tuple[StandardScaler, ...]] | None:
    """What gaps are filled with, and the scalers behind that."""
    filler, *scalers = steps
    if type(filler) is not SimpleImputer or filler.add_indicator or not _is_nan(filler.missing_values):
        return None
    fill = np.asarray(filler.statistics_)
    if fill.dtype.kind != "f" or np.isnan(fill).any():
        return None  # columns without any value are dropped
    return None if any(type(scaler) is not StandardScaler for scaler in scalers) else (fill, tuple(scalers))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and bool(np.isnan(value))


def _texts_of(steps: Sequence[Any]) -> tuple[tuple[str, ...], ...] | None:
    """The categories that a shard knows, column by column."""
    if [type(step) for step in steps] != [AsText, OneHotEncoder]:
        return None
    encoder = steps[1]
    is_plain = encoder.handle_unknown == "ignore" and encoder.drop_idx_ is None and encoder.dtype == np.float64
    if not is_plain or getattr(encoder, "_infrequent_enabled", False):
        return None
    return tuple(tuple(column.tolist()) for column in encoder.categories_)


_MOST_WEIGHTS = 1 << 24  # of all shards and classes together; with more categories than that, no common product
_DENSE = 256  # columns up to which a coded row is an ordinary array

Shard = tuple[Preparation, Any] | int | None  # with a fitted classifier behind it; a constant class code; ⊥


def table_voter(shards: Sequence[Any], classes: NDArray[Any] | None, num_classes: int, single: Voter) -> Voter | None:
    """A voter for fitted pipelines, constant class codes and Nones (⊥); None where something else is among them.

    Rows of a sparse matrix, which may be very wide, are left to `single`.
    """
    found = [_split(shard) if isinstance(shard, Pipeline) else shard for shard in shards]
    if not all(shard is None or isinstance(shard, int | tuple) for shard in found):
        return None
    coder = Coder.of([shard[0] for shard in found if isinstance(shard, tuple)])
    if coder is None:
        return None
    linear = _linear_voter(found, coder, classes, num_classes, single)
    return linear or PreparedVoter(found, coder, classes, num_classes, single)


def _split(pipeline: Pipeline) -> tuple[Preparation, Any] | Pipeline:
    *before, classifier = [step for _, step in pipeline.steps if step not in (None, "passthrough")]
    preparation = Preparation.of(before)
    return pipeline if preparation is None else (preparation, classifier)


class PreparedVoter:
    """Every shard's classifier is asked about its own rows, one after another."""

    def __init__(
        self, shards: Sequence[Shard], coder: Coder, classes: NDArray[Any] | None, num_classes: int, single: Voter
    ) -> None:
        self._single = single
        self._coder = coder
        self._classes = classes
        self._num_classes = num_classes
        self._shards = [(coder.prepare(shard[0]), shard[1]) if isinstance(shard, tuple) else shard for shard in shards]

    def count(self, X: Features) -> NDArray[np.int64]:
        """Votes for each class."""
        return count_votes(self.votes(X), self._num_classes)

    def votes(self, X: Features) -> Codes:
        """Every shard's vote."""
        if is_sparse(X):
            return self._single.votes(X)
        table = np.full((num_rows(X), len(self._shards)), ABSTAIN, dtype=np.int32)
        first = 0
        for coded in self._coder.chunks(X):
            last = first + len(coded.numbers)
            for at, shard in enumerate(self._shards):
                if isinstance(shard, int):
                    table[first:last, at] = shard
                elif shard is not None and last > first:
                    table[first:last, at] = np.where(coded.sane, self._ask(*shard, coded), ABSTAIN)
            first = last
        return table

    def _ask(self, prepared: Prepared, classifier: Any, coded: Coded) -> Codes:
        """The classifier's votes; ⊥ on every row on which it fails, as for any other learner."""
        try:
            labels = classifier.predict(prepared.rows(coded))
        except Exception:
            if len(coded.numbers) == 1:
                return np.full(1, ABSTAIN)
            return np.concatenate([self._ask(prepared, classifier, row) for row in coded.single_rows()])
        if self._classes is None:
            return np.asarray(labels)
        return match_codes(labels, classifier.classes_, self._classes)


class TableVoter:
    """All shards' scores in one product; `is_fixed` says which of them vote the same whatever they are asked."""

    def __init__(
        self, coder: Coder, voter: LinearVoter, is_fixed: NDArray[np.bool_], num_classes: int, single: Voter
    ) -> None:
        self._single = single
        self._coder = coder
        self._voter = voter
        self._is_fixed = is_fixed
        self._num_classes = num_classes

    def count(self, X: Features) -> NDArray[np.int64]:
        """Votes for each class."""
        if is_sparse(X):
            return self._single.count(X)
        return np.concatenate([self._count(coded) for coded in self._coder.chunks(X)])

    def _count(self, coded: Coded) -> NDArray[np.int64]:
        if coded.sane.all():
            return self._voter.count(self._wide(coded))
        return count_votes(self._votes(coded), self._num_classes)

    def votes(self, X: Features) -> Codes:
        """Every shard's vote."""
        if is_sparse(X):
            return self._single.votes(X)
        return np.concatenate([self._votes(coded) for coded in self._coder.chunks(X)])

    def _votes(self, coded: Coded) -> Codes:
        votes = self._voter.votes(self._wide(coded))
        return np.where(coded.sane[:, np.newaxis] | self._is_fixed, votes, ABSTAIN)

    def _wide(self, coded: Coded) -> Any:
        """Numbers, gaps, and a column for every category."""
        numbers = np.concatenate([np.where(coded.gaps, 0.0, coded.numbers), coded.gaps], axis=1)
        row, place = self._coder.marks(coded)
        shape = (len(numbers), self._coder.num_categories)
        if numbers.shape[1] + shape[1] <= _DENSE:
            marks = np.zeros(shape)
            marks[row, place] = 1.0
            return np.concatenate([numbers, marks], axis=1)
        sparse = scipy.sparse.csr_array((np.ones(len(row)), (row, place)), shape=shape)
        return scipy.sparse.hstack([scipy.sparse.csr_array(numbers), sparse], format="csr")


def _linear_voter(
    shards: Sequence[Shard], coder: Coder, classes: NDArray[Any] | None, num_classes: int, single: Voter
) -> TableVoter | None:
    """None where a classifier is not linear, or the weights would be too many."""
    width = 2 * coder.layout.num_numbers + coder.num_categories
    if width * len(shards) * num_classes > _MOST_WEIGHTS:
        return None
    votes: list[LinearVote] = []
    for shard in shards:
        if not isinstance(shard, tuple):
            votes.append(shard)
            continue
        scores = linear_scores(shard[1], classes)
        if scores is None:
            return None
        votes.append(_folded(shard[0], scores, coder))
    is_fixed = np.array([not isinstance(shard, tuple) for shard in shards])
    return TableVoter(coder, LinearVoter(votes, num_classes, width), is_fixed, num_classes, single)


def _folded(preparation: Preparation, scores: LinearScores, coder: Coder) -> LinearScores:
    """The scores as a linear function of the common coding."""
    weights, intercepts, codes = scores
    size = preparation.layout.num_numbers
    numbers, marks = weights[:, :size], weights[:, size:]
    for scaler in reversed(preparation.scalers):
        factors = scaler_factors(scaler)
        assert factors is not None
        scale, shift = factors
        intercepts = intercepts + numbers @ shift
        numbers = numbers * scale
    parts, start = [numbers, numbers * preparation.fill], 0
    for known, texts in zip(coder.vocabulary, preparation.texts, strict=True):
        spread = np.zeros((len(weights), len(known)))  # a category that the shard does not know weighs nothing
        spread[:, [known[text] for text in texts]] = marks[:, start : start + len(texts)]
        start += len(texts)
        parts.append(spread)
    return np.concatenate(parts, axis=1), intercepts, codes
