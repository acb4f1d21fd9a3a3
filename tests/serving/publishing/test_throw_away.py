"""The throw-away ensemble of a student's selection and a router's calibration: canonical, and cheap to keep."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from expunge import Guarantee, UnlearningClassifier
from expunge.core.randomness import Randomness
from expunge.core.records import Add, Delete, Records
from expunge.privacy.mechanisms import Majority
from expunge.serving.promises import Router, Student
from expunge.serving.publishing import NoisyPublisher, RoundContext
from expunge.serving.publishing.front import throw_away_votes
from expunge.training import environment
from expunge.training.ensemble import learn
from expunge.training.execution import Serial
from expunge.training.learners import LookupTableLearner, ScikitLearner, ScikitModel
from expunge.training.recipe import PUBLIC_KEY, Recipe
from expunge.training.sampling import IndependentSampler

NUM_THROW_AWAY = 30
GATE = {"target": Guarantee(8.0, 0.05, 0.05), "max_predictions": 100_000, "max_generations": 3}
OPTIONS = {"n_shards": 300, "inclusion_probability": 0.05, "random_state": 0}


class Counting(ScikitLearner):
    fits = 0

    def fit(self, X, y, seed, *, weights=None):
        Counting.fits += 1
        return super().fit(X, y, seed, weights=weights)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.arange(600) % 2
    X = rng.normal(size=(600, 2)) * 1.5
    X[:, 0] += np.where(y == 1, 2, -2)
    return X, y


POINTS = np.random.default_rng(1).normal(size=(50, 2)) * 3


def ensemble(records, previous=None, learner=None):
    """Votes, ensemble, and how many of its shards were trained."""
    learner = learner or Counting(GaussianNB())
    state = learn(records, Recipe(learner, 4, IndependentSampler(0.1)))
    publisher = NoisyPublisher(Majority(), budget=None)
    opening = RoundContext(state, publisher, Randomness.from_seed(0), Serial(), SimpleNamespace(throw_away=previous))
    before = Counting.fits
    votes, thrown_away = throw_away_votes(opening, records, POINTS, NUM_THROW_AWAY)
    return votes, thrown_away, Counting.fits - before


def holders(records, record):
    recipe = Recipe(Counting(GaussianNB()), NUM_THROW_AWAY, IndependentSampler(0.1), PUBLIC_KEY)
    return set(recipe.cells(records, np.array([records.slot_of(record)]))[0].tolist())


def contents(thrown_away):
    """The bits of every model."""
    return [
        b"".join(getattr(model.estimator, name).tobytes() for name in ("classes_", "theta_", "var_", "class_count_"))
        if isinstance(model, ScikitModel)
        else pickle.dumps(model)
        for model in thrown_away.models
    ]


def test_only_touched_shards_are_trained_and_the_rest_is_what_training_from_scratch_gives(data):
    records = Records.build(*data)
    _, kept, trained = ensemble(records)
    assert trained == NUM_THROW_AWAY
    other, same = (Add(id=record, features=data[0][row], label=0) for record, row in ((5, 6), (10, 10)))
    history = [
        ([Delete(5)], holders(records, 5)),
        ([other], holders(records, 5)),  # the id comes back with another row, to its old shards
        ([Delete(7), Delete(8)], holders(records, 7) | holders(records, 8)),
        ([Delete(10), same], set()),  # the very same record: nothing has changed
    ]
    for batch, touched in history:
        before, (records, _) = kept, records.apply(batch)
        if len(records) == 598:
            records = records.compacted()  # other slots, the same contents
        votes, kept, trained = ensemble(records, kept)
        assert trained == len(touched) < NUM_THROW_AWAY
        fresh_votes, fresh, _ = ensemble(records)
        np.testing.assert_array_equal(votes, fresh_votes)
        assert kept.digests == fresh.digests
        assert contents(kept) == contents(fresh)
        # To keep every model instead, or to forget one of them, would not pass.
        stale = {i for i, (old, new) in enumerate(zip(contents(before), contents(fresh), strict=True)) if old != new}
        assert stale == touched


def test_models_of_another_environment_are_not_used_again(data, monkeypatch):
    records = Records.build(*data)
    _, kept, _ = ensemble(records)
    assert ensemble(records, kept)[2] == 0
    facts = {**environment._common_facts(), "numpy": "99"}
    monkeypatch.setattr(environment, "_common_facts", lambda: facts)
    assert ensemble(records, kept)[2] == NUM_THROW_AWAY


def test_nothing_of_a_deleted_record_is_kept(data):
    records, row = Records.build(*data), data[0][5].tobytes()
    learner = LookupTableLearner()
    _, kept, _ = ensemble(records, learner=learner)
    assert row in pickle.dumps(kept)
    records, _ = records.apply([Delete(5)])
    _, kept, _ = ensemble(records, kept, learner)
    assert row not in pickle.dumps(kept)
    assert data[0][6].tobytes() in pickle.dumps(kept)


@pytest.mark.parametrize("kind", ["student", "router"])
def test_a_deletion_trains_few_of_a_deployments_throw_away_shards(data, kind):
    if kind == "student":
        promise = Student(POINTS, student=LogisticRegression(), num_throw_away=NUM_THROW_AWAY, **GATE)
    else:
        promise = Router(num_queries=10, num_throw_away=NUM_THROW_AWAY, calibration_size=100, **GATE)

    def fitted(keep):
        X, y = data[0][keep], data[1][keep]
        return UnlearningClassifier(Counting(GaussianNB()), promise=promise, **OPTIONS).fit(X, y, ids=keep).deployment_

    deployment = fitted(np.arange(600))
    for record in (1, 2, 3):
        before = Counting.fits
        deployment.delete([record])
        inside = deployment.inside
        assert inside.generation == 1
        assert 0 <= Counting.fits - before - inside.last_report.num_retrained < NUM_THROW_AWAY // 2
    kept = deployment.inside.serving.throw_away
    fresh = fitted(np.setdiff1d(np.arange(600), [1, 2, 3])).inside.serving
    assert contents(kept) == contents(fresh.throw_away)
    if kind == "student":
        np.testing.assert_array_equal(deployment.student.kept, fresh.kept)
        assert deployment.student.throw_away is None  # it may be given away, and this was trained on people's records
        assert pickle.loads(pickle.dumps(fresh)).throw_away is None
    else:
        assert deployment.inside.serving.calibration == fresh.calibration
    # A copy that is loaded has none. Its next round trains one from scratch, which is the same.
    copy = pickle.loads(pickle.dumps(deployment))
    copy.delete([4])
    deployment.delete([4])
    assert contents(copy.inside.serving.throw_away) == contents(deployment.inside.serving.throw_away)
