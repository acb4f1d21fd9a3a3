"""Shard models in their learner's own arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import make_pipeline

from expunge.core.errors import ModelFormatError
from expunge.folder.codec import decode, decode_model, encode, encode_model
from expunge.training.learners import Abstainer, ConstantModel, ScikitLearner, SlicedModel, SlicedScikitLearner
from expunge.training.learners.slices import SlicedShard, fit_slices

X = np.random.default_rng(0).normal(size=(30, 3))
Y = (X[:, 0] > 0).astype(np.int64)


class Parameters:
    """A model that nothing but its learner can take apart: the codec knows and trusts no such class."""

    def __init__(self, weights, scale):
        self.weights, self.scale = weights, scale

    def predict(self, X):
        return (X @ self.weights * self.scale > 0).astype(np.int64)


@dataclass(frozen=True)
class ParameterLearner:
    fault: str = ""

    def fit(self, X, y, seed, *, weights=None):
        return Parameters((X * (2 * y - 1)[:, None]).mean(axis=0), 2.0)

    def dump_model(self, model):
        parts = {"weights": model.weights, "scale": model.scale, "kind": "mean", "layers": {"0": (1, 2)}}
        return [parts] if self.fault == "no dictionary" else {1: 2} if self.fault == "no names" else parts

    def load_model(self, parts):
        assert parts["kind"] == "mean", "another kind"
        assert parts["layers"] == {"0": (1, 2)}
        return Parameters(parts["weights"], parts["scale"])


def test_a_learner_stores_its_models_itself():
    learner = ParameterLearner()
    model = learner.fit(X, Y, 0)
    with pytest.raises(ModelFormatError, match="Parameters is refused"):
        encode(model)
    stored = encode_model(learner, model)
    assert stored.format == "arrays"
    assert encode_model(learner, model) == stored
    again = decode_model(learner, stored.format, stored.data)
    assert np.array_equal(again.predict(X), model.predict(X))
    assert encode_model(learner, again) == stored


@pytest.mark.parametrize("model", [Abstainer(), ConstantModel(1)])
def test_models_without_a_learner(model):
    for learner in (ParameterLearner(), ScikitLearner(LogisticRegression())):
        stored = encode_model(learner, model)
        assert decode_model(learner, stored.format, stored.data) == model


def test_scikit_learners():
    learner = ScikitLearner(LogisticRegression())
    stored = encode_model(learner, learner.fit(X, Y, 0))
    assert np.array_equal(decode_model(learner, stored.format, stored.data).predict(X), learner.fit(X, Y, 0).predict(X))
    sliced = SlicedScikitLearner(SGDClassifier(), 3).for_classes(np.arange(2))
    model = fit_slices(sliced, SlicedShard(0, X, Y, None, np.arange(30) % 3, (1, 2, 3)))
    stored = encode_model(sliced, model)
    assert len(decode_model(sliced, stored.format, stored.data).checkpoints) == 3


@pytest.mark.parametrize("fault", ["no dictionary", "no names"])
def test_learners_that_do_not_keep_to_it(fault):
    learner = ParameterLearner(fault)
    with pytest.raises(ModelFormatError, match=r"ParameterLearner.dump_model must return a dictionary"):
        encode_model(learner, learner.fit(X, Y, 0))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "the stored value is no model: int has no predict"),
        ((1, 2), "the stored value is no model"),
        ((), "cannot load the stored model: ValueError"),
        (("learner's parts", {"kind": "other"}), "cannot load the stored model: AssertionError: another kind"),
        (("learner's parts", 3), "cannot load the stored model: TypeError"),
    ],
)
def test_files_that_hold_something_else(value, message):
    with pytest.raises(ModelFormatError, match=message):
        decode_model(ParameterLearner(), "arrays", encode(value).data)


def test_parts_for_a_learner_without_hooks():
    learner = ParameterLearner()
    stored = encode_model(learner, learner.fit(X, Y, 0))
    with pytest.raises(ModelFormatError, match="the stored value is no model"):
        decode_model(ScikitLearner(LogisticRegression()), stored.format, stored.data)


class SlicedParameterLearner(ParameterLearner):
    """Its hooks are given the whole sliced model."""

    num_slices = 2
    is_cumulative = False

    def extend(self, checkpoint, X, y, seed, *, weights):
        return ParameterLearner().fit(X, y, seed)

    def make_model(self, checkpoint):
        return checkpoint

    def dump_model(self, model):
        return {str(number): checkpoint.weights for number, checkpoint in enumerate(model.checkpoints)}

    def load_model(self, parts):
        checkpoints = tuple(Parameters(parts[str(number)], 2.0) for number in range(len(parts)))
        return SlicedModel(checkpoints, checkpoints[-1])


def test_sliced_learners_store_their_checkpoints_too():
    learner = SlicedParameterLearner()
    model = fit_slices(learner, SlicedShard(0, X, Y, None, np.arange(30) % 2, (1, 2)))
    stored = encode_model(learner, model)
    again = decode_model(learner, stored.format, stored.data)
    assert [c.weights.tolist() for c in again.checkpoints] == [c.weights.tolist() for c in model.checkpoints]


def test_the_jax_learner():
    jax = pytest.importorskip("expunge.training.learners.jax")
    base = jax.JaxLearner(jax.logistic(input_shape=(3,)), steps=1, batch_size=8).for_classes(np.arange(2))
    stored = encode(base)
    assert stored.format == "arrays"
    again = decode(stored.format, stored.data)
    model = base.fit(X, Y, 1)
    file = encode_model(base, model)
    loaded = decode_model(again, file.format, file.data)
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert encode_model(again, loaded) == file


def test_the_pytorch_learner(company):
    pytest.importorskip("torch")
    from expunge.training.learners.pytorch import TorchLearner

    with pytest.raises(ModelFormatError, match=r"company_models.make_network is refused"):
        encode(TorchLearner("company_models:make_network"))
    for factory in ("company_models:make_network", company.make_network):
        learner = TorchLearner(factory, epochs=1).for_classes(np.arange(2))
        stored = encode(learner, trusted=["company_models"])
        with pytest.raises(ModelFormatError, match=r"company_models.make_network is refused"):
            decode(stored.format, stored.data)
        again = decode(stored.format, stored.data, trusted=["company_models"])
        file = encode_model(learner, learner.fit(X, Y, 1))
        assert encode_model(again, decode_model(again, file.format, file.data)) == file


def test_an_option_of_an_estimator_that_looks_like_code_is_a_text():
    """XGBoost calls an objective "binary:logistic"."""
    learner = ScikitLearner(make_pipeline(CountVectorizer(token_pattern="binary:logistic"), BernoulliNB()))
    stored = encode(learner)
    again = decode(stored.format, stored.data)
    assert again.estimator.get_params()["countvectorizer__token_pattern"] == "binary:logistic"
