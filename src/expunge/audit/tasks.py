"""Data to attack: digits, which are always there, and the zeros and ones of MNIST, from files of the user's.

scikit-learn's handwritten digits (8 × 8 pixels, 1,797 of them), which come with the base install.

The τ-nearest-neighbour table of Appendix C.2 on distances that were computed once.

An audit asks the same thousand points over and over in new shards. Here a record's features are its number in a fixed
collection, and a model looks up who is nearest; its answers are those of `NearestTableLearner` on the points
themselves. For every query the collection is ranked by distance beforehand, so a shard's nearest point is the one of
least rank: a minimum over rows of small integers, which is what makes thousands of trials cheap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits as _load
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from expunge.audit.images import load_mnist
from expunge.audit.scenario import Task
from expunge.core.errors import InputError, ParameterError
from expunge.core.features import Features
from expunge.core.records import Records
from expunge.training.learners import ABSTAIN, Learner, Model, NearestTableLearner, ScikitLearner
from expunge.training.learners.protocol import Codes, Weights


@dataclass(frozen=True)
class Digits:
    """A training and a test half; `subjects` are made-up people who wrote a dozen digits each."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    subjects: list[str]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]


def load_digits(*, test_size: int = 360, digits_per_subject: int = 12) -> Digits:
    """The digits with pixels between 0 and 1, in their own order; the last `test_size` are held out."""
    raw: Any = _load()
    X, y = raw.data / 16.0, raw.target
    train = len(y) - test_size
    subjects = [f"writer-{i // digits_per_subject:03d}" for i in range(train)]
    return Digits(X[:train], y[:train], subjects, X[train:], y[train:])


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


LEARNER_NAMES = ("logistic", "tree", "nearest")
MNIST_TAU = 6.5
# Nine digits in ten have a neighbour of their class within this distance, none one of the other class within 2.2.
DIGITS_TAU = 1.2
_DATA_SEED = 20210607  # which images are drawn; the same in every audit, apart from the audit's own seed


def digits_task(*, num_records: int = 600, learner: Learner | None = None) -> Task:
    """Handwritten digits (8 × 8) with a logistic regression that is sure of itself, or another learner."""
    data = load_digits()
    _require_size(num_records, len(data.y) - 200)
    order = np.random.default_rng(_DATA_SEED).permutation(len(data.y))
    kept, public = order[:num_records], order[num_records : num_records + 200]
    return Task(
        name="digits",
        records=Records.build(data.X[kept], data.y[kept], classes=np.arange(10)),
        learner=learner or built_in_learner("logistic"),
        test_points=data.X_test,
        test_codes=data.y_test.astype(np.int64),
        pool=data.X[public],
    )


def built_in_learner(name: str) -> Learner:
    """A learner for digits: `logistic` (sure of itself), `tree` (full-grown) and `nearest`, which memorise."""
    match name:
        case "logistic":
            return ScikitLearner(LogisticRegression(C=100.0, max_iter=100))
        case "tree":
            return ScikitLearner(DecisionTreeClassifier())
        case "nearest":
            return NearestTableLearner(math.inf)
    raise ParameterError(f"learner must be one of {', '.join(LEARNER_NAMES)}, got {name!r}")


def zeros_and_ones_task(*, num_records: int = 1000, tau: float = MNIST_TAU) -> Task:
    """Appendix C.2: `num_records` MNIST images that are 0 or 1, pixels/255, and the τ-nearest-neighbour table."""
    try:
        data = load_mnist()
    except InputError as error:
        raise InputError(f"{error}; the built-in digits can stand in for MNIST (--data digits)") from None
    train, test = np.flatnonzero(data.y <= 1), np.flatnonzero(data.y_test <= 1)
    return _numbered_task(
        "MNIST zeros and ones",
        (data.X[train] / 255.0, data.y[train]),
        (data.X_test[test] / 255.0, data.y_test[test]),
        num_records=num_records,
        tau=tau,
    )


def small_zeros_and_ones_task(*, num_records: int = 200, tau: float = DIGITS_TAU) -> Task:
    """The stand-in for MNIST: zeros and ones among the built-in digits."""
    data = load_digits()
    train, test = np.flatnonzero(data.y <= 1), np.flatnonzero(data.y_test <= 1)
    return _numbered_task(
        "digits zeros and ones (stand-in for MNIST)",
        (data.X[train], data.y[train]),
        (data.X_test[test], data.y_test[test]),
        num_records=num_records,
        tau=tau,
    )


def _numbered_task(
    name: str,
    train: tuple[NDArray[np.float64], NDArray[np.int64]],
    test: tuple[NDArray[np.float64], NDArray[np.int64]],
    *,
    num_records: int,
    tau: float,
) -> Task:
    """Records first, then public points, then test points, all by their number in one neighbourhood."""
    num_public = min(200, (len(train[1]) - num_records) // 2)
    _require_size(num_records, len(train[1]) - 2)
    order = np.random.default_rng(_DATA_SEED).permutation(len(train[1]))[: num_records + num_public]
    points = np.concatenate([train[0][order].reshape(len(order), -1), test[0].reshape(len(test[1]), -1)])
    numbers = np.arange(len(points), dtype=np.float64).reshape(-1, 1)
    return Task(
        name=name,
        records=Records.build(numbers[:num_records], train[1][order[:num_records]], classes=[0, 1]),
        learner=NumberedTableLearner(Neighbourhood.of(points, points[: len(order)], tau=tau)),
        test_points=numbers[len(order) :],
        test_codes=test[1].astype(np.int64),
        pool=numbers[num_records : len(order)],
    )


def _require_size(num_records: int, most: int) -> None:
    if isinstance(num_records, bool) or not isinstance(num_records, int) or not 2 <= num_records <= most:
        raise ParameterError(f"num_records must be between 2 and {most} here, got {num_records!r}")
