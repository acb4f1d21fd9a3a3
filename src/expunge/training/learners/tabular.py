"""The votes of pipelines that preprocess a table: a row is coded once for all shards, and not once per shard.

Every shard fills gaps with its own medians, scales by its own deviations and knows its own categories. The common
coding of a row holds its numbers, which of them are missing, and the place of each of its categories in a vocabulary of
all shards. What each shard's pipeline makes of a coded row is read from the fitted pipeline.

For linear models a shard's preprocessing is linear in the common coding. So it goes into the weights, and all shards
vote in one matrix product. Any other classifier gets the rows that its own pipeline would make, in 64 bits. Those of
one kind are asked together (`stacked`), others one after another.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

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
from expunge.training.learners.protocol import ABSTAIN, Codes, Model, Voter, count_votes
from expunge.training.learners.scikit import ScikitModel, is_plain
from expunge.training.learners.stacked import Stack, may_stack, stack_of

Floats = NDArray[np.float64]

_ROWS_AT_ONCE = 1 << 13
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
    """One shard's preprocessing: fill and scale the numbers, then add a column for every category that it knows.

    Gaps that stay are filled with NaN.
    """

    layout: Layout
    fill: Floats
    scalers: tuple[StandardScaler, ...]
    texts: tuple[tuple[str, ...], ...]
    is_sparse: bool
    takes_infinity: bool = False  # no step refuses an infinite number

    @classmethod
    def of(cls, steps: Sequence[Any], num_columns: int | None = None) -> Self | None:
        """Read it from the fitted steps in front of a classifier; None if they do anything else.

        `num_columns` says how many the classifier has, where a table may have no preprocessing.
        """
        if steps and type(steps[0]) is ColumnTransformer:
            return cls._of_columns(steps[0]) if len(steps) == 1 else None
        if steps and type(steps[0]) in (SimpleImputer, ZerosForNothing):
            found = _read_number_steps(steps)
            return None if found is None else cls(Layout(len(found[0]), None, ()), *found, (), is_sparse=False)
        if num_columns is None or any(type(scaler) is not StandardScaler for scaler in steps):
            return None
        layout, fill = Layout(num_columns, None, ()), np.full(num_columns, np.nan)
        return cls(layout, fill, tuple(steps), (), is_sparse=False, takes_infinity=not steps)

    @property
    def fills_gaps(self) -> bool:
        """Whether all gaps are filled."""
        return not np.isnan(self.fill).any()

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

    def part(self, rows: slice) -> CodedRows:
        """Some of the rows."""
        return CodedRows(self.numbers[rows], self.gaps[rows], self.places[rows], self.is_valid[rows])

    def single_rows(self) -> list[CodedRows]:
        """Each row as a table of its own."""
        return [self.part(slice(at, at + 1)) for at in range(len(self.numbers))]


@dataclass(frozen=True, eq=False)
class RowCoder:
    """The common coding for the preprocessing of several shards, which have one layout."""

    layout: Layout
    vocabulary: tuple[dict[str, int], ...]
    takes_infinity: bool = False

    @classmethod
    def of(cls, shards: Sequence[Preprocessing]) -> Self | None:
        """The coder of these shards; None if their layouts differ."""
        if len({(each.layout, each.takes_infinity) for each in shards}) != 1:
            return None
        layout = shards[0].layout
        columns = [{text for each in shards for text in each.texts[at]} for at in range(len(layout.categories))]
        vocabulary = tuple({text: at for at, text in enumerate(sorted(column))} for column in columns)
        return cls(layout, vocabulary, shards[0].takes_infinity)

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
        if self.takes_infinity:
            return table, np.ones(len(table), dtype=np.bool_)
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
    if [type(step) for step in steps] != [AsText, OneHotEncoder] or steps[0].groups_texts:
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
    """A voter for fitted classifiers, constant class codes and Nones (⊥); None if they are to be asked by `single`.

    Rows of a sparse matrix may be very wide, so `single` votes on them.
    """
    found = [_read(shard) for shard in shards]
    if not all(shard is None or isinstance(shard, int | tuple) for shard in found):
        return None
    coder = RowCoder.of([shard[0] for shard in found if isinstance(shard, tuple)])
    if coder is None:
        return None
    linear = _linear_voter(found, coder, classes, num_classes, single)
    return linear or PerShardVoter(found, coder, classes, num_classes, single)


def _read(shard: Any) -> Any:
    """Preprocessing and classifier; constants, and what cannot be read so, as they are."""
    if shard is None or isinstance(shard, int):
        return shard
    steps = [step for _, step in shard.steps] if isinstance(shard, Pipeline) else [shard]
    *before, classifier = [step for step in steps if step not in (None, "passthrough")]
    # Others gain nothing without a table to prepare.
    preprocessing = Preprocessing.of(before, classifier.n_features_in_ if may_stack(classifier) else None)
    return shard if preprocessing is None else (preprocessing, classifier)


class OwnRows:
    """What the pipelines of some shards make of coded rows: (shards, rows, columns), as wide as the widest needs.

    If they make nothing of them, rows are (1, rows, columns).
    """

    def __init__(self, columns: Sequence[ShardColumns], num_categories: int) -> None:
        preprocessing = [each.preprocessing for each in columns]
        first = preprocessing[0]
        self._is_common = first.takes_infinity  # nothing is done
        self._fill = np.stack([each.fill for each in preprocessing])[:, np.newaxis]
        self._scales: list[tuple[Floats | None, Floats | None]] = [
            (
                np.stack([scaler.mean_ for scaler in scalers])[:, np.newaxis] if scalers[0].with_mean else None,
                np.stack([scaler.scale_ for scaler in scalers])[:, np.newaxis] if scalers[0].with_std else None,
            )
            for scalers in zip(*(each.scalers for each in preprocessing), strict=True)
        ]
        # For every column behind the numbers the category that it marks; the last one for none.
        width = max(each.width for each in columns) - len(first.fill)
        self._marks = np.full((len(columns), width), num_categories)
        for marks, each in zip(self._marks, columns, strict=True):
            start = 0
            for known in each.columns:
                has_one = np.flatnonzero(known[:-1] != _UNKNOWN)
                marks[known[has_one] - len(first.fill)] = start + has_one
                start += len(known) - 1
        self._num_categories = num_categories
        self.width = 0 if self._is_common else len(first.fill) + width  # numbers of a row that a shard has for itself

    def with_changed(self, columns: Mapping[int, ShardColumns]) -> Self | None:
        """The same for shards some of which have other columns; None if one needs what the others did not."""
        made = type(self)([*columns.values()], self._num_categories)
        if made._is_common != self._is_common or made.width > self.width:
            return None
        if self._is_common:
            return self
        changed, places = copy(self), list(columns)
        changed._fill = _with_rows(self._fill, places, made._fill)
        changed._scales = [
            (
                None if means is None else _with_rows(means, places, new_means),
                None if scales is None else _with_rows(scales, places, new_scales),
            )
            for (means, scales), (new_means, new_scales) in zip(self._scales, made._scales, strict=True)
        ]
        changed._marks = _with_rows(self._marks, places, self._num_categories)
        changed._marks[places, : made._marks.shape[1]] = made._marks
        return changed

    def make(self, coder: RowCoder, coded: CodedRows) -> Floats:
        """The rows of each shard."""
        numbers = coded.numbers[np.newaxis]
        if self._is_common:
            return numbers
        shape = (len(self._fill), *coded.numbers.shape)
        found = (
            np.where(coded.gaps, self._fill, numbers) if coded.gaps.any() else np.broadcast_to(numbers, shape).copy()
        )
        for mean, scale in self._scales:
            if mean is not None:
                found -= mean
            if scale is not None:
                found /= scale
        if not self._marks.shape[1]:
            return found
        marks = np.zeros((len(coded.numbers), self._num_categories + 1))
        marks[coder.known_categories(coded)] = 1.0
        return np.concatenate([found, marks.T[self._marks].swapaxes(1, 2)], axis=2)


def _with_rows(table: NDArray[Any], places: list[int], rows: Any) -> NDArray[Any]:
    changed = table.copy()
    changed[places] = rows
    return changed


def _scaling(preprocessing: Preprocessing) -> Hashable:
    """Shards that are stacked scale in the same way."""
    return tuple((each.with_mean, each.with_std) for each in preprocessing.scalers)


@dataclass(frozen=True, eq=False)
class Group:
    """Shards whose classifiers stack: their places, their rows, and the codes of each classifier's classes."""

    places: NDArray[np.intp]
    rows: OwnRows
    stack: Stack
    codes: NDArray[np.int64]

    def find(self, shards: Iterable[int]) -> dict[int, int]:
        """The place of each of these shards that is in the group; the group's shards are in order."""
        wanted = np.fromiter(shards, dtype=np.intp)
        at = np.minimum(np.searchsorted(self.places, wanted), len(self.places) - 1)
        is_here = self.places[at] == wanted
        return dict(zip(wanted[is_here].tolist(), at[is_here].tolist(), strict=True))

    def rows_at_once(self, num_classes: int) -> int:
        """How many rows are asked about at a time."""
        return self.stack.rows_at_once(len(self.places), self.rows.width, num_classes)


@dataclass(frozen=True, eq=False)
class Groups:
    """All shards, grouped: those that stack, those that are asked one by one, and those with one answer."""

    stacked: tuple[Group, ...]
    rest: tuple[int, ...]
    constants: NDArray[np.int64]  # a class code, ABSTAIN for an empty shard, -2 for a fitted one

    @classmethod
    def of(cls, shards: Sequence[Shard], coder: RowCoder, classes: NDArray[Any] | None) -> Self:
        """Group them."""
        found: dict[Hashable, list[int]] = {}
        rest, constants = [], np.full(len(shards), _FITTED, dtype=np.int64)
        for place, shard in enumerate(shards):
            if not isinstance(shard, tuple):
                constants[place] = ABSTAIN if shard is None else shard
                continue
            if stack_of(shard[1]) is None:
                rest.append(place)
            else:
                found.setdefault(_kind(shard), []).append(place)
        stacked = []
        for places in found.values():
            fitted = [shard for shard in map(shards.__getitem__, places) if isinstance(shard, tuple)]
            kind, _ = stack_of(fitted[0][1]) or (None, None)
            assert kind is not None
            rows = OwnRows([coder.columns_of(preprocessing) for preprocessing, _ in fitted], coder.num_categories)
            codes = np.stack([_as_codes(classifier.classes_, classes) for _, classifier in fitted])
            stack = kind.of([classifier for _, classifier in fitted])
            stacked.append(Group(np.array(places), rows, stack, codes.astype(np.int64)))
        return cls(tuple(stacked), tuple(rest), constants)

    def with_changed(
        self, shards: Mapping[int, tuple[Preprocessing, Any]], coder: RowCoder, classes: NDArray[Any] | None
    ) -> Self | None:
        """The same groups with some shards replaced, all of the kinds that they were."""
        stacked = list(self.stacked)
        for at, group in enumerate(self.stacked):
            found = group.find(shards)
            if not found:
                continue
            own, places = list(found), list(found.values())
            fitted = [shards[place] for place in own]
            columns = [coder.columns_of(preprocessing) for preprocessing, _ in fitted]
            rows = group.rows.with_changed(dict(zip(places, columns, strict=True)))
            stack = group.stack.with_changed({n: each for n, (_, each) in zip(places, fitted, strict=True)})
            if rows is None or stack is None:
                return None
            codes = _with_rows(group.codes, places, np.stack([_as_codes(each.classes_, classes) for _, each in fitted]))
            stacked[at] = replace(group, rows=rows, stack=stack, codes=codes)
        return replace(self, stacked=tuple(stacked))


def _kind(shard: Shard) -> Hashable:
    """Shards of the same kind stack."""
    return (stack_of(shard[1]), _scaling(shard[0])) if isinstance(shard, tuple) else shard


_FITTED = -2


class PerShardVoter:
    """Asks the classifiers of the shards about the rows as their own pipelines would make them.

    Those that stack are asked together, others one after another.
    """

    def __init__(
        self, shards: Sequence[Shard], coder: RowCoder, classes: NDArray[Any] | None, num_classes: int, single: Voter
    ) -> None:
        self._single = single
        self._coder = coder
        self._classes = classes
        self._num_classes = num_classes
        self._shards = shards
        self._groups = Groups.of(shards, coder, classes)

    def with_changed(self, models: Mapping[int, Model]) -> Self | None:
        """The same voter with some models replaced; None if it is to be made anew."""
        fitted = _fitted_again(models, self._shards, self._coder, self._classes)
        if fitted is None or not hasattr(self._single, "with_changed"):
            return None
        groups = self._groups.with_changed(fitted, self._coder, self._classes)
        if groups is None:
            return None
        changed = copy(self)
        changed._shards, changed._groups = _with_shards(self._shards, fitted), groups
        changed._single = self._single.with_changed(models)
        return changed

    @property
    def _rest(self) -> Iterator[tuple[int, ShardColumns, Any]]:
        """Those that are asked one by one: place, columns and classifier."""
        for place in self._groups.rest:
            if isinstance(shard := self._shards[place], tuple):
                yield place, self._coder.columns_of(shard[0]), shard[1]

    def count(self, X: Features) -> NDArray[np.int64]:
        """Votes for each class."""
        return count_votes(self.votes(X), self._num_classes)

    def votes(self, X: Features) -> Codes:
        """Every shard's vote."""
        if not self._is_table(X):
            return self._single.votes(X)
        return np.concatenate([self._votes(coded) for coded in self._pieces(X)])

    def _is_table(self, X: Features) -> bool:
        """Whether these are rows of the table, in 64 bits where their pipelines compute; else the models are asked."""
        if is_sparse(X) or X.ndim != 2:
            return False
        if self._coder.layout.numbers is not None:
            return True
        is_wide = is_frame(X) or X.dtype.kind in "iub" or X.dtype == np.float64
        is_narrow = not is_wide and X.dtype == np.float32 and self._coder.takes_infinity  # nothing is computed
        return bool(X.shape[1] == self._coder.layout.num_numbers and (is_wide or is_narrow))

    def _pieces(self, X: Features) -> Iterator[CodedRows]:
        at_once = min((group.rows_at_once(self._num_classes) for group in self._groups.stacked), default=_ROWS_AT_ONCE)
        for coded in self._coder.chunks(X):
            for first in range(0, max(1, len(coded.numbers)), at_once):
                yield coded.part(slice(first, first + at_once))

    def _ask_together(self, group: Group, coded: CodedRows) -> tuple[Floats, NDArray[np.bool_] | None]:
        """The scores of a group, (shards, rows, numbers), and the rows that each classifier fails on."""
        rows = group.rows.make(self._coder, coded)
        refused = group.stack.refused(rows)
        if not coded.is_valid.all():
            refused = ~coded.is_valid[np.newaxis] if refused is None else refused | ~coded.is_valid
        if refused is not None:
            rows = np.where(refused[:, :, np.newaxis], 0.0, rows)
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers near the largest, as for the models themselves
            return group.stack.scores(rows), refused

    def _votes(self, coded: CodedRows) -> Codes:
        constants = self._groups.constants
        table = np.repeat(np.where(constants == _FITTED, ABSTAIN, constants)[:, np.newaxis], len(coded.numbers), axis=1)
        for group in self._groups.stacked if len(coded.numbers) else ():
            scores, refused = self._ask_together(group, coded)
            votes = np.take_along_axis(group.codes, group.stack.winners(scores), axis=1)
            table[group.places] = votes if refused is None else np.where(refused, ABSTAIN, votes)
        for place, columns, classifier in self._rest if len(coded.numbers) else ():
            table[place] = np.where(coded.is_valid, self._ask(columns, classifier, coded), ABSTAIN)
        return np.ascontiguousarray(table.T, dtype=np.int32)

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
        if not self._is_table(X) or not all(hasattr(classifier, "predict_proba") for _, _, classifier in self._rest):
            return None
        return np.concatenate([self._mean_probabilities(coded) for coded in self._pieces(X)])

    def _mean_probabilities(self, coded: CodedRows) -> Floats:
        num_rows = len(coded.numbers)
        constants = self._groups.constants
        table = np.zeros((len(constants), num_rows, self._num_classes))
        counts = np.repeat((constants != ABSTAIN)[:, np.newaxis], num_rows, axis=1)
        fixed = np.flatnonzero(constants >= 0)
        table[fixed, :, constants[fixed]] = 1.0
        for group in self._groups.stacked if num_rows else ():
            scores, refused = self._ask_together(group, coded)
            with np.errstate(over="ignore", invalid="ignore"):
                found = group.stack.probabilities(scores)
            if refused is not None or np.isnan(found.max(initial=0.0)):
                no_opinion = np.asarray(np.isnan(found).any(axis=2))
                no_opinion |= False if refused is None else refused
                found = np.where(no_opinion[:, :, np.newaxis], 0.0, found)
                counts[group.places] &= ~no_opinion
            if len(group.places) == len(table) and np.array_equal(group.codes[0], np.arange(self._num_classes)):
                table = found
            else:
                table[group.places[:, np.newaxis], :, group.codes] = found.swapaxes(1, 2)
        for place, columns, classifier in self._rest if num_rows else ():
            found = self._probabilities(columns, classifier, coded)
            has_one = coded.is_valid & ~np.isnan(found).any(axis=1)
            table[place, has_one], counts[place] = found[has_one], has_one
        total = np.add.reduce(
            np.ascontiguousarray(table), axis=0
        )  # one shard after another: the sum of a row is the same among any others
        with np.errstate(invalid="ignore"):
            return np.asarray(total / counts.sum(axis=0)[:, np.newaxis])

    def _probabilities(self, columns: ShardColumns, classifier: Any, coded: CodedRows) -> Floats:
        """The classifier's probabilities; NaN on every row on which it fails, as it votes ⊥ there."""
        try:
            found = classifier.predict_proba(columns.rows(coded))
        except Exception:
            if len(coded.numbers) == 1:
                return np.full((1, self._num_classes), np.nan)
            return np.concatenate([self._probabilities(columns, classifier, row) for row in coded.single_rows()])
        return ScikitModel(classifier, self._classes).spread(found, self._num_classes)


def _as_codes(labels: NDArray[Any], classes: NDArray[Any] | None) -> Codes:
    return np.asarray(labels) if classes is None else codes_of(labels, classes)


def _fitted_again(
    models: Mapping[int, Model], shards: Sequence[Shard], coder: RowCoder, classes: NDArray[Any] | None
) -> dict[int, tuple[Preprocessing, Any]] | None:
    """Preprocessing and classifiers of models that take the place of others of their kind; None if one is otherwise."""
    found: dict[int, tuple[Preprocessing, Any]] = {}
    for place, model in models.items():
        new, old = _read(getattr(model, "estimator", None)), shards[place]
        if not isinstance(new, tuple) or not isinstance(old, tuple) or not is_plain(model, classes):
            return None
        of_coder = (new[0].layout, new[0].takes_infinity) == (coder.layout, coder.takes_infinity)
        if not of_coder or new[0].texts != old[0].texts or _kind(new) != _kind(old):
            return None
        found[place] = new
    return found


def _with_shards(shards: Sequence[Shard], changed: Mapping[int, Shard]) -> list[Shard]:
    copied = list(shards)
    for place, shard in changed.items():
        copied[place] = shard
    return copied


class TableVoter:
    """Computes the scores of all shards in one product; shards that are `is_fixed` give every row the same vote."""

    def __init__(
        self,
        coder: RowCoder,
        voter: LinearVoter,
        shards: Sequence[Shard],
        classes: NDArray[Any] | None,
        num_classes: int,
        single: Voter,
    ) -> None:
        self._shards, self._classes = shards, classes
        self._single = single
        self._coder = coder
        self._voter = voter
        self._is_fixed = np.array([not isinstance(shard, tuple) for shard in shards])
        self._num_classes = num_classes

    def with_changed(self, models: Mapping[int, Model]) -> Self | None:
        """The same voter with some models replaced; None if it is to be made anew."""
        fitted = _fitted_again(models, self._shards, self._coder, self._classes)
        if fitted is None or not hasattr(self._single, "with_changed"):
            return None
        votes: dict[int, LinearVote] = {}
        for place, (preprocessing, classifier) in fitted.items():
            scores = linear_scores(classifier, self._classes)
            if scores is None or common_link([classifier]) != self._voter.link:
                return None
            votes[place] = _fold_preprocessing(preprocessing, scores, self._coder)
        voter = self._voter.with_changed(votes)
        if voter is None:
            return None
        changed = copy(self)
        changed._voter, changed._shards = voter, _with_shards(self._shards, fitted)
        changed._single = self._single.with_changed(models)
        return changed

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
        if scores is None or not shard[0].fills_gaps:
            return None
        votes.append(_fold_preprocessing(shard[0], scores, coder))
    link = common_link([shard[1] for shard in shards if isinstance(shard, tuple)])
    return TableVoter(coder, LinearVoter(votes, num_classes, width, link), shards, classes, num_classes, single)


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
