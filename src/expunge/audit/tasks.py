"""Data to attack: digits, which are always there, and the zeros and ones of MNIST, from files of the user's."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from expunge.audit.neighbours import Neighbourhood, NumberedTableLearner
from expunge.audit.scenario import Task
from expunge.datasets import load_digits, load_mnist
from expunge.errors import InputError, ParameterError
from expunge.learners import Learner, NearestTableLearner, ScikitLearner
from expunge.records import Records

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
