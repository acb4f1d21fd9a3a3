from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from expunge.core.errors import ParameterError
from expunge.training.learners import ABSTAIN, LookupTableLearner, NearestTableLearner


def test_lookup_answers_what_it_has_seen_and_nothing_else():
    model = LookupTableLearner().fit(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 0]), 0)
    assert model.predict(np.array([[3, 4], [1, 2], [1, 3]])).tolist() == [0, 1, ABSTAIN]
    assert model.predict(scipy.sparse.csr_array([[1.0, 2.0]])).tolist() == [1]


def test_lookup_of_two_labels_for_one_point_does_not_depend_on_their_order():
    X = np.zeros((2, 1))
    for y in ([1, 0], [0, 1]):
        assert LookupTableLearner().fit(X, np.array(y), 0).predict(X[:1]).tolist() == [0]


def test_minus_zero_is_zero():
    model = LookupTableLearner().fit(np.array([[0.0]]), np.array([1]), 0)
    assert model.predict(np.array([[-0.0]])).tolist() == [1]


def test_nearest_answers_within_tau(monkeypatch):
    rng = np.random.default_rng(0)
    X, y, Q = rng.normal(size=(50, 3)), rng.integers(4, size=50), rng.normal(size=(80, 3))
    model = NearestTableLearner(tau=0.7).fit(X, y, 0)
    distances = np.linalg.norm(Q[:, None] - X[None], axis=2)
    expected = np.where(distances.min(axis=1) <= 0.7, y[distances.argmin(axis=1)], ABSTAIN)
    assert ABSTAIN in expected
    assert model.predict(Q).tolist() == expected.tolist()
    monkeypatch.setattr("expunge.training.learners.lookup._DISTANCES_AT_ONCE", 100)
    assert model.predict(Q).tolist() == expected.tolist()


def test_tau_is_inclusive_and_checked():
    model = NearestTableLearner(tau=5.0).fit(np.array([[3.0, 4.0]]), np.array([2]), 0)
    assert model.predict(np.array([[0.0, 0.0], [0.0, -0.1]])).tolist() == [2, ABSTAIN]
    for bad in (-1.0, float("nan")):
        with pytest.raises(ParameterError, match="tau"):
            NearestTableLearner(tau=bad)
