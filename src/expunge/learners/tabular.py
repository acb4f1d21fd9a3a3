"""Linear models behind the preprocessing of a table vote for all shards in one matrix product.

Every shard fills gaps with its own medians, scales by its own deviations and knows its own categories. All of that is
linear in one common coding of a row: its numbers, where they are missing, and a column for every category that some
shard knows. So it goes into the weights, and rows are coded once instead of once a shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

from expunge.errors import InputError
from expunge.features import Features, is_frame, num_rows, take
from expunge.learners.linear import LinearScores, LinearVote, LinearVoter, linear_scores, scaler_factors
from expunge.learners.named import AsText
from expunge.learners.protocol import Codes

_MOST_WEIGHTS = 1 << 24  # of all shards and classes together; with more categories than that, shards vote one by one
_DENSE = 256  # columns up to which a coded row is an ordinary array
_ROWS_AT_ONCE = 1 << 13
_PARTS = [["numbers"], ["categories"], ["numbers", "categories"]]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Layout:
    """Which columns are numbers, by name (None: all of them), and which are categories."""

    width: int
    numbers: tuple[str, ...] | None
    categories: tuple[str, ...]


@dataclass(frozen=True)
class _Folded:
    """One shard's scores as a linear function of a row; `texts` are the categories that it knows, a column each."""

    layout: _Layout
    numbers: Floats  # a row of weights for each score
    gaps: Floats  # the same for "this number is missing"
    texts: tuple[Sequence[str], ...]
    categories: tuple[Floats, ...]
    intercepts: Floats
    codes: NDArray[np.int64]


class TableVoter:
    """Codes rows once, and has all shards' scores in one product."""

    def __init__(self, layout: _Layout, vocabulary: Sequence[dict[str, int]], voter: LinearVoter) -> None:
        self._layout = layout
        self._vocabulary = vocabulary
        self._voter = voter

    def count(self, X: Features) -> NDArray[np.int64]:
        """Votes for each class."""
        return np.concatenate([self._voter.count(rows) for rows in self._coded(X)])

    def votes(self, X: Features) -> Codes:
        """Every shard's vote."""
        return np.concatenate([self._voter.votes(rows) for rows in self._coded(X)])

    def _coded(self, X: Features) -> Any:
        for first in range(0, max(1, num_rows(X)), _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, num_rows(X))
            yield self._code(take(X, np.arange(first, last)))

    def _code(self, rows: Features) -> Any:
        numbers, (codes, starts) = _numbers(rows, self._layout), self._positions(rows)
        gaps = np.isnan(numbers)
        coded = np.concatenate([np.where(gaps, 0.0, numbers), gaps], axis=1)
        total = sum(map(len, self._vocabulary))
        row, column = np.nonzero(codes >= 0)
        place = codes[row, column] + starts[column]
        if coded.shape[1] + total <= _DENSE:
            marks = np.zeros((len(numbers), total))
            marks[row, place] = 1.0
            return np.concatenate([coded, marks], axis=1)
        sparse = scipy.sparse.csr_array((np.ones(len(row)), (row, place)), shape=(len(numbers), total))
        return scipy.sparse.hstack([scipy.sparse.csr_array(coded), sparse], format="csr")

    def _positions(self, rows: Features) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where each row's categories are in the vocabularies (-1: nobody knows it), and where those begin."""
        names = list(self._layout.categories)
        texts = AsText().transform(rows[names]) if names else np.empty((num_rows(rows), 0), dtype=object)
        found = np.empty(texts.shape, dtype=np.int64)
        for column, known in enumerate(self._vocabulary):
            found[:, column] = [known.get(text, -1) for text in texts[:, column]]
        sizes = [len(known) for known in self._vocabulary]
        return found, np.cumsum([0, *sizes], dtype=np.int64)[:-1]


def table_voter(shards: Sequence[Any], classes: NDArray[Any] | None, num_classes: int) -> TableVoter | None:
    """A voter for fitted pipelines, constant class codes and Nones (⊥); None where something else is among them."""
    folded: list[Any] = [_folded(shard, classes) if isinstance(shard, Pipeline) else shard for shard in shards]
    known = [shard for shard in folded if isinstance(shard, _Folded)]
    if len({shard.layout for shard in known}) != 1:
        return None
    if not all(shard is None or isinstance(shard, int | _Folded) for shard in folded):
        return None
    layout = known[0].layout
    columns = [{text for one in known for text in one.texts[at]} for at in range(len(layout.categories))]
    vocabulary = [{text: place for place, text in enumerate(sorted(column))} for column in columns]
    width = 2 * layout.width + sum(map(len, vocabulary))
    if width * len(shards) * num_classes > _MOST_WEIGHTS:
        return None
    votes: list[LinearVote] = [
        (_spread(shard, vocabulary), shard.intercepts, shard.codes) if isinstance(shard, _Folded) else shard
        for shard in folded
    ]
    return TableVoter(layout, vocabulary, LinearVoter(votes, num_classes, width))


def _spread(shard: _Folded, vocabulary: Sequence[dict[str, int]]) -> Floats:
    """A shard's weights over the common coding; a category that it does not know has none."""
    parts = [shard.numbers, shard.gaps]
    for texts, weights, known in zip(shard.texts, shard.categories, vocabulary, strict=True):
        spread = np.zeros((len(weights), len(known)))
        spread[:, [known[text] for text in texts]] = weights
        parts.append(spread)
    return np.concatenate(parts, axis=1)


class _Other:
    """A pipeline of another kind."""


def _folded(pipeline: Pipeline, classes: NDArray[Any] | None) -> _Folded | _Other:
    *before, classifier = [step for _, step in pipeline.steps if step not in (None, "passthrough")]
    scores = linear_scores(classifier, classes)
    if scores is None or not before:
        return _Other()
    if type(before[0]) is ColumnTransformer:
        return _folded_columns(before[0], scores) if len(before) == 1 else _Other()
    weights, intercepts, codes = scores
    numbers = _folded_numbers(before, weights)
    if numbers is None:
        return _Other()
    layout = _Layout(weights.shape[1], None, ())
    return _Folded(layout, numbers.weights, numbers.gaps, (), (), intercepts + numbers.shift, codes)


def _folded_columns(table: ColumnTransformer, scores: LinearScores) -> _Folded | _Other:
    """A transformer of numbers and categories, as the named learners have it."""
    weights, intercepts, codes = scores
    parts = {name: (_steps(step), tuple(columns)) for name, step, columns in table.transformers_ if name != "remainder"}
    if [*parts] not in _PARTS or table.remainder != "drop" or table.transformer_weights:
        return _Other()
    filling, names = parts.get("numbers", ([], ()))
    encoding, categories = parts.get("categories", ([], ()))
    width = len(names)
    numbers = _folded_numbers(filling, weights[:, :width]) if names else _NumberWeights(weights[:, :0], weights[:, :0])
    texts = _texts(encoding) if categories else []
    if numbers is None or texts is None:
        return _Other()
    ends = np.cumsum([len(column) for column in texts])[:-1]
    marks = tuple(np.split(weights[:, width:], ends, axis=1)) if texts else ()
    layout = _Layout(width, names, categories)
    return _Folded(layout, numbers.weights, numbers.gaps, tuple(texts), marks, intercepts + numbers.shift, codes)


def _steps(step: Any) -> list[Any]:
    return [each for _, each in step.steps] if isinstance(step, Pipeline) else [step]


class _NumberWeights(NamedTuple):
    """Weights for numbers, for their gaps, and what to add to the scores."""

    weights: Floats
    gaps: Floats
    shift: Floats | float = 0.0


def _folded_numbers(steps: Sequence[Any], weights: Floats) -> _NumberWeights | None:
    """Of a filler with scalers behind it."""
    filler, *scalers = steps
    if type(filler) is not SimpleImputer or filler.add_indicator or not _is_nan(filler.missing_values):
        return None
    fill = np.asarray(filler.statistics_)
    if fill.dtype.kind != "f" or np.isnan(fill).any() or len(fill) != weights.shape[1]:
        return None  # columns without any value are dropped
    shift = np.zeros(len(weights))
    for scaler in reversed(scalers):
        factors = scaler_factors(scaler)
        if factors is None:
            return None
        scale, move = factors
        shift = shift + weights @ move
        weights = weights * scale
    return _NumberWeights(weights, weights * fill, shift)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and bool(np.isnan(value))


def _texts(steps: Sequence[Any]) -> list[list[str]] | None:
    """The categories that a shard knows, column by column."""
    if [type(step) for step in steps] != [AsText, OneHotEncoder]:
        return None
    encoder = steps[1]
    rare = getattr(encoder, "_infrequent_enabled", False)
    if encoder.handle_unknown != "ignore" or encoder.drop_idx_ is not None or rare:
        return None
    return [column.tolist() for column in encoder.categories_]


def _numbers(rows: Features, layout: _Layout) -> Floats:
    if is_frame(rows):
        columns = rows if layout.numbers is None else rows[list(layout.numbers)]
        table: Floats = columns.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        table = np.asarray(rows, dtype=np.float64)
    if np.isinf(table).any():
        raise InputError("a row holds an infinite number")
    return table
