"""Models of many shards trained together: the bits of each do not depend on the others, and they are converged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from expunge import Delete, Recipe, RecipeKey, Records, create, learn, update
from expunge import open as open_folder
from expunge.core.errors import ParameterError, TrainingError
from expunge.folder.codec import encode_model
from expunge.training.learners import BatchLearner, ConstantModel, ScikitLearner, batched
from expunge.training.learners.named import named_learner
from expunge.training.learners.protocol import ShardData, fit_many

ESTIMATORS = {
    "logistic": LogisticRegression(tol=1e-10, max_iter=10_000),
    "scaled logistic": make_pipeline(StandardScaler(), LogisticRegression(C=10.0, tol=1e-10, max_iter=10_000)),
    "ridge": RidgeClassifier(alpha=0.5),
    "linear SVM": make_pipeline(StandardScaler(), LinearSVC(dual=False, tol=1e-10, max_iter=100_000)),
    "naive Bayes": GaussianNB(),
}


def make_shards(num_shards, num_classes, *, is_weighted=False, seed=0):
    """Shards of many sizes: some have one class, or fewer than there are."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(num_classes, 4))
    shards = []
    for shard in range(num_shards):
        size = int(rng.choice([1, 2, 3, 7, 8, 9, 30, 33, 64, 70]))
        y = rng.integers(0, rng.integers(1, num_classes + 1), size)
        X = centres[y] + rng.normal(size=(size, 4)) * [1.0, 5.0, 0.1, 1.0]
        weights = rng.integers(1, 4, size) / 2 if is_weighted else None
        shards.append(ShardData(shard, X, y, weights, int(rng.integers(2**31))))
    return shards


def bits(learner, model):
    return encode_model(learner, model).data


@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_models_are_those_of_scikit_learn(name, is_weighted, num_classes):
    estimator = ESTIMATORS[name]
    shards = make_shards(40, num_classes, is_weighted=is_weighted)
    ours = fit_many(BatchLearner(estimator), shards)
    theirs = fit_many(ScikitLearner(estimator), shards)
    queries = np.random.default_rng(1).normal(size=(200, 4)) * 3
    agree = []
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is type(other)
        agree.append((one.predict(queries) == other.predict(queries)).mean())
        if isinstance(one, ConstantModel) or name not in ("logistic", "scaled logistic", "naive Bayes"):
            continue
        expected = other.probabilities(queries, num_classes)
        np.testing.assert_allclose(one.probabilities(queries, num_classes), expected, atol=2e-4)
    assert np.mean(agree) >= 0.999


@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_model_has_the_same_bits_alone_and_among_others(name, num_classes):
    """Alone, among all, in reverse, and in calls of three: whole numbers of rows and padded ones."""
    learner, shards = BatchLearner(ESTIMATORS[name]), make_shards(60, num_classes)
    together = [bits(learner, model) for model in learner.fit_many(shards)]
    assert [bits(learner, model) for model in learner.fit_many(shards[::-1])][::-1] == together
    parts = [model for first in range(0, 60, 3) for model in learner.fit_many(shards[first : first + 3])]
    assert [bits(learner, model) for model in parts] == together
    for data, expected in list(zip(shards, together, strict=True))[:12]:
        assert bits(learner, learner.fit(data.X, data.y, data.seed, weights=data.weights)) == expected
        shared = ShardData(data.shard, np.asfortranarray(data.X), data.y, None, data.seed)
        assert bits(learner, learner.fit_many([shards[0], shared])[1]) == expected


@pytest.mark.parametrize(
    ("name", "rows", "columns", "num_classes", "is_common"),
    [
        ("logistic", 1000, 20, 2, True),
        ("logistic", 5000, 20, 2, False),
        ("logistic", 1000, 20, 4, False),
        ("logistic", 20, 40, 4, False),
        ("linear SVM", 60, 130, 2, False),
        ("ridge", 60, 130, 2, True),
        ("ridge", 6600, 20, 2, False),
        ("naive Bayes", 6600, 20, 2, False),
    ],
)
def test_a_shard_that_gains_nothing_is_trained_by_scikit_learn(name, rows, columns, num_classes, is_common):
    X = np.random.default_rng(0).normal(size=(rows, columns))
    data = ShardData(0, X, np.arange(rows) % num_classes, None, 5)
    learner, other = BatchLearner(ESTIMATORS[name]), ScikitLearner(ESTIMATORS[name])
    small = make_shards(1, 2)[0]
    found = [bits(learner, learner.fit_many([data, small])[0]), bits(other, fit_many(other, [data])[0])]
    assert (found[0] != found[1]) == is_common
    assert bits(learner, learner.fit(data.X, data.y, data.seed)) == found[0]


def test_shards_on_both_sides_of_the_limit_have_the_same_bits_in_any_company(monkeypatch):
    monkeypatch.setattr(batched, "_MOST_PRODUCTS", 30 * 5)
    learner, shards = BatchLearner(ESTIMATORS["logistic"]), make_shards(40, 2)
    together = [bits(learner, model) for model in learner.fit_many(shards)]
    one_by_one = [bits(learner, model) for model in fit_many(ScikitLearner(ESTIMATORS["logistic"]), shards)]
    assert 0 < sum(a == b for a, b in zip(together, one_by_one, strict=True)) < 40
    assert [bits(learner, learner.fit_many([data])[0]) for data in shards] == together


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(24)), st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(0, 3))
def test_no_order_and_no_division_changes_a_bit(order, sizes, seed):
    learner, shards = BatchLearner(ESTIMATORS["scaled logistic"]), make_shards(24, 3, is_weighted=True, seed=seed)
    expected = [bits(learner, model) for model in learner.fit_many(shards)]
    at, turn = 0, 0
    while at < len(order):
        some = order[at : at + sizes[turn % len(sizes)]]
        for shard, model in zip(some, learner.fit_many([shards[each] for each in some]), strict=True):
            assert bits(learner, model) == expected[shard]
        at, turn = at + len(some), turn + 1


def test_models_that_wait_for_one_another_would_be_caught(monkeypatch):
    """The broken variant: all models take as many steps as the slowest of them."""
    learner, shards = BatchLearner(ESTIMATORS["scaled logistic"]), make_shards(60, 2)
    alone = [bits(learner, learner.fit_many([data])[0]) for data in shards]
    assert [bits(learner, model) for model in learner.fit_many(shards)] == alone
    sound = batched._is_converged
    monkeypatch.setattr(batched, "_is_converged", lambda *known: np.full(len(known[0]), sound(*known).all()))
    assert [bits(learner, model) for model in learner.fit_many(shards)] != alone


def test_an_update_gives_what_learn_gives_from_scratch():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 4))
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(np.int64)
    recipe = Recipe(named_learner("logistic"), 20, key=RecipeKey.from_seed(3))
    state = learn(Records.build(X, y), recipe)
    for record in (5, 17, 250):
        state, report = update(state, [Delete(record)])
        assert report.num_retrained == 1
    expected = learn(state.records, recipe)
    assert [bits(state.learner, model) for model in state.models] == [
        bits(state.learner, model) for model in expected.models
    ]
    assert np.mean(state.mean_probabilities(X).argmax(axis=1) == y) > 0.7


def test_a_folder_keeps_such_models(tmp_path):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 4))
    y = np.where(X[:, 0] > 0, "yes", "no")
    for name in ("logistic", "ridge", "linear-svm", "naive-bayes"):
        folder = tmp_path / name
        with create(folder, named_learner(name), X, y, n_shards=5) as deployment:
            deployment.delete([3])
            expected = deployment.predict(X)
        with open_folder(folder) as deployment:
            np.testing.assert_array_equal(deployment.predict(X), expected)
            deployment.delete([4])
        assert (expected == y).mean() > 0.8


def test_a_frame_of_numbers_is_trained_as_an_array():
    shards = make_shards(10, 2)
    frames = [replace(data, X=pd.DataFrame(data.X, columns=list("abcd"))) for data in shards]
    learner = named_learner("logistic")
    models = learner.fit_many(frames)
    assert [bits(learner, one) for one in models] == [bits(learner, one) for one in learner.fit_many(shards)]
    voter = learner.make_voter(models, 2)
    np.testing.assert_array_equal(voter.votes(frames[6].X), voter.votes(shards[6].X))


def test_rows_that_scikit_learn_refuses_are_refused_by_its_own_words():
    X = np.array([[0.0], [np.nan], [1.0]])
    shards = [ShardData(7, X, np.array([0, 1, 1]), None, 0), ShardData(8, X[[0, 2]], np.array([0, 1]), None, 0)]
    with pytest.raises(TrainingError, match=r"shard 7 .*NaN"):
        fit_many(BatchLearner(LogisticRegression()), shards)


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (DecisionTreeClassifier(), "LogisticRegression"),
        (make_pipeline(StandardScaler(), StandardScaler(), GaussianNB()), "StandardScaler"),
        (make_pipeline(StandardScaler(with_mean=False), GaussianNB()), "with mean"),
        (LogisticRegression(class_weight="balanced"), "class_weight='balanced'"),
        (LogisticRegression(solver="saga"), "solver='saga'"),
        (LinearSVC(loss="hinge"), "loss='hinge'"),
        (RidgeClassifier(alpha=np.array([1.0])), "strength"),
    ],
)
def test_other_estimators_and_settings_are_refused(estimator, words):
    with pytest.raises(ParameterError, match=words):
        BatchLearner(estimator)


def test_a_named_learner_says_what_cannot_be_trained_together():
    with pytest.raises(ParameterError, match="trained together"):
        named_learner("tree", batched=True)
    with pytest.raises(ParameterError, match="class_weight"):
        named_learner("logistic", batched=True, class_weight="balanced")
    with pytest.raises(ParameterError, match="true or false"):
        named_learner("logistic", batched=3)
    assert type(named_learner("logistic", batched=False)) is ScikitLearner


@pytest.mark.parametrize("name", ["logistic", "ridge", "linear-svm", "naive-bayes"])
def test_named_learners_train_shards_together_where_they_can(name):
    assert type(named_learner(name)) is BatchLearner
    assert type(named_learner(name, columns={"a": "number", "b": "number"})) is BatchLearner
    assert type(named_learner(name, columns={"a": "number", "b": "category"})) is ScikitLearner
    assert type(named_learner(name, fills_gaps=True)) is ScikitLearner


def test_other_settings_and_learners_are_trained_one_by_one():
    assert type(named_learner("logistic", class_weight="balanced")) is ScikitLearner
    assert type(named_learner("tree")) is ScikitLearner


@pytest.mark.parametrize("name", ["logistic", "ridge", "linear-svm"])
def test_numbers_beyond_measure_are_refused_as_by_scikit_learn(name):
    """Their squares are infinite, and a scaled column is then no number: no model is made of that."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(int)
    X[7, 1] = 1e308
    with pytest.raises(ValueError, match="NaN"), np.errstate(all="ignore"):
        named_learner(name).fit(X, y, 0)
    X[7, 1] = 1e90
    assert named_learner(name).fit(X, y, 0).predict(X).shape == (60,)
