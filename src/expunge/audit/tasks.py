"""Data to attack: scikit-learn's digits, which come with the base install, and the zeros and ones of MNIST.

Zeros and ones are classified by the τ-nearest-neighbour table of Appendix C.2, on distances that are computed once. An
audit asks about the same thousand points many times, with new shards each time. So a record's features are its number
in a fixed collection, and a model looks up which point is nearest. Its answers are those of `NearestTableLearner` on
the points themselves. For every query the collection is ranked by distance beforehand, so a shard's nearest point is
the one of least rank. That is a minimum over rows of small integers, which makes thousands of trials cheap.
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
from expunge.core.checks import require_choice, require_count, require_number
from expunge.core.errors import InputError, ParameterError
from expunge.core.features import Features
from expunge.core.records import Records
from expunge.training.learners import ABSTAIN, Learner, Model, NearestTableLearner, ScikitLearner
from expunge.training.learners.protocol import Codes, Weights


@dataclass(frozen=True)
class Digits:
    """Handwritten digits, 8 × 8 pixels between 0 and 1, to train on and to test with.

    Parameters
    ----------
    X, y
        Pixels and classes of the digits to train on.
    subjects
        Made-up people who wrote a dozen of them each.
    X_test, y_test
        Pixels and classes of the digits that are held out.
    """

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    subjects: list[str]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]


def load_digits(*, test_size: int = 360, digits_per_subject: int = 12) -> Digits:
    """Load scikit-learn's 1,797 handwritten digits, in their own order.

    Parameters
    ----------
    test_size
        How many are held out; these are the last ones.
    digits_per_subject
        How many digits each made-up person wrote.

    Returns
    -------
    Digits
        The digits.

    Examples
    --------
    >>> data = load_digits()
    >>> data.X.shape, data.X_test.shape, data.subjects[0]
    ((1437, 64), (360, 64), 'writer-000')
    """
    raw: Any = _load()
    X, y = raw.data / 16.0, raw.target
    train = len(y) - test_size
    subjects = [f"writer-{i // digits_per_subject:03d}" for i in range(train)]
    return Digits(X[:train], y[:train], subjects, X[train:], y[train:])


_SAME_POINT = 1e-9  # of squared distances: what rounding leaves where the two points are the same
_MOST_POINTS = 2**16 - 1


@dataclass(frozen=True)
class Neighbourhood:
    """Which points are near to which queries. Use `Neighbourhood.of`.

    ranks[j, q] is the place of point j among all points by distance from query q (of equally near points, the lower
    number comes first). order[q, i] is the point in place i. num_near[q] is how many points are within τ of q.
    """

    ranks: NDArray[np.uint16] = field(repr=False)
    order: NDArray[np.uint16] = field(repr=False)
    num_near: NDArray[np.int64] = field(repr=False)
    tau: float

    @classmethod
    def of(cls, queries: NDArray[Any], points: NDArray[Any], *, tau: float) -> Neighbourhood:
        """Compute it from coordinates. The points must be the first of the queries, so that the numbers agree."""
        require_number("tau", tau, least=0, infinite=True)
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
        """The label of every row's nearest member within τ (the first of equals), ⊥ if there is none."""
        rows = _numbers(X)
        if len(rows) == 0:
            return np.empty(0, dtype=np.int64)
        # Copying and reducing whole rows of `ranks`, and picking the queries afterwards, is faster.
        least = self.around.ranks[self.members, : int(rows.max()) + 1].min(axis=0)[rows]
        nearest = self.around.order[rows, least]
        return np.where(least < self.around.num_near[rows], self.code_of[nearest], ABSTAIN)


@dataclass(frozen=True)
class NumberedTableLearner:
    """Nearest-neighbour tables over numbered points."""

    around: Neighbourhood

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """Keep the shard. Seed and weights have no effect. Of two labels for one point the first counts."""
        members = _numbers(X)
        code_of = np.full(len(self.around.ranks), ABSTAIN, dtype=np.int64)
        code_of[members[::-1]] = np.asarray(y, dtype=np.int64)[::-1]
        return NumberedTable(self.around, members, code_of)


def squared_distances(queries: NDArray[Any], points: NDArray[Any]) -> NDArray[np.float64]:
    """Squared distances from all queries to all points, by one matrix product; exactly zero if a query is a point."""
    rows, columns = (np.asarray(part, dtype=np.float64).reshape(len(part), -1) for part in (queries, points))
    squared = (rows**2).sum(axis=1)[:, None] + (columns**2).sum(axis=1)[None, :] - 2 * rows @ columns.T
    squared[squared < _SAME_POINT] = 0.0
    return np.asarray(squared, dtype=np.float64)


def _numbers(X: Features) -> NDArray[np.int64]:
    return np.asarray(X, dtype=np.float64).reshape(-1).astype(np.int64)


LEARNER_NAMES = ("logistic", "tree", "nearest")
MNIST_TAU = 6.5
# Nine digits in ten have a neighbour of their class within this distance; none has one of the other class within 2.2.
DIGITS_TAU = 1.2
_DATA_SEED = 20210607  # which images are drawn; the same in every audit, apart from the audit's own seed


def digits_task(*, num_records: int = 600, learner: Learner | None = None) -> Task:
    """Make a task of handwritten digits (8 × 8 pixels, ten classes).

    Parameters
    ----------
    num_records
        How many records to train on.
    learner
        None means a logistic regression with little regularisation, which is confident.

    Returns
    -------
    Task
        The data and the learner, with 360 test points and 200 public points.

    Raises
    ------
    ParameterError
        If there are not so many digits.

    Examples
    --------
    >>> task = digits_task(num_records=300)
    >>> task.name, len(task.records), len(task.test_points), len(task.pool)
    ('digits', 300, 360, 200)
    """
    data = load_digits()
    require_count("num_records", num_records, least=2, most=len(data.y) - 200)
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
    """Make a learner for digits: `logistic` (confident), or `tree` (full-grown) and `nearest`, which memorise."""
    match require_choice("learner", name, LEARNER_NAMES):
        case "logistic":
            return ScikitLearner(LogisticRegression(C=100.0, max_iter=100))
        case "tree":
            return ScikitLearner(DecisionTreeClassifier())
        case _:
            return NearestTableLearner(math.inf)


def zeros_and_ones_task(*, num_records: int = 1000, tau: float = MNIST_TAU) -> Task:
    """Make the task of Appendix C.2: MNIST images that are 0 or 1, pixels/255, and the τ-nearest-neighbour table.

    Parameters
    ----------
    num_records
        How many records to train on.
    tau
        Within which distance a neighbour's label counts.

    Returns
    -------
    Task
        The data and the learner.

    Raises
    ------
    InputError
        If the files of MNIST are missing or are not the published ones.
    ParameterError
        If there are not so many images, or τ is negative.
    """
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
    """Make the stand-in for `zeros_and_ones_task`: zeros and ones among the built-in digits.

    Parameters
    ----------
    num_records
        How many records to train on.
    tau
        Within which distance a neighbour's label counts.

    Returns
    -------
    Task
        The data and the learner.

    Raises
    ------
    ParameterError
        If there are not so many images, or τ is negative.

    Examples
    --------
    >>> task = small_zeros_and_ones_task(num_records=100)
    >>> len(task.records), task.learner.around.tau
    (100, 1.2)
    """
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
    """Number the records first, then public points, then test points, all in one neighbourhood."""
    require_count("num_records", num_records, least=2, most=len(train[1]) - 2)
    num_public = min(200, (len(train[1]) - num_records) // 2)
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
