"""Learners whose models unlearn exactly: a deletion changes the model itself, and nothing is trained from scratch.

Their models are functions of the rows alone: exact sums and counts, or the rows in an order that their values decide.
So `refit` gives, bit for bit, what `fit` gives on the rows that are left, and one shard is enough. The short names are
`ridge-exact`, `naive-bayes-exact` and `neighbours-exact`.

Rows are read by a fixed rule that no data can change. A number stays a number (one beyond 2^400 is read as 2^400), and
a gap is a value of its own. A category becomes the first 52 bits of a hash of its text, so a model holds no text. What
a model needs beyond that (the list of categories, means and scales) it computes from the rows that are there: a
category leaves with its last row.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_count
from expunge.core.errors import InputError, ParameterError
from expunge.core.features import Features, is_frame, is_sparse, num_rows
from expunge.training.fallback import Fallback, GaussianNaiveBayes, NearestNeighbours, RidgeFallback, statistics
from expunge.training.fallback.naive_bayes import moments
from expunge.training.fallback.neighbours import count_codes, majority
from expunge.training.fallback.protocol import LARGEST, Assessment, Rows, read_table
from expunge.training.fallback.ridge import RidgeModel
from expunge.training.fallback.statistics import LIMB_BITS, ExactArray
from expunge.training.learners.neighbours import Form, KeptRows, Scales
from expunge.training.learners.protocol import Codes, Floats, Model, ShardData, Weights

Vocabulary = tuple[Floats, ...]  # for each column of categories the codes that occur, ascending

_MOST_CATEGORIES = 2000  # of all columns together, each a column of its own in sums of products
_SMOOTHING = 1.0  # Laplace's rule: added to the count of every category
_MISSING = "(missing)"


@dataclass(frozen=True)
class ExactLearner:
    """Train a model that rows can be added to and deleted from, bit for bit as if it were trained from scratch.

    It counts every record once. Ridge regression gives every category a column of its own; of more than 2,000, those
    with the lowest hashes have columns, and the others count as unknown: no record can stop an update. Nearest
    neighbours scale numbers by their standard deviations and take the mean for a gap. Naive Bayes leaves gaps out, and
    counts categories.

    Parameters
    ----------
    kind
        `RidgeFallback`, `GaussianNaiveBayes` or `NearestNeighbours`, with its options.
    num_classes
        The number of classes. `learn` sets it; by default as many as the rows show.
    categories
        The names of the columns that hold categories; all others hold numbers.
    has_gaps
        Whether numbers may be missing.
    buckets
        Into how many values the categories of each column are hashed; 0 keeps them apart.

    Raises
    ------
    ParameterError
        If `kind` is none of these.

    Examples
    --------
    >>> learner = ExactLearner(RidgeFallback()).for_classes(np.array(["no", "yes"]))
    >>> model = learner.fit(np.array([[0.0], [1.0], [8.0], [9.0]]), np.array([0, 0, 1, 1]), seed=0)
    >>> model.predict(np.array([[2.0], [7.0]]))
    array([0, 1])
    """

    kind: Fallback
    num_classes: int | None = None
    categories: tuple[str, ...] = ()
    has_gaps: bool = False
    buckets: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.kind, RidgeFallback | GaussianNaiveBayes | NearestNeighbours):
            raise ParameterError(
                f"kind must be a RidgeFallback, GaussianNaiveBayes or NearestNeighbours, got {self.kind!r}"
            )
        if self.num_classes is not None:
            require_count("num_classes", self.num_classes)

    def for_classes(self, classes: NDArray[Any]) -> ExactLearner:
        """The same learner, told how many classes there are."""
        return replace(self, num_classes=len(classes))

    def check_weights(self) -> None:
        """Raise a `ParameterError`: an exact model counts every record once."""
        raise ParameterError(
            "an exact model counts every record once: leave the weights out, or choose another learner"
        )

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """The model of these rows. It draws nothing, so the seed has no effect.

        Raises `InputError` if a row cannot be used, or has a weight other than 1.
        """
        num_classes = self.num_classes if self.num_classes is not None else int(np.max(y)) + 1
        return self.model.of(self, self.read(X, y, weights), num_classes)

    def refit(self, model: Model, removed: ShardData, added: ShardData) -> Model | None:
        """The model after rows were removed and added; None if it has to be trained.

        That is so if it holds no rows, or if there are more categories than columns and others have columns now.

        Raises `InputError` if a row cannot be used, or a removed row is not in the model.
        """
        if not isinstance(model, ExactModel):
            return None
        gone, new = (self.read(part.X, part.y, part.weights) for part in (removed, added))
        if model.num_records + len(new) == len(gone):
            return None
        try:
            model = model.without(gone) if len(gone) else model
            return model.with_rows(new) if len(new) else model
        except _OtherColumnsError:
            return None

    def dump_model(self, model: Model) -> dict[str, Any]:
        """Arrays and numbers of a model."""
        assert isinstance(model, ExactModel)
        return model.dump()

    def load_model(self, parts: Mapping[str, Any]) -> Model:
        """The model that `dump_model` took apart. Raises an error if the parts do not fit together."""
        return self.model.load(self, parts)

    def dump_summary(self, model: Model) -> dict[str, Any] | None:
        """What is stored of a model beside its records; None if that is all of it."""
        return model.summary() if isinstance(model, ExactNeighbours) else None

    def load_summary(self, parts: Mapping[str, Any], rows: Callable[[], ShardData]) -> Model:
        """The model whose summary it is; the shard's rows are read when they are first needed."""

        def read() -> Rows:
            part = rows()
            return self.read(part.X, part.y, part.weights)

        return ExactNeighbours.summarised(self, parts, read)

    @property
    def model(self) -> type[ExactModel]:
        """The kind of model that it makes."""
        if isinstance(self.kind, RidgeFallback):
            return ExactRidge
        return ExactNaiveBayes if isinstance(self.kind, GaussianNaiveBayes) else ExactNeighbours

    def read(self, X: Features, y: Codes, weights: Weights | None = None) -> Rows:
        """Rows for its models. Raises `InputError` if a value cannot be used, or a weight is not 1."""
        if weights is not None and (weights != 1).any():
            raise InputError(f"an exact model counts every record once, got the weight {weights[weights != 1][0]}")
        return _numbered(self.table(X), np.asarray(y, dtype=np.int32))

    def table(self, X: Features) -> Floats:
        """Rows of features by the fixed rule: numbers, NaN for a gap, and then the codes of categories.

        Raises `InputError` if a value cannot be used.
        """
        return read_mixed(X, self.categories, has_gaps=self.has_gaps, buckets=self.buckets)


def read_mixed(X: Features, categories: Sequence[str], *, has_gaps: bool, buckets: int = 0) -> Floats:
    """Rows of features by a fixed rule: numbers, NaN for a gap, and then the codes of the columns of categories.

    Codes are hashes; with buckets, what is left of them after a division by so many.

    Raises `InputError` if a value cannot be used.
    """
    if not num_rows(X):
        return np.empty((0, 0))
    if not is_frame(X):
        if categories:
            raise InputError(f"the rows must be a table with the columns {', '.join(categories)}")
        return _numbers(X, has_gaps=has_gaps)
    names = [name for name in X.columns if name not in categories]
    for name, kind in X.dtypes.items():
        if kind.kind not in "biuf" and name not in categories and not _are_numbers(X[name]):
            raise InputError(f"column {name!r} holds something other than numbers: name it in categories=({name!r},)")
    codes = [_category_codes(X[name]) for name in categories]
    codes = [each % buckets for each in codes] if buckets else codes
    return np.column_stack([*([_numbers(X[names], has_gaps=has_gaps)] if names else []), *codes])


def _are_numbers(column: Any) -> bool:
    """Whether a column of objects can be read as numbers and gaps."""
    try:
        column.to_numpy(np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        return False
    return column.dtype.kind not in "mM"


def _numbers(X: Features, *, has_gaps: bool) -> Floats:
    X = X.toarray() if is_sparse(X) else X
    try:
        found = X.to_numpy(np.float64, na_value=np.nan) if is_frame(X) else np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"an exact model needs numbers and declared categories: {error}") from error
    is_gap = np.isnan(found)
    if is_gap.any() and not has_gaps:
        raise InputError("a number is missing, and the learner was made without has_gaps")
    # Whatever is added later can be read: an update that fails would stop all that come after it.
    table = read_table(np.clip(np.where(is_gap, 0.0, found), -LARGEST, LARGEST)) + 0.0  # -0.0 and 0.0 are the same
    table[is_gap.reshape(table.shape)] = np.nan
    return table


def _category_codes(column: Any) -> Floats:
    """The codes of a column's texts. A gap is a text of its own, as in the pipelines of the other learners."""
    import pandas as pd

    values = column.astype(object).to_numpy()
    known: dict[str, float] = {}
    codes = np.empty(len(values))
    for place, (value, is_gap) in enumerate(zip(values, pd.isna(values), strict=True)):
        text = _MISSING if is_gap else str(value)
        if text not in known:
            known[text] = _hash(text)
        codes[place] = known[text]
    return codes


def _hash(text: str) -> float:
    """52 bits, which a float holds exactly."""
    return float(int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> 12)


class ExactModel(ABC):
    """A model that is a function of its rows, whatever came and went. `ExactLearner` makes it.

    Its parameters are the learner that made it, and what it keeps of the rows.

    Examples
    --------
    >>> learner = ExactLearner(GaussianNaiveBayes(), num_classes=2)
    >>> model = learner.fit(np.array([[0.0], [1.0], [8.0], [9.0]]), np.array([0, 0, 1, 1]), seed=0)
    >>> isinstance(model, ExactModel), model.num_records
    (True, 4)
    """

    learner: ExactLearner

    @classmethod
    @abstractmethod
    def of(cls, learner: ExactLearner, rows: Rows, num_classes: int) -> ExactModel:
        """The model of these rows."""

    @classmethod
    @abstractmethod
    def load(cls, learner: ExactLearner, parts: Mapping[str, Any]) -> ExactModel:
        """The model that `dump` took apart."""

    @property
    @abstractmethod
    def num_records(self) -> int:
        """How many rows the model is of."""

    @abstractmethod
    def with_rows(self, rows: Rows) -> ExactModel:
        """The model with more rows."""

    @abstractmethod
    def without(self, rows: Rows) -> ExactModel:
        """The model without some of its rows. Raises `InputError` if it finds that they are not in it."""

    @abstractmethod
    def dump(self) -> dict[str, Any]:
        """Arrays and numbers that determine the model, and that the rows determine."""

    @abstractmethod
    def assess(self, X: Features) -> Assessment:
        """A class code for every row, and how easy it was."""

    def predict(self, X: Features) -> Codes:
        """A class code for every row."""
        return self.assess(X).codes

    @property
    def num_categories(self) -> int:
        """How many columns hold categories; they stand behind the numbers."""
        return len(self.learner.categories)


def _numbered(table: Floats, codes: NDArray[np.int32]) -> Rows:
    return Rows(table, codes, np.arange(len(codes), dtype=np.int64))


def _split(table: Floats, num_categories: int) -> tuple[Floats, Floats]:
    """The columns of numbers, and those of categories."""
    at = table.shape[1] - num_categories
    return table[:, :at], table[:, at:]


def _vocabulary(codes: Floats) -> Vocabulary:
    return tuple(np.unique(codes[:, place]) for place in range(codes.shape[1]))


def _widened(table: Floats, vocabulary: Vocabulary, *, has_gaps: bool) -> Floats:
    """Numbers with zeros for gaps, marks of gaps, and a column for each category; zeros for an unknown one."""
    numbers, codes = _split(table, len(vocabulary))
    is_gap = np.isnan(numbers)
    parts = [np.where(is_gap, 0.0, numbers)]
    if has_gaps:
        parts.append(is_gap.astype(np.float64))
    for place, known in enumerate(vocabulary):
        parts.append((codes[:, place, np.newaxis] == known).astype(np.float64))
    return np.concatenate(parts, axis=1)


def _first(vocabulary: Vocabulary) -> Vocabulary:
    """At most so many categories as have columns: those with the lowest codes, of all columns together."""
    if sum(map(len, vocabulary)) <= _MOST_CATEGORIES:
        return vocabulary
    codes = np.concatenate(vocabulary)
    columns = np.repeat(np.arange(len(vocabulary)), [len(known) for known in vocabulary])
    chosen = np.lexsort((columns, codes))[:_MOST_CATEGORIES]
    return tuple(np.sort(codes[chosen[columns[chosen] == place]]) for place in range(len(vocabulary)))


class _OtherColumnsError(Exception):
    """Other categories have columns from now on, and no sums are kept of these."""


@dataclass(frozen=True, eq=False)
class ExactRidge(ExactModel):
    """Exact sums of products over the numbers and a column for each category.

    Parameters
    ----------
    learner
        What made it.
    vocabulary
        The categories that occur.
    sums
        The ridge model of the wide rows.
    """

    learner: ExactLearner
    vocabulary: Vocabulary
    sums: RidgeModel

    @classmethod
    def of(cls, learner: ExactLearner, rows: Rows, num_classes: int) -> ExactRidge:
        """The model of these rows."""
        vocabulary = _first(_vocabulary(_split(rows.table, len(learner.categories))[1]))
        assert isinstance(learner.kind, RidgeFallback)
        wide = replace(rows, table=_widened(rows.table, vocabulary, has_gaps=learner.has_gaps))
        return cls(learner, vocabulary, learner.kind._fit(wide, num_classes))

    @property
    def num_records(self) -> int:
        """How many rows the model is of."""
        return self.sums.num_records

    def with_rows(self, rows: Rows) -> ExactRidge:
        """The model with more rows; new categories get columns of zeros first."""
        new = _vocabulary(_split(rows.table, self.num_categories)[1])
        vocabulary = _first(tuple(np.union1d(old, more) for old, more in zip(self.vocabulary, new, strict=True)))
        if any(not np.isin(old, now).all() for old, now in zip(self.vocabulary, vocabulary, strict=True)):
            raise _OtherColumnsError
        grown = self._with_vocabulary(vocabulary)
        return replace(grown, sums=grown.sums._with(grown._wide(rows)))

    def without(self, rows: Rows) -> ExactRidge:
        """The model without some of its rows, and without the categories that no row has any more."""
        gone = _vocabulary(_split(rows.table, self.num_categories)[1])
        is_full = sum(map(len, self.vocabulary)) == _MOST_CATEGORIES  # then others may have no column
        if not is_full and any(not np.isin(*each).all() for each in zip(gone, self.vocabulary, strict=True)):
            raise InputError("the rows to delete are not in the model")
        left = replace(self, sums=self.sums._without(self._wide(rows)))
        if not self.vocabulary:
            return left
        counts = left.sums.sums.total(axis=0).to_float()[-sum(map(len, self.vocabulary)) :]
        ends = np.cumsum([len(known) for known in self.vocabulary])[:-1]
        if is_full and not (counts > 0).all():
            raise _OtherColumnsError
        kept = np.split(counts > 0, ends)
        return left._with_vocabulary(tuple(known[has] for known, has in zip(self.vocabulary, kept, strict=True)))

    def _wide(self, rows: Rows) -> Rows:
        return replace(rows, table=_widened(rows.table, self.vocabulary, has_gaps=self.learner.has_gaps))

    def _with_vocabulary(self, vocabulary: Vocabulary) -> ExactRidge:
        """The same sums with columns for these categories; columns that go are zeros, and new ones too."""
        if all(np.array_equal(old, new) for old, new in zip(self.vocabulary, vocabulary, strict=True)):
            return self
        start = self.sums.num_features - sum(map(len, self.vocabulary))
        places = [np.arange(start)]
        for old, new in zip(self.vocabulary, vocabulary, strict=True):
            at = np.minimum(np.searchsorted(old, new), max(len(old) - 1, 0))
            known = old[at] == new if len(old) else np.zeros(len(new), dtype=np.bool_)
            places.append(np.where(known, start + at, -1))
            start += len(old)
        chosen = np.concatenate(places)
        sums = self.sums.sums.rearranged(chosen, axis=1)
        products = self.sums.products.rearranged(chosen, axis=0).rearranged(chosen, axis=1)
        return replace(self, vocabulary=vocabulary, sums=replace(self.sums, sums=sums, products=products))

    def dump(self) -> dict[str, Any]:
        """Counts, sums, sums of products and the codes of the categories."""
        found = self.sums
        return {
            "counts": found.counts,
            "sums": _dumped(found.sums),
            "products": _dumped(found.products),
            "vocabulary": list(self.vocabulary),
        }

    @classmethod
    def load(cls, learner: ExactLearner, parts: Mapping[str, Any]) -> ExactRidge:
        """The model that `dump` took apart."""
        vocabulary = _loaded_vocabulary(parts, learner)
        counts, sums, products = _loaded_sums(parts, "products")
        if products.shape != (sums.shape[1],) * 2 or sums.shape[1] < sum(map(len, vocabulary)):
            raise InputError("the sums of a stored model do not fit together")
        assert isinstance(learner.kind, RidgeFallback)
        return cls(learner, vocabulary, RidgeModel(learner.kind, counts, sums, products))

    def assess(self, X: Features) -> Assessment:
        """The class of the highest score, and half of its lead."""
        return self.sums.assess(self._queries(X))

    def scores(self, X: Features, num_classes: int) -> Floats:
        """The scores of the classes, between about -1 and 1."""
        return self.sums.scores(self._queries(X))

    def _queries(self, X: Features) -> Floats:
        return _widened(self.learner.table(X), self.vocabulary, has_gaps=self.learner.has_gaps)


@dataclass(frozen=True, eq=False)
class ExactNaiveBayes(ExactModel):
    """Exact sums and sums of squares of the numbers, and counts of gaps and categories, in each class.

    A gap of a query is left out, and so is a category that no row has. The variance of a number gets a small share of
    its variance over all rows added; a number that no row of a class has counts with the moments of all rows.

    Parameters
    ----------
    learner
        What made it.
    counts
        How many rows each class has.
    present
        How many rows of each class have each number: shape (classes, numbers).
    sums, squares
        Σ x and Σ x² over these: shape (classes, numbers).
    vocabulary
        The categories that occur.
    tallies
        For each column of categories, how many rows of each class have each of them.
    """

    learner: ExactLearner
    counts: NDArray[np.int64]
    present: NDArray[np.int64]
    sums: ExactArray
    squares: ExactArray
    vocabulary: Vocabulary
    tallies: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, learner: ExactLearner, rows: Rows, num_classes: int) -> ExactNaiveBayes:
        """The model of these rows."""
        numbers, categories = _split(rows.table, len(learner.categories))
        is_here = ~np.isnan(numbers)
        present = np.zeros((num_classes, numbers.shape[1]), dtype=np.int64)
        np.add.at(present, rows.codes, is_here)
        sums = squares = ExactArray.zeros(*present.shape)
        if numbers.shape[1]:
            filled = replace(rows, table=np.where(is_here, numbers, 0.0))
            sums, squares = statistics.class_moments(filled, num_classes)
        vocabulary, tallies = _vocabulary(categories), []
        for place, known in enumerate(vocabulary):
            cells = rows.codes * len(known) + np.searchsorted(known, categories[:, place])
            tallies.append(np.bincount(cells, minlength=num_classes * len(known)).reshape(num_classes, len(known)))
        return cls(learner, rows.counts(num_classes), present, sums, squares, vocabulary, tuple(tallies))

    @property
    def num_records(self) -> int:
        """How many rows the model is of."""
        return int(self.counts.sum())

    def with_rows(self, rows: Rows) -> ExactNaiveBayes:
        """The model with more rows."""
        return self._changed(rows, 1)

    def without(self, rows: Rows) -> ExactNaiveBayes:
        """The model without some of its rows, and without the categories that no row has any more."""
        return self._changed(rows, -1)

    def _changed(self, rows: Rows, sign: int) -> ExactNaiveBayes:
        change = self.of(self.learner, rows, len(self.counts))
        if change.present.shape != self.present.shape:
            raise InputError(f"rows must have {self.present.shape[1]} numbers, got {change.present.shape[1]}")
        found, tallies = [], []
        pairs = zip(self.vocabulary, self.tallies, change.vocabulary, change.tallies, strict=True)
        for known, tally, others, more in pairs:
            union = np.union1d(known, others)
            total = np.zeros((len(self.counts), len(union)), dtype=np.int64)
            total[:, np.searchsorted(union, known)] = tally
            total[:, np.searchsorted(union, others)] += sign * more
            kept = total.any(axis=0)
            found.append(union[kept])
            tallies.append(np.ascontiguousarray(total[:, kept]))
        made = replace(
            self,
            counts=self.counts + sign * change.counts,
            present=self.present + sign * change.present,
            sums=self.sums + change.sums if sign > 0 else self.sums - change.sums,
            squares=self.squares + change.squares if sign > 0 else self.squares - change.squares,
            vocabulary=tuple(found),
            tallies=tuple(tallies),
        )
        if any((each < 0).any() for each in (made.counts, made.present, *made.tallies)):
            raise InputError("the rows to delete are not in the model")
        return made

    def dump(self) -> dict[str, Any]:
        """Counts, sums, sums of squares, and the codes of the categories with their counts."""
        return {
            "counts": self.counts,
            "present": self.present,
            "sums": _dumped(self.sums),
            "squares": _dumped(self.squares),
            "vocabulary": list(self.vocabulary),
            "tallies": list(self.tallies),
        }

    @classmethod
    def load(cls, learner: ExactLearner, parts: Mapping[str, Any]) -> ExactNaiveBayes:
        """The model that `dump` took apart."""
        vocabulary = _loaded_vocabulary(parts, learner)
        counts, sums, squares = _loaded_sums(parts, "squares")
        present = np.asarray(parts["present"], dtype=np.int64)
        tallies = tuple(np.asarray(each, dtype=np.int64) for each in parts["tallies"])
        shapes = [(len(counts), len(known)) for known in vocabulary]
        fits = squares.shape == sums.shape == present.shape and [each.shape for each in tallies] == shapes
        if not fits or any((each < 0).any() for each in (present, *tallies)):
            raise InputError("the sums of a stored model do not fit together")
        return cls(learner, counts, present, sums, squares, vocabulary, tallies)

    @cached_property
    def _normals(self) -> tuple[Floats, Floats]:
        """Mean and variance of every number in every class."""
        whole = self.present.sum(axis=0)
        mean, variance = moments(whole, self.sums.total(axis=0), self.squares.total(axis=0))
        assert isinstance(self.learner.kind, GaussianNaiveBayes)
        added = self.learner.kind.var_smoothing * np.where(variance > 0, variance, 1.0)
        means, variances = np.empty(self.present.shape), np.empty(self.present.shape)
        for code, present in enumerate(self.present):
            own = moments(present, self.sums.row(code), self.squares.row(code))
            means[code], variances[code] = np.where(present > 0, own, (mean, variance))
        return means, np.maximum(variances + added, statistics.LEAST_VARIANCE)

    def _log_likelihoods(self, X: Features) -> Floats:
        """log prior + Σ log P(value | class), up to a constant; -∞ for a class without rows."""
        numbers, categories = _split(self.learner.table(X), self.num_categories)
        means, variances = self._normals
        is_here = ~np.isnan(numbers)
        scores = np.full((len(numbers), len(self.counts)), -np.inf)
        for code in np.flatnonzero(self.counts):
            with np.errstate(over="ignore", invalid="ignore"):
                deviations = (numbers - means[code]) / np.sqrt(variances[code])
            deviations = np.clip(np.where(is_here, deviations, 0.0), -1e150, 1e150)
            scores[:, code] = np.log(self.counts[code]) - 0.5 * np.einsum("ij,ij->i", deviations, deviations)
            scores[:, code] -= 0.5 * np.einsum("ij,j->i", is_here.astype(np.float64), np.log(variances[code]))
        for place, (known, tally) in enumerate(zip(self.vocabulary, self.tallies, strict=True)):
            at = np.minimum(np.searchsorted(known, categories[:, place]), len(known) - 1)
            shares = (tally + _SMOOTHING) / (self.counts[:, np.newaxis] + _SMOOTHING * len(known))
            found = np.log(shares)[:, at].T
            scores += np.where((known[at] == categories[:, place])[:, np.newaxis], found, 0.0)
        return scores

    def assess(self, X: Features) -> Assessment:
        """The most likely class, and its log-odds against the next on a scale up to 1."""
        codes, lead = statistics.decide(self._log_likelihoods(X))
        return Assessment(codes, statistics.odds_margin(lead))

    def probabilities(self, X: Features, num_classes: int) -> Floats:
        """The posterior probability of every class."""
        scores = self._log_likelihoods(X)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class ExactNeighbours(ExactModel):
    """The rows, and exact sums of them, from which the scales of numbers follow.

    Neighbours are ranked by (distance, class code): what the model answers does not depend on how its rows lie.

    Parameters
    ----------
    learner
        What made it.
    counts
        How many rows each class has.
    present
        How many rows have each number.
    sums, squares
        Of every number over these, in a row.
    source
        The rows, or what reads them when they are first needed: a folder stores them already.
    """

    learner: ExactLearner
    counts: NDArray[np.int64]
    present: NDArray[np.int64]
    sums: ExactArray
    squares: ExactArray
    source: KeptRows | _LateRows

    @classmethod
    def of(cls, learner: ExactLearner, rows: Rows, num_classes: int) -> ExactNeighbours:
        """The model of these rows."""
        form = Form(len(learner.categories), learner.has_gaps)
        kept = KeptRows.of(form, rows.table, rows.codes)
        return cls(learner, rows.counts(num_classes), *_moments_of(rows, form), kept)

    @property
    def num_records(self) -> int:
        """How many rows the model is of."""
        return int(self.counts.sum())

    @property
    def kept(self) -> KeptRows:
        """Its rows. Raises an error if they cannot be read any more, or are not those of the model."""
        if isinstance(self.source, KeptRows):
            return self.source
        return self.source.get(self)

    def with_rows(self, rows: Rows) -> ExactNeighbours:
        """The model with more rows."""
        return self._changed(rows, 1, self.kept.with_rows(rows.table, rows.codes))

    def without(self, rows: Rows) -> ExactNeighbours:
        """The model without some of its rows."""
        return self._changed(rows, -1, self.kept.without(rows.table, rows.codes))

    def _changed(self, rows: Rows, sign: int, kept: KeptRows) -> ExactNeighbours:
        present, sums, squares = _moments_of(rows, kept.form)
        return replace(
            self,
            counts=self.counts + sign * rows.counts(len(self.counts)),
            present=self.present + sign * present,
            sums=self.sums + sums if sign > 0 else self.sums - sums,
            squares=self.squares + squares if sign > 0 else self.squares - squares,
            source=kept,
        )

    def settle(self) -> None:
        """Read the rows now, if that was left for later."""
        _ = self.kept

    def dump(self) -> dict[str, Any]:
        """The rows, in the order of their classes and values, and the number of classes."""
        table, codes = self.kept.rows()
        rows = _in_order(_numbered(table, codes))
        return {"table": rows.table, "codes": rows.codes, "classes": len(self.counts)}

    def summary(self) -> dict[str, Any]:
        """What is stored beside the rows: counts and sums."""
        return {
            "counts": self.counts,
            "present": self.present,
            "sums": _dumped(self.sums),
            "squares": _dumped(self.squares),
        }

    @classmethod
    def load(cls, learner: ExactLearner, parts: Mapping[str, Any]) -> ExactNeighbours:
        """The model that `dump` took apart."""
        num_classes = require_count("classes", parts["classes"])
        table, codes = np.asarray(parts["table"]), np.asarray(parts["codes"])
        fits = table.dtype == np.float64 and table.ndim == 2 and table.shape[1] >= len(learner.categories)
        if not fits or codes.shape != table.shape[:1] or codes.dtype != np.int32:
            raise InputError("the rows of a stored model are damaged")
        rows, bad = _numbered(table, codes), np.isinf(table) | (np.isnan(table) & (not learner.has_gaps))
        is_ordered = (np.diff(np.argsort(_keys(rows), kind="stable")) > 0).all()
        if bad.any() or (codes < 0).any() or (codes >= num_classes).any() or not is_ordered:
            raise InputError("the rows of a stored model are damaged")
        return cls.of(learner, rows, num_classes)

    @classmethod
    def summarised(cls, learner: ExactLearner, parts: Mapping[str, Any], rows: Callable[[], Rows]) -> ExactNeighbours:
        """The model whose `summary` it is, of rows that are read when they are first needed."""
        counts, sums, squares = _loaded_sums(parts, "squares", is_by_class=False)
        present = np.asarray(parts["present"], dtype=np.int64)
        if not sums.shape == squares.shape == (1, *present.shape) or (present < 0).any():
            raise InputError("the sums of a stored model do not fit together")
        return cls(learner, counts, present, sums, squares, _LateRows(rows))

    @cached_property
    def _scales(self) -> Scales:
        mean, variance = moments(self.present, self.sums.row(0), self.squares.row(0))
        spread = np.sqrt(variance)
        return Scales(mean, 1.0 / np.where(spread > 0, spread, 1.0))

    def _neighbours(self, X: Features, width: int) -> NDArray[np.int64]:
        return self.kept.nearest(self.learner.table(X), self._scales, min(width, self.num_records)).codes

    def assess(self, X: Features) -> Assessment:
        """The majority among the nearest rows, and its lead."""
        assert isinstance(self.learner.kind, NearestNeighbours)
        return majority(self.learner.kind, self._neighbours(X, self.learner.kind.num_asked), len(self.counts))

    def probabilities(self, X: Features, num_classes: int) -> Floats:
        """The share of every class among the nearest rows."""
        assert isinstance(self.learner.kind, NearestNeighbours)
        codes = self._neighbours(X, self.learner.kind.num_neighbours)
        return np.asarray(count_codes(codes, num_classes) / codes.shape[1])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, it is what its rows determine, and none that is deleted."""
        return _loaded_neighbours, (self.learner, self.dump())


def _loaded_neighbours(learner: ExactLearner, parts: Mapping[str, Any]) -> ExactNeighbours:
    return ExactNeighbours.load(learner, parts)


class _LateRows:
    """Rows that are read when they are first needed. Several threads may ask, and all get the same."""

    def __init__(self, read: Callable[[], Rows]) -> None:
        self._read, self._lock = read, threading.Lock()
        self._kept: KeptRows | None = None

    def get(self, model: ExactNeighbours) -> KeptRows:
        """The rows, which must be as many in each class as the model has."""
        with self._lock:
            if self._kept is None:
                rows = self._read()
                if not np.array_equal(rows.counts(len(model.counts)), model.counts):
                    raise InputError("the records are not those of the stored model")
                form = Form(model.num_categories, model.learner.has_gaps)
                self._kept = KeptRows.of(form, rows.table, rows.codes)
            return self._kept


def _moments_of(rows: Rows, form: Form) -> tuple[NDArray[np.int64], ExactArray, ExactArray]:
    """How many rows have each number, and the sums of these and of their squares."""
    numbers = form.split(rows.table)[0]
    is_here = ~np.isnan(numbers)
    filled = Rows(np.where(is_here, numbers, 0.0), np.zeros(len(rows), dtype=np.int32), rows.slots)
    sums = squares = ExactArray.zeros(1, numbers.shape[1])
    if numbers.shape[1]:
        sums, squares = statistics.class_moments(filled, 1)
    return is_here.sum(axis=0), sums, squares


def _keys(rows: Rows) -> NDArray[np.void]:
    """Class and values of every row as bytes, which can be sorted and found. Equal keys are equal rows."""
    wide = np.concatenate([rows.codes[:, np.newaxis].astype(">f8"), rows.table.astype(">f8")], axis=1)
    return np.ascontiguousarray(wide).view(np.dtype((np.void, 8 * wide.shape[1])))[:, 0]


def _in_order(rows: Rows) -> Rows:
    order = np.argsort(_keys(rows), kind="stable")
    return _numbered(rows.table[order], rows.codes[order])


def _dumped(sums: ExactArray) -> dict[str, Any]:
    places = sorted(sums.limbs)
    limbs = np.stack([sums.limbs[place] for place in places]) if places else np.empty((0, *sums.shape), np.int64)
    return {"places": np.array(places, dtype=np.int64), "limbs": limbs}


def _loaded_sums(
    parts: Mapping[str, Any], second: str, *, is_by_class: bool = True
) -> tuple[NDArray[np.int64], ExactArray, ExactArray]:
    counts = np.asarray(parts["counts"], dtype=np.int64)
    sums, others = _loaded(parts["sums"]), _loaded(parts[second])
    if counts.ndim != 1 or sums.shape[0] != (len(counts) if is_by_class else 1) or (counts < 0).any():
        raise InputError("the sums of a stored model do not fit together")
    return counts, sums, others


def _loaded(parts: Mapping[str, Any]) -> ExactArray:
    places, limbs = np.asarray(parts["places"]).tolist(), np.asarray(parts["limbs"])
    half = 1 << (LIMB_BITS - 1)
    if limbs.dtype != np.int64 or limbs.ndim != 3 or len(limbs) != len(places):
        raise InputError("the sums of a stored model are damaged")
    if places != sorted(set(places)) or (limbs < -half).any() or (limbs >= half).any():
        raise InputError("the sums of a stored model are damaged")
    if any(abs(place) > 64 for place in places):
        raise InputError("the sums of a stored model are damaged")
    return ExactArray(limbs.shape[1:], dict(zip(places, limbs, strict=True)))


def _loaded_vocabulary(parts: Mapping[str, Any], learner: ExactLearner) -> Vocabulary:
    found = tuple(np.asarray(each) for each in parts["vocabulary"])
    is_plain = all(each.dtype == np.float64 and each.ndim == 1 and (np.diff(each) > 0).all() for each in found)
    if len(found) != len(learner.categories) or not is_plain:
        raise InputError("the categories of a stored model are damaged")
    return found
