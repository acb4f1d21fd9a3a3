"""Models behind the preprocessing of a table vote on rows that are coded once, and not once a shard.

For linear models a shard's preprocessing is linear in the common coding, so it goes into the weights, and all shards
vote in one matrix product. Any other classifier is handed the rows that its own pipeline would make, in 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from expunge._labels import codes_told
from expunge.features import Features, is_sparse, num_rows
from expunge.learners.linear import LinearScores, LinearVote, LinearVoter, linear_scores, scaler_factors
from expunge.learners.protocol import ABSTAIN, Codes, Voter, count_votes
from expunge.learners.table_rows import Coded, Coder, Preparation, Prepared

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
        return codes_told(labels, classifier.classes_, self._classes)


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
