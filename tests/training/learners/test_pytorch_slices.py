from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import expunge
from expunge import Delete, IndependentSampler, Records
from expunge.core.errors import ParameterError
from expunge.core.prf import RecipeKey
from expunge.training.learners import ConstantModel, SlicedLearner, SlicedModel
from expunge.training.learners.pytorch import TorchLearner, TorchSlicedLearner
from expunge.training.learners.slices import fit_slices
from expunge.training.recipe import Recipe


def blobs(n: int = 120, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return (rng.normal(size=(n, 8)) + 2 * np.eye(3, 8)[y]).astype(np.float32), y


def network():
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))


def sliced(**options) -> TorchSlicedLearner:
    base = {"optimizer": "adam", "learning_rate": 0.02, "epochs": 4}
    shape = {name: options.pop(name) for name in ("num_slices", "cumulative") if name in options}
    return TorchSlicedLearner(TorchLearner(network, **base | options), **{"num_slices": 3} | shape)


def bits(value):
    """Everything in a checkpoint, as bytes."""
    if value is None or isinstance(value, ConstantModel):
        return value
    arrays = {**value.model.state, **value.optimizer}
    return {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("cumulative", [True, False])
def test_slices_end_with_a_useful_model_and_leave_checkpoints_alone(cumulative):
    X, y = blobs()
    learner = sliced(cumulative=cumulative).for_classes(np.arange(3))
    assert isinstance(learner, SlicedLearner)
    checkpoint, slice_of = None, np.arange(len(y)) % 3
    for number in range(3):
        rows = slice_of <= number if cumulative else slice_of == number
        before = copy.deepcopy(checkpoint)
        after = learner.extend(checkpoint, X[rows], y[rows], number, weights=None)
        if checkpoint is not None:
            assert bits(checkpoint) == bits(before)
            assert bits(after) != bits(before)
        checkpoint = after
    assert (learner.make_model(checkpoint).predict(X) == y).mean() > 0.8


def test_the_optimiser_goes_on():
    """Two slices of one full batch each are two steps of one optimiser on the two batches."""
    X, y = blobs(40)
    momentum = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    base = TorchLearner(partial(nn.Linear, 8, 3), optimizer=momentum, epochs=1, batch_size=20)
    learner = TorchSlicedLearner(base, num_slices=2, cumulative=False)
    first = learner.extend(None, X[:20], y[:20], 5, weights=None)
    second = learner.extend(first, X[20:], y[20:], 6, weights=None)
    start = TorchLearner(partial(nn.Linear, 8, 3), train=lambda *data, seed, weights: None).fit(X, y, 5)
    module = start.network.loaded(start.state)
    optimizer = momentum(module.parameters())
    for rows in (slice(0, 20), slice(20, 40)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(torch.tensor(X[rows])), torch.tensor(y[rows])).backward()
        optimizer.step()
    np.testing.assert_allclose(second.model.state["weight"], module.weight.detach().numpy(), rtol=1e-5)
    np.testing.assert_array_equal(sorted(second.optimizer), ["0/momentum_buffer", "1/momentum_buffer"])


@pytest.mark.parametrize("optimizer", ["adadelta", "adagrad", "adam", "adamax", "adamw", "nadam", "radam", "rmsprop"])
def test_every_optimiser_keeps_count(optimizer):
    X, y = blobs(40)
    learner = sliced(optimizer=optimizer, epochs=1, learning_rate=0.01)
    first = learner.extend(None, X, y, 0, weights=None)
    second = learner.extend(first, X, y, 1, weights=None)
    assert first.optimizer["0/step"] == 2
    assert second.optimizer["0/step"] == 4
    assert first.optimizer["0/step"].dtype == second.optimizer["0/step"].dtype


def test_an_own_training_function_goes_on_from_the_weights():
    X, y = blobs()
    seen = []

    def train(module, X, y, *, seed, weights):
        seen.append(module.weight[0, 0].item())
        nn.init.constant_(module.weight, 1.0 + len(seen))

    learner = TorchSlicedLearner(TorchLearner(partial(nn.Linear, 8, 3), train=train), num_slices=2)
    first = learner.extend(None, X, y, 0, weights=None)
    learner.extend(first, X, y, 1, weights=None)
    assert seen[1] == 2.0


def test_one_class_slices():
    X, y = blobs()
    learner = sliced()
    first = learner.extend(None, X[y == 1], y[y == 1], 0, weights=None)
    assert first == ConstantModel(1) == learner.make_model(first)
    second = learner.extend(first, X, y, 1, weights=None)  # cumulative rows: a fresh start loses nothing
    assert bits(second) == bits(learner.extend(None, X, y, 1, weights=None))
    alone = sliced(cumulative=False)
    assert (alone.make_model(alone.extend(None, X[y == 1], y[y == 1], 0, weights=None)).predict(X) == 1).mean() > 0.5


@pytest.mark.parametrize("cumulative", [True, False])
def test_an_updated_ensemble_is_a_fresh_training_by_the_recipe(cumulative):
    X, y = blobs(80)
    records = Records.build(X, y)
    learner = sliced(cumulative=cumulative, epochs=1)
    state = expunge.learn(records, Recipe(learner, 4, IndependentSampler(0.4), RecipeKey.from_seed(1)))
    for batch in ([Delete(3)], [Delete(10), Delete(11)]):
        old = state
        state, report = expunge.update(state, batch)
        assert all(state.models[i] is old.models[i] for i in range(4) if i not in report.touched)
    assert 0 < report.slices_trained < 3 * len(report.touched) + 1
    for shard, model in enumerate(state.models):
        fresh = fit_slices(state.learner, state.contents(shard))
        assert isinstance(model, SlicedModel)
        assert [bits(part) for part in fresh.checkpoints] == [bits(part) for part in model.checkpoints]
    np.testing.assert_array_equal(state.count_votes(X).sum(axis=1), 4)


def test_bad_slices_are_refused():
    with pytest.raises(ParameterError, match="num_slices must be an integer from 1 to 65,535"):
        sliced(num_slices=0)
    with pytest.raises(ParameterError, match="must be a TorchLearner"):
        TorchSlicedLearner(network, num_slices=2)
    odd = TorchLearner(partial(nn.Linear, 8, 3), optimizer=Forgetful)
    X, y = blobs()
    with pytest.raises(ParameterError, match="'memo' is no number"):
        TorchSlicedLearner(odd, num_slices=2).extend(None, X, y, 0, weights=None)


class Forgetful(torch.optim.SGD):
    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)

    def step(self):
        super().step()
        self.state[self.param_groups[0]["params"][0]]["memo"] = "a word"
