"""Weights of other types than float32, and JAX's 64-bit mode."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import expunge
from expunge.core.errors import ExpungeError
from expunge.training.learners.jax import JaxLearner, JaxModel, Optimizer, PrivateSGD, same_parameters, sgd


def init(key: Any) -> Any:
    return {"weights": jax.random.normal(key, (64, 3), jnp.bfloat16) / 8}


def apply(parameters: Any, x: Any) -> Any:
    return x.reshape(len(x), -1).astype(jnp.bfloat16) @ parameters["weights"]


def short_learner(**options: Any) -> JaxLearner:
    given = {"steps": 20, "batch_size": 16, "num_classes": 3, "input_shape": (64,), **options}
    return JaxLearner((init, apply), **given)


@pytest.mark.parametrize("optimizer", [sgd(1.0, momentum=0.9), Optimizer("adam", {"learning_rate": 0.01})])
def test_dp_sgd_of_short_weights(make_shard: Any, optimizer: Any) -> None:
    shard = make_shard(1)
    model: Any = short_learner(optimizer=optimizer, privacy=PrivateSGD(0.1, 0.1)).fit(shard.X, shard.y, 1)
    assert model.parameters["weights"].dtype == jnp.bfloat16
    assert np.mean(model.predict(shard.X) == shard.y) > 0.6


def test_short_weights_that_diverged_are_no_model(make_shard: Any) -> None:
    shard = make_shard(1)
    with pytest.raises(ExpungeError, match="training diverged"):
        short_learner(optimizer=sgd(1e38)).fit(shard.X * 1e6, shard.y, 1)


def test_short_weights_are_stored_and_read_again(make_shard: Any, tmp_path: Any) -> None:
    shard, learner = make_shard(1), short_learner()
    model: Any = learner.fit(shard.X, shard.y, 1)
    again: Any = learner.load_model(learner.dump_model(model))
    assert isinstance(again, JaxModel)
    assert again.parameters["weights"].dtype == jnp.bfloat16
    assert same_parameters(model.parameters, again.parameters)
    X, trust = shard.X.reshape(70, 64), [f"{__name__}.init", f"{__name__}.apply"]
    with expunge.create(tmp_path / "f", learner, X, shard.y, n_shards=3, promise="unguarded", trust=trust) as made:
        before = made.predict(X)
    with expunge.open(tmp_path / "f", trust=trust) as found:
        assert np.array_equal(found.predict(X), before)
        found.delete([3])


WIDE = """
import jax
import numpy as np
from flax import linen
from expunge.training.learners.jax import JaxLearner, PrivateSGD, Validation, mlp

rng = np.random.default_rng(0)
y = rng.integers(0, 3, 60).astype(np.int32)
X = rng.normal(size=(60, 64)) + y[:, None]
for network in (mlp(hidden=(5,), input_shape=(64,)), linen.Dense(3)):
    options = {} if hasattr(network, "layers") else {"input_shape": (64,)}
    learner = JaxLearner(
        network, steps=40, batch_size=16, num_classes=3, privacy=PrivateSGD(0.1, 0.1),
        validation=Validation(X, y, every=7), **options,
    )
    model = learner.fit(X, y, 1)
    print(*{str(leaf.dtype) for leaf in jax.tree.leaves(model.parameters)}, end=" ")
"""


def test_everything_trains_in_64_bit_mode() -> None:
    own = {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment = {**os.environ, **own}
    done = subprocess.run([sys.executable, "-c", WIDE], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == ["float32"] * 2, done.stderr
