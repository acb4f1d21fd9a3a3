"""Modules with randomness or running statistics of their own are refused; what is not trained stays as it is."""

from __future__ import annotations

from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from expunge.core.errors import ParameterError
from expunge.training.learners.jax import FlaxNNX, JaxLearner, PrivateSGD

OPTIONS: dict[str, Any] = {"input_shape": (8, 8), "steps": 3, "batch_size": 8, "num_classes": 3}


def flat(x: Any) -> Any:
    return x.reshape(x.shape[0], -1)


class NNXNet(nnx.Module):  # type: ignore[misc]
    def __init__(self, middle: Any, *, rngs: nnx.Rngs) -> None:
        self.first, self.middle, self.second = nnx.Linear(64, 8, rngs=rngs), middle, nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.second(self.middle(self.first(flat(x))))


def nnx_dropout(key: Any) -> Any:
    rngs = nnx.Rngs(key)
    return NNXNet(nnx.Dropout(0.5, rngs=rngs), rngs=rngs)


def nnx_batch_norm(key: Any) -> Any:
    rngs = nnx.Rngs(key)
    return NNXNet(nnx.BatchNorm(8, rngs=rngs), rngs=rngs)


def nnx_layer_norm(key: Any) -> Any:
    rngs = nnx.Rngs(key)
    return NNXNet(nnx.LayerNorm(8, rngs=rngs), rngs=rngs)


class LinenNet(linen.Module):  # type: ignore[misc]
    middle: Any = None

    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.Dense(3)(self.middle(linen.Dense(8)(flat(x))))


class EquinoxNet(equinox.Module):  # type: ignore[misc]
    first: equinox.nn.Linear
    middle: Any
    order: Any

    def __init__(self, key: Any, middle: Any = None) -> None:
        self.first, self.middle = equinox.nn.Linear(64, 3, key=key), middle
        self.order = jax.random.permutation(key, 64)

    def __call__(self, x: Any) -> Any:
        scores = self.first(x.ravel()[self.order])
        return scores if self.middle is None else self.middle(scores)


class Counting(linen.Module):  # type: ignore[misc]
    """Fixed numbers in a collection of its own."""

    @linen.compact
    def __call__(self, x: Any) -> Any:
        scale = self.variable("constants", "scale", lambda: jnp.full((64,), 0.5))
        self.variable("constants", "count", lambda: jnp.zeros((), jnp.int32))
        return linen.Dense(3)(flat(x) * scale.value)


REFUSED = {
    "nnx dropout": nnx_dropout,
    "nnx batch norm": nnx_batch_norm,
    "wrapped nnx dropout": FlaxNNX(nnx_dropout, (8, 8)),
    "linen dropout": LinenNet(linen.Dropout(0.5, deterministic=False)),
    "linen batch norm": LinenNet(linen.BatchNorm(use_running_average=False)),
    "linen running average": LinenNet(linen.BatchNorm(use_running_average=True)),
    "equinox dropout": lambda key: EquinoxNet(key, equinox.nn.Dropout(0.5)),
    "equinox batch norm": lambda key: EquinoxNet(key, equinox.nn.BatchNorm(3, "batch", mode="batch")),
    "equinox with a state": equinox.nn.make_with_state(
        lambda key: EquinoxNet(key, equinox.nn.BatchNorm(3, "batch", mode="batch"))
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_layers_with_a_state_of_their_own_are_refused(make_shard: Any, name: str) -> None:
    shard = make_shard(1, 20)
    with pytest.raises(ParameterError, match="randomness or running statistics of their own") as caught:
        JaxLearner(REFUSED[name], **OPTIONS).fit(shard.X, shard.y, 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "network", [nnx_layer_norm, lambda key: EquinoxNet(key, equinox.nn.Dropout(0.5, inference=True))]
)
def test_layers_without_one_are_taken(network: Any) -> None:
    JaxLearner(network, **OPTIONS)


@pytest.mark.parametrize("privacy", [None, PrivateSGD(1.0, 0.1)], ids=["plain", "private"])
def test_only_floats_of_an_equinox_module_are_trained(make_shard: Any, privacy: Any) -> None:
    shard = make_shard(1, 20)
    learner = JaxLearner(EquinoxNet, privacy=privacy, **OPTIONS)
    model: Any = learner.fit(shard.X, shard.y, 1)
    assert len(jax.tree.leaves(model.parameters)) == 2
    assert np.array_equal(learner.load_model(learner.dump_model(model)).predict(shard.X), model.predict(shard.X))


@pytest.mark.parametrize("privacy", [None, PrivateSGD(1.0, 0.1)], ids=["plain", "private"])
def test_only_the_params_of_a_linen_module_are_trained(make_shard: Any, privacy: Any) -> None:
    shard = make_shard(1, 20)
    learner = JaxLearner(Counting(), privacy=privacy, **OPTIONS)
    model: Any = learner.fit(shard.X, shard.y, 1)
    assert set(model.parameters) == {"params"}
    dense = model.parameters["params"]["Dense_0"]
    expected = (shard.X.reshape(20, -1) * 0.5) @ dense["kernel"] + dense["bias"]
    assert np.allclose(model.scores(shard.X), expected, atol=1e-4)


def test_a_linen_module_may_hold_a_list(make_shard: Any) -> None:
    shard = make_shard(1, 20)
    first, second = (linen.Sequential([flat, linen.Dense(3)]) for _ in range(2))
    one, two = (JaxLearner(network, **OPTIONS) for network in (first, second))
    assert one.recipe.architecture == two.recipe.architecture
    assert hash(one.recipe.architecture) == hash(two.recipe.architecture)
    assert set(one.fit(shard.X, shard.y, 1).predict(shard.X)) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (nnx_layer_norm(jax.random.key(0)), "function from a key to a NNXNet, got the module itself"),
        (EquinoxNet(jax.random.key(0)), "function from a key to a EquinoxNet, got the module itself"),
        (Counting, "must be a Flax module, got its class Counting"),
        (lambda: None, "does not make a module from a key: TypeError"),
        (lambda key: 3, "must make a module from a key, got a int"),
    ],
)
def test_what_is_no_network_is_named(network: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        JaxLearner(network, **OPTIONS)


def test_a_network_that_fails_is_an_error_of_one_line(make_shard: Any) -> None:
    shard = make_shard(1, 20)
    learner = JaxLearner((lambda key: jnp.zeros((60, 3)), lambda own, x: flat(x) @ own), **OPTIONS)
    with pytest.raises(
        ParameterError, match=r"fails on a batch of examples of the shape \(8, 8\): TypeError"
    ) as caught:
        learner.fit(shard.X, shard.y, 1)
    assert "\n" not in str(caught.value)
