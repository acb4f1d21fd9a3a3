"""Several labels a record: each output's mean probabilities, after any history what a fresh fit gives."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from expunge import UnlearningClassifier
from expunge.core.errors import InputError, NotPublishedError, ParameterError, RecordError, TrainingError
from expunge.training.learners import MultiOutputLearner

ESTIMATORS = [
    DecisionTreeClassifier(),
    RandomForestClassifier(n_estimators=5),
    make_pipeline(StandardScaler(), KNeighborsClassifier(3)),
    MultiOutputClassifier(DecisionTreeClassifier()),
    MLPClassifier((5,), max_iter=5),
    RidgeClassifier(),
]


def name_of(estimator):
    return type(estimator).__name__


def data(estimator):
    """Three outputs of several classes; two of two classes for those that take no others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 4))
    if isinstance(estimator, MLPClassifier | RidgeClassifier):
        return X, np.stack([X[:, 0] > 0, X[:, 1] + X[:, 2] > 0], axis=1).astype(int)
    return X, np.stack([np.digitize(X[:, 0], [-0.5, 0.5]) + 5, X[:, 1] > 0, np.digitize(X[:, 2], [1.5])], axis=1)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_after_any_history_it_is_what_a_fit_on_the_records_left_gives(estimator):
    X, Y = data(estimator)
    model = UnlearningClassifier(estimator, n_shards=3, random_state=1).fit(X, Y)
    model.delete([3, 9]).delete(list(range(40, 60))).add(X[9:10], Y[9:10], [9])
    left = np.setdiff1d(np.arange(160), [3, *range(40, 60)])
    fresh = UnlearningClassifier(estimator, n_shards=3, random_state=1).fit(X[left], Y[left], ids=left)
    for one, other in zip(model.predict_proba(X), fresh.predict_proba(X), strict=True):
        assert one.tobytes() == other.tobytes()
    other = UnlearningClassifier(estimator, n_shards=3, random_state=2).fit(X[left], Y[left], ids=left)
    assert any(a.tobytes() != b.tobytes() for a, b in zip(model.predict_proba(X), other.predict_proba(X), strict=True))


@pytest.mark.parametrize("estimator", ESTIMATORS[:4], ids=name_of)
def test_each_output_is_the_mean_of_the_models(estimator):
    X, Y = data(estimator)
    model = UnlearningClassifier(estimator, n_shards=3, random_state=1).fit(X, Y)
    assert [own.tolist() for own in model.classes_] == [[5, 6, 7], [0, 1], [0, 1]]
    models = model.export()
    for output, table in enumerate(model.predict_proba(X)):
        by_hand = np.mean([each.predict_proba(X)[output] for each in models], axis=0)
        np.testing.assert_allclose(table, by_hand, atol=1e-12)
        assert (model.predict(X)[:, output] == model.classes_[output][by_hand.argmax(axis=1)]).all()
    assert model.predict(X).dtype == Y.dtype
    assert model.score(X, Y) == (model.predict(X) == Y).all(axis=1).mean() > 0.4


def test_a_class_that_a_shard_never_saw_has_probability_zero():
    learner = MultiOutputLearner(DecisionTreeClassifier(), (3, 2))
    model = learner.fit(np.array([[0.0], [1.0]]), np.array([[2, 1], [0, 1]]), seed=0)
    assert model.values(np.array([[0.0]])).tolist() == [[0, 0, 1, 0, 1]]


def test_texts_as_labels():
    X, Y = data(DecisionTreeClassifier())
    names = np.where(Y == 0, "no", np.where(Y == 1, "yes", "perhaps"))
    model = UnlearningClassifier(DecisionTreeClassifier(), n_shards=2, random_state=0).fit(X, names)
    assert set(model.predict(X).ravel()) == {"no", "yes", "perhaps"}
    model.add(X[:1], names[:1], ["new"])
    with pytest.raises(RecordError, match=r"'bad'.*'never' in output 1"):
        model.add(X[:1], [["perhaps", "never", "yes"]], ["bad"])
    with pytest.raises(InputError, match="3 per record"):
        model.add(X[:1], ["no"], ["bad"])
    assert len(model.deployment_.records) == 161


def test_scikit_learns_own_checks():
    results = check_estimator(
        UnlearningClassifier(DecisionTreeClassifier(), n_shards=7, random_state=0), on_fail=None, on_skip=None
    )
    names = {each["check_name"] for each in results if each["status"] == "passed"}
    assert {"check_classifier_multioutput", "check_classifiers_multilabel_output_format_predict_proba"} <= names
    assert [each["check_name"] for each in results if each["status"] == "failed"] == []


def test_what_is_not_possible_is_said_in_a_line():
    X, Y = data(DecisionTreeClassifier())
    with pytest.raises(ParameterError, match=r"LogisticRegression takes one label a record, got 3.*MultiOutput"):
        UnlearningClassifier().fit(X, Y)
    with pytest.raises(ParameterError, match="several labels a record need promise='exact', not 'consensus'"):
        UnlearningClassifier(DecisionTreeClassifier(), promise="consensus").fit(X, Y)
    with pytest.raises(ParameterError, match="takes one label"):
        MultiOutputLearner(LogisticRegression(), (2, 2))
    model = UnlearningClassifier(DecisionTreeClassifier(), n_shards=2, random_state=0).fit(X, Y)
    with pytest.raises(NotPublishedError, match="decision_function"):
        model.decision_function(X)
    again = model.fit(X, Y[:, 0])  # one label a record again
    assert again.predict(X).shape == (160,)


@pytest.mark.parametrize("base", [LogisticRegression(), LinearSVC()], ids=name_of)
def test_a_shard_with_one_class_in_some_outputs_is_trained_on_the_others(base):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    Y = np.stack([X[:, 0] > 0, np.arange(60) == 7, np.zeros(60)], axis=1).astype(int)
    model = UnlearningClassifier(MultiOutputClassifier(base), n_shards=3, random_state=1).fit(X, Y)
    assert model.score(X, Y) > 0.8
    model.delete([7])  # then the second output has one class in every shard
    fresh = UnlearningClassifier(MultiOutputClassifier(base), n_shards=3, random_state=1)
    left = np.setdiff1d(np.arange(60), [7])
    fresh.fit(X[left], np.vstack([Y[left]]), ids=left)
    assert model.predict(X)[:, 1:].tolist() == [[0, 0]] * 60
    assert np.array_equal(model.predict_proba(X)[0], fresh.predict_proba(X)[0])
    assert all(each.constants == {1: 0, 2: 0} for each in model.export())
    only = UnlearningClassifier(MultiOutputClassifier(base), n_shards=1, random_state=1).fit(X[:3], Y[:3] * 0)
    assert only.predict(X[:2]).tolist() == [[0, 0, 0]] * 2


def test_an_error_that_no_constant_output_causes_is_told():
    X = np.arange(8.0).reshape(4, 2)
    Y = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0]])
    model = UnlearningClassifier(MultiOutputClassifier(LogisticRegression(C=-1)), n_shards=1)
    with pytest.raises(TrainingError, match="'C' parameter"):
        model.fit(X, Y)
