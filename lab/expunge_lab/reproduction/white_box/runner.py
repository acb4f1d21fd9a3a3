"""What a campaign runs the table's rows with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from zlib import crc32

import jax
import numpy as np

from expunge.core.errors import InputError
from expunge.training.learners.jax import use_compilation_cache
from expunge_lab import kernels as fused
from expunge_lab.reproduction.campaign import RunTrials
from expunge_lab.reproduction.pictures import Pictures
from expunge_lab.reproduction.rows import Experiment, Row
from expunge_lab.reproduction.trials import Trials
from expunge_lab.reproduction.white_box.batch import run_trials
from expunge_lab.reproduction.white_box.engine import NUM_CLASSES, Engine
from expunge_lab.reproduction.white_box.fused import FusedEngine
from expunge_lab.reproduction.white_box.layered import LayerEngine
from expunge_lab.reproduction.white_box.memory import device_bytes, trial_bytes, trials_at_once, trials_in_an_array


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
