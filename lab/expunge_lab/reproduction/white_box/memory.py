"""How many trials a device has room for, counted before any of them is begun."""

from __future__ import annotations

from functools import partial
from math import prod

import jax
import numpy as np

from expunge_lab import kernels as fused
from expunge_lab.kernels.scratch import DENSE_WIDTHS, SCRATCH_SIZES, SCRATCH_TYPES
from expunge_lab.reproduction.rows import Experiment
from expunge_lab.reproduction.white_box.engine import NUM_CLASSES
from expunge_lab.reproduction.white_box.lockstep import Plan

_FLOAT = _PLACE = 4  # bytes
_COPIES = 3  # of orders and of scores: what was made, the same transposed, and what is computed of it
_MOST_NUMBERS = 2**31 - 1  # in one array: places in it are 32 bits wide
_SPARE = 0.9  # of the memory: the rest is images, evaluation and what falls between arrays


def trial_bytes(experiment: Experiment, shape: fused.Shape) -> int:
    """What one trial takes on the device with the fused kernel: mostly the weights of every check of its models."""
    plan = Plan.of(experiment, shape, interpret=False)
    one = fused.Weights(*(jax.ShapeDtypeStruct((1, *size), np.float32) for size in shape.sizes()))
    weights = sum(leaf.size * leaf.dtype.itemsize for leaf in one)
    forward = jax.eval_shape(partial(fused.forward_operands, channels=shape.channels), one)
    operands = sum(leaf.size * leaf.dtype.itemsize for leaf in forward)
    programs = experiment.batch_size // fused.GROUP
    kept = sum(size * np.dtype(kind).itemsize for size, kind in zip(SCRATCH_SIZES, SCRATCH_TYPES, strict=True))
    dense = _FLOAT * fused.GROUP * sum(DENSE_WIDTHS)
    model = (
        plan.num_checks * (weights + operands)
        + _COPIES * _PLACE * plan.num_epochs * plan.room
        + programs * (kept + dense + weights)
        + _COPIES * _FLOAT * NUM_CLASSES * experiment.num_points
    )
    return int(experiment.num_shards * model)


def trials_in_an_array(experiment: Experiment, shape: fused.Shape) -> int:
    """How many trials have room in the largest array there is: the checks of one layer's weights."""
    plan = Plan.of(experiment, shape, interpret=False)
    each = plan.num_checks * experiment.num_shards * max(prod(size) for size in shape.sizes())
    return _MOST_NUMBERS // each


def device_bytes() -> int | None:
    """What JAX may use of the device's memory; None where it does not say, as on a CPU."""
    about = jax.devices()[0].memory_stats() or {}
    limit = about.get("bytes_limit")
    return None if limit is None else int(limit)


def trials_at_once(number: int, each: int, memory: int | None, most: int) -> int:
    """The largest divisor of `number` that fits, so that all parts of a batch run the same compiled programs.

    A trial takes `each` bytes of the memory, and there may be `most` in any case.
    """
    fitting = max(most if memory is None else min(most, int(_SPARE * memory) // each), 1)
    return max(size for size in range(1, number + 1) if number % size == 0 and size <= fitting)
