"""Models as arrays in a file, and back."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.dummy import DummyClassifier
from torch import nn

from expunge.core.errors import InputError, ParameterError
from expunge.training.learners import Abstainer, ConstantModel, ScikitModel
from expunge.training.learners.pytorch import DPSGD, TorchLearner, TorchModel, TorchSlicedLearner
from expunge.training.learners.slices import SlicedShard, fit_slices

rng = np.random.default_rng(0)
Y = rng.integers(3, size=90)
X = (rng.normal(size=(90, 8)) + 2 * np.eye(3, 8)[Y]).astype(np.float32)


def network():
    return nn.Sequential(nn.LazyLinear(8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def through_a_file(form, path):
    """Arrays as safetensors, numbers and words as its text, as a store would do it."""
    arrays = {name: value for name, value in form.items() if isinstance(value, np.ndarray)}
    others = {name: value for name, value in form.items() if not isinstance(value, np.ndarray)}
    assert all(type(value) in (int, float, str) for value in others.values())
    save_file(arrays, path)
    return load_file(path) | others


def test_a_network_through_a_file(tmp_path):
    learner = TorchLearner(network, epochs=2).for_classes(np.arange(3))
    model = learner.fit(X, Y, 0)
    loaded = learner.load_model(through_a_file(learner.dump_model(model), tmp_path / "model"))
    assert isinstance(loaded, TorchModel)
    assert {name: array.tobytes() for name, array in loaded.state.items()} == {
        name: array.tobytes() for name, array in model.state.items()
    }
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(learner.make_voter([loaded, model], 3).votes(X)[:, 0], model.predict(X))


def test_the_privacy_of_a_model_is_kept(tmp_path):
    private = DPSGD(max_grad_norm=1.0, noise_multiplier=1.5)
    learner = TorchLearner(partial(nn.Linear, 8, 3), epochs=1, privacy=private)
    model = learner.fit(X, Y, 0)
    loaded = learner.load_model(through_a_file(learner.dump_model(model), tmp_path / "model"))
    assert loaded.private_runs == model.private_runs != ()
    assert isinstance(loaded.private_runs[0][0].steps, int)


@pytest.mark.parametrize("model", [Abstainer(), ConstantModel(2)])
def test_models_without_a_network(model):
    learner = TorchLearner(network)
    assert learner.load_model(learner.dump_model(model)) == model


@pytest.mark.parametrize("private", [None, DPSGD(max_grad_norm=1.0, noise_multiplier=1.5)])
def test_sliced_models_go_on_from_their_stored_checkpoints(tmp_path, private):
    base = TorchLearner(partial(nn.Linear, 8, 3), optimizer="adam", learning_rate=0.01, epochs=1, privacy=private)
    learner = TorchSlicedLearner(base, num_slices=4, cumulative=False)
    slice_of = np.where(np.arange(90) < 45, 1, 3)  # nothing in the first slice
    shard = SlicedShard(0, X, Y, None, slice_of, (1, 2, 3, 4))
    model = fit_slices(learner, shard)
    loaded = learner.load_model(through_a_file(learner.dump_model(model), tmp_path / "model"))
    assert loaded.checkpoints[0] is None
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    resumed = fit_slices(learner, SlicedShard(0, X, Y, None, slice_of, (1, 2, 3, 4), 3, loaded.checkpoints))
    for stored, fresh in zip(resumed.checkpoints[1:], model.checkpoints[1:], strict=True):
        assert stored.model.private_runs == fresh.model.private_runs
        for name in fresh.optimizer:
            np.testing.assert_array_equal(stored.optimizer[name], fresh.optimizer[name])
        for name in fresh.model.state:
            np.testing.assert_array_equal(stored.model.state[name], fresh.model.state[name])


def test_what_does_not_fit_is_refused():
    learner = TorchLearner(partial(nn.Linear, 8, 3), epochs=1)
    form = learner.dump_model(learner.fit(X, Y, 0))
    with pytest.raises(InputError, match="has no 'bias'"):
        learner.load_model({name: value for name, value in form.items() if name != "state/bias"})
    with pytest.raises(InputError, match="module has no 'other'"):
        learner.load_model({**form, "state/other": np.zeros(3)})
    with pytest.raises(InputError, match=r"'weight' has shape \(3, 7\) instead of \(3, 8\)"):
        learner.load_model({**form, "state/weight": np.zeros((3, 7))})
    with pytest.raises(InputError, match="unknown kind: 'pickle'"):
        learner.load_model({"kind": "pickle"})
    with pytest.raises(InputError, match="has no 'kind'"):
        learner.load_model({})
    with pytest.raises(ParameterError, match="cannot store a ScikitModel"):
        learner.dump_model(ScikitModel(DummyClassifier(), None))


def test_a_form_names_no_code():
    """Whatever words a file holds, the only code that runs is the learner's own factory."""
    built = []

    def factory():
        built.append(1)
        return nn.Linear(8, 3)

    learner = TorchLearner(factory, epochs=1)
    form = learner.dump_model(learner.fit(X, Y, 0))
    built.clear()
    loaded = learner.load_model({**form, "factory": "os:getcwd", "network": "os:getcwd"})
    assert built == [1]
    assert loaded.network.factory is factory
    assert all(isinstance(value, str | int | np.ndarray) for value in form.values())
    assert [name for name, value in form.items() if isinstance(value, str)] == ["kind"]
