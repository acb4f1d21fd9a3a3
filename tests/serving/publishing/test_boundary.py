"""What depends on the secret randomness does not leave: not by errors, copies, or a front that gives up."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from expunge import Guarantee, UnlearningClassifier
from expunge.core.errors import InputError, ParameterError, RecordError
from expunge.core.features import row_keys
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.privacy.mechanisms import ExponentialMechanism
from expunge.serving.deployment import Deployment
from expunge.serving.promises import Consensus, Student
from expunge.serving.publishing import ConsensusPublisher, NoisyPublisher, StudentFront
from expunge.training.learners import LookupTableLearner, ScikitLearner
from expunge.training.sampling import IndependentSampler

GATE = {
    "target": Guarantee(8.0, 0.05, 0.05),
    "max_predictions": 100_000,
    "max_generations": 3,
}
OPTIONS = {"n_shards": 300, "promise": Consensus(**GATE), "random_state": 0}


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    y = np.arange(1200) % 2
    X = rng.normal(size=(1200, 2))
    X[:, 0] += np.where(y == 1, 4, -4)
    return X, y


def test_a_model_that_fails_on_a_query_votes_for_nothing(blobs):
    """Shards with fewer points than neighbours cannot answer; that must not be heard, nor stop the others."""
    model = UnlearningClassifier(KNeighborsClassifier(5), inclusion_probability=0.005, **OPTIONS).fit(*blobs)
    sizes = [len(shard) for shard in model.deployment_.inside.state.members]
    assert min(sizes) < 5 <= max(sizes)
    assert model.predict(blobs[0][:2]).tolist() == [0, 1]
    assert model.budget_.predictions == 2
    assert model.budget_.exhausted  # silence is dissent, and is counted


def test_a_category_that_some_shards_never_held(blobs):
    frame = pd.DataFrame({"town": ["rare"] + ["common", "other"] * 60})
    y = np.array([0] + [0, 1] * 60)
    model = UnlearningClassifier(
        make_pipeline(OneHotEncoder(), LogisticRegression()), inclusion_probability=0.3, **OPTIONS
    ).fit(frame, y)
    asked = pd.DataFrame({"town": ["common", "rare", "other"]})
    together = model.deployment_.inside.state.votes(asked)
    alone = [model.deployment_.inside.state.votes(asked[i : i + 1])[0] for i in range(3)]
    np.testing.assert_array_equal(together, alone)  # a row's votes do not depend on its company
    assert model.predict(asked).tolist()[::2] == [0, 1]


def test_a_loaded_copy_retrains_everything_first(blobs):
    """Two copies have two gates on one randomness: one may be dirty where the other is not."""
    model = UnlearningClassifier(inclusion_probability=0.05, **OPTIONS).fit(*blobs)
    copy = pickle.loads(pickle.dumps(model))
    before = copy.deployment_.inside.state.models
    assert copy.predict(blobs[0][:4]).tolist() == model.predict(blobs[0][:4]).tolist()
    copy.delete([0])
    assert copy.deployment_.inside.generation == 2
    assert not set(map(id, before)) & set(map(id, copy.deployment_.inside.state.models))
    copy.delete([1])
    assert copy.deployment_.inside.generation == 2  # its own generation now
    model.delete([0])
    assert model.deployment_.inside.generation == 1
    assert any("copy" in sentence for sentence in model.guarantee().assumptions)


def test_a_copy_under_the_exact_promise_goes_on_with_the_same_key(blobs):
    model = UnlearningClassifier(n_shards=20, random_state=0).fit(*blobs)
    copy = pickle.loads(pickle.dumps(model))
    key = model.deployment_.inside.state.key
    assert copy.deployment_.inside.state.key == key
    for each in (copy, model):
        each.delete([0])
        assert each.deployment_.inside.generation == 1
        assert each.deployment_.inside.state.key == key
        assert each.deployment_.inside.last_report.num_retrained == 1
    ours, theirs = ([m.coef_.tobytes() for m in each.export()] for each in (model, copy))
    assert ours == theirs


def test_strange_parts_are_named_in_the_assumptions(blobs):
    class MyFront:
        def open_round(self, opening):
            raise NotImplementedError

    model = UnlearningClassifier(inclusion_probability=0.05, **OPTIONS).fit(*blobs)
    model.deployment_._front = MyFront()
    assert any("MyFront" in sentence for sentence in model.guarantee().assumptions)


def test_a_publisher_for_other_shards_is_refused(blobs):
    rng = Randomness.from_seed(0)
    publisher = ConsensusPublisher(num_shards=300, rng=rng, target=GATE["target"], max_generations=3)
    with pytest.raises(ParameterError, match=r"300 shards.*5"):
        Deployment(
            Records.build(*blobs),
            LookupTableLearner(),
            num_shards=5,
            sampler=IndependentSampler(),
            publisher=publisher,
            rng=rng,
        )


def test_a_student_that_cannot_be_paid_for_does_not_stop_a_deletion(blobs):
    pool = blobs[0][:60] + 0.01
    publisher = NoisyPublisher(
        ExponentialMechanism(epsilon=1.0), budget=None, max_predictions=100, on_exhausted="refuse"
    )
    deployment = Deployment(
        Records.build(*blobs),
        ScikitLearner(LogisticRegression()),
        num_shards=300,
        sampler=IndependentSampler(0.05),
        publisher=publisher,
        front=StudentFront(pool, ScikitLearner(LogisticRegression())),
        rng=Randomness.from_seed(0),
    )
    assert 50 < deployment.inside.budget.predictions <= 60
    deployment.delete([1])
    assert 1 not in deployment.records
    assert deployment.inside.generation == 2


def test_a_student_without_lessons_declines_instead_of_stopping_a_deletion(blobs):
    pool = blobs[0][:40] + 0.01
    options = {**OPTIONS, "promise": Student(pool, **GATE)}
    model = UnlearningClassifier(inclusion_probability=0.05, **options).fit(*blobs)
    model.delete(range(1200))
    assert len(model.deployment_.records) == 0
    assert model.predict(blobs[0][:2]).tolist() == [None, None]
    model.add(blobs[0], blobs[1], range(5000, 6200))
    assert model.score(*blobs) > 0.95


@pytest.mark.parametrize("promise", ["exact", "consensus", "unguarded"])
def test_nobody_left_means_no_answer(blobs, promise):
    model = UnlearningClassifier(n_shards=3, promise=promise, random_state=0).fit(*blobs)
    model.delete(range(1200))
    assert model.predict(blobs[0][:2]).tolist() == [None, None]


def test_the_pool_is_compared_in_the_records_own_number_type():
    X = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    pool = np.vstack([np.full((1, 2), 9.0), X[7].astype(np.float64) + 1e-12])
    with pytest.raises(RecordError, match="7 is also in the public pool"):
        UnlearningClassifier(promise=Student(pool), n_shards=5).fit(X, y)
    named = Student(np.full((1, 2), 9.0), pool_ids=("p", 3))
    with pytest.raises(RecordError, match="3 is also in the public pool"):
        UnlearningClassifier(promise=named, n_shards=5).fit(X, y)


def test_equal_rows_of_data_frames_have_equal_keys():
    whole, real = pd.DataFrame({"a": [1, 0], "b": ["x", "y"]}), pd.DataFrame({"a": [1.0, -0.0], "b": ["x", "y"]})
    assert row_keys(whole) == row_keys(real)
    assert len(set(row_keys(whole))) == 2


def test_queries_are_checked_before_any_shard_sees_them(blobs):
    deployment = UnlearningClassifier(n_shards=5, random_state=0).fit(*blobs).deployment_
    for bad in ([[1.0, 2.0, 3.0]], [1.0, 2.0], [[np.nan, 1.0]], [[np.inf, 1.0]]):
        with pytest.raises(InputError, match="queries"):
            deployment.predict(np.array(bad))
    assert deployment.predict(pd.DataFrame({"a": [9.0], "b": [0.0]})).tolist() == [1]


def test_warnings_of_single_shards_are_not_heard(blobs, recwarn):
    """How many shards' learners fail to converge depends on the shards."""
    X, y = blobs
    UnlearningClassifier(LogisticRegression(max_iter=1), n_shards=20, random_state=0).fit(X, y).delete([0])
    assert not recwarn.list
