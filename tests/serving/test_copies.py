from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from expunge import Consensus, Noise, Router, Student, Unguarded, UnlearningClassifier, UnlearningRegressor
from expunge.core.errors import InputError, NotPublishedError, ParameterError
from expunge.serving.copies import NOTICE, copy_of
from expunge.training.learners import AbstainingLearner, LookupTableLearner, ScikitLearner, SlicedScikitLearner


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.mark.parametrize(
    "base",
    [
        LogisticRegression(max_iter=300),
        LinearSVC(),
        DecisionTreeClassifier(),
        LookupTableLearner(),
        SlicedScikitLearner(SGDClassifier(loss="log_loss"), num_slices=3),
        AbstainingLearner(ScikitLearner(GaussianNB())),
    ],
    ids=lambda base: type(base).__name__,
)
def test_it_answers_as_what_is_in_service(iris, base):
    X, y = iris
    model = UnlearningClassifier(base, n_shards=5, random_state=0).fit(X, np.array(["a", "b", "c"])[y]).delete([3])
    copy = copy_of(model)
    rows = np.concatenate([X, X[:3] + 100])
    np.testing.assert_array_equal(copy.predict(rows), model.predict(rows))
    np.testing.assert_array_equal(copy.predict_proba(rows), model.predict_proba(rows))
    assert (copy.kind, copy.round, len(copy.models)) == ("ensemble", 1, 5)
    assert [*copy.classes] == ["a", "b", "c"]


@pytest.mark.parametrize("combine", ["mean", "median"])
def test_regressors(combine):
    X, y = load_diabetes(return_X_y=True)
    model = UnlearningRegressor(n_shards=3, combine=combine, random_state=0).fit(X, y)
    np.testing.assert_array_equal(copy_of(model).predict(X), model.predict(X))
    two = UnlearningRegressor(n_shards=3, combine=combine, random_state=0).fit(X, np.stack([y, -y], axis=1))
    np.testing.assert_array_equal(copy_of(two).predict(X), two.predict(X))
    with pytest.raises(ParameterError, match="copy of a regressor"):
        copy_of(model).predict_proba(X)


def test_deletions_do_not_reach_it_and_it_says_so(iris):
    model = UnlearningClassifier(n_shards=3, random_state=0).fit(*iris)
    copy = copy_of(model)
    before = copy.predict_proba(iris[0])
    model.delete(range(0, 150, 2))
    np.testing.assert_array_equal(copy.predict_proba(iris[0]), before)
    assert (before != model.predict_proba(iris[0])).any()
    assert "Deletions do not reach it" in NOTICE


def test_it_holds_no_rows_and_no_key(iris):
    X, y = iris
    frame = pd.DataFrame(X, columns=list("abcd"))
    copy = copy_of(UnlearningClassifier(n_shards=3, random_state=0).fit(frame, y))
    assert len(copy.pattern) == 0
    assert {type(value).__name__ for value in vars(copy).values()} & {"Records", "RecipeKey", "Recipe"} == set()
    with pytest.raises(InputError, match="queries must have the form"):
        copy.predict(frame[["a", "b"]])
    frame.loc[2, "a"] = np.nan
    with pytest.raises(InputError, match="row 3"):
        copy.predict(frame)


def test_frames_come_in_as_they_do_in_service():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(20, 70, 90), "town": rng.choice(list("abc"), 90)})
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["town"]), remainder="passthrough")
    model = UnlearningClassifier(make_pipeline(encode, GaussianNB()), n_shards=2, random_state=0)
    encode.set_params(sparse_threshold=0)
    model.fit(frame, frame["age"] > 50)
    np.testing.assert_array_equal(copy_of(model).predict_proba(frame), model.predict_proba(frame))


def test_a_student_is_copied_alone(iris):
    X, y = iris
    promise = Student(X + np.linspace(0.01, 0.02, 4), student=LogisticRegression(max_iter=300), selection_share=0.5)
    with pytest.warns(UserWarning, match="claims no"):
        model = UnlearningClassifier(GaussianNB(), n_shards=4, promise=promise, random_state=0).fit(X, y)
    copy = copy_of(model)
    assert (copy.kind, len(copy.models)) == ("student", 1)
    assert copy.models[0] is model.deployment_.student.model  # no model that learned from people
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))
    assert copy.predict_proba(X).shape == (150, 3)


@pytest.mark.filterwarnings("ignore::expunge.core.errors.VacuousPromiseWarning")
@pytest.mark.parametrize("promise", [Consensus(), Noise(max_predictions=5), Router(), Unguarded()])
def test_other_promises_give_no_copy(iris, promise):
    model = UnlearningClassifier(n_shards=3, promise=promise, random_state=0).fit(*iris)
    with pytest.raises(NotPublishedError, match=r"charged one by one; use promise='exact', or a Student"):
        copy_of(model)


def test_what_cannot_be_copied_is_named(iris):
    with pytest.raises(ParameterError, match="a fitted estimator of expunge or a deployment is needed, got GaussianNB"):
        copy_of(GaussianNB().fit(*iris))
    with pytest.raises(ParameterError, match="got UnlearningClassifier"):
        copy_of(UnlearningClassifier())
    several = UnlearningClassifier(DecisionTreeClassifier(), n_shards=2, random_state=0)
    several.fit(iris[0], np.stack([iris[1], iris[1]], axis=1))
    with pytest.raises(ParameterError, match="several labels"):
        copy_of(several)
