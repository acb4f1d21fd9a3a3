"""Small pictures that a small network learns in a blink."""

from __future__ import annotations

import os
from collections.abc import Callable

# Compiling is most of what these tests do; how fast the programs run does not matter here.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_prefer_vector_width=128",
)

import numpy as np
import pytest

from expunge.training.learners.jax import (
    Activation,
    Conv,
    Dense,
    Flatten,
    JaxLearner,
    MaxPool,
    Network,
    PrivateSGD,
    sgd,
    use_compilation_cache,
)
from expunge.training.learners.protocol import ShardData

SHAPE = (8, 8, 1)


@pytest.fixture(scope="session", autouse=True)
def kept_programs(request: pytest.FixtureRequest) -> None:
    """Programs compiled by an earlier run are found again, by their text, flags and versions."""
    if hasattr(request.config, "cache"):
        use_compilation_cache(request.config.cache.mkdir("jax-programs"))


@pytest.fixture(scope="session")
def small_network() -> Network:
    """Every layer type, in 8 × 8 pixels."""
    layers = (Conv(3, 4, stride=2, padding="SAME"), MaxPool(2), Activation("tanh"), Flatten(), Dense(5))
    return Network((*layers, Activation("relu"), Dense()), SHAPE)


@pytest.fixture
def make_shard() -> Callable[..., ShardData]:
    def make(number: int, size: int = 70, *, classes: int = 3) -> ShardData:
        rng = np.random.default_rng(number)
        y = rng.integers(0, classes, size).astype(np.int32)
        X = rng.normal(size=(size, 8, 8)).astype(np.float32) + y[:, None, None]
        return ShardData(number, X, y, None, int(rng.integers(1 << 62)))

    return make


@pytest.fixture
def make_learner(small_network: Network) -> Callable[..., JaxLearner]:
    def make(*, network: Network = small_network, **options: object) -> JaxLearner:
        settings: dict[str, object] = {
            "batch_size": 16,
            "steps": 12,
            "optimizer": sgd(0.2, momentum=0.9),
            "num_classes": 3,
            "privacy": PrivateSGD(0.5, 0.3),
        }
        return JaxLearner(network, **(settings | options))  # type: ignore[arg-type]

    return make
