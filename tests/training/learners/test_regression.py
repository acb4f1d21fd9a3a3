"""Regressors: one learner for numbers, their values, and how the values of shards become one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import BayesianRidge, Lasso, LinearRegression, Ridge, SGDRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVR
from sklearn.tree import DecisionTreeRegressor

from expunge.core.errors import ParameterError, RecordError
from expunge.core.prf import RecipeKey
from expunge.core.records import Add, AddMany, Records
from expunge.training.ensemble import learn
from expunge.training.learners import (
    Abstainer,
    AbstainingLearner,
    LookupTableLearner,
    ScikitLearner,
    ScikitRegression,
    SlicedScikitLearner,
)
from expunge.training.learners.protocol import combine_values, predicts_values
from expunge.training.recipe import Recipe

LINEAR = [Ridge(), LinearRegression(), Lasso(0.01), BayesianRidge(), SGDRegressor(), LinearSVR()]
OTHERS = [
    RandomForestRegressor(n_estimators=3),
    DecisionTreeRegressor(),
    KNeighborsRegressor(3),
    HistGradientBoostingRegressor(max_iter=3),
]
BOTH_SHAPES = [Ridge(), LinearRegression(), RandomForestRegressor(n_estimators=3), KNeighborsRegressor(3)]


def data(outputs=(), n=200, width=7):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, width))
    return X, X @ rng.normal(size=(width, *outputs)) + rng.normal(size=(n, *outputs))


def trained(estimator, outputs=(), num_shards=5, **options):
    X, y = data(outputs)
    learner = estimator if hasattr(estimator, "make_voter") else ScikitLearner(estimator)
    records = Records.build(X, y, is_regression=True, **options)
    return X, y, learn(records, Recipe(learner, num_shards, key=RecipeKey.from_seed(3)))


@pytest.mark.parametrize("estimator", [*LINEAR, *OTHERS], ids=lambda each: type(each).__name__)
def test_a_model_is_what_the_estimator_would_be(estimator):
    X, y = data()
    learner = ScikitLearner(estimator)
    assert predicts_values(learner)
    model = learner.fit(X, y, seed=5)
    assert isinstance(model, ScikitRegression)
    np.testing.assert_allclose(model.values(X).reshape(len(X)), learner.seeded(5).fit(X, y).predict(X), rtol=1e-9)


@pytest.mark.parametrize("estimator", [*LINEAR, *OTHERS], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("combination", ["mean", "median"])
def test_a_row_gets_the_same_bits_alone_and_among_others(estimator, combination):
    X, _, state = trained(make_pipeline(StandardScaler(), estimator), num_shards=4)
    together = state.values(X, combination)
    alone = np.concatenate([state.values(X[at : at + 1], combination) for at in range(len(X))])
    assert together.tobytes() == alone.tobytes()


def test_a_matrix_product_would_not_give_the_same_bits():
    """What the terms are added one by one for: the libraries' own products round a row by its company."""
    X, y = data(n=203, width=50)
    model = ScikitLearner(LinearRegression()).fit(X, y, 0)
    plain = model.estimator.predict
    differs = plain(X).tobytes() != np.concatenate([plain(X[at : at + 1]) for at in range(len(X))]).tobytes()
    own = model.values(X).tobytes() == np.concatenate([model.values(X[at : at + 1]) for at in range(len(X))]).tobytes()
    assert own
    if not differs:
        pytest.skip("this machine's products do not depend on the number of rows")


@pytest.mark.parametrize("estimator", BOTH_SHAPES, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("outputs", [(), (1,), (3,)])
def test_values_have_the_shape_of_the_labels(estimator, outputs):
    X, y, state = trained(estimator, outputs)
    for combination, combine in (("mean", np.mean), ("median", np.median)):
        by_hand = combine([model.estimator.predict(X).reshape(y.shape) for model in state.models], axis=0)
        found = state.values(X, combination)
        assert found.shape == y.shape
        np.testing.assert_allclose(found, by_hand, rtol=1e-9)


@pytest.mark.parametrize("form", [scipy.sparse.csr_array, pd.DataFrame], ids=["sparse", "frame"])
def test_linear_models_take_every_container(form):
    X, y = data()
    names = [f"x{at}" for at in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names) if form is pd.DataFrame else form(X)
    model = ScikitLearner(Ridge()).fit(table, y, 0)
    np.testing.assert_allclose(model.values(table)[:, 0], model.estimator.predict(table), rtol=1e-9)


class _Always:
    """Predicts one number, and knows nothing about rows that start with 9."""

    def __init__(self, value):
        self.value = value

    def values(self, X):
        return np.where(X[:, 0] == 9, np.nan, self.value)


class _Fails(_Always):
    def values(self, X):
        if (X[:, 0] == 8).any():
            raise ValueError("a category that this shard never held")
        return super().values(X)


@pytest.mark.parametrize(("combination", "expected"), [("mean", [5.0, 22 / 3, np.nan]), ("median", [3.5, 6.0, np.nan])])
def test_shards_without_a_value_are_left_out(combination, expected):
    models = [_Always(1.0), Abstainer(), _Always(6.0), _Always(15.0), _Fails(-2.0)]
    found = combine_values(models, np.array([[0.0], [8.0], [9.0]]), 1, combination)
    np.testing.assert_array_equal(found[:, 0], expected)


@pytest.mark.parametrize("combination", ["mean", "median"])
def test_no_shard_at_all_gives_no_value(combination):
    assert np.isnan(combine_values([Abstainer()], np.zeros((2, 1)), 3, combination)).all()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_the_median_is_numpys(count):
    rng = np.random.default_rng(count)
    values = rng.normal(size=count)
    found = combine_values([_Always(value) for value in values], np.zeros((1, 1)), 1, "median")
    np.testing.assert_allclose(found[0, 0], np.median(values), rtol=1e-15)


def test_a_constant_target_and_a_single_record_are_fitted():
    X, _ = data()
    for y in (np.full(200, 2.5), np.full(1, 2.5)):
        model = ScikitLearner(Ridge()).fit(X[: len(y)], y, 0)
        np.testing.assert_allclose(model.values(X[:2]).ravel(), 2.5)


@pytest.mark.parametrize("mode", ["partial_fit", "warm_start"])
def test_slices_resume_and_do_not_change_their_checkpoint(mode):
    X, y = data()
    learner = SlicedScikitLearner(SGDRegressor(max_iter=5), 3, mode=mode)
    first = learner.extend(None, X[:50], y[:50], 1, weights=None)
    before = first.coef_.tobytes()
    second = learner.extend(first, X[:100], y[:100], 2, weights=None)
    assert first.coef_.tobytes() == before
    assert second.coef_.tobytes() != before
    assert learner.make_model(second).values(X).shape == (200, 1)
    _, _, state = trained(learner)
    assert np.isfinite(state.values(X, "mean")).all()


def test_a_shard_that_cannot_be_trained_abstains():
    class Fails(Ridge):
        def fit(self, X, y, sample_weight=None):
            if (y > 3).any():
                raise ValueError("not these")
            return super().fit(X, y, sample_weight)

    learner = AbstainingLearner(Fails())
    assert predicts_values(learner)
    X, y = data()
    y = np.clip(y, -3, 3)
    y[0] = 4.0
    state = learn(Records.build(X, y, is_regression=True), Recipe(learner, 5, key=RecipeKey.from_seed(0)))
    assert sum(isinstance(model, Abstainer) for model in state.models) == 1
    assert np.isfinite(state.values(X, "median")).all()


def test_a_learner_and_its_records_must_be_of_one_kind():
    X, y = data()
    numbers, classes = Records.build(X, y, is_regression=True), Records.build(X, y > 0)
    with pytest.raises(ParameterError, match=r"LookupTableLearner learns classes.*numbers"):
        learn(numbers, Recipe(LookupTableLearner(), 2))
    with pytest.raises(ParameterError, match=r"Ridge learns numbers.*is_regression"):
        learn(classes, Recipe(ScikitLearner(Ridge()), 2))


@pytest.mark.parametrize(
    ("label", "culprit"),
    [("high", "'new'.*'high'"), (np.nan, "'new'.*nan"), (np.inf, "'new'.*inf"), (None, "'new'.*None")],
)
def test_a_label_that_is_no_finite_number_is_named(label, culprit):
    X, y = data()
    records = Records.build(X, y, is_regression=True)
    with pytest.raises(RecordError, match=culprit):
        records.apply([Add(id="new", features=X[0], label=label)])
    with pytest.raises(RecordError, match="record 3 "):
        Records.build(X[:5], np.array([1, 2, 3, label, 5], dtype=object), is_regression=True)


def test_labels_of_another_shape_are_refused():
    X, y = data((2,))
    records = Records.build(X, y, is_regression=True)
    assert records.outputs == (2,)
    with pytest.raises(ValueError, match="2 numbers per record"):
        records.apply([AddMany(ids=["a"], features=X[:1], labels=[1.0])])
    with pytest.raises(ValueError, match="one row of them"):
        Records.build(X, np.zeros((200, 2, 2)), is_regression=True)
    with pytest.raises(ValueError, match="have no classes"):
        Records.build(X, y, is_regression=True, classes=[1.0])
