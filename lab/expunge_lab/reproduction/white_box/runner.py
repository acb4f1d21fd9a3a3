"""What a campaign uses to run the table's rows. It computes how many trials fit on a device before it begins any."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import prod
from pathlib import Path
from zlib import crc32

import jax
import numpy as np

from expunge.core.errors import InputError
from expunge.training.learners.jax import use_compilation_cache
from expunge_lab import kernels as fused
from expunge_lab.kernels.scratch import DENSE_WIDTHS, SCRATCH_SIZES, SCRATCH_TYPES
from expunge_lab.reproduction.campaign import RunTrials
from expunge_lab.reproduction.pictures import Pictures
from expunge_lab.reproduction.rows import Experiment, Row
from expunge_lab.reproduction.trials import Trials
from expunge_lab.reproduction.white_box.batch import run_trials
from expunge_lab.reproduction.white_box.engine import NUM_CLASSES, Engine
from expunge_lab.reproduction.white_box.fused import FusedEngine, Plan
from expunge_lab.reproduction.white_box.layered import LayerEngine

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


class WhiteBox:
    """Makes runners of rows on JAX's default device.

    The rows of an experiment share the images on the device and the compiled programs; the engine of one experiment is
    let go before that of the next is made. With `cache`, compiled programs are kept in that folder, for later processes
    too. A batch of more trials than `memory` bytes have room for (by default, the device's) is run in equal parts.
    """

    def __init__(self, *, cache: Path | None = None, memory: int | None = None) -> None:
        self._cache, self._memory = cache, memory
        self._made: tuple[Experiment, Pictures, Engine] | None = None

    def __call__(self, row: Row, pictures: Pictures, *, has_fixed_partition: bool = False) -> RunTrials:
        """What runs trials of the row by their numbers: functions of row, number and the device's arithmetic.

        A fixed partition is the pictures' own order, and goes with the released code's keys.
        """
        engine = self._engine(row.experiment, pictures)
        seed = row_seed(row, has_fixed_partition=has_fixed_partition)

        shape = fused.Shape(pictures.side, pictures.channels, NUM_CLASSES, row.activation)
        memory = device_bytes() if self._memory is None else self._memory
        order = np.arange(row.experiment.num_points, dtype=np.int32) if has_fixed_partition else None
        each, most = trial_bytes(row.experiment, shape), trials_in_an_array(row.experiment, shape)

        def run(numbers: Sequence[int]) -> Trials:
            size = trials_at_once(len(numbers), each, memory, most)
            parts = [numbers[first : first + size] for first in range(0, len(numbers), size)]
            return reduce(Trials.merge, map(run_part, parts))

        def run_part(numbers: Sequence[int]) -> Trials:
            try:
                return run_trials(
                    row, engine, pictures, seed=seed, numbers=numbers, order=order, has_old_keys=has_fixed_partition
                )
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                words = f"the device has no room for {len(numbers)} trials of {row.name}: try a smaller batch"
                raise InputError(words) from error

        return run

    def _engine(self, experiment: Experiment, pictures: Pictures) -> Engine:
        if self._made is not None and self._made[0] == experiment and self._made[1] is pictures:
            return self._made[2]
        self._made = None
        if self._cache is not None:
            use_compilation_cache(self._cache)
        engine = make_engine(experiment, pictures)
        self._made = experiment, pictures, engine
        return engine


def make_engine(experiment: Experiment, pictures: Pictures) -> Engine:
    """The fused one on a GPU, the other elsewhere."""
    return (FusedEngine if is_on_gpu() else LayerEngine)(experiment, pictures)


def is_on_gpu() -> bool:
    """Whether JAX's default device is one."""
    return bool(jax.default_backend() == "gpu")


def row_seed(row: Row, *, has_fixed_partition: bool) -> int:
    """Of its own for every row; with a fixed partition, one for all rows of an experiment."""
    return crc32((row.experiment.name if has_fixed_partition else row.name).encode())


def device_name() -> str:
    """What JAX runs on, in words."""
    device = jax.devices()[0]
    return str(getattr(device, "device_kind", device.platform))
