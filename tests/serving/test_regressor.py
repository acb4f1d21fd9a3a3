"""UnlearningRegressor: scikit-learn's checks, values, deletions, and what it does not have."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, MultiTaskLasso, Ridge, SGDRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import check_estimator

from expunge import Deployment, IndependentSampler, Randomness, Records, UnlearningClassifier, UnlearningRegressor
from expunge.core.errors import InputError, NotPublishedError, ParameterError, RecordError
from expunge.privacy.mechanisms import Majority
from expunge.serving.publishing import NoisyPublisher
from expunge.training.learners import ScikitLearner, SlicedScikitLearner


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X, y, np.stack([y, y * X[:, 0]], axis=1)


@pytest.mark.parametrize(
    "estimator",
    [UnlearningRegressor(), UnlearningRegressor(LinearRegression(), n_shards=4, combine="median")],
    ids=str,
)
def test_scikit_learns_own_checks(estimator):
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    assert [r["check_name"] for r in results if r["status"] not in ("passed", "skipped")] == []
    # scikit-learn skips one check where an environment variable is not set, and nothing else
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= {"check_array_api_input"}


ESTIMATORS = [
    Ridge(alpha=0.1),
    make_pipeline(StandardScaler(), LinearRegression()),
    DecisionTreeRegressor(),
    RandomForestRegressor(n_estimators=5),
    HistGradientBoostingRegressor(max_iter=5),
    TransformedTargetRegressor(Ridge(), func=np.log1p, inverse_func=np.expm1),
    SlicedScikitLearner(SGDRegressor(), 3),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_after_any_history_it_is_what_a_fit_on_the_records_left_gives(estimator, is_weighted, diabetes):
    """T6, for values: the same bits, whatever happened before."""
    X, y, _ = diabetes
    if is_weighted and isinstance(estimator, TransformedTargetRegressor):
        pytest.skip("it takes weights through metadata routing only")
    weights = np.random.default_rng(0).choice([0.0, 0.5, 1.0, 2.0], len(y))

    def of(chosen):
        return {"sample_weight": weights[chosen]} if is_weighted else {}

    options = {"n_shards": 4, "random_state": 4}
    model = UnlearningRegressor(estimator, **options).fit(X, y, **of(slice(None)))
    model.delete([3, 77]).delete(list(range(100, 180))).add(X[77:78], y[77:78], [77], **of([77])).delete([5])
    left = np.setdiff1d(np.arange(len(y)), [3, 5, *range(100, 180)])
    fresh = UnlearningRegressor(estimator, **options).fit(X[left], y[left], ids=left, **of(left))
    assert model.predict(X).tobytes() == fresh.predict(X).tobytes()
    other = UnlearningRegressor(estimator, n_shards=4, random_state=5).fit(X[left], y[left], ids=left, **of(left))
    assert model.predict(X).tobytes() != other.predict(X).tobytes()


def test_it_predicts_about_as_well_as_one_model(diabetes):
    X, y, _ = diabetes
    one = cross_val_score(Ridge(alpha=0.1), X, y).mean()
    assert cross_val_score(UnlearningRegressor(Ridge(alpha=0.1), n_shards=5, random_state=0), X, y).mean() > one - 0.06
    assert UnlearningRegressor(Ridge(alpha=0.1), n_shards=1, random_state=0).fit(X, y).score(X, y) > 0.5


@pytest.mark.parametrize("combine", ["mean", "median"])
def test_values_are_the_mean_or_the_median_of_the_exported_models(combine, diabetes):
    X, y, _ = diabetes
    model = UnlearningRegressor(DecisionTreeRegressor(max_depth=3), n_shards=6, combine=combine, random_state=0)
    models = model.fit(X, y).export()
    assert [type(each) for each in models] == [DecisionTreeRegressor] * 6
    by_hand = getattr(np, combine)([each.predict(X) for each in models], axis=0)
    np.testing.assert_allclose(model.predict(X), by_hand, rtol=1e-14)


def test_a_median_withstands_a_wild_shard(diabetes):
    X, y, _ = diabetes
    wild = y.copy()
    wild[7] = 1e9
    errors = {}
    for combine in ("mean", "median"):
        model = UnlearningRegressor(Ridge(), n_shards=7, combine=combine, random_state=0).fit(X, wild)
        errors[combine] = np.abs(model.predict(X) - y).mean()
    assert errors["median"] < 100 < errors["mean"]


def test_several_outputs(diabetes):
    X, _, Y = diabetes
    model = UnlearningRegressor(n_shards=3, random_state=0).fit(X, Y)
    assert model.predict(X[:4]).shape == (4, 2)
    model.delete([1]).add(X[:1], Y[:1], ["a"])
    assert model.score(X, Y) > 0.2
    with pytest.raises(InputError, match="2 numbers per record"):
        model.add(X[:1], Y[:1, 0], ["b"])
    with pytest.raises(ParameterError, match="HistGradientBoostingRegressor predicts one number a record, got 2"):
        UnlearningRegressor(HistGradientBoostingRegressor(), n_shards=3).fit(X, Y)
    assert UnlearningRegressor(MultiTaskLasso(), n_shards=2).fit(X, Y).predict(X).shape == Y.shape


def test_ids_subjects_frames_and_texts_in_columns():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.uniform(20, 200, 300), "town": rng.choice(list("abc"), 300)})
    price = frame["size"] * 3 + (frame["town"] == "a") * 100 + rng.normal(size=300)
    encode = ColumnTransformer([("town", OneHotEncoder(handle_unknown="ignore"), ["town"])], remainder="passthrough")
    people = [f"p{at // 2}" for at in range(300)]
    model = UnlearningRegressor(make_pipeline(encode, Ridge()), n_shards=4, random_state=0)
    model.fit(frame, price, [f"h{at}" for at in range(300)], subjects=people)
    assert model.score(frame, price) > 0.95
    model.delete(["h0"], subjects=["p7"]).add(frame[:1], price[:1], ["h0"])
    assert len(model.deployment_.records) == 298
    with pytest.raises(RecordError, match=r"'h999'.*'dear'"):
        model.add(frame[:1], ["dear"], ["h999"])


def test_search_clone_pickle_and_processes(diabetes):
    X, y, _ = diabetes
    grid = {"estimator__alpha": [0.01, 1.0], "n_shards": [1, 4], "combine": ["mean", "median"]}
    search = GridSearchCV(UnlearningRegressor(Ridge(), random_state=0), grid, cv=2, error_score="raise").fit(X, y)
    assert set(search.best_params_) == set(grid)
    model = UnlearningRegressor(n_shards=3, random_state=0).fit(X, y)
    assert not hasattr(clone(model), "deployment_")
    again = pickle.loads(pickle.dumps(model)).delete([1])
    assert again.deployment_.status.round == 1
    assert 1 in model.deployment_.records
    many = UnlearningRegressor(n_shards=3, random_state=0, n_jobs=2).fit(X, y)
    assert many.predict(X).tobytes() == model.predict(X).tobytes()


def test_the_last_records(diabetes):
    X, y, _ = diabetes
    model = UnlearningRegressor(n_shards=5, random_state=0).fit(X[:6], y[:6])
    model.delete([0, 1, 2, 3, 4])
    np.testing.assert_allclose(model.predict(X[:3]), y[5])  # four shards are empty; the other knows one record
    model.delete([5])
    with pytest.raises(InputError, match="no records are left"):
        model.predict(X[:3])
    assert np.isfinite(model.add(X[:1], y[:1], ["new"]).predict(X[:3])).all()


def test_the_exact_promise_is_the_only_one(diabetes):
    X, y, _ = diabetes
    model = UnlearningRegressor(n_shards=3, random_state=0).fit(X, y)
    exact, other = model.promise_
    assert exact.is_claimed
    assert not other.is_claimed
    deployment = model.deployment_
    for ask in (deployment.predict_proba, deployment.decision_function, deployment.predict_codes):
        with pytest.raises(NotPublishedError, match="predicts numbers"):
            ask(X[:1])
    with pytest.raises(ParameterError, match="a regressor needs promise='exact'"):
        Deployment(
            Records.build(X, y, is_regression=True),
            ScikitLearner(Ridge()),
            num_shards=2,
            sampler=IndependentSampler(0.5),
            publisher=NoisyPublisher(Majority(), budget=None),
            rng=Randomness.from_seed(0),
        )


@pytest.mark.parametrize(
    ("make", "culprit"),
    [
        (lambda: UnlearningRegressor(LogisticRegression()), "LogisticRegression.*UnlearningClassifier"),
        (lambda: UnlearningClassifier(Ridge()), "Ridge.*UnlearningRegressor"),
        (lambda: UnlearningRegressor(combine="sum"), "combine.*sum"),
        (lambda: UnlearningRegressor(n_shards=0), "n_shards.*0"),
        (lambda: UnlearningRegressor(n_shards="many"), "n_shards.*many"),
    ],
)
def test_what_does_not_fit_is_named(make, culprit, diabetes):
    X, y, _ = diabetes
    with pytest.raises(ParameterError, match=culprit):
        make().fit(X, np.round(y))


def test_several_numbers_for_an_estimator_of_one_are_refused_before_training():
    X = np.arange(12.0).reshape(6, 2)
    with pytest.raises(ParameterError, match=r"SVR predicts one number a record, got 2; see MultiOutputRegressor"):
        UnlearningRegressor(SVR()).fit(X, X)
