"""Only the settings of a user's estimator are used."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import KMeans
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import expunge
from expunge.core.errors import ParameterError
from expunge.training.learners import ScikitLearner, SlicedScikitLearner, as_learner

# A number that occurs nowhere else. The tests search the folder for its eight bytes.
TRACE = 1234.567891234


def data():
    X = np.random.default_rng(0).normal(size=(60, 2))
    X[7, 0] = TRACE
    return X, (X[:, 1] > 0).astype(np.int64)


def is_fitted(estimator):
    return any(name.endswith("_") and not name.startswith("_") for name in vars(estimator))


def test_a_fitted_estimator_is_taken_unfitted_and_left_alone():
    X, y = data()
    for wrap in (lambda it: it, ScikitLearner, lambda it: SlicedScikitLearner(it, num_slices=3)):
        given = GaussianNB(var_smoothing=0.5).fit(X, y)
        taken = as_learner(wrap(given)).estimator
        assert not is_fitted(taken)
        assert taken.var_smoothing == 0.5
        assert is_fitted(given)
    pipeline = make_pipeline(StandardScaler(), GaussianNB()).fit(X, y)
    assert not any(is_fitted(step) for _, step in as_learner(pipeline).estimator.steps)
    assert all(is_fitted(step) for _, step in pipeline.steps)


def test_the_rest_of_a_wrapped_learner_is_kept():
    sliced = SlicedScikitLearner(GaussianNB(), num_slices=3).for_classes(np.array(["a", "b"]))
    taken = as_learner(sliced)
    assert (taken.num_slices, taken.mode, taken.classes.tolist()) == (3, "partial_fit", ["a", "b"])


class Changes(ClassifierMixin, BaseEstimator):
    """Breaks scikit-learn's rule that a constructor keeps its arguments."""

    def __init__(self, size=1):
        self.size = [size]

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros(len(X))


def test_what_is_no_learner_is_refused_in_a_line():
    for wrong in (3, "forest", GaussianNB, KMeans(2), Changes(2)):
        with pytest.raises(ParameterError):
            as_learner(wrong)


@pytest.mark.parametrize("wrap", [lambda it: it, ScikitLearner])
def test_what_an_estimator_was_fitted_on_is_not_in_the_folder_after_the_deletion(wrap, tmp_path):
    X, y = data()
    fitted = KNeighborsClassifier(1).fit(X, y)
    promise = expunge.Student(X[:20] + 1.0, student=wrap(fitted))
    with expunge.create(tmp_path / "a", wrap(fitted), X, y, n_shards=3, promise=promise) as deployment:
        deployment.delete([7])
    traced = [path for path in (tmp_path / "a").rglob("*") if path.is_file() and _holds(path)]
    assert traced == []


def _holds(path):
    """Whether the number occurs, with 64 or with 32 bits."""
    content = path.read_bytes()
    return np.float64(TRACE).tobytes() in content or np.float32(TRACE).tobytes() in content


def test_a_short_name_is_refused_with_a_way_to_go_on():
    with pytest.raises(ParameterError, match=r"got 'ridge-exact'; expunge\.training\.learners\.named\.named_learner"):
        as_learner("ridge-exact")


def network_of(package):
    """A network as a newcomer may give it, and the learner that takes it."""
    if package == "torch":
        return pytest.importorskip("torch").nn.Linear(2, 2)
    jax = pytest.importorskip("jax")
    if package == "equinox":
        return pytest.importorskip("equinox").nn.MLP(2, 2, 3, 1, key=jax.random.key(0))
    flax = pytest.importorskip("flax")
    linen, nnx = pytest.importorskip("flax.linen"), pytest.importorskip("flax.nnx")
    assert flax
    return linen.Dense(2) if package == "linen" else nnx.Linear(2, 2, rngs=nnx.Rngs(0))


@pytest.mark.parametrize("package", ["torch", "equinox", "linen", "nnx"])
@pytest.mark.parametrize("form", ["itself", "its class"])
def test_a_network_is_refused_with_the_learner_that_takes_it(package, form, tmp_path):
    network = network_of(package) if form == "itself" else type(network_of(package))
    wanted = "TorchLearner" if package == "torch" else "JaxLearner"
    X, y = data()
    for act in (
        lambda: expunge.UnlearningClassifier(network).fit(X, y),
        lambda: expunge.create(tmp_path / "f", network, X, y, n_shards=2),
    ):
        with pytest.raises(ParameterError, match=f"is a network and says nothing about its training: give {wanted}"):
            act()
    assert not (tmp_path / "f").exists()
