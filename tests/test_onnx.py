from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeRegressor

import expunge.onnx
from expunge import Exact, Student, UnlearningClassifier, UnlearningRegressor
from expunge.core.errors import MissingExtraError, NotPublishedError, ParameterError
from expunge.serving.copies import NOTICE
from expunge.training.learners import LookupTableLearner

runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("skl2onnx")


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X.astype(np.float32).astype(np.float64), y  # ONNX reads 32 bits


def run(proto, **inputs):
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, inputs), strict=True))


@pytest.mark.parametrize(
    "base",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestClassifier(5),
        GradientBoostingClassifier(n_estimators=3),
        GaussianNB(),
        KNeighborsClassifier(3),
        make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=50)),
        make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss")),
    ],
    ids=lambda base: type(getattr(base, "steps", [("", base)])[-1][1]).__name__,
)
def test_it_agrees_with_the_ensemble(iris, base):
    X, y = iris
    model = UnlearningClassifier(base, n_shards=4, random_state=0).fit(X, y).delete([3, 7])
    found = run(expunge.onnx.to_onnx(model), X=X.astype(np.float32))
    expected = model.predict_proba(X)
    np.testing.assert_allclose(found["probabilities"], expected, atol=2e-5)
    top = np.sort(expected, axis=1)
    is_clear = top[:, -1] - top[:, -2] > 1e-4
    assert is_clear.sum() > 100
    np.testing.assert_array_equal(found["label"][is_clear], model.predict(X)[is_clear])


@pytest.mark.parametrize("labels", [["a", "b", "c"], [True, False, True], [7, -1, 3], [1.0, 2.0, 3.0]], ids=str)
def test_labels_of_every_kind_and_shards_that_miss_a_class(iris, labels):
    """Some shards hold one or two of the classes: their columns go to the right place, and constants count."""
    X, y = iris
    keep = np.r_[0:4, 50:60, 100:104]
    model = UnlearningClassifier(n_shards=9, random_state=1).fit(X[keep], np.array(labels)[y[keep]])
    kinds = {type(each).__name__ for each in model.deployment_.inside.state.models}
    assert {"ConstantModel", "ScikitModel"} <= kinds
    found = run(expunge.onnx.to_onnx(model), X=X.astype(np.float32))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-4)
    answers, expected = found["label"], model.predict(X)
    assert answers.dtype.kind in {"U": "OU", "b": "b", "i": "i", "f": "f"}[expected.dtype.kind]
    assert np.mean(answers == expected) > 0.98


def test_a_threshold(iris):
    X, y = iris
    model = UnlearningClassifier(LogisticRegression(), n_shards=3, promise=Exact(threshold=(2, 0.2)), random_state=0)
    found = run(expunge.onnx.to_onnx(model.fit(X, y)), X=X.astype(np.float32))
    assert found["label"].tolist() == model.predict(X).tolist()
    assert found["label"].tolist() != model.predict_proba(X).argmax(axis=1).tolist()


def test_a_broken_average_would_be_seen(iris):
    """One model alone is not the ensemble."""
    X, y = iris
    model = UnlearningClassifier(GaussianNB(), n_shards=4, random_state=0).fit(X, y)
    one = model.export()[0].predict_proba(X)
    found = run(expunge.onnx.to_onnx(model), X=X.astype(np.float32))
    assert np.abs(found["probabilities"] - one).max() > 0.01


def test_columns_by_name_and_columns_as_one_table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(20, 70, 200), "town": rng.choice(["Bern", "Chur"], 200).astype(object)})
    frame["spend"] = rng.normal(size=200).astype(np.float32)
    y = (frame["spend"] > 0) ^ (frame["town"] == "Bern")
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["town"]), (numbers, ["age", "spend"]))
    model = UnlearningClassifier(make_pipeline(encode, LogisticRegression()), n_shards=3, random_state=0).fit(frame, y)
    columns = {
        "age": frame[["age"]].to_numpy(np.float32),
        "town": frame[["town"]].to_numpy(str),
        "spend": frame[["spend"]].to_numpy(np.float32),
    }
    proto = expunge.onnx.to_onnx(model)
    np.testing.assert_allclose(run(proto, **columns)["probabilities"], model.predict_proba(frame), atol=1e-5)
    rest = frame.drop(columns="town")
    whole = UnlearningClassifier(make_pipeline(StandardScaler(), LogisticRegression()), n_shards=2, random_state=0)
    whole.fit(rest, y)
    found = run(expunge.onnx.to_onnx(whole), X=rest.to_numpy(np.float32))
    np.testing.assert_allclose(found["probabilities"], whole.predict_proba(rest), atol=1e-5)


@pytest.mark.parametrize(
    "base", [Ridge(), DecisionTreeRegressor(max_depth=3), GradientBoostingRegressor(n_estimators=5)]
)
def test_regressors(base):
    X, y = load_diabetes(return_X_y=True)
    X = X.astype(np.float32).astype(np.float64)
    model = UnlearningRegressor(base, n_shards=3, random_state=0).fit(X, y)
    found = run(expunge.onnx.to_onnx(model), X=X.astype(np.float32))["variable"]
    np.testing.assert_allclose(found[:, 0], model.predict(X), rtol=1e-4)


def test_a_student(iris):
    X, y = iris
    promise = Student(X + np.linspace(0.01, 0.02, 4), student=GaussianNB(), selection_share=0.5)
    with pytest.warns(UserWarning, match="claims no"):
        model = UnlearningClassifier(GaussianNB(), n_shards=4, promise=promise, random_state=0).fit(X, y)
    assert np.mean(run(expunge.onnx.to_onnx(model), X=X.astype(np.float32))["label"] == model.predict(X)) > 0.99


def test_the_file_says_that_deletions_do_not_reach_it(iris, tmp_path):
    import onnx

    model = UnlearningClassifier(n_shards=2, random_state=0).fit(*iris).delete([1])
    expunge.onnx.save(model, tmp_path / "m.onnx")
    read = onnx.load(tmp_path / "m.onnx")
    assert read.doc_string == read.graph.doc_string == NOTICE
    assert {each.key: each.value for each in read.metadata_props} == {"expunge": NOTICE, "models": "2", "round": "1"}


REFUSED = {
    "no probabilities": (LinearSVC(), "LinearSVC: it has no probabilities"),
    "another learner": (LookupTableLearner(), "LookupTableLearner: skl2onnx knows estimators of scikit-learn only"),
    "a function": (
        make_pipeline(FunctionTransformer(np.cbrt), GaussianNB()),
        "no ONNX of GaussianNB: skl2onnx cannot convert it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_possible_is_one_line(iris, case, tmp_path):
    base, words = REFUSED[case]
    model = UnlearningClassifier(base, n_shards=2, random_state=0).fit(*iris)
    with pytest.raises(ParameterError, match=words) as caught:
        expunge.onnx.save(model, tmp_path / "m.onnx")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "m.onnx").exists()


def test_other_things_that_are_refused(iris, monkeypatch):
    X, y = iris
    median = UnlearningRegressor(n_shards=2, combine="median", random_state=0).fit(X, y)
    with pytest.raises(ParameterError, match="combine='median'"):
        expunge.onnx.to_onnx(median)
    sparse = UnlearningClassifier(n_shards=2, random_state=0).fit(scipy.sparse.csr_array(X), y)
    with pytest.raises(ParameterError, match="sparse"):
        expunge.onnx.to_onnx(sparse)
    empty = UnlearningClassifier(n_shards=2, random_state=0).fit(X, y).delete(range(150))
    with pytest.raises(ParameterError, match="no shard has a model"):
        expunge.onnx.to_onnx(empty)
    with pytest.warns(UserWarning, match="claims no"):
        gated = UnlearningClassifier(n_shards=2, promise="consensus", random_state=0).fit(X, y)
    with pytest.raises(NotPublishedError):
        expunge.onnx.to_onnx(gated)
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'expunge\[onnx\]'"):
        expunge.onnx.to_onnx(UnlearningClassifier(n_shards=2, random_state=0).fit(X, y))
