from __future__ import annotations

import copy
import os
import pickle
import random
import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from torch import nn

from expunge.core.errors import ExpungeError, InputError, ParameterError, TrainingError
from expunge.training.environment import Environment
from expunge.training.learners import Abstainer, ConstantModel, Learner, Model, ShardData
from expunge.training.learners.protocol import fit_many
from expunge.training.learners.pytorch import DPSGD, TorchLearner


def blobs(num_classes: int = 3, n: int = 200, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = rng.integers(num_classes, size=n).astype(np.int32)
    return rng.normal(size=(n, 8)) + 2 * np.eye(num_classes, 8)[y], y


def noisy_network():
    """Randomness of every kind: initial weights, dropout, batch order, running statistics."""
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))


def same_bits(first, second) -> bool:
    return first.state.keys() == second.state.keys() and all(
        first.state[name].tobytes() == second.state[name].tobytes() for name in first.state
    )


@pytest.mark.parametrize(
    ("optimizer", "rate"), [("sgd", 0.1), ("adam", 0.01), ("adamw", 0.01), ("rmsprop", 0.01), ("adagrad", 0.05)]
)
def test_the_built_in_loop_learns(optimizer, rate):
    X, y = blobs()
    learner = TorchLearner(noisy_network, optimizer=optimizer, learning_rate=rate).for_classes(np.arange(3))
    model = learner.fit(X, y, 0)
    assert isinstance(learner, Learner)
    assert isinstance(model, Model)
    assert (model.predict(X) == y).mean() > 0.8
    assert model.predict(X).dtype == np.int64


def test_the_seed_is_all_the_randomness():
    X, y = blobs()
    learner = TorchLearner(noisy_network, epochs=2, optimizer="adam")
    first = learner.fit(X, y, 3)
    torch.rand(7)
    learner.fit(X, y, 99)  # another shard in between
    assert same_bits(learner.fit(X, y, 3), first)
    others = [learner.fit(X, y, seed) for seed in (4, 3 + 2**32, 3 + 2**62)]  # torch itself keeps 32 bits only
    assert not any(same_bits(other, first) for other in others)


@pytest.mark.parametrize("seed", [None, 1.0, "1", True, -1, 2**64])
def test_a_seed_is_a_whole_number_and_none_is_not_some_seed(seed):
    X, y = blobs(n=20)
    learner = TorchLearner(partial(nn.Linear, 8, 3), epochs=1)
    with pytest.raises(ParameterError, match=f"^seed must be an integer from 0 to [0-9,]+, got {seed!r}$"):
        learner.fit(X, y, seed)
    assert same_bits(learner.fit(X, y, np.int64(5)), learner.fit(X, y, 5))


def reset_global_generators():
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)


@pytest.mark.parametrize("source", [torch.rand, np.random.random, lambda size: [random.random() for _ in range(size)]])
def test_global_generators_are_seeded_inside_a_training_and_untouched_outside(source):
    X, y = blobs()
    drawn = []

    def train(module, X, y, *, seed, weights):
        drawn.append(np.asarray(source(3)).tolist())

    learner = TorchLearner(partial(nn.Linear, 8, 3), train=train)
    reset_global_generators()
    expected = np.asarray(source(4)).tolist()
    reset_global_generators()
    for seed in (1, 2, 1):
        learner.fit(X, y, seed)
    assert np.asarray(source(4)).tolist() == expected
    assert drawn[0] == drawn[2] != drawn[1]


def test_a_training_with_a_source_of_its_own_would_be_noticed():
    """The negative control of the two tests above."""
    X, y = blobs()

    def train(module, X, y, *, seed, weights):
        with torch.no_grad():
            module.weight += int.from_bytes(os.urandom(4)) * 1e-9

    learner = TorchLearner(partial(nn.Linear, 8, 3), train=train)
    assert not same_bits(learner.fit(X, y, 1), learner.fit(X, y, 1))


def test_settings_of_the_process_neither_matter_nor_change():
    X, y = blobs()
    learner = TorchLearner(noisy_network, epochs=1)
    plain = learner.fit(X, y, 3)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.set_default_dtype(torch.float64)
        with torch.inference_mode():
            assert same_bits(learner.fit(X, y, 3), plain)
        assert torch.get_num_threads() == 2
        assert torch.get_default_dtype() == torch.float64
        with pytest.raises(ParameterError):
            TorchLearner(lambda: None).fit(X, y, 0)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(torch.float32)


def test_where_the_rows_lie_in_memory_does_not_matter():
    X, y = blobs()
    X = X.astype(np.float32)
    shifted = np.empty(X.size + 3, dtype=np.float32)[3:].reshape(X.shape)
    shifted[:] = X
    learner = TorchLearner(noisy_network, epochs=1)
    assert same_bits(learner.fit(X, y, 3), learner.fit(np.asfortranarray(shifted), y, 3))


def test_a_step_is_the_gradient_of_the_weighted_mean_loss():
    X, y = blobs(n=20)
    weights = np.linspace(0.5, 3, 20)
    factory = partial(nn.Linear, 8, 3, dtype=torch.float64)
    options = {"dtype": "float64", "batch_size": 20}
    start = TorchLearner(factory, train=lambda *data, seed, weights: None, dtype="float64").fit(X, y, 5).state
    learner = TorchLearner(factory, epochs=1, learning_rate=0.25, weight_decay=0.125, **options)
    after = learner.fit(X, y, 5, weights=weights).state
    scores = X @ start["weight"].T + start["bias"]
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    errors = weights[:, None] * (chances - np.eye(3)[y]) / 20
    gradient = errors.T @ X + 0.125 * start["weight"]
    np.testing.assert_allclose(after["weight"], start["weight"] - 0.25 * gradient, rtol=1e-12, atol=1e-14)
    plain = learner.fit(X, y, 5).state
    assert not np.allclose(after["weight"], plain["weight"])


@pytest.mark.parametrize("n", [33, 65, 97])
def test_no_batch_is_left_with_a_single_row(n):
    X, y = blobs(n=n)
    sizes = []

    class Watching(nn.Linear):
        def forward(self, rows):
            if self.training:
                sizes.append(len(rows))
            return super().forward(rows)

    TorchLearner(lambda: Watching(8, 3), epochs=2).fit(X, y, 0)
    assert sum(sizes) == 2 * n
    assert max(sizes) <= 32
    assert max(sizes) - min(sizes) <= 1
    TorchLearner(noisy_network, epochs=1).fit(X, y, 0)  # batch normalisation fails on a single row


def test_every_epoch_sees_every_row_once_in_another_order():
    X = np.repeat(np.arange(40.0)[:, None], 8, axis=1)
    seen = []

    class Watching(nn.Linear):
        def forward(self, rows):
            if self.training:
                seen.extend(rows[:, 0].tolist())
            return super().forward(rows)

    TorchLearner(lambda: Watching(8, 2), epochs=2, learning_rate=1e-6).fit(X, np.arange(40) % 2, 0)
    first, second = seen[:40], seen[40:]
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second
    assert first != sorted(first)


def test_images_and_other_containers():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    images = (rng.integers(100, size=(40, 3, 6, 6)) + 100 * y[:, None, None, None]).astype(np.uint8)

    def factory():
        return nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 2))

    model = TorchLearner(factory, optimizer="adam", learning_rate=0.01).fit(images, y, 0)
    assert (model.predict(images) == y).mean() > 0.8
    X, y = blobs()
    learner = TorchLearner(partial(nn.Linear, 8, 3), epochs=1)
    plain = learner.fit(X, y, 0)
    for rows in (scipy.sparse.csr_array(X), pd.DataFrame(X)):
        assert same_bits(learner.fit(rows, y, 0), plain)
        np.testing.assert_array_equal(plain.predict(rows), plain.predict(X))
    wide = np.abs(X).astype(np.uint16)
    assert same_bits(learner.fit(wide, y, 0), learner.fit(wide.astype(float), y, 0))
    with pytest.raises(InputError, match="needs numbers"):
        learner.fit(np.array([["a"] * 8, ["b"] * 8], dtype=object), np.array([0, 1]), 0)


def test_empty_and_one_class_shards_need_no_network():
    X, y = blobs()

    def never():
        raise AssertionError("built a module")

    learner = TorchLearner(never).for_classes(np.arange(3))
    assert learner.fit(X[:0], y[:0], 0) == Abstainer()
    assert learner.fit(X[y == 2], y[y == 2], 0) == ConstantModel(2)


def test_an_own_training_function():
    X, y = blobs()
    calls = []

    def train(module, X, y, *, seed, weights):
        calls.append((module.training, X.dtype, X.shape, y.dtype, seed, weights))
        optimizer = torch.optim.LBFGS(module.parameters(), max_iter=20)

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(X), y)
            loss.backward()
            return loss

        optimizer.step(closure)

    model = TorchLearner(partial(nn.Linear, 8, 3), train=train).fit(X, y, 11)
    assert calls == [(True, torch.float32, (200, 8), torch.int64, 11, None)]
    assert (model.predict(X) == y).mean() > 0.8


def test_functions_by_name(tmp_path, monkeypatch):
    (tmp_path / "my_networks.py").write_text(
        "import torch\n"
        "def small():\n    return torch.nn.Linear(8, 3)\n"
        "def slow(parameters):\n    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)\n"
        "class Nets:\n    wide = torch.nn.LazyLinear\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    X, y = blobs()
    learner = TorchLearner("my_networks:small", optimizer="my_networks:slow")
    momentum = partial(torch.optim.SGD, lr=0.01, momentum=0.9)
    expected = TorchLearner(partial(nn.Linear, 8, 3), optimizer=momentum).fit(X, y, 0)
    assert same_bits(learner.fit(X, y, 0), expected)
    with pytest.raises(ParameterError, match=r"factory 'my_networks:large'.*has no 'large'"):
        TorchLearner("my_networks:large")


X3, Y3 = blobs()
BAD_OPTIONS = [
    ({"factory": 3}, "factory must be a callable"),
    ({"factory": nn.Linear(2, 2)}, "factory must be a function that makes a new module, got a module .Linear."),
    ({"factory": "nn.Linear"}, "factory must be a callable or 'package.module:name', got 'nn.Linear'"),
    ({"factory": "no_such_package:x"}, "factory 'no_such_package:x'.*cannot be imported"),
    ({"optimizer": "adamx"}, "optimizer must be one of adadelta, .*, got 'adamx'"),
    ({"learning_rate": 0.0}, "learning_rate must be a finite number > 0, got 0.0"),
    ({"learning_rate": float("nan")}, "learning_rate"),
    ({"learning_rate": "0.1"}, "learning_rate must be a finite number > 0, got '0.1'"),
    ({"learning_rate": None}, "learning_rate must be a finite number > 0, got None"),
    ({"weight_decay": -1.0}, "weight_decay must be a finite number >= 0, got -1.0"),
    ({"weight_decay": "0"}, "weight_decay must be a finite number >= 0, got '0'"),
    ({"batch_size": 0}, "batch_size must be an integer from 1 to 2,147,483,648, got 0"),
    ({"epochs": 2.5}, "epochs must be an integer from 1 to"),
    ({"privacy": 1.0}, "privacy must be a DPSGD"),
    ({"device": "tpu"}, "device must be cpu, cuda"),
    ({"dtype": "bfloat16"}, "dtype must be one of float32, float64, got 'bfloat16'"),
    ({"num_classes": "3"}, "num_classes must be an integer from 1 to 2,147,483,648, got '3'"),
    ({"train": 3}, "train must be a callable"),
    ({"train": print, "epochs": 3}, "epochs belongs to the built-in loop"),
    (
        {"train": print, "privacy": DPSGD(max_grad_norm=1.0, noise_multiplier=1.0)},
        "privacy belongs to the built-in loop",
    ),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_bad_options_are_refused_at_once(options, message):
    with pytest.raises(ParameterError, match=message) as caught:
        TorchLearner(**{"factory": nn.Identity, **options})
    assert "\n" not in str(caught.value)


BAD_MODULES = [
    (lambda: "network", {}, "factory must return a torch.nn.Module, got 'network'"),
    (partial(nn.Linear, 8, 5), {"num_classes": 3}, r"shape \(2, 3\), got \(2, 5\)"),
    (partial(nn.Linear, 8, 2), {}, r"shape \(2, 3\), got \(2, 2\)"),
    (partial(nn.Linear, 7, 3), {}, r"the module fails on rows of the shape \(8,\): RuntimeError: mat1 and mat2"),
    (lambda: nn.Sequential(nn.Linear(8, 3), nn.Flatten(0)), {}, r"shape \(2, classes\), got \(6,\)"),
    (partial(nn.Linear, 8, 3), {"optimizer": lambda parameters: 7}, "must return a torch.optim.Optimizer, got 7"),
]


@pytest.mark.parametrize(("factory", "options", "message"), BAD_MODULES)
def test_bad_modules_are_refused_in_one_line(factory, options, message):
    with pytest.raises(ParameterError, match=message) as caught:
        TorchLearner(factory, **options).fit(X3, Y3, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there():
    with pytest.raises(ParameterError, match="device 'cuda' is not available"):
        TorchLearner(nn.Identity, device="cuda").fit(X3, Y3, 0)
    learner = TorchLearner(partial(nn.Linear, 8, 3), device="auto", epochs=1)
    assert learner.network.place().type == "cpu"


def test_divergence_names_the_shard():
    wild = TorchLearner(noisy_network, learning_rate=1e30)
    shards = [ShardData(4, X3[Y3 == 1], Y3[Y3 == 1], None, 0), ShardData(7, X3, Y3, None, 0)]
    with pytest.raises(TrainingError, match=r"shard 7 failed: .*the loss is nan in epoch 1") as caught:
        fit_many(wild, shards)
    assert caught.value.shard == 7

    def spoil(module, X, y, *, seed, weights):
        nn.init.constant_(module.bias, float("inf"))

    with pytest.raises(ExpungeError, match="diverged: 'bias' is not finite"):
        TorchLearner(partial(nn.Linear, 8, 3), train=spoil).fit(X3, Y3, 0)


def test_shards_never_share_parameters():
    """A factory that hands out one pretrained part again and again would carry one shard's records into the next."""
    part = nn.Linear(8, 8)
    learner = TorchLearner(lambda: nn.Sequential(part, nn.Linear(8, 3)), epochs=1)
    learner.fit(X3, Y3, 0)
    with pytest.raises(ParameterError, match=r"new parameters on every call, but '0\.weight'"):
        learner.fit(X3, Y3, 0)
    copies = TorchLearner(lambda: nn.Sequential(copy.deepcopy(nn.Linear(8, 8)), nn.Linear(8, 3)), epochs=1)
    assert same_bits(copies.fit(X3, Y3, 0), copies.fit(X3, Y3, 0))


def test_learners_and_models_are_copied_and_pickled_as_arrays():
    learner = TorchLearner(partial(nn.Linear, 8, 3), epochs=1).for_classes(np.arange(3))
    model = learner.fit(X3, Y3, 0)
    votes = model.predict(X3)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert same_bits(twin, model)
        assert "module" not in vars(twin)
        np.testing.assert_array_equal(twin.predict(X3), votes)
    for twin in (pickle.loads(pickle.dumps(learner)), copy.deepcopy(learner)):
        assert str(twin) == str(learner)
        assert same_bits(twin.fit(X3, Y3, 0), model)


def test_double_precision_trains_in_it_and_votes_in_single():
    single = TorchLearner(partial(nn.Linear, 8, 3), epochs=2).fit(X3, Y3, 0)
    double = TorchLearner(partial(nn.Linear, 8, 3), epochs=2, dtype="float64").fit(X3, Y3, 0)
    assert double.state["weight"].dtype == np.float64
    assert not np.array_equal(double.state["weight"], double.state["weight"].astype(np.float32))
    assert double.module.weight.dtype == torch.float32
    assert (single.predict(X3) == double.predict(X3)).mean() > 0.8


def test_buffers_belong_to_the_model():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("noise", torch.rand(8), persistent=False)
            self.norm = nn.BatchNorm1d(8)
            self.last = nn.Linear(8, 3)

        def forward(self, rows):
            return self.last(self.norm(rows) * self.noise)

    model = TorchLearner(Scaled, epochs=2).fit(X3, Y3, 0)
    assert {"noise", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"} < model.state.keys()
    assert model.state["norm.num_batches_tracked"] == 2 * 7
    np.testing.assert_array_equal(model.module.noise.numpy(), model.state["noise"])
    twin = copy.deepcopy(model)
    np.testing.assert_array_equal(twin.predict(X3), model.predict(X3))


def test_not_a_number_is_no_vote():
    model = TorchLearner(partial(nn.Linear, 8, 3), epochs=1).fit(X3, Y3, 0)
    rows = X3[:3].copy()
    rows[1] = 3e38  # infinite scores, whose differences are not numbers
    model.state["weight"][0, ::2] = 10
    model.state["weight"][0, 1::2] = -10
    assert (model.predict(rows) == -1).tolist() == [False, True, False]


def test_torch_is_loaded_when_used_and_asked_for_in_one_line(monkeypatch):
    program = (
        "import sys, expunge.training.learners.pytorch; sys.exit('torch' in sys.modules or 'opacus' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ParameterError, match=r"this needs torch, .* pip install 'expunge\[torch\]'"):
        TorchLearner(nn.Identity)


def test_settings_that_decide_bits_belong_to_the_environment():
    learner = TorchLearner(partial(nn.Linear, 8, 3))
    here, before = Environment.here(learner), torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        (change,) = Environment.here(learner).differences(here)
    finally:
        torch.set_float32_matmul_precision(before)
    assert change.startswith(f"torch settings matmul precision {before}, ")
    assert "-> matmul precision medium, " in change
