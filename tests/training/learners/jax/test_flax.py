"""Modules of the real Flax, linen and NNX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from flax import linen, nnx

from expunge.training.learners.jax import Flax, FlaxNNX, JaxLearner, PrivateSGD, adam


class Linen(linen.Module):  # type: ignore[misc]
    @linen.compact
    def __call__(self, x: Any) -> Any:
        x = x.reshape(x.shape[0], -1)
        return linen.Dense(3)(linen.tanh(linen.Dense(8)(x)))


class Module(nnx.Module):  # type: ignore[misc]
    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(64, 8, rngs=rngs)
        self.second = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.second(nnx.tanh(self.first(x.reshape(x.shape[0], -1))))


def make_module(key: Any) -> Module:
    return Module(rngs=nnx.Rngs(key))


WAYS = {"linen": (Linen(), Flax), "nnx": (make_module, FlaxNNX)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("privacy", [None, PrivateSGD(1.0, 0.1)], ids=["plain", "private"])
def test_it_learns_and_is_stored(make_shard: Any, way: str, privacy: PrivateSGD | None) -> None:
    network, kind = WAYS[way]
    shard = make_shard(10, 60)
    learner = JaxLearner(
        network, input_shape=(8, 8), optimizer=adam(0.02), steps=150, batch_size=16, num_classes=3, privacy=privacy
    )
    assert isinstance(learner.architecture, kind)
    one, two = learner.fit_many([shard, make_shard(11, 60)])
    assert (one.predict(shard.X) == shard.y).mean() > 0.9
    assert not np.array_equal(one.predict(shard.X), two.predict(shard.X))
    alone = learner.fit(shard.X, shard.y, shard.seed)
    for left, right in zip(jax.tree.leaves(alone.parameters), jax.tree.leaves(one.parameters), strict=True):
        assert np.array_equal(left, right)
    again = learner.load_model(learner.dump_model(one))
    assert np.array_equal(again.predict(shard.X), one.predict(shard.X))


class Shifted(linen.Module):  # type: ignore[misc]
    shift: Any = None

    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.Dense(3)(x.reshape(x.shape[0], -1) + self.shift)


def test_a_module_with_an_array_among_its_fields_can_be_copied(make_shard: Any) -> None:
    """Programs are kept by their networks; two whose fields cannot be compared are simply not the same."""
    shard = make_shard(1)
    models = [
        JaxLearner(module, steps=5, batch_size=16, num_classes=3, input_shape=(64,)).fit(shard.X, shard.y, 1)
        for module in (Shifted(np.ones(64, np.float32)), Shifted(np.ones(64, np.float32)))
    ]
    assert np.array_equal(*(model.predict(shard.X) for model in models))
    one = Shifted(np.ones(64, np.float32))
    assert Flax(one, (64,)) == Flax(one, (64,))
    assert Flax(one, (64,)) != Flax(one, (8, 8))
    assert Flax(Linen(), (64,)) == Flax(Linen(), (64,))
