import numpy as np
import pytest

from expunge.audit.tasks import Neighbourhood, NumberedTableLearner
from expunge.core.errors import ParameterError
from expunge.training.learners import NearestTableLearner


@pytest.mark.parametrize("tau", [0.0, 1.0, 1.8, np.inf])
def test_the_answers_are_those_of_the_plain_table(tau):
    rng = np.random.default_rng(3)
    points = np.round(rng.normal(size=(60, 4)), 1)
    points[10] = points[11]  # the same point twice
    queries = np.concatenate([points, rng.normal(size=(30, 4))])
    learner = NumberedTableLearner(Neighbourhood.of(queries, points, tau=tau))
    for _ in range(20):
        members = np.sort(rng.choice(60, size=15, replace=False))
        codes = rng.integers(0, 3, size=15)
        plain = NearestTableLearner(tau).fit(points[members], codes, 0)
        quick = learner.fit(members.reshape(-1, 1).astype(float), codes, 0)
        rows = rng.permutation(90)[:40]
        assert quick.predict(rows.reshape(-1, 1).astype(float)).tolist() == plain.predict(queries[rows]).tolist()


def test_no_queries_have_no_answers():
    learner = NumberedTableLearner(Neighbourhood.of(np.zeros((2, 1)), np.zeros((2, 1)), tau=1.0))
    assert learner.fit(np.array([[0.0]]), np.array([1]), 0).predict(np.empty((0, 1))).tolist() == []


def test_a_negative_distance_is_refused():
    with pytest.raises(ParameterError, match="tau"):
        Neighbourhood.of(np.zeros((2, 1)), np.zeros((2, 1)), tau=-1.0)
