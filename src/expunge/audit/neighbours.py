"""The τ-nearest-neighbour table of Appendix C.2 on distances that were computed once.

An audit asks the same thousand points over and over in new shards. Here a record's features are its number in a fixed
collection, and a model looks distances up; its answers are those of `NearestTableLearner` on the points themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.errors import ParameterError
from expunge.features import Features
from expunge.learners import ABSTAIN, Model
from expunge.learners.protocol import Codes, Weights

_SAME_POINT = 1e-9  # of squared distances: what rounding leaves where the two points are the same


@dataclass(frozen=True)
class NumberedTable:
    """f_{D,τ} over numbered points."""

    distances: NDArray[np.float32] = field(repr=False)
    members: NDArray[np.int64]
    codes: NDArray[Any]
    tau: float

    def predict(self, X: Features) -> Codes:
        """The label of every row's nearest member within τ, ⊥ if there is none; among equally near the first."""
        rows = _numbers(X)
        near = self.distances[np.ix_(rows, self.members)]
        nearest = near.argmin(axis=1)
        found = near[np.arange(len(rows)), nearest] <= self.tau
        return np.where(found, self.codes[nearest], ABSTAIN).astype(np.int64)


@dataclass(frozen=True)
class NumberedTableLearner:
    """Keeps its shard's numbers; `distances[i, j]` is the distance from point i to point j, a possible record."""

    distances: NDArray[np.float32] = field(repr=False)
    tau: float

    def __post_init__(self) -> None:
        if not self.tau >= 0:
            raise ParameterError(f"tau must be at least 0, got {self.tau!r}")

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """The shard itself; no randomness, weights do not matter."""
        return NumberedTable(self.distances, _numbers(X), np.asarray(y), self.tau)


def distance_matrix(queries: NDArray[Any], points: NDArray[Any]) -> NDArray[np.float32]:
    """Euclidean distances from all queries to all points, by one matrix product in double precision.

    A query that is a point has distance zero to it, exactly.
    """
    rows, columns = (np.asarray(part, dtype=np.float64).reshape(len(part), -1) for part in (queries, points))
    squared = (rows**2).sum(axis=1)[:, None] + (columns**2).sum(axis=1)[None, :] - 2 * rows @ columns.T
    squared[np.abs(squared) < _SAME_POINT] = 0.0
    return np.asarray(np.sqrt(np.maximum(squared, 0.0)), dtype=np.float32)


def _numbers(X: Features) -> NDArray[np.int64]:
    return np.asarray(X, dtype=np.float64).reshape(-1).astype(np.int64)
