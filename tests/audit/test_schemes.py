"""Schemes do what they claim to be, and the broken one is broken exactly as stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from expunge.audit import (
    SCHEME_NAMES,
    DeploymentScheme,
    EnsembleScheme,
    RetrainScheme,
    UserScheme,
    lookup_scenario,
    make_scheme,
)
from expunge.audit.requesters import class_probabilities, own_label_confidence
from expunge.audit.schemes import SkippingLearner
from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.core.randomness import Randomness
from expunge.core.records import Delete, Records
from expunge.training.learners import Abstainer, ConstantModel, LookupTableLearner, ScikitLearner
from expunge.training.sampling import IndependentSampler, PartitionSampler

SCENARIO = lookup_scenario(num_pairs=15)


@pytest.mark.parametrize("name", SCHEME_NAMES)
def test_every_scheme_learns_publishes_and_forgets(name):
    scheme = make_scheme(name, SCENARIO)
    rng = Randomness.from_seed(1)
    state = scheme.learn(SCENARIO.task.records, rng)
    shown = scheme.release(state, SCENARIO.points)
    assert shown.shape == (30,)
    assert set(shown.tolist()) <= {-1, 0, 1}
    state = scheme.update(state, [Delete(0), Delete(7)], rng)
    assert len(scheme.records_of(state)) == 28
    assert len(scheme.models(state)) == scheme.num_shards
    assert scheme.ensemble(state).records is scheme.records_of(state)


@pytest.mark.parametrize("name", SCHEME_NAMES)
def test_the_claim_is_the_deployments_own(name):
    scheme = make_scheme(name, SCENARIO)
    claimed = scheme.guarantee(beta=1e-3, gamma=1e-3)
    if isinstance(scheme, DeploymentScheme):
        deployment = scheme.learn(SCENARIO.task.records, Randomness.from_seed(2))
        assert deployment.guarantee(beta=1e-3, gamma=1e-3).covers(claimed) or math.isinf(claimed.alpha)
        assert deployment.guarantee(beta=1e-3, gamma=1e-3).alpha == claimed.alpha
    if name in ("sisa", "majority"):
        assert claimed.is_vacuous
    elif name == "retrain":
        assert (claimed.alpha, claimed.beta, claimed.gamma) == (0, 0, 0)
    else:
        assert not claimed.is_vacuous
        assert claimed.alpha <= (5 if name in ("consensus", "student") else 1.001)


def test_noise_is_as_small_as_the_target_allows():
    found = make_scheme("exponential", SCENARIO, target=Guarantee(0.25, 1e-3, 1e-3))
    assert found.guarantee(beta=1e-3, gamma=1e-3).alpha == pytest.approx(0.25, rel=1e-3)


def test_unknown_schemes_are_refused():
    with pytest.raises(ParameterError, match=r"scheme must be one of sisa, .*got 'sissa'"):
        make_scheme("sissa", SCENARIO)


def records(n: int) -> Records:
    return Records.build(np.arange(float(n)).reshape(-1, 1), np.arange(n) % 2, classes=[0, 1])


def test_the_broken_learner_keeps_every_tenth_touched_shard():
    scheme = make_scheme("broken", SCENARIO, num_shards=25, inclusion_probability=0.9)
    rng = Randomness.from_seed(3)
    deployment = scheme.learn(records(40), rng)
    before = deployment.inside.state.models
    scheme.update(deployment, [Delete(i) for i in range(20)], rng)
    after = deployment.inside.state.models
    assert len(deployment.inside.last_report.touched) == 25
    assert [i for i in range(25) if after[i] is before[i]] == [9, 19]
    scheme.update(deployment, [Delete(i) for i in range(20, 30)], rng)
    third = deployment.inside.state.models
    assert [i for i in range(25) if third[i] is after[i]] == [4, 14, 24]


def test_a_correct_learner_keeps_none():
    scheme = make_scheme("exponential", SCENARIO, num_shards=25, inclusion_probability=0.9)
    rng = Randomness.from_seed(3)
    deployment = scheme.learn(records(40), rng)
    before = deployment.inside.state.models
    scheme.update(deployment, [Delete(i) for i in range(20)], rng)
    assert not any(a is b for a, b in zip(before, deployment.inside.state.models, strict=True))


def test_a_skipping_learner_alone_is_the_learner():
    learner = SkippingLearner(LookupTableLearner())
    model = learner.fit(np.array([[1.0]]), np.array([0]), 0)
    assert model.predict(np.array([[1.0], [2.0]])).tolist() == [0, -1]
    with pytest.raises(ParameterError, match="every"):
        SkippingLearner(LookupTableLearner(), every=0)


def test_retraining_draws_everything_anew():
    scheme = RetrainScheme("retrain", LookupTableLearner(), PartitionSampler(), 3)
    rng = Randomness.from_seed(1)
    state = scheme.learn(records(300), rng)
    updated = scheme.update(state, [Delete(0)], rng)
    kept = {tuple(m.labels) for m in state.models} & {tuple(m.labels) for m in updated.models}
    assert not kept
    sisa = EnsembleScheme("sisa", LookupTableLearner(), PartitionSampler(), 3)
    same = [a is b for a, b in zip(state.models, sisa.update(state, [Delete(0)], rng).models, strict=True)]
    assert sum(same) == 2


class OwnPair:
    """The least a user must write."""

    def learn(self, records, rng):
        return records

    def update(self, state, batch, rng):
        return state.apply(batch)[0]

    def records_of(self, state):
        return state


def test_a_users_pair_is_filled_in():
    scheme = UserScheme((OwnPair(), lambda state, points: np.zeros(len(points))), name="own")
    assert scheme.missing == []
    state = scheme.learn(records(4), Randomness.from_seed(0))
    assert scheme.release(state, np.zeros((2, 1))).tolist() == [0, 0]
    assert scheme.decide(state, np.zeros((2, 1))).tolist() == [0, 0]
    assert scheme.models(state) == ()
    assert scheme.ensemble(state) is None
    assert math.isinf(scheme.guarantee(beta=0.1, gamma=0.1).alpha)
    assert UserScheme(object(), name="nothing").missing == ["learn", "update", "records_of", "release"]


def test_probabilities_of_every_kind_of_model():
    X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 2, 2])
    logistic = ScikitLearner(LogisticRegression()).fit(X, y, 0)
    found = class_probabilities(logistic, X, 3)
    assert found.shape == (4, 3)
    assert (found[:, 1] == 0).all()
    assert found[:, [0, 2]] == pytest.approx(logistic.estimator.predict_proba(X))
    assert class_probabilities(ConstantModel(1), X, 3).tolist() == [[0, 1, 0]] * 4
    assert class_probabilities(Abstainer(), X, 3).tolist() == [[0, 0, 0]] * 4
    labelled = ScikitLearner(LogisticRegression(), classes=np.array(["a", "b", "c"])).fit(X, y, 0)
    assert class_probabilities(labelled, X, 3) == pytest.approx(found)
    sure = own_label_confidence([logistic, Abstainer()], X, y, 3)
    assert sure.shape == (2, 4)
    assert sure[0] == pytest.approx(found[np.arange(4), y])
    assert (sure[1] == 0).all()


def test_independent_shards_only_are_certified():
    scheme = make_scheme("exponential", SCENARIO)
    partition = DeploymentScheme("p", scheme.make_learner, PartitionSampler(), 20, scheme.publisher)
    assert partition.guarantee(beta=1e-3, gamma=1e-3).is_vacuous
    independent = DeploymentScheme("i", scheme.make_learner, IndependentSampler(), 20, scheme.publisher)
    assert not independent.guarantee(beta=1e-3, gamma=1e-3).is_vacuous
