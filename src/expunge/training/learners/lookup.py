"""The paper's two table models: lookup (Section 5.1) and τ-nearest-neighbour (Appendix C.2), both with ⊥."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from expunge.core.errors import ParameterError
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
    """f_D(x): y if (x, y) is in D, ⊥ otherwise."""

    labels: dict[bytes, int]

    def predict(self, X: Features) -> Codes:
        """The stored label of every row that was seen in training."""
        return np.array([self.labels.get(key, ABSTAIN) for key in _keys(X)], dtype=np.int64)


@dataclass(frozen=True)
class LookupTableLearner:
    """Memorises its shard. Two labels for one point: the lower one, whatever the order of the records."""

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> LookupTable:
        """The table of the shard; no randomness, weights do not matter."""
        labels: dict[bytes, int] = {}
        for key, code in zip(_keys(X), np.asarray(y).tolist(), strict=True):
            labels[key] = min(code, labels.get(key, code))
        return LookupTable(labels)


@dataclass(frozen=True)
class NearestTable:
    """f_{D,τ}(x): the label of the closest point of D within distance τ, ⊥ if there is none."""

    points: NDArray[np.float64]
    codes: NDArray[Any]
    tau: float

    def predict(self, X: Features) -> Codes:
        """The label of every row's nearest point; among equally near ones the first."""
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
    """Keeps its shard and treats points within Euclidean distance `tau` as the same."""

    tau: float

    def __post_init__(self) -> None:
        if not self.tau >= 0:
            raise ParameterError(f"tau must be at least 0, got {self.tau!r}")

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> NearestTable:
        """The shard itself; no randomness, weights do not matter."""
        return NearestTable(_dense(X), np.asarray(y), self.tau)
