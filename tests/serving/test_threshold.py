"""Answers by a threshold: a class is the answer wherever its probability reaches one, under the exact promise."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier

import expunge
from expunge import Exact, UnlearningClassifier
from expunge.core.errors import ParameterError
from expunge.core.records import Records
from expunge.serving.copies import copy_of
from expunge.training.comparison import compare
from expunge.training.learners.named import named_learner
from expunge.training.learners.protocol import likeliest

LABELS = np.array(["setosa", "versicolor", "virginica"])


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[:, 2:], LABELS[y]


def expected(probabilities, code, least):
    """By hand: the class if it reaches the threshold, else the likeliest of the others."""
    others = [each for each in range(probabilities.shape[1]) if each != code]
    return [code if row[code] >= least else others[int(np.argmax(row[others]))] for row in probabilities]


@pytest.mark.parametrize(("label", "least"), [("virginica", 0.1), ("virginica", 0.9), ("setosa", 1.0)])
@pytest.mark.parametrize("base", [LogisticRegression(), RidgeClassifier()])
def test_a_class_is_the_answer_where_it_reaches_the_threshold(iris, base, label, least):
    """Where models have no probabilities (ridge), the shares of the votes stand for them."""
    X, y = iris
    model = UnlearningClassifier(base, n_shards=4, promise=Exact(threshold=(label, least)), random_state=0).fit(X, y)
    for gone in ([3, 120], []):
        wanted = LABELS[expected(model.predict_proba(X), LABELS.tolist().index(label), least)]
        assert model.predict(X).tolist() == wanted.tolist()
        assert copy_of(model).predict(X).tolist() == wanted.tolist()
        model = model.delete(gone)
    plain = UnlearningClassifier(base, n_shards=4, random_state=0).fit(X, y).delete([3, 120]).delete([5])
    assert (plain.predict_proba(X) == model.delete([5]).predict_proba(X)).all()  # no model depends on it


def test_rows_without_an_opinion_and_single_classes():
    table = np.array([[0.2, 0.8], [np.nan, np.nan]])
    assert likeliest(table, (0, 0.2)).tolist() == [0, -1]
    assert likeliest(np.ones((2, 1)), (0, 0.9)).tolist() == [0, 0]


def test_labels_and_probabilities_of_one_round_agree(iris):
    X, y = iris
    model = UnlearningClassifier(RidgeClassifier(), n_shards=3, promise=Exact(threshold=("virginica", 0.05))).fit(X, y)
    found = model.deployment_.answer(X, probabilities=True)
    assert found.codes.tolist() == expected(found.probabilities, 2, 0.05)


def test_a_folder_keeps_it_and_says_so(iris, tmp_path):
    X, y = iris
    promise = Exact(threshold=(LABELS[2], np.float64(0.1)))  # NumPy's own kinds
    with expunge.create(tmp_path / "a", LogisticRegression(), X, y, n_shards=3, promise=promise) as made:
        answers = made.predict(X).tolist()
    with expunge.open(tmp_path / "a") as again:
        assert again.predict(X).tolist() == answers
        assert again.schema["promise"].words == "exact, threshold=virginica from 0.1"
        again.delete([4])
        assert again.predict(X).tolist() == LABELS[expected(again.predict_proba(X), 2, 0.1)].tolist()
        again.rekey()
        assert again.predict(X).tolist() == LABELS[expected(again.predict_proba(X), 2, 0.1)].tolist()


def test_a_comparison_measures_the_answers_that_will_be_given(iris):
    X, y = iris
    records, learner = Records.build(X, y), named_learner("logistic")
    plain, eager = (compare(records, learner, num_shards=[1], threshold=each) for each in (None, ("virginica", 0.01)))
    assert eager.one.scores.recalls["virginica"].value == 1
    assert eager.one.scores.recalls["versicolor"].value < plain.one.scores.recalls["versicolor"].value
    assert eager.one.scores.auc == plain.one.scores.auc


@pytest.mark.parametrize(
    ("threshold", "words"),
    [
        (("yes", 0.0), "above 0 and at most 1, got 0.0"),
        (("yes", 1.1), "above 0 and at most 1, got 1.1"),
        (("yes", "half"), "above 0 and at most 1, got 'half'"),
        (("yes", True), "above 0 and at most 1, got True"),
        (0.3, "a class and a probability, such as"),
        ({"yes": 0.3}, "a class and a probability, such as"),
    ],
)
def test_wrong_thresholds(threshold, words):
    with pytest.raises(ParameterError, match=words):
        Exact(threshold=threshold)


def test_a_threshold_names_one_of_the_classes(iris, tmp_path):
    X, y = iris
    with pytest.raises(
        ParameterError, match="threshold: 'rose' is not a class; the classes are 'setosa', 'versicolor'"
    ):
        UnlearningClassifier(LogisticRegression(), n_shards=2, promise=Exact(threshold=("rose", 0.3))).fit(X, y)
    with pytest.raises(ParameterError, match="rose"):
        compare(Records.build(X, y), named_learner("logistic"), threshold=("rose", 0.3))
    both = named_learner("logistic", thresholds=True)
    with pytest.raises(ParameterError, match="does not go with thresholds of the learner"):
        UnlearningClassifier(both, n_shards=2, promise=Exact(threshold=("setosa", 0.3))).fit(X, y)
    with pytest.raises(ParameterError, match="a threshold is for classes"):
        expunge.create(tmp_path / "a", Ridge(), X, X[:, 0], n_shards=2, promise=Exact(threshold=(1, 0.3)))
    assert not (tmp_path / "a").exists()
