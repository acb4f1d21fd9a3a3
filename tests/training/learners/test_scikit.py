from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from joblib import Memory
from scipy.stats import loguniform
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import (
    LogisticRegression,
    Perceptron,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV, ShuffleSplit
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from expunge.core.errors import ParameterError, TrainingError
from expunge.training.learners import (
    Abstainer,
    ConstantModel,
    Learner,
    Model,
    ScikitLearner,
    ShardData,
    SlicedScikitLearner,
)
from expunge.training.learners.linear import LinearVoter
from expunge.training.learners.protocol import OneByOneVoter, fit_many, make_voter
from expunge.training.learners.scikit import _steps

LINEAR = [
    LogisticRegression(),
    SGDClassifier(max_iter=20, tol=None),
    Perceptron(max_iter=20, tol=None),
    RidgeClassifier(),
    LinearSVC(),
    LogisticRegression(fit_intercept=False),
    make_pipeline(StandardScaler(), LogisticRegression()),
    make_pipeline(MinMaxScaler(), StandardScaler(with_mean=False), LinearSVC()),
]
OTHER = [
    DecisionTreeClassifier(),
    RandomForestClassifier(n_estimators=4),
    GaussianNB(),
    KNeighborsClassifier(1),
    make_pipeline(StandardScaler(), DecisionTreeClassifier()),
]


def blobs(num_classes: int, n: int = 240, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = rng.integers(num_classes, size=n).astype(np.int32)
    return rng.normal(size=(n, 4)) + 2 * np.eye(num_classes, 4)[y], y


def train_shards(learner, num_classes: int, *, num_shards: int = 9):
    """Shards of every special kind: empty, one class, a class missing, all classes."""
    X, y = blobs(num_classes)
    picks = [np.flatnonzero(np.arange(len(y)) % num_shards == i) for i in range(num_shards)]
    picks[0] = picks[0][:0]
    picks[1] = np.flatnonzero(y == 1)[:5]
    picks[2] = np.flatnonzero(y != 0)[:30]
    picks[3] = np.flatnonzero(y < 2)[:30]
    return fit_many(learner, [ShardData(i, X[rows], y[rows], None, 100 + i) for i, rows in enumerate(picks)])


@pytest.mark.parametrize("num_classes", [2, 3, 5])
@pytest.mark.parametrize("estimator", LINEAR + OTHER, ids=str)
def test_voting_together_equals_asking_one_by_one(estimator, num_classes):
    learner = ScikitLearner(estimator)
    models = train_shards(learner, num_classes)
    assert isinstance(models[0], Abstainer)
    assert models[1] == ConstantModel(1)
    assert all(isinstance(model, Model) for model in models)
    X, _ = blobs(num_classes, seed=1)
    together, single = make_voter(learner, models, num_classes), OneByOneVoter(models, num_classes)
    np.testing.assert_array_equal(together.votes(X), single.votes(X))
    np.testing.assert_array_equal(together.count(X), single.count(X))
    assert (together.count(X).sum(axis=1) == 8).all()
    assert (together.votes(X)[:, 0] == -1).all()


@pytest.mark.parametrize("estimator", LINEAR, ids=str)
def test_linear_models_use_one_product(estimator, monkeypatch):
    learner = ScikitLearner(estimator)
    models = train_shards(learner, 3)
    monkeypatch.setattr(OneByOneVoter, "count", None)  # would fail if it were used
    assert learner.make_voter(models, 3).count(np.zeros((2, 4))).shape == (2, 3)


def test_linear_votes_do_not_depend_on_how_rows_are_chunked(monkeypatch):
    learner = ScikitLearner(LogisticRegression())
    models = train_shards(learner, 3)
    X, _ = blobs(3, seed=2)
    whole = learner.make_voter(models, 3).count(X)
    monkeypatch.setattr("expunge.training.learners.linear._SCORES_AT_ONCE", 50)
    np.testing.assert_array_equal(learner.make_voter(models, 3).count(X), whole)


def test_linear_votes_of_sparse_rows_and_data_frames():
    learner = ScikitLearner(LogisticRegression())
    models = train_shards(learner, 3)
    X, _ = blobs(3, seed=2)
    voter = learner.make_voter(models, 3)
    np.testing.assert_array_equal(voter.count(scipy.sparse.csr_array(X)), voter.count(X))
    np.testing.assert_array_equal(voter.count(pd.DataFrame(X)), voter.count(X))


@pytest.mark.parametrize("rows", [1, 3, 20, 57])
def test_a_class_that_a_shard_never_saw_raises_no_warning_in_any_order_of_rows(rows):
    """An infinite intercept would: some BLAS kernels multiply it by the zeros of their padding."""
    X, _ = blobs(3, seed=2)
    shards = [1, (np.ones((1, 4)), np.zeros(1), np.array([0, 2])), *[0] * 100]
    voter = LinearVoter(shards, 3, 4)
    with np.errstate(all="raise"):
        votes = voter.votes(np.asfortranarray(X[:rows]))
    np.testing.assert_array_equal(votes[:, 0], 1)
    np.testing.assert_array_equal(votes[:, 1], np.where(X[:rows].sum(axis=1) > 0, 2, 0))


def test_a_voter_with_nothing_but_silence():
    assert LinearVoter([None, None], 3, 4).count(np.zeros((5, 4))).sum() == 0
    assert make_voter(ScikitLearner(LogisticRegression()), [Abstainer()] * 2, 3).count(np.zeros((5, 4))).sum() == 0


@pytest.mark.parametrize("estimator", [SGDClassifier(), make_pipeline(StandardScaler(), SGDClassifier())], ids=str)
def test_the_seed_is_all_the_randomness(estimator):
    X, y = blobs(2)
    learner = ScikitLearner(estimator)
    assert isinstance(learner, Learner)

    def weights(seed):
        model = learner.fit(X, y, seed).estimator
        return (model[-1] if hasattr(model, "steps") else model).coef_

    np.testing.assert_array_equal(weights(3), weights(3))
    assert not np.array_equal(weights(3), weights(4))


def test_the_given_estimator_is_never_touched():
    estimator = SGDClassifier()
    ScikitLearner(estimator).fit(*blobs(2), 3)
    assert estimator.random_state is None
    assert not hasattr(estimator, "coef_")


def test_labels_reach_the_estimator_as_they_are():
    X, y = blobs(2)
    learner = ScikitLearner(LogisticRegression(class_weight={"ham": 1, "spam": 5})).for_classes(
        np.array(["ham", "spam"])
    )
    model = learner.fit(X, y, 0)
    assert model.estimator.classes_.tolist() == ["ham", "spam"]
    assert set(model.predict(X).tolist()) == {0, 1}
    voter = learner.make_voter([model], 2)
    np.testing.assert_array_equal(voter.votes(X)[:, 0], model.predict(X))


def test_mixed_columns_through_a_pipeline():
    frame = pd.DataFrame({"age": [20, 30, 40, 50] * 5, "town": ["a", "b", "a", "c"] * 5})
    y = np.array([0, 1, 0, 1] * 5)
    encode = ColumnTransformer(
        [("town", OneHotEncoder(handle_unknown="ignore"), ["town"]), ("age", "passthrough", ["age"])]
    )
    model = ScikitLearner(make_pipeline(encode, DecisionTreeClassifier())).fit(frame, y, 0)
    assert model.predict(frame).tolist() == y.tolist()


def test_texts_through_a_pipeline():
    texts = np.array(["good fine", "bad awful", "fine nice", "awful sad"], dtype=object)
    model = ScikitLearner(make_pipeline(TfidfVectorizer(), LogisticRegression())).fit(texts, np.array([1, 0, 1, 0]), 0)
    assert model.predict(texts).tolist() == [1, 0, 1, 0]


def test_weights_reach_estimators_that_take_them():
    X, y = blobs(2)
    weights = np.where(y == 1, 50.0, 1.0)
    for estimator in (LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression())):
        plain = ScikitLearner(estimator).fit(X, y, 0).predict(X).sum()
        assert ScikitLearner(estimator).fit(X, y, 0, weights=weights).predict(X).sum() > plain
    with pytest.raises(ParameterError, match="KNeighborsClassifier"):
        ScikitLearner(KNeighborsClassifier()).fit(X, y, 0, weights=weights)


def test_what_is_no_estimator_is_refused():
    with pytest.raises(ParameterError, match="fit and predict"):
        ScikitLearner(object())


def test_a_failure_names_the_shard():
    X, y = blobs(2)
    shards = [ShardData(4, X, y, None, 0), ShardData(7, X[:, :0], y, None, 0)]
    with pytest.raises(TrainingError, match="shard 7") as caught:
        fit_many(ScikitLearner(LogisticRegression()), shards)
    assert caught.value.shard == 7


@pytest.mark.parametrize("mode", ["partial_fit", "warm_start"])
def test_sliced_training_ends_with_a_useful_model(mode):
    X, y = blobs(3, 600)
    learner = SlicedScikitLearner(SGDClassifier(), num_slices=4, mode=mode).for_classes(np.arange(3))
    checkpoint = None
    slice_of = np.arange(600) % 4
    for number in range(4):
        rows = slice_of <= number if learner.is_cumulative else slice_of == number
        before = None if checkpoint is None else checkpoint.coef_.copy()
        after = learner.extend(checkpoint, X[rows], y[rows], number, weights=None)
        if before is not None:
            np.testing.assert_array_equal(checkpoint.coef_, before)  # the checkpoint was not touched
        checkpoint = after
    assert (learner.make_model(checkpoint).predict(X) == y).mean() > 0.75


def test_warm_start_with_classes_that_turn_up_late():
    X, y = blobs(3)
    learner = SlicedScikitLearner(LogisticRegression(), num_slices=3)
    assert learner.is_cumulative
    first = learner.extend(None, X[y == 1], y[y == 1], 0, weights=None)
    assert learner.make_model(first) == ConstantModel(1)
    second = learner.extend(first, X[y > 0], y[y > 0], 1, weights=None)
    third = learner.extend(second, X, y, 2, weights=None)
    assert third.classes_.tolist() == [0, 1, 2]


def test_slices_need_a_learner_that_can_continue():
    with pytest.raises(ParameterError, match="DecisionTreeClassifier"):
        SlicedScikitLearner(DecisionTreeClassifier(), num_slices=2)
    with pytest.raises(ParameterError, match="slices"):
        SlicedScikitLearner(SGDClassifier(), num_slices=0)


def test_what_neither_classifies_nor_predicts_numbers_is_refused():
    with pytest.raises(ParameterError, match="classifier or a regressor"):
        ScikitLearner(KMeans(2))


def test_a_subclass_with_its_own_decision_rule_is_not_treated_as_linear():
    class Contrary(LogisticRegression):
        def decision_function(self, X):
            return -super().decision_function(X)

    X, y = blobs(2)
    learner = ScikitLearner(Contrary())
    model = learner.fit(X, y, 0)
    np.testing.assert_array_equal(learner.make_voter([model], 2).votes(X)[:, 0], model.predict(X))
    assert (model.predict(X) == y).mean() < 0.5


@pytest.mark.parametrize("estimator", [RandomForestClassifier(5), HistGradientBoostingClassifier()], ids=str)
def test_a_warm_start_that_would_learn_nothing_new_is_refused(estimator):
    with pytest.raises(ParameterError, match="slice by slice"):
        SlicedScikitLearner(estimator, num_slices=3)


def test_fit_many_must_return_a_model_for_every_shard():
    class Short:
        def fit(self, X, y, seed, *, weights=None):
            raise ValueError("boom")

        def fit_many(self, shards):
            return [ConstantModel(0)] * (len(shards) - 1)

    class Fails(Short):
        def fit_many(self, shards):
            raise ValueError("all at once")

    X, y = blobs(2)
    shards = [ShardData(i, X, y, None, 0) for i in (4, 5)]
    with pytest.raises(TrainingError, match="1 models for 2 shards"):
        fit_many(Short(), shards)
    with pytest.raises(TrainingError, match=r"shard 4.*boom"):
        fit_many(Fails(), shards)


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (
            GridSearchCV(GaussianNB(), {}, cv=KFold(shuffle=True)),
            "GridSearchCV.cv is a KFold that shuffles without a seed",
        ),
        (
            StackingClassifier([("nb", GaussianNB())], cv=ShuffleSplit()),
            "StackingClassifier.cv is a ShuffleSplit that shuffles without a seed",
        ),
        (
            GridSearchCV(make_pipeline(GaussianNB()), {"gaussiannb": [GaussianNB(), DecisionTreeClassifier()]}),
            "param_grid.gaussiannb.1 is a DecisionTreeClassifier without a seed",
        ),
        (FrozenEstimator(GaussianNB()), "FrozenEstimator is a FrozenEstimator"),
        (
            CalibratedClassifierCV(FrozenEstimator(GaussianNB())),
            r"CalibratedClassifierCV\.estimator is a FrozenEstimator",
        ),
        (make_pipeline(FrozenEstimator(StandardScaler()), GaussianNB()), r"Pipeline\.steps\.0\.1 is a FrozenEstimator"),
    ],
    ids=str,
)
def test_what_draws_by_itself_or_outlives_deletions_is_refused(estimator, words):
    with pytest.raises(ParameterError, match=words):
        ScikitLearner(estimator)
    ScikitLearner(GridSearchCV(GaussianNB(), {}, cv=KFold(shuffle=True, random_state=1)))
    ScikitLearner(GridSearchCV(GaussianNB(), {}, cv=KFold()))
    ScikitLearner(GridSearchCV(make_pipeline(GaussianNB()), {"gaussiannb": [DecisionTreeClassifier(random_state=0)]}))
    ScikitLearner(VotingClassifier([("tree", make_pipeline(StandardScaler(), DecisionTreeClassifier()))]))


def test_a_search_over_distributions_depends_on_the_seed_alone():
    search = RandomizedSearchCV(GaussianNB(), [{"var_smoothing": loguniform(1e-9, 1e-1)}], n_iter=3, cv=2)
    learner, (X, y) = ScikitLearner(search), blobs(2)
    first, again, other = (learner.fit(X, y, seed).estimator for seed in (5, 5, 6))
    assert first.best_params_ == again.best_params_ != other.best_params_
    first, again = (pickle.dumps(each.param_distributions) for each in (first, again))
    np.random.random()  # noqa: NPY002
    assert first == again == pickle.dumps(learner.fit(X, y, 5).estimator.param_distributions)


def test_a_classifier_without_predict_before_its_fit_is_taken():
    X, y = blobs(3)
    stacked = StackingClassifier([("nb", GaussianNB()), ("tree", DecisionTreeClassifier())], cv=2)
    assert not hasattr(stacked, "predict")
    assert (ScikitLearner(stacked).fit(X, y, 0).predict(X) == y).mean() > 0.8


def test_a_pipeline_keeps_no_records_in_a_cache(tmp_path):
    X, y = blobs(2)
    cached = make_pipeline(StandardScaler(), GaussianNB(), memory=str(tmp_path))
    nested = OneVsRestClassifier(make_pipeline(StandardScaler(), GaussianNB(), memory=Memory(tmp_path, verbose=0)))
    before = {*tmp_path.rglob("*")}
    for estimator in (cached, nested):
        ScikitLearner(estimator).fit(X, y, 0)
    assert {*tmp_path.rglob("*")} == before
    assert cached.memory == str(tmp_path)


def test_none_for_jobs_becomes_one_where_it_may_mean_all_processors():
    class Boosted(LogisticRegression):
        """Like those of other packages."""

        def __init__(self, n_jobs=None):
            super().__init__()
            self.n_jobs = n_jobs

    nested = ScikitLearner(make_pipeline(StandardScaler(), OneVsRestClassifier(Boosted()))).seeded(0)
    assert nested.get_params()["onevsrestclassifier__estimator__n_jobs"] == 1
    assert nested.get_params()["onevsrestclassifier__n_jobs"] is None
    assert ScikitLearner(Boosted()).seeded(0).n_jobs == 1

    class Own(LogisticRegression):
        """With the parameters of scikit-learn."""

    assert ScikitLearner(Own()).seeded(0).n_jobs is None


class Numbered(ClassifierMixin, BaseEstimator):
    """Takes the labels 0, 1, … and no others, as XGBoost does."""

    def fit(self, X, y, sample_weight=None):
        if not np.array_equal(np.unique(y), np.arange(len(np.unique(y)))):
            raise ValueError(f"Invalid classes inferred from unique values of `y`: {np.unique(y)}")
        if np.isnan(X).any():
            raise ValueError("NaN")
        self.nb_ = GaussianNB().fit(X, y, sample_weight)
        self.classes_ = self.nb_.classes_
        return self

    def predict(self, X):
        return self.nb_.predict(X)

    def predict_proba(self, X):
        return self.nb_.predict_proba(X)


@pytest.mark.parametrize("estimator", [Numbered(), make_pipeline(StandardScaler(), Numbered())], ids=str)
@pytest.mark.parametrize("names", [None, ["ham", "spam", "toast"], [1, 2, 3]])
def test_a_shard_without_some_class_is_numbered_anew_for_an_estimator_that_needs_it(estimator, names):
    X, y = blobs(3)
    learner, plain = ScikitLearner(estimator), ScikitLearner(make_pipeline(*_steps(estimator)[:-1], GaussianNB()))
    if names is not None:
        learner, plain = learner.for_classes(np.array(names)), plain.for_classes(np.array(names))
    shards = [ShardData(i, X[y != i], y[y != i], None, 0) for i in range(3)] + [ShardData(3, X, y, None, 0)]
    models, expected = fit_many(learner, shards), fit_many(plain, shards)
    votes = learner.make_voter(models, 3).votes(X)
    np.testing.assert_array_equal(votes, plain.make_voter(expected, 3).votes(X))
    for model, other in zip(models, expected, strict=True):
        np.testing.assert_array_equal(model.probabilities(X, 3), other.probabilities(X, 3))
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=r"Invalid classes|NaN"):
        learner.fit(X * np.nan, y, 0)


def test_an_error_of_scikit_learn_is_not_tried_again_with_other_labels():
    X, y = blobs(3)
    learner = ScikitLearner(LogisticRegression(class_weight={1: 5.0}, C=-1.0))
    with pytest.raises(ValueError, match="'C' parameter"):
        learner.fit(X[y > 0], y[y > 0], 0)


@pytest.mark.parametrize(
    ("estimator", "shares"),
    [
        (LinearSVC(), True),
        (make_pipeline(StandardScaler(), SVC()), True),
        (LogisticRegression(solver="liblinear"), True),
        (GridSearchCV(LogisticRegression(), {"solver": ["lbfgs", "liblinear"]}), True),
        (BaggingClassifier(LinearSVC()), True),
        (CalibratedClassifierCV(), True),  # of a LinearSVC, if it is not told otherwise
        (LogisticRegression(), False),
        (RandomForestClassifier(), False),
        (make_pipeline(StandardScaler(), SGDClassifier()), False),
    ],
    ids=repr,
)
def test_estimators_that_share_a_generator_are_trained_one_at_a_time(estimator, shares):
    assert ScikitLearner(estimator)._shares_generator == shares
