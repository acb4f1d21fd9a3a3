"""Synthetic data for the benchmarks: the timings depend on its shape, not on what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from expunge.serving.estimator import UnlearningClassifier
from expunge.training.learners.named import column_kinds, named_learner

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
    # Plain majority votes on every call; other promises repeat answers inside a round, or average probabilities.
    return UnlearningClassifier(LogisticRegression(tol=0.1), n_shards=num_shards, promise="unguarded").fit(X, y)


def make_table(num_rows: int) -> tuple[Any, NDArray[np.int64]]:
    """A company's table: numbers, some of them missing, and categories."""
    import pandas as pd

    rng = np.random.default_rng(5)
    age, income = rng.integers(18, 90, num_rows), rng.normal(30_000, 9_000, num_rows)
    frame = pd.DataFrame(
        {
            "age": age,
            "income": np.where(rng.random(num_rows) < 0.1, np.nan, income),
            "region": rng.choice([f"region {n}" for n in range(20)], num_rows),
            "plan": rng.choice(["basic", "plus", "family"], num_rows),
        }
    )
    return frame, ((age > 50) ^ (frame["plan"] == "family").to_numpy()).astype(np.int64)


def fit_table_voters(num_records: int, num_shards: int) -> UnlearningClassifier:
    """An ensemble of logistic regressions behind each shard's own medians, scales and categories."""
    frame, y = make_table(num_records)
    learner = named_learner("logistic", columns=column_kinds(frame))
    return UnlearningClassifier(learner, n_shards=num_shards, promise="unguarded").fit(frame, y)
