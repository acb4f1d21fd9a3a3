"""Pictures of 28 × 28 that a network learns in a few steps."""

from __future__ import annotations

import os

# Compiling is most of what these tests do; how fast the programs run does not matter here.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_prefer_vector_width=128",
)

import numpy as np
import pytest

from expunge_lab.reproduction import Experiment, Pictures, Row


@pytest.fixture(scope="session")
def small_experiment():
    return Experiment("mnist", 2, 32, 16, 20, 4.0, "tanh")


@pytest.fixture(scope="session")
def small_row(small_experiment):
    return Row(small_experiment, 0.4, None)


@pytest.fixture(scope="session")
def small_pictures(small_experiment):
    """Ten patterns under noise."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, (10, 28, 28, 1))

    def draw(number):
        y = rng.integers(0, 10, number).astype(np.int32)
        return np.clip(0.6 * patterns[y] + rng.integers(0, 100, (number, 28, 28, 1)), 0, 255).astype(np.uint8), y

    parts = [draw(number) for number in (small_experiment.num_points, 40, 24)]
    return Pictures(*(array for part in parts for array in part))
