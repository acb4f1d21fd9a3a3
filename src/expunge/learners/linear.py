"""Linear models vote for all shards in one matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.features import Features, is_sparse, num_rows
from expunge.learners.protocol import ABSTAIN, Codes

_SCORES_AT_ONCE = 1 << 19  # float64 scores that stay in the second-level cache while they are compared and summed

# Of one shard: (weights, intercepts, class codes of the rows), a constant class code, or None for ⊥.
LinearScores = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]
LinearVote = LinearScores | int | None


class LinearVoter:
    """Scores of every shard as one product X·W + b; a class that a shard never saw scores -∞ there."""

    def __init__(self, shards: Sequence[LinearVote], num_classes: int, num_features: int) -> None:
        self._num_classes = num_classes
        self._num_shards = len(shards)
        self._speaking = np.array([shard is not None for shard in shards])
        speaking = [shard for shard in shards if shard is not None]
        if num_classes == 2:
            pairs = [_binary(shard, num_features) for shard in speaking]
            self._weights = np.array([w for w, _ in pairs]).reshape(len(pairs), num_features).T.copy()
            self._intercepts = np.array([b for _, b in pairs], dtype=np.float64)
        else:
            full = [_full(shard, num_classes, num_features) for shard in speaking]
            rows = len(full) * num_classes
            self._weights = np.array([w for w, _ in full]).reshape(rows, num_features).T.copy()
            self._intercepts = np.array([b for _, b in full], dtype=np.float64).reshape(rows)

    def count(self, X: Features) -> NDArray[np.int64]:
        """Votes for each class."""
        counts = np.empty((num_rows(X), self._num_classes), dtype=np.int64)
        num_speaking = int(self._speaking.sum())
        for first, codes in self._chunks(X):
            part = counts[first : first + len(codes)]
            if self._num_classes == 2:
                ones = np.count_nonzero(codes, axis=1)
                part[:, 0], part[:, 1] = num_speaking - ones, ones
            else:
                for code in range(self._num_classes):
                    part[:, code] = np.count_nonzero(codes == code, axis=1)
        return counts

    def votes(self, X: Features) -> Codes:
        """Every shard's vote."""
        table = np.full((num_rows(X), self._num_shards), ABSTAIN, dtype=np.int32)
        for first, codes in self._chunks(X):
            table[first : first + len(codes), self._speaking] = codes
        return table

    def _chunks(self, X: Features) -> Any:
        """(first row, codes of the speaking shards) for runs of rows."""
        sparse = is_sparse(X)
        table = X if sparse else np.asarray(X, dtype=np.float64)
        at_once = max(1, _SCORES_AT_ONCE // max(1, self._weights.shape[1]))
        for first in range(0, num_rows(X), at_once):
            scores = table[first : first + at_once] @ self._weights
            if self._num_classes == 2:
                yield first, scores > -self._intercepts
            else:
                scores += self._intercepts
                yield first, scores.reshape(len(scores), -1, self._num_classes).argmax(axis=2)


def _binary(shard: LinearVote, num_features: int) -> tuple[NDArray[np.float64], float]:
    """One score per row, positive for class 1."""
    if isinstance(shard, int):
        return np.zeros(num_features), 1.0 if shard == 1 else -1.0
    assert shard is not None
    weights, intercepts, _ = shard
    return weights[0], float(intercepts[0])


def _full(shard: LinearVote, num_classes: int, num_features: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One score per class; the largest wins, the first among equals, as in scikit-learn."""
    weights = np.zeros((num_classes, num_features))
    intercepts = np.full(num_classes, -np.inf)
    if isinstance(shard, int):
        intercepts[shard] = 0.0
        return weights, intercepts
    assert shard is not None
    own_weights, own_intercepts, codes = shard
    if len(codes) == 2:  # a single score: positive for the second class
        own_weights = np.vstack([np.zeros(num_features), own_weights])
        own_intercepts = np.concatenate([[0.0], own_intercepts])
    weights[codes] = own_weights
    intercepts[codes] = own_intercepts
    return weights, intercepts
