"""Synthetic data for the benchmarks: the timings depend on its shape, not on what it says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from expunge.estimator import UnlearningClassifier

NUM_FEATURES = 20


def make_records(num_records: int, *, num_classes: int = 2) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Normal features, and labels from a random multinomial logistic model; the same at every call."""
    rng = np.random.default_rng(20_21)
    X = rng.normal(size=(num_records, NUM_FEATURES))
    scores = X @ rng.normal(size=(NUM_FEATURES, num_classes)) + rng.gumbel(size=(num_records, num_classes))
    return X, scores.argmax(axis=1)


def make_queries(num_rows: int) -> NDArray[np.float64]:
    """Rows to predict."""
    return np.random.default_rng(4).normal(size=(num_rows, NUM_FEATURES))


def fit_voters(num_records: int, num_shards: int, *, num_classes: int = 2) -> UnlearningClassifier:
    """An ensemble of linear models to vote with; rough training will do, for voting takes the same time."""
    X, y = make_records(num_records, num_classes=num_classes)
    # Plain majority votes on every call; the default repeats answers inside a round, and would time its memory instead.
    return UnlearningClassifier(LogisticRegression(tol=0.1), n_shards=num_shards, mechanism="majority").fit(X, y)
