"""Thresholds learned inside shards: rare classes are found again, and everything stays a function of the records."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from expunge import Consensus, Delete, Recipe, RecipeKey, Records, UnlearningClassifier, create, learn, update
from expunge import open as open_folder
from expunge.core.errors import InputError, ParameterError, TrainingError
from expunge.folder.codec import decode_model, encode_model
from expunge.folder.configuration import describe_learner
from expunge.serving.copies import copy_of
from expunge.training.learners import (
    Abstainer,
    AbstainingLearner,
    ExactLearner,
    LookupTableLearner,
    SlicedScikitLearner,
    ThresholdLearner,
    ThresholdModel,
)
from expunge.training.learners import thresholds as module
from expunge.training.learners.named import named_learner, takes_gaps
from expunge.training.learners.protocol import ShardData, mean_opinion


@pytest.fixture(scope="module")
def rare():
    """One record in fifty is of the class 1."""
    X, y = make_classification(8000, 10, n_informative=5, weights=[0.98], flip_y=0.0, random_state=0)
    return X[:6000], y[:6000], X[6000:], y[6000:]


def recalls(codes, y):
    return [float((codes[y == label] == label).mean()) for label in np.unique(y)]


@pytest.mark.parametrize("name", ["logistic", "tree", "naive-bayes"])
@pytest.mark.parametrize("num_shards", [10, 60])
def test_a_rare_class_is_found_again(rare, name, num_shards):
    X, y, rows, truth = rare
    found = {}
    for wanted in (False, True):
        learner = named_learner(name, thresholds=wanted)
        model = UnlearningClassifier(learner, n_shards=num_shards, random_state=0).fit(X, y)
        found[wanted] = model.predict(rows), model.predict_proba(rows)
    plain, other = (recalls(found[wanted][0], truth) for wanted in (False, True))
    assert other[1] > plain[1] + 0.15
    assert sum(other) > sum(plain) + 0.1
    np.testing.assert_array_equal(found[True][1], found[False][1])  # probabilities stay as they are


def test_what_is_learned_is_what_models_say_of_records_held_out():
    """A tree is sure of every record that it was trained on: then each class would be given 1, and nothing learned."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 3)), np.repeat([0, 0, 1], 30)
    weights = rng.integers(1, 4, 90) / 2
    learner = ThresholdLearner(DecisionTreeClassifier()).for_classes(np.array([0, 1]))
    model = learner.fit(X, y, 7, weights=weights)
    np.testing.assert_array_equal(model.asked, [weights[y == 0].sum(), weights[y == 1].sum()])
    np.testing.assert_allclose(model.given.sum(axis=1), model.asked)
    assert model.given[1, 1] < 0.8 * model.asked[1]
    expected = np.zeros((2, 2))
    for held in module._held_out(y):
        kept = np.delete(np.arange(90), held)
        part = learner.learner.fit(X[kept], y[kept], 7, weights=weights[kept])
        table = mean_opinion([part], X[held], 2, "probabilities")
        np.add.at(expected, y[held], table * weights[held, np.newaxis])
    np.testing.assert_array_equal(model.given, expected)
    assert sorted(np.concatenate(module._held_out(y)).tolist()) == list(range(90))


def test_two_classes_share_what_is_there():
    """Of two classes exactly one is above its threshold, also where many shards lack the rare one."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 3))
    y = (X[:, 0] > 1.9).astype(np.int64)
    recipe = Recipe(named_learner("naive-bayes", thresholds=True), 25, key=RecipeKey.from_seed(0))
    state = learn(Records.build(X, y), recipe)
    table = state.mean_probabilities(X)
    margins = state.margins(table)
    np.testing.assert_allclose(margins.sum(axis=1), 1.0)
    assert ((margins[:, 1] > 0.5) != (table[:, 1] > 0.5)).any()
    order = np.argsort(table[:, 1], kind="stable")
    assert (np.diff(margins[order, 1]) >= 0).all()  # ranks stay


def test_classes_that_no_record_has_and_models_that_tell_nothing():
    X, y = np.zeros((40, 1)), np.arange(40) % 2  # the column says nothing
    recipe = Recipe(named_learner("naive-bayes", thresholds=True), 2, key=RecipeKey.from_seed(0))
    state = learn(Records.build(X, y), recipe)
    table = np.array([[0.6, 0.4], [np.nan, np.nan]])
    np.testing.assert_array_equal(state.margins(table), table)
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.array(["a", "b"] * 30)
    X[y == "b"] += 4
    state = learn(Records.build(X, y, classes=["a", "b", "c"]), recipe)
    margins = state.margins(np.array([[0.2, 0.8, 0.0], [np.nan, np.nan, np.nan]]))
    assert margins[0].argmax() == 1
    assert margins[0, 2] == -np.inf
    assert np.isnan(margins[1]).all()
    gone = learn(Records.build(X[y == "a"], y[y == "a"], classes=["a", "b", "c"]), recipe)
    assert gone.margins(np.array([[1.0, 0.0, 0.0]])).argmax() == 0


def test_an_update_gives_what_learn_gives_and_carries_the_voter_on(rare):
    X, y, rows, _ = rare
    recipe = Recipe(named_learner("tree", thresholds=True), 12, key=RecipeKey.from_seed(3))
    state = learn(Records.build(X[:600], y[:600]), recipe)
    table = state.mean_probabilities(rows)
    before = state.margins(table)
    for record in (5, 17, 250):
        state, report = update(state, [Delete(record)])
        assert report.num_retrained == 1
        assert state._before is not None
        state.margins(table)
    fresh = learn(state.records, recipe)
    assert state.margins(table).tobytes() == fresh.margins(table).tobytes()
    assert not np.array_equal(before, state.margins(table))
    emptied = [Delete(name) for name in state.records.ids_of(state.members[3]).tolist()]
    state, _ = update(state, emptied)
    assert isinstance(state.models[3], Abstainer)
    assert state.margins(table).tobytes() == learn(state.records, recipe).margins(table).tobytes()


def test_scores_copies_and_folders_decide_alike(rare, tmp_path):
    X, y, rows, _ = rare
    y = np.where(y == 1, "fraud", "fine")
    with create(tmp_path / "d", named_learner("logistic", thresholds=True), X, y, n_shards=20) as deployment:
        deployment.delete([3])
        answers = deployment.predict(rows)
        scores = deployment.decision_function(rows)
        np.testing.assert_array_equal(copy_of(deployment).predict(rows), answers)
    assert (answers == "fraud").any()
    np.testing.assert_array_equal(answers == "fraud", scores > 0)
    with open_folder(tmp_path / "d") as deployment:
        assert deployment.schema["learner"].words.endswith(", with thresholds")
        np.testing.assert_array_equal(deployment.predict(rows), answers)


def test_models_are_stored_and_checked():
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 3
    learner = ThresholdLearner(DecisionTreeClassifier()).for_classes(np.array(["a", "b", "c"]))
    model = learner.fit(X, y, 1)
    stored = encode_model(learner, model)
    again = decode_model(learner, stored.format, stored.data)
    assert isinstance(again, ThresholdModel)
    np.testing.assert_array_equal(again.given, model.given)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    parts = learner.dump_model(model)
    for wrong in ({"given": np.zeros((2, 2))}, {"asked": np.zeros(2)}, {"given": np.full((3, 3), np.nan)}):
        with pytest.raises(ValueError, match="thresholds"):
            learner.load_model({**parts, **wrong})


def test_a_learner_that_may_abstain_and_one_shard_that_cannot_be_trained():
    class Picky:
        def fit(self, X, y, seed, *, weights=None):
            if len(y) < 10:
                raise ValueError("too few")
            return named_learner("naive-bayes").fit(X, y, seed)

    X, y = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) % 2
    learner = AbstainingLearner(ThresholdLearner(Picky()))
    shards = [ShardData(n, X[:size], y[:size], None, 0) for n, size in enumerate((12, 3))]
    assert [type(model) for model in learner.fit_many(shards)] == [Abstainer, Abstainer]  # two thirds are too few
    assert takes_gaps(named_learner("boosting", thresholds=True))
    assert describe_learner(ThresholdLearner(DecisionTreeClassifier())) == "DecisionTreeClassifier with thresholds"


class OnlyVotes:
    def fit(self, X, y, seed, *, weights=None):
        return LookupTableLearner().fit(X, y, seed)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ThresholdLearner(RidgeClassifier()), "RidgeClassifier have none"),
        (lambda: ThresholdLearner(DecisionTreeRegressor()), "learns numbers"),
        (lambda: ThresholdLearner(SlicedScikitLearner(LogisticRegression(), 2, mode="warm_start")), "without slices"),
        (lambda: named_learner("linear-svm", thresholds=True), "those of LinearSVC have none"),
        (lambda: named_learner("ridge-exact", thresholds=True), "deletes without any"),
        (lambda: named_learner("tree", thresholds="yes"), "true or false"),
        (lambda: ThresholdLearner(ExactLearner), "must be a scikit-learn"),
    ],
)
def test_learners_without_thresholds_are_refused(make, words):
    with pytest.raises(ParameterError, match=words):
        make()


def test_models_without_probabilities_and_other_promises_are_refused(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 2
    with pytest.raises(TrainingError, match="have none"):
        UnlearningClassifier(ThresholdLearner(OnlyVotes()), n_shards=2).fit(X, y)
    learner = named_learner("logistic", thresholds=True)
    for promise in ("unguarded", Consensus()):
        with pytest.raises(InputError, match="promise='exact'"):
            UnlearningClassifier(learner, n_shards=5, promise=promise).fit(X, y)
        with pytest.raises(InputError, match="promise='exact'"):
            create(tmp_path / "d", learner, X, y, n_shards=5, promise=promise)
