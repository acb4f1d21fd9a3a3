"""Every scikit-learn classifier and the usual pipelines: the same answers, settings and bytes after a round trip."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, SGDClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import all_estimators

from expunge.folder.codec import decode, encode

RNG = np.random.default_rng(0)
Y = np.arange(60) % 3
X = RNG.normal(size=(60, 4)) + np.column_stack([2 * Y, Y, np.zeros(60), -Y])
FRESH = RNG.normal(size=(50, 4)) * 2 + 1
TEXTS = np.array(["a cat sat here", "the dog ran away", "some bird flew over"] * 20, dtype=object)
TABLE = pd.DataFrame({"age": X[:, 0], "income": X[:, 1], "region": np.array(["n", "s", "e"])[Y], "member": X[:, 2] > 0})

_INNER = {
    "estimator": LogisticRegression(),
    "estimators": [("a", LogisticRegression()), ("b", DecisionTreeClassifier())],
}
_TWO_CLASSES = {"FixedThresholdClassifier", "TunedThresholdClassifierCV"}
_SEVERAL_OUTPUTS = {"ClassifierChain", "MultiOutputClassifier"}
_COUNTS = {"CategoricalNB", "ComplementNB", "MultinomialNB"}
CLASSIFIERS = dict(all_estimators("classifier"))


def classifier(name):
    kind = CLASSIFIERS[name]
    settings = {key: value for key, value in _INNER.items() if key in kind._get_param_names()}
    if name == "RadiusNeighborsClassifier":
        settings = {"outlier_label": 0}
    if name in ("BaggingClassifier", "AdaBoostClassifier"):
        settings = {}
    made = kind(**settings)
    seeds = {key: 5 for key in made.get_params() if key.endswith("random_state")}
    return made.set_params(**seeds)


def fitted(estimator, rows, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small data: not everything converges
        return clone(estimator).fit(rows, labels)


def settings(model):
    return re.sub(r" at 0x[0-9a-f]+", "", str(model.get_params()))


def assert_round_trip(estimator, rows, labels, fresh):
    """Same answers, same settings, same bytes: again, from the decoded model, and from a second training."""
    model = fitted(estimator, rows, labels)
    stored = encode(model)
    assert stored.format == "arrays"
    again = decode(stored.format, stored.data)
    assert np.array_equal(again.predict(fresh), model.predict(fresh))
    assert type(again) is type(model)
    assert settings(again) == settings(model)
    assert set(vars(again)) >= set(vars(model)) - {"_stop_words_id"}
    assert encode(model).data == stored.data
    assert encode(again).data == stored.data
    assert encode(fitted(estimator, rows, labels)).data == stored.data


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_classifier(name):
    rows, fresh, labels = X, FRESH, Y
    if name in _COUNTS:
        rows, fresh = np.clip(np.abs(X), 0, 3).astype(int), np.clip(np.abs(FRESH), 0, 1).astype(int)
    if name in _TWO_CLASSES:
        labels = Y > 0
    if name in _SEVERAL_OUTPUTS:
        labels = np.column_stack([Y > 0, Y > 1]).astype(int)
    assert_round_trip(classifier(name), rows, labels, fresh)


VARIANTS = {
    "labels that are texts": (LogisticRegression(), X, np.array(["no", "yes", "perhaps"])[Y], FRESH),
    "labels that are objects": (LogisticRegression(), X, np.array(["no", "yes", "x"], dtype=object)[Y], FRESH),
    "float32": (LogisticRegression(), X.astype(np.float32), Y, FRESH.astype(np.float32)),
    "sparse coefficients": (SVC(kernel="linear"), scipy.sparse.csr_matrix(X), Y, scipy.sparse.csr_matrix(FRESH)),
    "two classes boosting": (GradientBoostingClassifier(random_state=1, n_estimators=5), X, Y > 0, FRESH),
    "exponential loss": (
        GradientBoostingClassifier(loss="exponential", random_state=1, n_estimators=5), X, Y > 0, FRESH
    ),
    "boosting with categories": (
        HistGradientBoostingClassifier(categorical_features=[3], max_iter=5, random_state=1),
        np.column_stack([X[:, :3], Y]), Y, np.column_stack([FRESH[:, :3], np.arange(50) % 5]),
    ),
    "boosting with early stopping": (
        HistGradientBoostingClassifier(early_stopping=True, max_iter=5, random_state=1), X, Y, FRESH
    ),
    "probabilities of a machine": (SVC(probability=True, random_state=1), X, Y, FRESH),
    "ball tree": (KNeighborsClassifier(algorithm="ball_tree", metric="manhattan"), X, Y, FRESH),
    "brute force, weighted": (KNeighborsClassifier(algorithm="brute", weights="distance"), X, Y, FRESH),
    "network by sgd": (MLPClassifier((5,), solver="sgd", max_iter=5, random_state=1), X, Y, FRESH),
    "network by lbfgs": (MLPClassifier((5, 3), solver="lbfgs", max_iter=5, random_state=1), X, Y, FRESH),
    "isotonic": (CalibratedClassifierCV(LogisticRegression(), method="isotonic", cv=2), X, Y, FRESH),
    "kernels": (GaussianProcessClassifier(RBF() + WhiteKernel(), random_state=1), X, Y, FRESH),
    "sgd losses": (OneVsRestClassifier(SGDClassifier(loss="modified_huber", random_state=1)), X, Y, FRESH),
    "search": (GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=StratifiedKFold(3)), X, Y, FRESH),
    "search by a score": (GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, scoring="f1_macro", cv=3), X, Y, FRESH),
    "scaled": (make_pipeline(StandardScaler(), LogisticRegression()), X, Y, FRESH),
    "scaled otherwise": (make_pipeline(RobustScaler(), MinMaxScaler(), LogisticRegression()), X, Y, FRESH),
    "quantiles": (make_pipeline(QuantileTransformer(n_quantiles=10), LogisticRegression()), X, Y, FRESH),
    "filled": (make_pipeline(SimpleImputer(), KNNImputer(), LogisticRegression()), X, Y, FRESH),
    "components": (make_pipeline(PCA(2, random_state=1), LogisticRegression()), X, Y, FRESH),
    "kernel approximation": (
        make_pipeline(Nystroem(n_components=10, random_state=1), RBFSampler(random_state=1), LogisticRegression()),
        X, Y, FRESH,
    ),
    "polynomials and splines": (
        make_pipeline(FeatureUnion([("p", PolynomialFeatures(2)), ("s", SplineTransformer())]), LogisticRegression()),
        X, Y, FRESH,
    ),
    "bins": (make_pipeline(KBinsDiscretizer(3, quantile_method="linear"), LogisticRegression()), X, Y, FRESH),
    "selection": (make_pipeline(MinMaxScaler(clip=True), SelectKBest(chi2, k=2), MultinomialNB()), X, Y, FRESH),
    "a universal function": (make_pipeline(FunctionTransformer(np.arctan), LogisticRegression()), X, Y, FRESH),
    "counted words": (make_pipeline(CountVectorizer(), MultinomialNB()), TEXTS, Y, TEXTS[::-1]),
    "weighted words": (make_pipeline(TfidfVectorizer(stop_words="english"), LogisticRegression()), TEXTS, Y, TEXTS),
    "hashed words": (
        make_pipeline(HashingVectorizer(n_features=64), TruncatedSVD(2, random_state=1), LogisticRegression()),
        TEXTS, Y, TEXTS,
    ),
    "mixed columns": (
        make_pipeline(
            ColumnTransformer(
                [
                    ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "income"]),
                    ("categories", OneHotEncoder(handle_unknown="ignore"), ["region"]),
                ],
                remainder="passthrough",
            ),
            LogisticRegression(),
        ),
        TABLE, Y, TABLE.iloc[::-1],
    ),
    "columns chosen by type": (
        make_pipeline(
            ColumnTransformer([("c", OrdinalEncoder(), make_column_selector(dtype_include=[bool]))]),
            RandomForestClassifier(5, random_state=1),
        ),
        TABLE, Y, TABLE.iloc[::-1],
    ),
    "encoded targets": (
        make_pipeline(TargetEncoder(random_state=1), LogisticRegression()), TABLE[["region"]], Y, TABLE[["region"]]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_and_pipelines(name):
    assert_round_trip(*VARIANTS[name])


def test_named_tuples_of_an_imputer():
    holes = X.copy()
    holes[::7, 1] = np.nan
    pipeline = make_pipeline(IterativeImputer(random_state=1, max_iter=2), LogisticRegression())
    assert_round_trip(pipeline, holes, Y, FRESH)


@pytest.mark.parametrize("model", [PoissonRegressor(), GammaRegressor()])
def test_losses_of_regressions(model):
    assert_round_trip(model, X, 1.0 + Y, FRESH)


def test_a_decoded_model_can_go_on_training():
    model = MLPClassifier((5,), max_iter=3, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.partial_fit(X, Y, classes=[0, 1, 2])
        stored = encode(model)
        again = decode(stored.format, stored.data)
        model.partial_fit(X, Y)
        again.partial_fit(X, Y)
    assert encode(again).data == encode(model).data


_READ = """
import sys, numpy as np
from expunge.folder.codec import decode, encode
data = open(sys.argv[1], "rb").read()
model = decode("arrays", data)
np.save(sys.argv[2], model.predict(np.load(sys.argv[3])))
sys.exit(encode(model).data != data)
"""


@pytest.mark.parametrize("name", ["LogisticRegression", "RandomForestClassifier", "HistGradientBoostingClassifier"])
def test_in_a_fresh_process_with_another_hash_seed(name, tmp_path):
    model = fitted(classifier(name), X, Y)
    (tmp_path / "model").write_bytes(encode(model).data)
    np.save(tmp_path / "rows.npy", FRESH)
    files = [str(tmp_path / part) for part in ("model", "answers.npy", "rows.npy")]
    environment = {"PYTHONHASHSEED": "123", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", _READ, *files], env=environment, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "answers.npy"), model.predict(FRESH))


_TRAIN = """
import sys, numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from expunge.folder.codec import encode
texts = ["a cat sat here", "the dog ran away", "some bird flew over"] * 20
y = np.arange(60) % 3
words = make_pipeline(TfidfVectorizer(stop_words="english"), LogisticRegression()).fit(texts, y)
words.predict(texts)
X = np.random.default_rng(1).normal(size=(60, 3))
trees = HistGradientBoostingClassifier(max_iter=5, random_state=1).fit(X, y)
print(encode((words, trees)).data.hex())
"""


def test_training_in_two_processes_gives_the_same_bytes():
    runs = [
        subprocess.run(
            [sys.executable, "-c", _TRAIN], env={"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads},
            check=True, capture_output=True, text=True,
        ).stdout
        for seed, threads in (("1", "1"), ("2", "2"))
    ]  # fmt: skip
    assert runs[0] == runs[1]
    assert len(runs[0]) > 1000


def test_parts_that_occur_twice_stay_shared():
    holes = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
    imputer = fitted(IterativeImputer(random_state=1, max_iter=1), holes, Y)
    array, model = np.arange(4.0), fitted(LogisticRegression(), X, Y)
    stored = encode([array, model, imputer, array, model, imputer])
    again = decode(stored.format, stored.data)
    assert [again[place] is again[place + 3] for place in range(3)] == [True, True, True]
    assert np.array_equal(again[1].predict(FRESH), model.predict(FRESH))
    assert np.array_equal(again[2].transform(holes), imputer.transform(holes))
