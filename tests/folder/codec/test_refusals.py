"""What cannot be loaded again without running code is refused when it is to be stored, with the way out."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import Birch
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC

from expunge.core.errors import ModelFormatError
from expunge.folder.codec import decode, encode
from expunge.serving.publishing import StudentFront
from expunge.training.fallback import RidgeFallback
from expunge.training.learners import ScikitLearner

X = np.random.default_rng(0).normal(size=(30, 3))
Y = np.arange(30) % 2


class Local(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros(len(X))


def own_function(X):
    return X


REFUSED = {
    "lambda": (FunctionTransformer(lambda rows: rows), "<lambda>.*cannot be stored: use a named function"),
    "a nested lambda": (
        make_pipeline(ColumnTransformer([("a", FunctionTransformer(lambda rows: rows), [0])]), LogisticRegression()),
        "<lambda>",
    ),
    "somebody's function": (FunctionTransformer(own_function), r"own_function is refused.*trust=\['"),
    "a kernel function": (SVC(kernel=own_function), "own_function is refused"),
    "a distance": (KNeighborsClassifier(metric=own_function), "own_function is refused"),
    "an optimiser": (GaussianProcessClassifier(optimizer=own_function), "own_function is refused"),
    "a tokenizer": (CountVectorizer(tokenizer=str.split), "split.* is refused"),
    "a builtin": (FunctionTransformer(eval), r"builtins.eval is refused"),
    "a method": (FunctionTransformer(X.dot), "dot.* is refused"),
    "a class": (LogisticRegression(C=subprocess.Popen), r"subprocess.Popen is refused"),
    "a class within": (VotingClassifier([("a", Local())]), r"Local is refused.*trust=\['"),
    "a learner of one": (ScikitLearner(Local()), r"Local is refused"),
    "an object": (object(), "builtins.object is refused"),
    "a module": (sys, "builtins.module is refused"),
    "an open file": (open, "open is refused"),
    "a cache": (
        make_pipeline(LogisticRegression(), memory="/tmp/cache"),
        "memory= is refused.*copies of training data",
    ),
    "a changing function": (
        StudentFront(X, ScikitLearner(Local()), augment=lambda rows, rng: rows),
        "<lambda> cannot be stored",
    ),
    "private parts": (Birch(n_clusters=2).fit(X), "_birch._CFNode cannot be stored"),
    "a fitted fallback": (RidgeFallback().fit(X, Y, num_classes=2), "RidgeModel is not stored"),
    "an array of somebody's objects": (np.array([Local()], dtype=object), "Local is refused"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_when_it_is_to_be_stored(name):
    value, message = REFUSED[name]
    with pytest.raises(ModelFormatError, match=message) as caught:
        encode(value)
    assert "\n" not in str(caught.value)


def test_trusted_is_a_collection():
    with pytest.raises(ModelFormatError, match="a collection of names"):
        encode(1, trusted="numpy")


@pytest.mark.parametrize("name", ["company_models", "company_models:Doubler", "company_models.Doubler"])
def test_an_own_transformer_once_it_is_trusted(company, name):
    model = make_pipeline(company.Doubler(3), LogisticRegression()).fit(X, Y)
    with pytest.raises(ModelFormatError, match=r"--trust company_models.Doubler .*trust=\['company_models.Doubler'\]"):
        encode(model)
    stored = encode(model, trusted=[name])
    assert stored.format == "arrays"
    with pytest.raises(ModelFormatError, match=r"company_models.Doubler is refused"):
        decode(stored.format, stored.data)
    assert np.array_equal(decode(stored.format, stored.data, trusted=[name]).predict(X), model.predict(X))


def test_an_own_function_once_it_is_trusted(company):
    model = make_pipeline(FunctionTransformer(company.double), LogisticRegression()).fit(X, Y)
    stored = encode(model, trusted=["company_models:double"])
    assert stored.format == "arrays"
    with pytest.raises(ModelFormatError, match="double is refused"):
        decode(stored.format, stored.data, trusted=["company_models:Doubler"])
    assert decode(stored.format, stored.data, trusted=["company_models:double"])[0].func is company.double


def test_an_own_model_that_offers_arrays(company):
    model = company.Arrays(Y)
    with pytest.raises(ModelFormatError, match="Arrays is refused"):
        encode(model)
    stored = encode(model, trusted=["company_models"])
    assert stored.format == "arrays"
    with pytest.raises(ModelFormatError, match="Arrays is refused"):
        decode(stored.format, stored.data)
    assert np.array_equal(decode(stored.format, stored.data, trusted=["company_models"]).codes, Y)


def test_an_own_model_that_can_only_be_pickled(company):
    model = company.Plain(Y)
    with pytest.raises(ModelFormatError, match=r"trust=\['company_models.Plain'\]"):
        encode(model)
    stored = encode(model, trusted=["company_models:Plain"])
    assert stored.format == "pickle"
    assert encode(model, trusted=["company_models:Plain"]).data == stored.data
    again = decode("pickle", stored.data, trusted=["company_models:Plain"])
    assert np.array_equal(again.predict(X), Y)
    for trusted in ((), ["company_models:Doubler"], ["company"]):
        with pytest.raises(ModelFormatError, match="Plain is refused"):
            decode("pickle", stored.data, trusted=trusted)


def test_a_pickle_is_none_of_the_other_formats(company):
    stored = encode(company.Plain(Y), trusted=["company_models"])
    with pytest.raises(ModelFormatError, match="a pickle part, but is not of that format"):
        decode("arrays", stored.data, trusted=["company_models"])
    for format in ("joblib", "skops"):
        with pytest.raises(ModelFormatError, match="one of arrays, pickle"):
            decode(format, stored.data, trusted=["company_models"])
    with pytest.raises(ModelFormatError, match="one of arrays, pickle"):
        decode("joblib", stored.data)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda company: company.Plain(subprocess.Popen), "subprocess.Popen is refused"),
        (lambda company: company.Plain(print), "builtins.print is refused"),
        (lambda company: company.Plain(lambda: 0), "cannot be pickled"),
        (lambda company: company.Unpicklable(Y), "cannot be pickled: TypeError: no"),
    ],
)
def test_a_pickle_that_could_not_be_loaded_is_refused_at_once(company, make, message):
    with pytest.raises(ModelFormatError, match=message):
        encode(make(company), trusted=["company_models"])


def test_a_class_that_nobody_could_find_again():
    class Hidden:
        pass

    name = f"{Hidden.__module__}.{Hidden.__qualname__}"
    with pytest.raises(ModelFormatError, match="only what a module defines at its top level"):
        encode(Hidden(), trusted=[name])


def test_everything_that_is_missing_is_named_at_once(company):
    """When it is stored and when it is loaded, also where parts are pickled."""
    parts = [company.Doubler(3), company.double, company.Plain(Y), company.Doubler]
    names = ["company_models.Doubler", "company_models.double", "company_models.Plain"]
    with pytest.raises(ModelFormatError) as caught:
        encode(parts)
    assert all(f"--trust {name}" in str(caught.value) for name in names)
    assert str(caught.value).count("--trust") == len(names)
    stored = encode(parts, trusted=["company_models"])
    for missing in (names, names[1:], names[2:]):
        with pytest.raises(ModelFormatError) as caught:
            decode(stored.format, stored.data, trusted=[name for name in names if name not in missing])
        assert str(caught.value).endswith(f"(from Python: trust={missing!r})")
    decode(stored.format, stored.data, trusted=names)


def test_what_is_inside_of_a_refused_object_is_named_with_it(company):
    inside = [company.Doubler(company.Plain(Y)), company.Plain([company.Arrays(Y), company.Doubler(3)])]
    names = [f"company_models.{name}" for name in ("Plain", "Doubler", "Arrays")]
    with pytest.raises(ModelFormatError) as caught:
        encode(inside)
    assert all(f"--trust {name}" in str(caught.value) for name in names)
    assert str(caught.value).count("--trust") == len(names)
    with pytest.raises(ModelFormatError) as caught:  # told at once for a part that is pickled, too
        encode(inside[1], trusted=names[:1])
    assert str(caught.value).count("--trust") == 2
    assert encode(inside, trusted=names).format == "pickle"


@pytest.mark.parametrize("module", ["xgboost", "lightgbm"])
def test_trusting_a_library_is_enough_for_its_models(module):
    kind = {"xgboost": "XGBClassifier", "lightgbm": "LGBMClassifier"}[module]
    library = pytest.importorskip(module)
    options = {"n_estimators": 2, "n_jobs": 1, "random_state": 0, "verbosity": 0 if module == "xgboost" else -1}
    model = getattr(library, kind)(**options).fit(X, Y)
    with pytest.raises(ModelFormatError, match=rf"{kind} and {module}\.\w+\.Booster are refused"):
        encode(model)
    stored = encode(model, trusted=[module])
    again = decode(stored.format, stored.data, trusted=[module])
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_trusting_a_package_covers_its_modules(package):
    model = package.inner.deep.Plain(Y)
    stored = encode(model, trusted=["company_package"])
    for trusted in (["company_package"], ["company_package.inner"], ["company_package.inner.deep:Plain"]):
        assert encode(model, trusted=trusted).data == stored.data
        assert np.array_equal(decode("pickle", stored.data, trusted=trusted).codes, Y)
    for trusted in (["company"], ["company_package.inn"], ["company_package.other"], ["deep"]):
        with pytest.raises(ModelFormatError, match=r"company_package\.inner\.deep\.Plain is refused"):
            decode("pickle", stored.data, trusted=trusted)
