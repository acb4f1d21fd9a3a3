"""Makes a folder with two worker processes, and dies with all of them where the first shard would be trained."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import numpy as np
from joblib import delayed
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge.training import execution as local

NUM_PEOPLE, WIDTH = 2400, 200  # a shard's features are more than joblib's limit for copies in memory-mapped files


def features() -> np.ndarray:
    """The features of all records, drawn again from the same seed in each process."""
    return np.random.default_rng(7).normal(size=(NUM_PEOPLE, WIDTH))


def with_mapped_copies(**options: Any) -> Any:
    """joblib with its default settings."""
    return joblib_parallel(**{name: value for name, value in options.items() if name != "max_nbytes"})


def die_with_everybody(_shard: Any) -> None:
    """In a worker, which holds its shard: the copy of one that is finished may be gone before it is found."""
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    folder, copies = sys.argv[1:]
    if copies == "mapped":
        joblib_parallel, local.Parallel = local.Parallel, with_mapped_copies  # type: ignore[misc, assignment]
    local.delayed = lambda _: delayed(die_with_everybody)
    os.setpgrp()
    labels = np.arange(NUM_PEOPLE) % 2
    expunge.create(
        folder,
        GaussianNB(),
        features(),
        labels,
        n_shards=4,
        inclusion_probability=0.5,
        promise="unguarded",
        n_jobs=2,
    )
