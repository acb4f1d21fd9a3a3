"""Rows of any number type are the same rows, and a score that is not a number is no vote."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from expunge.core.errors import InputError
from expunge.training.learners.jax import JaxLearner, JaxModel, adam, logistic
from expunge.training.learners.jax.rows import dense_rows
from expunge.training.learners.protocol import ABSTAIN


@pytest.mark.parametrize(
    ("kind", "large"), [(np.int64, 2**32), (np.uint64, 2**32), (np.uint32, 2**31), (np.int32, 2**30)]
)
def test_large_whole_numbers_are_what_they_are_as_floats(kind: Any, large: int) -> None:
    """A number beyond 32 bits would lose its upper ones."""
    y = np.arange(60) % 2
    X = (2**27 + 1 + large * y)[:, None].astype(kind)
    learner = JaxLearner(logistic(input_shape=(1,)), input_scale=1e-9, steps=60, optimizer=adam(0.2), num_classes=2)
    model, floats = learner.fit(X, y, 1), learner.fit(X.astype(np.float64), y, 1)
    assert isinstance(model, JaxModel)
    assert isinstance(floats, JaxModel)
    leaves = zip(jax.tree.leaves(model.parameters), jax.tree.leaves(floats.parameters), strict=True)
    assert all(np.array_equal(left, right) for left, right in leaves)
    assert np.array_equal(model.scores(X), model.scores(X.astype(np.float64)))
    voter = learner.make_voter([model], 2)
    assert np.array_equal(voter.votes(X), voter.votes(X.astype(np.float64)))


def test_small_whole_numbers_stay_small() -> None:
    for kind in (np.uint8, np.int16, bool):
        assert dense_rows(np.zeros((2, 3), kind)).dtype == kind
    for wide in (np.int32, np.int64, np.float16, np.float64):
        assert dense_rows(np.zeros((2, 3), wide)).dtype == np.float32


def test_a_data_frame_of_numbers_and_truth_values_is_float32() -> None:
    frame = pd.DataFrame({"a": [0.5, 2.0], "b": [True, False], "c": [3, 4], "d": pd.array([1, 2], dtype="Int64")})
    rows = dense_rows(frame)
    assert rows.dtype == np.float32
    assert rows.tolist() == [[0.5, 1.0, 3.0, 1.0], [2.0, 0.0, 4.0, 2.0]]


@pytest.mark.parametrize("values", [["x", "y"], pd.Categorical([1, 2]), pd.to_datetime(["2020-01-01", "2020-01-02"])])
def test_a_column_that_holds_no_numbers_is_named(values: Any) -> None:
    with pytest.raises(InputError, match="needs numbers, but column 'place' has values of type"):
        dense_rows(pd.DataFrame({"a": [0.5, 2.0], "place": values}))


def test_a_score_that_is_not_a_number_is_no_vote_and_no_warning() -> None:
    X = np.random.default_rng(0).normal(size=(40, 4))
    learner = JaxLearner(logistic(input_shape=(4,)), steps=5, num_classes=2)
    model = learner.fit(X, (X[:, 0] > 0).astype(int), 1)
    asked = np.stack([X[0], np.full(4, 1e300) * [1, -1, 1, -1], np.full(4, np.nan)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        codes = model.predict(asked)
        voter = learner.make_voter([model], 2)
        votes, counts = voter.votes(asked), voter.count(asked)
    assert codes[0] in (0, 1)
    assert codes[1:].tolist() == [ABSTAIN, ABSTAIN]
    assert np.array_equal(votes[:, 0], codes)
    assert counts.sum(axis=1).tolist() == [1, 0, 0]
