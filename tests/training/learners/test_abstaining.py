"""Shards on which a learner fails vote ⊥, and everything else continues."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import expunge
from expunge import IndependentSampler, Randomness, Records, UnlearningClassifier, learn, update
from expunge.core.errors import ParameterError, TrainingError
from expunge.core.prf import RecipeKey
from expunge.core.records import AddMany, Delete
from expunge.training.learners import Abstainer, AbstainingLearner, ScikitLearner, SlicedScikitLearner
from expunge.training.recipe import Recipe

POISON = 1e308  # finite, but its square overflows


def make_data(rows=200):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 3))
    return X, (X[:, 0] > 0).astype(np.int64)


class Picky:
    """Fails on marked rows with the given error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def fit(self, X, y, seed, *, weights=None):
        if (np.abs(X) >= POISON).any():
            raise self.error
        return ScikitLearner(LogisticRegression()).fit(X, y, seed, weights=weights)


class PickyTogether(Picky):
    def fit_many(self, shards):
        return [self.fit(data.X, data.y, data.seed) for data in shards]


def poisoned(learner, *, num_shards=12):
    """An ensemble before and after a record is added on which training fails."""
    X, y = make_data()
    recipe = Recipe(learner, num_shards, IndependentSampler(0.3), RecipeKey.from_seed(3))
    state = learn(Records.build(X, y), recipe)
    bad = AddMany(ids=["bad"], features=np.full((1, 3), POISON), labels=np.array([1]))
    return state, bad


@pytest.mark.parametrize("kind", [Picky, PickyTogether])
def test_shards_that_hold_the_record_abstain_until_it_is_gone(kind):
    state, bad = poisoned(AbstainingLearner(kind(ValueError("no"))))
    assert not any(isinstance(model, Abstainer) for model in state.models)
    broken, report = update(state, [bad])
    failed = {shard for shard, model in enumerate(broken.models) if isinstance(model, Abstainer)}
    assert failed == set(report.touched)
    assert 0 < len(failed) < 12
    X, _ = make_data()
    counts = broken.count_votes(X)
    assert (counts.sum(axis=1) == 12 - len(failed)).all()
    mended, _ = update(broken, [Delete("bad")])
    assert not any(isinstance(model, Abstainer) for model in mended.models)
    assert (mended.count_votes(X).sum(axis=1) == 12).all()


def test_without_it_the_record_is_an_error():
    state, bad = poisoned(Picky(ValueError("no")))
    with pytest.raises(TrainingError, match="no"):
        update(state, [bad])


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no room"),
        OSError("no disk"),
        RuntimeError("RESOURCE_EXHAUSTED: 3 GB"),
        RuntimeError("CUDA out of memory"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [Picky, PickyTogether])
def test_what_the_machine_lacks_is_an_error(kind, error):
    state, bad = poisoned(AbstainingLearner(kind(error)))
    with pytest.raises(TrainingError):
        update(state, [bad])


def test_a_learner_that_fails_on_every_shard_of_a_new_deployment_is_an_error():
    X, _ = make_data()
    learner = AbstainingLearner(Picky(ValueError("no")))
    model = UnlearningClassifier(learner, n_shards=3, inclusion_probability=0.5, promise="unguarded")
    with pytest.raises(TrainingError, match="no shard could be trained"):
        model.fit(np.full_like(X, POISON), np.arange(200) % 2)


def test_no_record_can_hold_up_a_full_retraining():
    X, y = make_data()
    learner = AbstainingLearner(Picky(ValueError("no")))
    model = UnlearningClassifier(learner, n_shards=3, inclusion_probability=1.0, promise="unguarded").fit(X, y)
    model.add(np.full((1, 3), POISON), [1], ids=["bad"])
    model.deployment_.rekey()
    assert model.deployment_.inside.state.count_votes(X).sum() == 0
    model.delete(["bad"])
    assert (model.deployment_.inside.state.count_votes(X).sum(axis=1) == 3).all()


def test_an_error_that_quotes_a_record_is_no_machine_error():
    """The error starts with the text of a record, not with the words of a device error."""
    state, bad = poisoned(AbstainingLearner(Picky(ValueError("not a number: 'CUDA out of memory'"))))
    broken, report = update(state, [bad])
    assert sum(isinstance(model, Abstainer) for model in broken.models) == len(report.touched) > 0


def test_empty_shards_are_no_failure():
    X, y = make_data(2)
    learner = AbstainingLearner(LogisticRegression())
    state = learn(Records.build(X, y), Recipe(learner, 3, IndependentSampler(1e-9), RecipeKey.from_seed(1)))
    assert all(isinstance(model, Abstainer) for model in state.models)


def test_it_is_the_learner_in_all_else():
    X, y = make_data()
    plain, careful = ScikitLearner(LogisticRegression()), AbstainingLearner(LogisticRegression())
    assert careful.estimator.C == 1.0
    assert pickle.loads(pickle.dumps(careful)).learner.estimator.C == 1.0
    options = {"n_shards": 8, "inclusion_probability": 0.3, "promise": "unguarded", "random_state": 1}
    ours, theirs = (UnlearningClassifier(learner, **options).fit(X, y) for learner in (careful, plain))
    ours.delete([1, 2, 3])
    theirs.delete([1, 2, 3])
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert type(ours.deployment_.inside.state.voter) is type(theirs.deployment_.inside.state.voter)


def test_slices_cannot_abstain():
    with pytest.raises(ParameterError, match="slices"):
        AbstainingLearner(SlicedScikitLearner(LogisticRegression(), num_slices=3))


def test_in_a_folder_no_request_waits_for_a_record_that_breaks_training(tmp_path):
    X, y = make_data()
    scaled = make_pipeline(StandardScaler(), LogisticRegression())
    options = {"n_shards": 9, "inclusion_probability": 0.4, "promise": "unguarded", "rng": Randomness.from_seed(2)}
    labels = np.array(["no", "yes"])[y]
    bad = np.full((1, 3), POISON)
    with expunge.create(tmp_path / "plain", scaled, X, labels, **options) as deployment:
        with pytest.raises(TrainingError):
            deployment.add(bad, ["yes"], ["bad"])
        with pytest.raises(TrainingError):
            deployment.delete([5])  # waits until the other is done
    with expunge.create(tmp_path / "folder", AbstainingLearner(scaled), X, labels, **options) as deployment:
        assert deployment.add(bad, ["yes"], ["bad"]).state == "applied"
        assert deployment.delete([5]).state == "applied"
        failed = sum(isinstance(model, Abstainer) for model in deployment.inside.state.models)
        assert 0 < failed < 9
    with expunge.open(tmp_path / "folder") as deployment:
        assert sum(isinstance(model, Abstainer) for model in deployment.inside.state.models) == failed
        assert set(deployment.predict(X[:5])) <= {"no", "yes"}
        assert deployment.delete(["bad"]).state == "applied"
        assert not any(isinstance(model, Abstainer) for model in deployment.inside.state.models)
