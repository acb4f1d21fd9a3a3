"""Trials made up around given accuracies, and a row to hang them on."""

from __future__ import annotations

import numpy as np
import pytest

from expunge_lab.reproduction import Experiment, Row, Trials
from expunge_lab.reproduction.trials import array_names


@pytest.fixture
def tiny_row():
    return Row(Experiment("digits", 2, 20, 4, 20, 1.0, "tanh"), 0.0, None)


@pytest.fixture
def make_trials():
    """`make_trials(numbers, before=…, after=…)`: whatever is not given is drawn."""

    def make(numbers, *, num_shards=2, num_held_out=100, seed=0, **given):
        rng = np.random.default_rng(seed)
        size = len(numbers)
        arrays = {"numbers": np.asarray(numbers, dtype=np.int64)}
        for name in array_names():
            shape = (size, num_shards) if name in ("before", "after", "control") else (size,)
            arrays.setdefault(name, rng.integers(1, num_held_out, shape))
        arrays["num_deleted"] = arrays["num_deleted"] + num_held_out
        arrays |= {name: np.asarray(value) for name, value in given.items()}
        return Trials(**arrays, num_held_out=num_held_out)

    return make
