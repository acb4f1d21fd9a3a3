"""The two table models of the paper: lookup (Section 5.1) and τ-nearest-neighbour (Appendix C.2), both with ⊥."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from expunge.core.checks import require_number
from expunge.core.features import Features
from expunge.training.learners.protocol import ABSTAIN, Codes, Weights

_DISTANCES_AT_ONCE = 1 << 22


def _dense(X: Features) -> NDArray[np.float64]:
    table = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    return np.ascontiguousarray(table, dtype=np.float64).reshape(len(table), -1)


def _keys(X: Features) -> list[bytes]:
    table = _dense(X) + 0.0  # -0.0 and 0.0 are the same point
    width = table.shape[1] * table.itemsize
    raw = table.tobytes()
    return [raw[at : at + width] for at in range(0, len(raw), width)] if width else [b""] * len(table)


@dataclass(frozen=True)
class LookupTable:
    """f_D(x) of Section 5.1: y if (x, y) is in D, ⊥ otherwise. `LookupTableLearner` makes it.

    Parameters
    ----------
    labels
        The class code of every point that was seen in training, by the bytes of its features.
    """

    labels: dict[bytes, int]

    def predict(self, X: Features) -> Codes:
        """The stored class code of every row that was seen in training; `ABSTAIN` for other rows."""
        return np.array([self.labels.get(key, ABSTAIN) for key in _keys(X)], dtype=np.int64)


@dataclass(frozen=True)
class LookupTableLearner:
    """Memorise the shard. If a point has two labels, the lower class code counts, in any order of the records.

    Examples
    --------
    >>> model = LookupTableLearner().fit(np.array([[1.0], [2.0]]), np.array([0, 1]), seed=0)
    >>> model.predict(np.array([[2.0], [3.0]]))
    array([ 1, -1])
    """

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> LookupTable:
        """The table of the shard. It uses neither the seed nor the weights."""
        labels: dict[bytes, int] = {}
        for key, code in zip(_keys(X), np.asarray(y).tolist(), strict=True):
            labels[key] = min(code, labels.get(key, code))
        return LookupTable(labels)


@dataclass(frozen=True)
class NearestTable:
    """f_{D,τ}(x) of Appendix C.2: the label of the closest point of D within distance τ, ⊥ if there is none.

    `NearestTableLearner` makes it.

    Parameters
    ----------
    points
        The features of the shard's records, one row each.
    codes
        Their class codes.
    tau
        The largest distance at which a point counts.
    """

    points: NDArray[np.float64]
    codes: NDArray[Any]
    tau: float

    def predict(self, X: Features) -> Codes:
        """The code of the nearest point within `tau` for every row, the first among equals; else `ABSTAIN`."""
        queries = _dense(X)
        answer = np.empty(len(queries), dtype=np.int64)
        at_once = max(1, _DISTANCES_AT_ONCE // max(1, len(self.points)))
        for first in range(0, len(queries), at_once):
            distances = cdist(queries[first : first + at_once], self.points)
            nearest = distances.argmin(axis=1)
            near = distances[np.arange(len(nearest)), nearest] <= self.tau
            answer[first : first + at_once] = np.where(near, self.codes[nearest], ABSTAIN)
        return answer


@dataclass(frozen=True)
class NearestTableLearner:
    """Keep the shard, and treat points within a Euclidean distance as the same.

    Parameters
    ----------
    tau
        The largest distance at which a point counts, >= 0. Infinity is allowed: then no row gets ⊥.

    Raises
    ------
    ParameterError
        If `tau` is not a number >= 0.

    Examples
    --------
    >>> model = NearestTableLearner(tau=0.5).fit(np.array([[1.0], [2.0]]), np.array([0, 1]), seed=0)
    >>> model.predict(np.array([[2.4], [3.0]]))
    array([ 1, -1])
    """

    tau: float

    def __post_init__(self) -> None:
        require_number("tau", self.tau, least=0, infinite=True)

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> NearestTable:
        """The shard itself. It uses neither the seed nor the weights."""
        return NearestTable(_dense(X), np.asarray(y), self.tau)
