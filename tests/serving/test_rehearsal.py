"""A rehearsal of consensus publishing: what it says is what then happens."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.core.prf import RecipeKey
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.serving.promises import Consensus, Router
from expunge.serving.rehearsal import rehearse
from expunge.training.ensemble import learn
from expunge.training.learners.named import column_kinds, named_learner
from expunge.training.recipe import Recipe
from expunge.training.sampling import IndependentSampler

TARGET = {"target": Guarantee(20.0, 0.4, 0.4), "max_generations": 2, "max_predictions": 1000}
SHARDS = 60


def make(count, seed, *, hard=0.3):
    """Two classes; some rows lie close to where they meet."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 4))
    X[:, 0] = np.where(rng.random(count) < hard, 0.15, 3.0) * X[:, 0]
    return X, X[:, 0] > 0


@pytest.fixture(scope="module")
def records():
    return Records.build(*make(4000, 0))


@pytest.fixture(scope="module")
def found(records):
    return rehearse(records, named_learner("logistic"), Consensus(**TARGET), num_shards=SHARDS, tries_student=True)


def test_a_generation_lasts_as_long_as_was_said(records, found):
    """The mean of 1,000 generations of a deployment of its own, on new rows, is within a factor of 1.6.

    A generation's length has about the law of a geometric one, so the mean of 1,000 is within 16% with a probability of
    all but 1e-6; the rest is for the key, and for the 800 rows that were measured on.
    """
    learner = named_learner("logistic")
    recipe = Recipe(learner, SHARDS, IndependentSampler(1 / SHARDS), key=RecipeKey.from_seed(3))
    X, _ = make(20_000, 1)
    counts = learn(records, recipe).count_votes(X)
    rng = Randomness.from_seed(5)
    publisher = Consensus(**TARGET).make_publisher(SHARDS, 2, rng)
    order, lengths = np.random.default_rng(0), []
    for _ in range(1000):
        asked = 0
        while not publisher.must_retrain:
            publisher.release(counts[order.integers(len(counts), size=1)], rng)
            asked += 1
        lengths.append(asked)
        publisher = publisher.new_generation(rng)
    assert 3 < found.predictions < 500  # neither at once nor never: otherwise nothing is tested
    assert found.predictions / 1.6 < np.mean(lengths) < found.predictions * 1.6


def test_scores_and_costs(found):
    assert found.models == SHARDS
    assert len(found.vote_shares) > 700
    assert 0 < found.sure < 1
    assert found.scores.main.value > 0.8
    assert found.deletion == pytest.approx(found.training / SHARDS)
    assert found.answering is found.student.scores
    assert found.student.agreement > 0.8
    assert 0 < found.student.kept < 1
    assert set(found.student.kept_of) == {"False", "True"}
    data = found.to_dict()
    assert "vote_shares" not in data
    assert data["predictions_per_generation"] == found.predictions


def test_a_day(records, found):
    """With many predictions between updates every update retrains everything; with few, nearly none does."""
    from dataclasses import replace

    direct = replace(found, student=None)
    busy = direct.day(predictions_per_day=1e6, deletions_per_day=10, batches_per_day=10)
    calm = direct.day(predictions_per_day=0.01, deletions_per_day=10, batches_per_day=10)
    assert busy == pytest.approx(10 * found.training, rel=0.01)
    assert calm == pytest.approx(10 * found.deletion, rel=0.2)
    together = direct.day(predictions_per_day=0.01, deletions_per_day=10_000, batches_per_day=1)
    assert together == pytest.approx(found.training, rel=0.01)
    student = found.day(predictions_per_day=1e6, deletions_per_day=10, batches_per_day=10)
    assert calm < student < busy / 2  # it never asks the ensemble, and pays for a throw-away one


def test_a_router_keeps_hard_rows_to_itself(records):
    found = rehearse(records, named_learner("logistic"), Router(**TARGET, num_queries=100), num_shards=SHARDS)
    assert 0.2 < found.router.ensemble_share < 1
    assert found.router.dirty_chance <= 0.05
    assert found.answering is found.router.scores
    assert found.router.scores.main.value > 0.8


def test_a_router_reads_a_mixed_table():
    X, y = make(400, 0)
    frame = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "left", "right")})
    learner = named_learner("logistic", columns=column_kinds(frame))
    found = rehearse(Records.build(frame, y), learner, Router(**TARGET), num_shards=SHARDS)
    assert found.refused == ""
    assert found.router.scores.main.value > 0.7
    assert found.router.fallback.main.value > 0.7


def test_a_student_without_anything_to_learn_is_refused():
    rng = np.random.default_rng(0)
    records = Records.build(rng.normal(size=(600, 2)), rng.integers(0, 2, 600))
    found = rehearse(records, named_learner("tree"), Consensus(**TARGET), num_shards=SHARDS, tries_student=True)
    assert "learn nothing" in found.refused
    assert found.predictions < 2


def test_without_a_gate_there_is_no_forecast(records):
    found = rehearse(records, named_learner("logistic"), Consensus(), num_shards=20)
    assert (found.design, found.predictions, found.sure) == (None, 0.0, 0.0)
    assert "num_shards=20 is too few" in found.reason


def test_it_ends_in_time(records):
    found = rehearse(records, named_learner("logistic"), Consensus(**TARGET), num_shards=SHARDS, seconds=1e-6)
    assert 20 <= found.models < SHARDS
    with pytest.raises(ParameterError, match="seconds"):
        rehearse(records, named_learner("logistic"), Consensus(), num_shards=SHARDS, seconds=0)
