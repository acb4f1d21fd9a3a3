from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from expunge.training.learners.jax import Conv, JaxLearner, logistic, same_parameters
from expunge.training.learners.jax.rows import aligned_empty
from expunge.training.learners.protocol import ShardData


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_cpu_reads_an_aligned_array_where_it_is(dtype: Any) -> None:
    array = aligned_empty((7, 3, 2), dtype)
    array[:] = np.arange(42).reshape(7, 3, 2)
    assert array.shape == (7, 3, 2)
    assert array.dtype == dtype
    on_device = jax.device_put(array)
    assert on_device.unsafe_buffer_pointer() == array.ctypes.data
    assert np.array_equal(on_device, array)


def test_training_leaves_the_rows_it_is_given_alone(
    make_learner: Callable[..., JaxLearner], make_shard: Callable[..., ShardData]
) -> None:
    shard = make_shard(1)
    X, y = shard.X.copy(), shard.y.copy()
    learner = make_learner(network=logistic(input_shape=(8, 8)), privacy=None)
    first, second = (learner.fit(X, y, shard.seed) for _ in range(2))
    assert np.array_equal(X, shard.X)
    assert np.array_equal(y, shard.y)
    assert same_parameters(first.parameters, second.parameters)  # type: ignore[attr-defined]


def test_gradients_of_examples_are_kept_only_where_they_take_little_room() -> None:
    paper, wide = Conv(32, 4, stride=2), Conv(64, 3)
    assert paper._is_direct(paper.geometry((13, 13, 16)))  # 8,192 values an example from patches of 6,400
    assert not wide._is_direct(wide.geometry((4, 4, 64)))  # 36,864 values from patches of 2,304
