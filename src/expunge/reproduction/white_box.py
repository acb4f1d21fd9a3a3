"""The white-box experiment on a device: the paper's network, all models of a batch of trials at once.

The engines that train and evaluate are in the package `white_box` of the repository's `experiments` folder; this module
hands them a row and its images and turns what they find into counts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from expunge.errors import InputError
from expunge.reproduction.pictures import Pictures
from expunge.reproduction.rows import Row
from expunge.reproduction.trials import ARMS, Counts, Trials

_COUNTED = [f"{kind}{arm}" for kind in ("", "voted_", "averaged_") for arm in ARMS]


class WhiteBox:
    """Runs trials of a row on JAX's default device."""

    def __init__(self, row: Row, pictures: Pictures, *, has_fixed_partition: bool = False) -> None:
        self._row, self._pictures, self._has_fixed_partition = row, pictures, has_fixed_partition
        self._engine: Any = _core("engines").make_engine(row, pictures)

    def __call__(self, numbers: Sequence[int]) -> Trials:
        """The trials with these numbers: functions of the row, the number and the device's arithmetic."""
        found = _core("trials").run_trials(
            self._row,
            self._engine,
            self._pictures,
            seed=self._seed,
            trials=list(numbers),
            fixed_partition=self._has_fixed_partition,
        )
        held_out = len(self._pictures.y_test)
        return Trials(
            numbers=np.asarray(numbers, dtype=np.int64),
            **{name: _count(getattr(found, name), held_out) for name in _COUNTED},
            num_deleted=np.asarray(found.deleted, dtype=np.int64),
            num_hits=np.asarray(found.guessed_right, dtype=np.int64),
            num_held_out=held_out,
        )

    @property
    def _seed(self) -> int:
        """Of its own for every row; a fixed partition is one for all rows of an experiment."""
        name = self._row.experiment.name if self._has_fixed_partition else self._row.name
        return crc32(name.encode())


def _count(accuracies: NDArray[Any], out_of: int) -> Counts:
    return np.rint(np.asarray(accuracies, dtype=np.float64) * out_of).astype(np.int64)


def device_name() -> str:
    """What JAX runs on, in words."""
    import jax

    device = jax.devices()[0]
    return str(getattr(device, "device_kind", device.platform))


def _core(module: str) -> Any:
    """A module of the engines."""
    if find_spec("white_box") is None:
        near = Path.cwd() / "experiments"
        if not (near / "white_box" / "trials.py").is_file():
            raise InputError("the engines are in the folder experiments: run this command in a copy of the repository")
        sys.path.insert(0, str(near))
    return import_module(f"white_box.{module}")
