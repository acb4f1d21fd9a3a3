"""The τ-nearest-neighbour table of Appendix C.2 on distances that were computed once.

An audit asks the same thousand points over and over in new shards. Here a record's features are its number in a fixed
collection, and a model looks up who is nearest; its answers are those of `NearestTableLearner` on the points
themselves. For every query the collection is ranked by distance beforehand, so a shard's nearest point is the one of
least rank: a minimum over rows of small integers, which is what makes thousands of trials cheap.
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
_MOST_POINTS = 2**16 - 1


@dataclass(frozen=True)
class Neighbourhood:
    """Who is how near to whom. Use `Neighbourhood.of`.

    ranks[j, q] is the place of point j among all points by distance from query q (equally near: the lower number
    first), order[q, i] the point in place i, and num_near[q] how many points are within τ of q.
    """

    ranks: NDArray[np.uint16] = field(repr=False)
    order: NDArray[np.uint16] = field(repr=False)
    num_near: NDArray[np.int64] = field(repr=False)
    tau: float

    @classmethod
    def of(cls, queries: NDArray[Any], points: NDArray[Any], *, tau: float) -> Neighbourhood:
        """From the coordinates; the points must be the first of the queries, so that both are numbered alike."""
        if not tau >= 0:
            raise ParameterError(f"tau must be at least 0, got {tau!r}")
        if len(points) > _MOST_POINTS:
            raise ParameterError(f"at most {_MOST_POINTS} points can be ranked, got {len(points)}")
        squared = squared_distances(queries, points)
        order = np.argsort(squared, axis=1, kind="stable")
        ranks = np.empty(order.shape, dtype=np.uint16)
        np.put_along_axis(ranks, order, np.arange(len(points), dtype=np.uint16)[None, :], axis=1)
        num_near = (np.sqrt(squared) <= tau).sum(axis=1)
        return cls(np.ascontiguousarray(ranks.T), order.astype(np.uint16), num_near, tau)


@dataclass(frozen=True)
class NumberedTable:
    """f_{D,τ} over numbered points."""

    around: Neighbourhood = field(repr=False)
    members: NDArray[np.int64]
    code_of: NDArray[np.int64] = field(repr=False)

    def predict(self, X: Features) -> Codes:
        """The label of every row's nearest member within τ, ⊥ if there is none; among equally near the first."""
        rows = _numbers(X)
        if len(rows) == 0:
            return np.empty(0, dtype=np.int64)
        # Whole rows of `ranks` are copied and reduced at once; picking the queries comes after.
        least = self.around.ranks[self.members, : int(rows.max()) + 1].min(axis=0)[rows]
        nearest = self.around.order[rows, least]
        return np.where(least < self.around.num_near[rows], self.code_of[nearest], ABSTAIN)


@dataclass(frozen=True)
class NumberedTableLearner:
    """Keeps its shard's numbers."""

    around: Neighbourhood

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """The shard itself; no randomness, weights do not matter. Of two labels for one point the first counts."""
        members = _numbers(X)
        code_of = np.full(len(self.around.ranks), ABSTAIN, dtype=np.int64)
        code_of[members[::-1]] = np.asarray(y, dtype=np.int64)[::-1]
        return NumberedTable(self.around, members, code_of)


def squared_distances(queries: NDArray[Any], points: NDArray[Any]) -> NDArray[np.float64]:
    """From all queries to all points, by one matrix product; exactly zero where a query is a point."""
    rows, columns = (np.asarray(part, dtype=np.float64).reshape(len(part), -1) for part in (queries, points))
    squared = (rows**2).sum(axis=1)[:, None] + (columns**2).sum(axis=1)[None, :] - 2 * rows @ columns.T
    squared[squared < _SAME_POINT] = 0.0
    return np.asarray(squared, dtype=np.float64)


def _numbers(X: Features) -> NDArray[np.int64]:
    return np.asarray(X, dtype=np.float64).reshape(-1).astype(np.int64)
