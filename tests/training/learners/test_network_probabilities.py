"""Networks have probabilities: the softmax of their scores, the same bits alone, among others, and in any company."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from sklearn.metrics import get_scorer

from expunge import Recipe, RecipeKey, Records, UnlearningClassifier, learn
from expunge.core.errors import NotPublishedError
from expunge.training.learners import Abstainer, AbstainingLearner, ConstantModel, LookupTableLearner, ShardData
from expunge.training.learners.protocol import fit_many, make_voter, mean_opinion, softmax

CLASSES = np.array(["ant", "bee", "cow"])


def blobs(n=330, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return (rng.normal(size=(n, 8)) + 2 * np.eye(3, 8)[y]).astype(np.float32), y


def jax_learner(kind="mlp"):
    jax = pytest.importorskip("expunge.training.learners.jax")
    made = {
        "logistic": lambda: jax.logistic(input_shape=(8,)),
        "mlp": lambda: jax.mlp(hidden=(16, 7), input_shape=(8,)),
        "convolution": lambda: jax.Network((jax.Conv(4, 2), jax.Flatten(), jax.Dense(3)), input_shape=(2, 2, 2)),
    }
    return jax.JaxLearner(made[kind](), epochs=2, batch_size=16)


def torch_learner(kind="mlp"):
    pytest.importorskip("torch")
    from torch import nn

    from expunge.training.learners.pytorch import TorchLearner

    made = {
        "logistic": partial(nn.Linear, 8, 3),
        "mlp": lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3)),
        "convolution": lambda: nn.Sequential(
            nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(4, 3)
        ),
    }
    return TorchLearner(made[kind], epochs=2)


MAKERS = {"jax": jax_learner, "pytorch": torch_learner}
NETWORKS = [(name, kind) for name in MAKERS for kind in ("logistic", "mlp", "convolution")]


@cache
def trained(name, kind, num_shards=7):
    """Shards of every kind: empty, one class, a class missing, all classes. Few sizes: JAX compiles for each."""
    learner = MAKERS[name](kind)
    X, y = blobs(200)
    picks = [np.flatnonzero(np.arange(len(y)) % num_shards == shard) for shard in range(num_shards)]
    picks[0] = picks[0][:0]
    picks[1] = np.flatnonzero(y == 1)[:5]
    picks[2] = np.flatnonzero(y != 0)[:20]
    learner = learner.for_classes(CLASSES)
    shards = [ShardData(i, X[rows], y[rows], None, i) for i, rows in enumerate(picks)]
    return learner, fit_many(learner, shards)


def test_softmax():
    scores = np.array([[1.0, 2.0], [1e4, -1e4], [np.nan, 0.0]], dtype=np.float32)
    found = softmax(scores)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found[0], np.exp([1, 2]) / np.exp([1, 2]).sum(), rtol=1e-12)
    assert found[1].tolist() == [1.0, 0.0]
    assert np.isnan(found[2]).all()


@pytest.mark.parametrize(("name", "kind"), NETWORKS)
def test_together_they_are_the_mean_of_each_alone(name, kind):
    learner, models = trained(name, kind)
    assert isinstance(models[0], Abstainer)
    assert models[1] == ConstantModel(1)
    X = blobs(seed=1)[0]
    alone = [model.probabilities(X, 3) for model in models[1:]]
    total = np.zeros((len(X), 3))
    for table in alone:  # in the order of the shards
        total += table
    voter = make_voter(learner, models, 3)
    together = voter.mean_probabilities(X) if name == "jax" else mean_opinion(models, X, 3, "probabilities")
    assert together.tobytes() == (total / 6).tobytes()
    np.testing.assert_allclose(together.sum(axis=1), 1.0)
    fewer = make_voter(learner, models[:4], 3)
    if name == "jax":
        assert fewer.mean_probabilities(X).tobytes() == mean_opinion(models[:4], X, 3, "probabilities").tobytes()


@pytest.mark.parametrize(("name", "kind"), NETWORKS)
def test_a_row_has_the_same_bits_in_any_company(name, kind):
    _, models = trained(name, kind)
    X = blobs(seed=2)[0]
    for model in models[2:4]:
        whole = model.probabilities(X, 3)
        for at in (0, 1, 17, 31, 32, 255, 256, 329):
            assert model.probabilities(X[at : at + 1], 3).tobytes() == whole[at : at + 1].tobytes()
        assert model.probabilities(X[5:90], 3).tobytes() == whole[5:90].tobytes()
        assert model.probabilities(X[:0], 3).shape == (0, 3)
        assert (whole.argmax(axis=1) == model.predict(X)).mean() > 0.99


@pytest.mark.parametrize("name", MAKERS)
def test_a_score_that_is_no_number_is_left_out(name):
    learner, models = trained(name, "logistic")
    rows = np.zeros((2, 8), dtype=np.float32)
    rows[1] = np.nan
    state = learn(Records.build(*blobs(60)), Recipe(learner, 2, key=RecipeKey.from_seed(0)))
    state = replace(state, models=tuple(models))
    found = state.mean_probabilities(rows)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found[1].tolist() == [0.0, 1.0, 0.0]  # the constant alone
    assert np.isnan(replace(state, models=(models[0], models[2])).mean_probabilities(rows)[1]).all()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("wrap", [lambda learner: learner, AbstainingLearner], ids=["plain", "abstaining"])
def test_the_classifier_answers_with_their_mean(name, wrap):
    X, y = blobs(100)
    model = UnlearningClassifier(wrap(MAKERS[name]()), n_shards=4, random_state=0).fit(X, CLASSES[y])
    found = model.predict_proba(X)
    models = model.deployment_.inside.state.models
    np.testing.assert_allclose(found, np.mean([each.probabilities(X, 3) for each in models], axis=0), atol=1e-12)
    assert len(np.unique(found)) > 10  # shares of votes would be five numbers
    assert (model.predict(X) == CLASSES[found.argmax(axis=1)]).all()
    assert (model.decision_function(X).argmax(axis=1) == found.argmax(axis=1)).all()
    assert get_scorer("roc_auc_ovr")(model, X, CLASSES[y]) > 0.6
    before = found[:3]
    model.delete([5, 6])
    fresh = UnlearningClassifier(wrap(MAKERS[name]()), n_shards=4, random_state=0)
    left = np.delete(np.arange(len(X)), [5, 6])
    fresh.fit(X[left], CLASSES[y][left], ids=left)
    assert model.predict_proba(X).tobytes() == fresh.predict_proba(X).tobytes()
    assert model.predict_proba(X[:3]).tobytes() != before.tobytes()


def test_sliced_networks_answer_with_their_last_model():
    jax = pytest.importorskip("expunge.training.learners.jax")
    pytorch = pytest.importorskip("expunge.training.learners.pytorch")
    X, y = blobs(60)
    for learner in (
        jax.SlicedJaxLearner(jax_learner("logistic"), num_slices=2),
        pytorch.TorchSlicedLearner(torch_learner("logistic"), num_slices=2),
    ):
        state = learn(Records.build(X, y), Recipe(learner, 3, key=RecipeKey.from_seed(0)))
        assert state.has_probabilities
        by_hand = np.mean([each.final.probabilities(X, 3) for each in state.models], axis=0)
        np.testing.assert_allclose(state.mean_probabilities(X), by_hand, atol=1e-12)


def test_with_a_bound_on_memory_the_bits_are_the_same():
    learner, models = trained("jax", "mlp")
    X = blobs(seed=3)[0]
    usual = make_voter(learner, models, 3).mean_probabilities(X)
    plain = make_voter(learner, models, 3)
    room = plain._bytes(plain._scores, 2, X[:256])
    voter = make_voter(replace(learner, max_device_memory=room), models, 3)
    assert voter.mean_probabilities(X).tobytes() == usual.tobytes()
    assert list(voter._fitting.values()) == [2]


def test_a_learner_without_probabilities_has_no_scores():
    X, y = blobs()
    model = UnlearningClassifier(LookupTableLearner(), n_shards=3, random_state=0).fit(X, y)
    with pytest.raises(NotPublishedError, match="LookupTableLearner has none"):
        model.decision_function(X)


def test_large_networks_are_asked_about_few_rows_at_a_time(monkeypatch):
    _, models = trained("pytorch", "mlp")
    model, X = models[3], blobs(40, seed=4)[0]
    usual = model.probabilities(X, 3)
    assert model._rows_at_a_time == 128
    size = sum(array.size for array in model.state.values())
    monkeypatch.setattr("expunge.training.learners.pytorch.model._WORK_AT_A_TIME", 3 * size + 1)
    assert model._rows_at_a_time == 3
    few = model.probabilities(X, 3)
    np.testing.assert_allclose(few, usual, atol=1e-6)
    for at in (0, 1, 2, 38, 39):
        assert model.probabilities(X[at : at + 1], 3).tobytes() == few[at : at + 1].tobytes()
