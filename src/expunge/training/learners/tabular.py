"""The votes of pipelines that preprocess a table: a row is coded once for all shards, and not once per shard.

Every shard fills gaps with its own medians, scales by its own deviations and knows its own categories. The common
coding of a row holds its numbers, which of them are missing, and the place of each of its categories in a vocabulary of
all shards. What each shard's pipeline makes of a coded row is read from the fitted pipeline.

For linear models a shard's preprocessing is linear in the common coding. So it goes into the weights, and all shards
vote in one matrix product. Any other classifier gets the rows that its own pipeline would make, in 64 bits. Decision
trees are walked together when few rows are asked about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from expunge.core.features import Features, codes_of, is_frame, is_sparse, num_rows, take
from expunge.training.learners.linear import (
    LinearScores,
    LinearVote,
    LinearVoter,
    common_link,
    linear_scores,
    scaler_factors,
)
from expunge.training.learners.named import AsText, ZerosForNothing
from expunge.training.learners.protocol import ABSTAIN, Codes, Voter, count_votes
from expunge.training.learners.scikit import ScikitModel
from expunge.training.learners.trees import Trees

Floats = NDArray[np.float64]

_ROWS_AT_ONCE = 1 << 13
_FEW_ROWS = 16  # up to so many it is faster to walk all trees together
_PARTS = [["numbers"], ["categories"], ["numbers", "categories"]]
_UNKNOWN = -1


@dataclass(frozen=True)
class Layout:
    """Which columns are numbers, by name (None: all columns), and which are categories."""

    num_numbers: int
    numbers: tuple[str, ...] | None
    categories: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """One shard's preprocessing: fill and scale the numbers, then add a column for every category that it knows."""

    layout: Layout
    fill: Floats
    scalers: tuple[StandardScaler, ...]
    texts: tuple[tuple[str, ...], ...]
    is_sparse: bool

    @classmethod
    def of(cls, steps: Sequence[Any]) -> Self | None:
        """Read it from the fitted steps in front of a classifier; None if they do anything else."""
        if not steps:
            return None
        if type(steps[0]) is ColumnTransformer:
            return cls._of_columns(steps[0]) if len(steps) == 1 else None
        found = _read_number_steps(steps)
        return None if found is None else cls(Layout(len(found[0]), None, ()), *found, (), is_sparse=False)

    @classmethod
    def _of_columns(cls, table: ColumnTransformer) -> Self | None:
        """Read it from a transformer of numbers and categories, such as the named learners have."""
        parts = {name: (_steps(step), tuple(of)) for name, step, of in table.transformers_ if name != "remainder"}
        if [*parts] not in _PARTS or table.remainder != "drop" or table.transformer_weights:
            return None
        filling, names = parts.get("numbers", ([], ()))
        encoding, categories = parts.get("categories", ([], ()))
        numbers = _read_number_steps(filling) if names else (np.empty(0), ())
        texts = _read_category_steps(encoding) if categories else ()
        if numbers is None or texts is None or len(numbers[0]) != len(names):
            return None
        return cls(Layout(len(names), names, categories), *numbers, texts, is_sparse=bool(table.sparse_output_))


class CodedRows(NamedTuple):
    """Rows in the common coding; a category that no shard knows has the place -1.

    A row is not valid if it has an infinite number, or a value that is no number where one is needed. A pipeline fails
    on such a row. That must not become an error here: whether shards vote in this way depends on what they hold.
    """

    numbers: Floats
    gaps: NDArray[np.bool_]
    places: NDArray[np.int64]
    is_valid: NDArray[np.bool_]

    def single_rows(self) -> list[CodedRows]:
        """Each row as a table of its own."""
        rows = [slice(at, at + 1) for at in range(len(self.numbers))]
        return [CodedRows(self.numbers[row], self.gaps[row], self.places[row], self.is_valid[row]) for row in rows]


@dataclass(frozen=True, eq=False)
class RowCoder:
    """The common coding for the preprocessing of several shards, which have one layout."""

    layout: Layout
    vocabulary: tuple[dict[str, int], ...]

    @classmethod
    def of(cls, shards: Sequence[Preprocessing]) -> Self | None:
        """The coder of these shards; None if their layouts differ."""
        if len({each.layout for each in shards}) != 1:
            return None
        layout = shards[0].layout
        columns = [{text for each in shards for text in each.texts[at]} for at in range(len(layout.categories))]
        return cls(layout, tuple({text: at for at, text in enumerate(sorted(column))} for column in columns))

    @property
    def num_categories(self) -> int:
        """The number of categories of all columns together."""
        return sum(map(len, self.vocabulary))

    def chunks(self, X: Features) -> Iterator[CodedRows]:
        """Code the rows, many at a time."""
        for first in range(0, max(1, num_rows(X)), _ROWS_AT_ONCE):
            yield self.code(take(X, np.arange(first, min(first + _ROWS_AT_ONCE, num_rows(X)))))

    def code(self, rows: Features) -> CodedRows:
        """Code these rows."""
        numbers, is_valid = self._numbers(rows)
        names = list(self.layout.categories)
        texts = AsText().transform(rows[names]) if names else np.empty((num_rows(rows), 0), dtype=object)
        places = np.empty(texts.shape, dtype=np.int64)
        for column, known in enumerate(self.vocabulary):
            places[:, column] = [known.get(text, _UNKNOWN) for text in texts[:, column]]
        return CodedRows(numbers, np.isnan(numbers), places, is_valid)

    def _numbers(self, rows: Features) -> tuple[Floats, NDArray[np.bool_]]:
        """The numbers, with zeros in the rows that are not valid, and which rows are valid."""
        try:
            table = self._floats(rows)
        except (TypeError, ValueError):
            if num_rows(rows) == 1:
                return np.zeros((1, self.layout.num_numbers)), np.zeros(1, dtype=np.bool_)
            single = [self._numbers(take(rows, np.array([row]))) for row in range(num_rows(rows))]
            return np.concatenate([numbers for numbers, _ in single]), np.concatenate([ok for _, ok in single])
        is_valid = np.asarray(~np.isinf(table).any(axis=1))
        return table if is_valid.all() else np.where(is_valid[:, np.newaxis], table, 0.0), is_valid

    def _floats(self, rows: Features) -> Floats:
        if not is_frame(rows):
            return np.asarray(rows, dtype=np.float64)
        columns = rows if self.layout.numbers is None else rows[list(self.layout.numbers)]
        table: Floats = columns.to_numpy(dtype=np.float64, na_value=np.nan)
        return table

    def known_categories(self, coded: CodedRows) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """The pairs (row, category); categories are numbered through all columns."""
        starts = np.cumsum([0, *(len(known) for known in self.vocabulary)])[:-1]
        row, column = np.nonzero(coded.places != _UNKNOWN)
        return row, coded.places[row, column] + starts[column]

    def columns_of(self, preprocessing: Preprocessing) -> ShardColumns:
        """What is needed to turn coded rows into the rows of one shard."""
        own: list[NDArray[np.int64]] = []
        start = preprocessing.layout.num_numbers
        for known, texts in zip(self.vocabulary, preprocessing.texts, strict=True):
            places = np.full(len(known) + 1, _UNKNOWN, dtype=np.int64)  # the last one for an unknown category
            places[[known[text] for text in texts]] = np.arange(start, start + len(texts))
            start += len(texts)
            own.append(places)
        return ShardColumns(preprocessing, tuple(own), start)


class ShardColumns(NamedTuple):
    """One shard's preprocessing, and the place of each common category among the shard's own columns."""

    preprocessing: Preprocessing
    columns: tuple[NDArray[np.int64], ...]
    width: int

    def rows(self, coded: CodedRows) -> Any:
        """The rows that the shard's own pipeline would give to its classifier, in 64 bits."""
        numbers = np.where(coded.gaps, self.preprocessing.fill, coded.numbers)
        for scaler in self.preprocessing.scalers:
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
        if not self.preprocessing.is_sparse:
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


def _read_number_steps(steps: Sequence[Any]) -> tuple[Floats, tuple[StandardScaler, ...]] | None:
    """The numbers that fill gaps, NaN where they stay, and the scalers that follow."""
    filler, *scalers = steps
    if type(filler) is ZerosForNothing and not scalers:
        return np.where(filler.empty_, 0.0, np.nan), ()
    if type(filler) is not SimpleImputer or filler.add_indicator or not _is_nan(filler.missing_values):
        return None
    fill = np.asarray(filler.statistics_)
    if fill.dtype.kind != "f" or np.isnan(fill).any():
        return None  # the imputer drops columns without any value
    return None if any(type(scaler) is not StandardScaler for scaler in scalers) else (fill, tuple(scalers))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and bool(np.isnan(value))


def _read_category_steps(steps: Sequence[Any]) -> tuple[tuple[str, ...], ...] | None:
    """The categories that a shard knows, for each column."""
    if [type(step) for step in steps] != [AsText, OneHotEncoder]:
        return None
    encoder = steps[1]
    is_plain = encoder.handle_unknown == "ignore" and encoder.drop_idx_ is None and encoder.dtype == np.float64
    if not is_plain or getattr(encoder, "_infrequent_enabled", False):
        return None
    return tuple(tuple(column.tolist()) for column in encoder.categories_)


_MOST_WEIGHTS = 1 << 24  # of all shards and classes together; beyond this there is no common product
_DENSE = 256  # up to so many columns a coded row is a dense array

Shard = tuple[Preprocessing, Any] | int | None  # preprocessing and a fitted classifier; a constant class code; ⊥


def table_voter(shards: Sequence[Any], classes: NDArray[Any] | None, num_classes: int, single: Voter) -> Voter | None:
    """A voter for fitted pipelines, constant class codes and Nones (⊥); None if anything else is among the shards.

    Rows of a sparse matrix may be very wide, so `single` votes on them.
    """
    found = [_read_pipeline(shard) if isinstance(shard, Pipeline) else shard for shard in shards]
    if not all(shard is None or isinstance(shard, int | tuple) for shard in found):
        return None
    coder = RowCoder.of([shard[0] for shard in found if isinstance(shard, tuple)])
    if coder is None:
        return None
    linear = _linear_voter(found, coder, classes, num_classes, single)
    return linear or PerShardVoter(found, coder, classes, num_classes, single)


def _read_pipeline(pipeline: Pipeline) -> tuple[Preprocessing, Any] | Pipeline:
    *before, classifier = [step for _, step in pipeline.steps if step not in (None, "passthrough")]
    preprocessing = Preprocessing.of(before)
    return pipeline if preprocessing is None else (preprocessing, classifier)


class TableTrees:
    """The decision trees of shards, for coded rows: which leaves they reach, and what the leaves say.

    Parameters
    ----------
    shards
        The columns and the classifier of each shard.
    coder
        The common coding.
    classes
        The labels that class codes stand for; None if the trees were trained on the codes.
    num_classes
        The number of classes.
    """

    def __init__(
        self,
        shards: Sequence[tuple[ShardColumns, Any]],
        coder: RowCoder,
        classes: NDArray[Any] | None,
        num_classes: int,
    ) -> None:
        self._coder = coder
        self._fill = np.stack([columns.preprocessing.fill for columns, _ in shards])
        self._scalers = list(zip(*(columns.preprocessing.scalers for columns, _ in shards), strict=True))
        size = max(1, coder.layout.num_numbers)
        fitted = [classifier for _, classifier in shards]
        own = [_common_places(columns, size) for columns, _ in shards]
        self._trees = Trees.join([classifier.tree_ for classifier in fitted], own, size)
        tables = [classifier.tree_.value[:, 0, : classifier.n_classes_] for classifier in fitted]
        self._votes: Codes = np.concatenate(
            [
                _as_codes(classifier.classes_.take(np.argmax(table, axis=1)), classes)
                for classifier, table in zip(fitted, tables, strict=True)
            ]
        )
        self._tables = np.concatenate(
            [
                ScikitModel(classifier, classes).spread(table, num_classes)
                for classifier, table in zip(fitted, tables, strict=True)
            ]
        )

    @classmethod
    def of(
        cls,
        shards: Sequence[tuple[ShardColumns, Any]],
        coder: RowCoder,
        classes: NDArray[Any] | None,
        num_classes: int,
    ) -> Self | None:
        """The trees of these shards; None if a classifier is something else, or their scalers are of several kinds."""
        if not shards or not all(
            type(fitted) is DecisionTreeClassifier and fitted.n_outputs_ == 1 for _, fitted in shards
        ):
            return None
        scalers = {
            tuple((each.with_mean, each.with_std) for each in columns.preprocessing.scalers) for columns, _ in shards
        }
        return cls(shards, coder, classes, num_classes) if len(scalers) == 1 else None

    def leaves(self, coded: CodedRows) -> NDArray[np.int64] | None:
        """The leaf of every row in every tree; None if a tree would refuse a row, or has its own way with a gap."""
        numbers = np.where(coded.gaps[:, np.newaxis], self._fill, coded.numbers[:, np.newaxis])
        for scalers in self._scalers:
            if scalers[0].with_mean:
                numbers -= np.stack([scaler.mean_ for scaler in scalers])
            if scalers[0].with_std:
                numbers /= np.stack([scaler.scale_ for scaler in scalers])
        with np.errstate(over="ignore"):
            own = numbers.astype(np.float32) if numbers.shape[2] else np.zeros((*numbers.shape[:2], 1), np.float32)
        if not np.isfinite(own).all():
            return None
        marks = np.zeros((len(own), max(1, self._coder.num_categories)), dtype=np.float32)
        marks[self._coder.known_categories(coded)] = 1.0
        return self._trees.leaves(own, marks)

    def votes(self, leaves: NDArray[np.int64]) -> Codes:
        """The votes at these leaves."""
        return self._votes[leaves]

    def probabilities(self, leaves: NDArray[np.int64]) -> Floats:
        """The probabilities at these leaves, by class code."""
        return self._tables[leaves]


def _common_places(columns: ShardColumns, num_numbers: int) -> NDArray[np.int64]:
    """For each column of a shard its place in the common coding: numbers first, then all categories."""
    own = columns.preprocessing.layout.num_numbers
    places = np.arange(max(1, columns.width))
    start = num_numbers
    for known in columns.columns:
        has_one = known[:-1] != _UNKNOWN
        places[known[:-1][has_one]] = start + np.flatnonzero(has_one)
        start += len(known) - 1
    assert own <= num_numbers
    return places


def _as_codes(labels: NDArray[Any], classes: NDArray[Any] | None) -> Codes:
    return np.asarray(labels) if classes is None else codes_of(labels, classes)


class PerShardVoter:
    """Asks the classifiers of the shards one after another, each about the rows as its own pipeline would make them."""

    def __init__(
        self, shards: Sequence[Shard], coder: RowCoder, classes: NDArray[Any] | None, num_classes: int, single: Voter
    ) -> None:
        self._single = single
        self._coder = coder
        self._classes = classes
        self._num_classes = num_classes
        self._shards = [
            (coder.columns_of(shard[0]), shard[1]) if isinstance(shard, tuple) else shard for shard in shards
        ]

    @cached_property
    def _is_fitted(self) -> NDArray[np.bool_]:
        return np.array([isinstance(shard, tuple) for shard in self._shards])

    @cached_property
    def _trees(self) -> TableTrees | None:
        """The classifiers, if all of them are trees."""
        fitted = [shard for shard in self._shards if isinstance(shard, tuple)]
        return TableTrees.of(fitted, self._coder, self._classes, self._num_classes)

    def _leaves(self, coded: CodedRows) -> NDArray[np.int64] | None:
        """The leaves of a few rows in the trees of all shards; None if the shards are to be asked one by one."""
        if len(coded.numbers) > _FEW_ROWS or not coded.is_valid.all() or self._trees is None:
            return None
        return self._trees.leaves(coded)

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
            leaves = self._leaves(coded)
            if leaves is not None and self._trees is not None:
                table[first:last, self._is_fitted] = self._trees.votes(leaves)
            for at, shard in enumerate(self._shards):
                if isinstance(shard, int):
                    table[first:last, at] = shard
                elif shard is not None and last > first and leaves is None:
                    table[first:last, at] = np.where(coded.is_valid, self._ask(*shard, coded), ABSTAIN)
            first = last
        return table

    def _ask(self, columns: ShardColumns, classifier: Any, coded: CodedRows) -> Codes:
        """The classifier's votes; ⊥ on every row on which it fails, as with any other learner."""
        try:
            labels = classifier.predict(columns.rows(coded))
        except Exception:
            if len(coded.numbers) == 1:
                return np.full(1, ABSTAIN)
            return np.concatenate([self._ask(columns, classifier, row) for row in coded.single_rows()])
        return _as_codes(labels, self._classes)

    def mean_probabilities(self, X: Features) -> Floats | None:
        """The mean of the shards' probabilities; None if a classifier has none."""
        fitted = [shard[1] for shard in self._shards if isinstance(shard, tuple)]
        if is_sparse(X) or not all(hasattr(classifier, "predict_proba") for classifier in fitted):
            return None
        return np.concatenate([self._mean_probabilities(coded) for coded in self._coder.chunks(X)])

    def _mean_probabilities(self, coded: CodedRows) -> Floats:
        total, count = np.zeros((len(coded.numbers), self._num_classes)), np.zeros(len(coded.numbers))
        leaves = self._leaves(coded)
        if leaves is not None and self._trees is not None:
            found = iter(np.moveaxis(self._trees.probabilities(leaves), 1, 0))
        for shard in self._shards:  # in their order: a sum depends on it
            if isinstance(shard, int):
                total[:, shard] += 1.0
                count += 1
            elif shard is not None and leaves is not None:
                total += next(found)
                count += 1
            elif shard is not None and len(total):
                table = self._probabilities(*shard, coded)
                has_one = coded.is_valid & ~np.isnan(table).any(axis=1)
                total[has_one] += table[has_one]
                count += has_one
        with np.errstate(invalid="ignore"):
            return np.asarray(total / count[:, np.newaxis])

    def _probabilities(self, columns: ShardColumns, classifier: Any, coded: CodedRows) -> Floats:
        """The classifier's probabilities; NaN on every row on which it fails, as it votes ⊥ there."""
        try:
            found = classifier.predict_proba(columns.rows(coded))
        except Exception:
            if len(coded.numbers) == 1:
                return np.full((1, self._num_classes), np.nan)
            return np.concatenate([self._probabilities(columns, classifier, row) for row in coded.single_rows()])
        return ScikitModel(classifier, self._classes).spread(found, self._num_classes)


class TableVoter:
    """Computes the scores of all shards in one product; shards that are `is_fixed` give every row the same vote."""

    def __init__(
        self, coder: RowCoder, voter: LinearVoter, is_fixed: NDArray[np.bool_], num_classes: int, single: Voter
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

    def _count(self, coded: CodedRows) -> NDArray[np.int64]:
        if coded.is_valid.all():
            return self._voter.count(self._wide(coded))
        return count_votes(self._votes(coded), self._num_classes)

    def votes(self, X: Features) -> Codes:
        """Every shard's vote."""
        if is_sparse(X):
            return self._single.votes(X)
        return np.concatenate([self._votes(coded) for coded in self._coder.chunks(X)])

    def _votes(self, coded: CodedRows) -> Codes:
        votes = self._voter.votes(self._wide(coded))
        return np.where(coded.is_valid[:, np.newaxis] | self._is_fixed, votes, ABSTAIN)

    def mean_probabilities(self, X: Features) -> Floats | None:
        """The mean of the shards' probabilities; None if the models have none."""
        if is_sparse(X):
            return None
        parts = [
            self._voter.mean_probabilities(self._wide(coded), is_valid=coded.is_valid, is_fixed=self._is_fixed)
            for coded in self._coder.chunks(X)
        ]
        return None if parts[0] is None else np.concatenate([part for part in parts if part is not None])

    def _wide(self, coded: CodedRows) -> Any:
        """Coded rows as one table: numbers, gaps, and a column for every category."""
        numbers = np.concatenate([np.where(coded.gaps, 0.0, coded.numbers), coded.gaps], axis=1)
        row, place = self._coder.known_categories(coded)
        shape = (len(numbers), self._coder.num_categories)
        if numbers.shape[1] + shape[1] <= _DENSE:
            marks = np.zeros(shape)
            marks[row, place] = 1.0
            return np.concatenate([numbers, marks], axis=1)
        sparse = scipy.sparse.csr_array((np.ones(len(row)), (row, place)), shape=shape)
        return scipy.sparse.hstack([scipy.sparse.csr_array(numbers), sparse], format="csr")


def _linear_voter(
    shards: Sequence[Shard], coder: RowCoder, classes: NDArray[Any] | None, num_classes: int, single: Voter
) -> TableVoter | None:
    """A voter by one product; None if a classifier is not linear, or there would be too many weights."""
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
        votes.append(_fold_preprocessing(shard[0], scores, coder))
    is_fixed = np.array([not isinstance(shard, tuple) for shard in shards])
    link = common_link([shard[1] for shard in shards if isinstance(shard, tuple)])
    return TableVoter(coder, LinearVoter(votes, num_classes, width, link), is_fixed, num_classes, single)


def _fold_preprocessing(preprocessing: Preprocessing, scores: LinearScores, coder: RowCoder) -> LinearScores:
    """The scores as a linear function of the common coding."""
    weights, intercepts, codes = scores
    size = preprocessing.layout.num_numbers
    numbers, marks = weights[:, :size], weights[:, size:]
    for scaler in reversed(preprocessing.scalers):
        factors = scaler_factors(scaler)
        assert factors is not None
        scale, shift = factors
        intercepts = intercepts + numbers @ shift
        numbers = numbers * scale
    parts, start = [numbers, numbers * preprocessing.fill], 0
    for known, texts in zip(coder.vocabulary, preprocessing.texts, strict=True):
        spread = np.zeros((len(weights), len(known)))  # a category that the shard does not know has weight zero
        spread[:, [known[text] for text in texts]] = marks[:, start : start + len(texts)]
        start += len(texts)
        parts.append(spread)
    return np.concatenate(parts, axis=1), intercepts, codes
