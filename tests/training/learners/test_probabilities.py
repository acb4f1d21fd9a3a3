"""The mean of the shards' probabilities; and a base estimator brings no randomness and no threads of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from expunge import Recipe, RecipeKey, Records, learn
from expunge.core.errors import ParameterError
from expunge.training.learners import Abstainer, ConstantModel, LookupTableLearner, ScikitLearner, SlicedScikitLearner
from expunge.training.learners.protocol import mean_opinion

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)) + np.repeat([[0, 0], [2, 0], [0, 3]], 20, axis=0)
NAMES = np.repeat(["ant", "bee", "cow"], 20)
BEES_AND_COWS = (X[20:], np.repeat([1, 2], 20))
CLASSES = np.array(["ant", "bee", "cow"])


def model(estimator, classes=CLASSES):
    return ScikitLearner(estimator, classes).fit(*BEES_AND_COWS, seed=1)


@pytest.mark.parametrize("classes", [None, CLASSES], ids=["codes", "labels"])
def test_a_class_that_a_shard_never_saw_has_probability_zero(classes):
    fitted = model(GaussianNB(), classes)
    table = fitted.probabilities(X, 3)
    assert (table[:, 0] == 0).all()
    np.testing.assert_array_equal(table[:, 1:], fitted.estimator.predict_proba(X))


def test_the_mean_leaves_out_shards_that_abstain():
    one, two = model(GaussianNB()), ScikitLearner(GaussianNB(), CLASSES).fit(X, np.repeat([0, 1, 2], 20), seed=1)
    mean = mean_opinion([one, Abstainer(), two, ConstantModel(0)], X, 3, "probabilities")
    by_hand = (one.probabilities(X, 3) + two.probabilities(X, 3) + [1.0, 0.0, 0.0]) / 3
    np.testing.assert_allclose(mean, by_hand, rtol=0, atol=1e-15)
    np.testing.assert_allclose(mean.sum(axis=1), 1.0)
    assert np.isnan(mean_opinion([Abstainer(), Abstainer()], X, 3, "probabilities")).all()


def test_a_model_without_probabilities_means_shares_of_votes():
    assert mean_opinion([model(GaussianNB()), model(LinearSVC())], X, 3, "probabilities") is None
    records = Records.build(X, NAMES)
    key = RecipeKey.from_seed(2)
    votes = learn(records, Recipe(ScikitLearner(LinearSVC()), 4, key=key))
    assert not votes.has_probabilities
    np.testing.assert_allclose(votes.mean_probabilities(X), votes.count_votes(X) / 4)
    table = learn(records, Recipe(LookupTableLearner(), 4, key=key))
    np.testing.assert_array_equal(table.mean_probabilities(X), table.count_votes(X))  # one shard knows a row
    assert np.isnan(table.mean_probabilities(X + 100)).all()
    assert table.mean_scores(X) is None


class Picky:
    def probabilities(self, X, num_classes):
        if (X[:, 0] > 1).any():
            raise ValueError("not this row")
        return np.tile([1.0, 0.0, 0.0], (len(X), 1))


def test_a_row_on_which_a_model_fails_is_not_counted():
    fine, rows = model(GaussianNB()), np.array([[0.0, 0.0], [2.0, 0.0]])
    mean = mean_opinion([Picky(), fine], rows, 3, "probabilities")
    np.testing.assert_allclose(mean[0], ([1.0, 0, 0] + fine.probabilities(rows, 3)[0]) / 2)
    np.testing.assert_array_equal(mean[1], fine.probabilities(rows, 3)[1])


def test_scores():
    fitted = model(LinearSVC())
    scores, own = fitted.scores(X, 3), fitted.estimator.decision_function(X)
    np.testing.assert_array_equal(scores[:, 1:], np.stack([-own, own], axis=1))
    assert (scores[:, 0] <= scores[:, 1:].min(axis=1)).all()
    assert (scores[:, 0] <= -1).all()
    assert (scores.argmax(axis=1) == fitted.predict(X)).all()
    assert ConstantModel(1).scores(X[:1], 3).tolist() == [[-1.0, 1.0, -1.0]]
    assert not hasattr(model(DecisionTreeClassifier()), "scores")
    pairs = SVC(decision_function_shape="ovo")
    four = ScikitLearner(pairs).fit(X, np.arange(60) % 4, seed=0)
    with pytest.raises(ParameterError, match=r"SVC gives .* for 4 classes, not one each"):
        four.scores(X, 4)


def test_slices_answer_with_their_last_model():
    learner = SlicedScikitLearner(SGDClassifier(loss="log_loss"), num_slices=2)
    state = learn(Records.build(X, NAMES), Recipe(learner, 3, key=RecipeKey.from_seed(0)))
    assert state.has_probabilities
    np.testing.assert_allclose(state.mean_probabilities(X).sum(axis=1), 1.0)
    hinge = learn(Records.build(X, NAMES), replace(state.recipe, learner=replace(learner, estimator=SGDClassifier())))
    assert not hinge.has_probabilities
    assert hinge.mean_scores(X).shape == (60, 3)


@pytest.mark.parametrize(
    ("estimator", "place"),
    [
        (
            LogisticRegression(random_state=np.random.RandomState(0)),
            "LogisticRegression.random_state holds a RandomState",
        ),
        (
            make_pipeline(
                StandardScaler(), BaggingClassifier(DecisionTreeClassifier(random_state=np.random.RandomState(0)))
            ),
            r"Pipeline.steps.1.1.estimator.random_state",
        ),
        (VotingClassifier([("t", DecisionTreeClassifier(random_state=np.random.RandomState(0)))]), "estimators.0.1"),
        (
            GridSearchCV(GaussianNB(), {}, cv=KFold(shuffle=True, random_state=np.random.RandomState(1))),
            "cv.random_state",
        ),
    ],
)
def test_a_random_generator_in_a_base_estimator_is_refused(estimator, place):
    with pytest.raises(ParameterError, match=place) as caught:
        ScikitLearner(estimator)
    assert "\n" not in str(caught.value)


def test_n_jobs_becomes_one():
    nested = make_pipeline(BaggingClassifier(RandomForestClassifier(n_jobs=3), n_jobs=2))
    fresh = ScikitLearner(nested).seeded(0)
    params = fresh.get_params()
    assert params["baggingclassifier__n_jobs"] == params["baggingclassifier__estimator__n_jobs"] == 1
    assert nested.get_params()["baggingclassifier__n_jobs"] == 2
    assert ScikitLearner(RandomForestClassifier()).seeded(0).n_jobs is None
