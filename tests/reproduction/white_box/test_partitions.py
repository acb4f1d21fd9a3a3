"""What a trial draws is fixed for ever: files of trials are continued with trials of the same law and numbers."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("jax")

from expunge.reproduction import table_rows
from expunge.reproduction.white_box import run_trials
from expunge.reproduction.white_box.partitions import repeated
from expunge.reproduction.white_box.runner import row_seed

ROWS = {row.name: row for row in table_rows()}

# Digests of everything that the first implementation handed to its engine, with which files of trials were made.
DIGESTS = {
    ("mnist-k6-0.4", (0, 299), False): "a236f6649d2f156b242055cf0f8450a46b99d2e06b8e6bfa2e45a8fb962383b1",
    ("mnist-k6-0.4", (0, 299), True): "0fd4fb1583f6d19a4519a0b7d1f59c7c65ab603b8ab2c6ca57a0e853e91005a4",
    ("cifar-10-k2-0.3", (7,), False): "ec887ae1e4ad7d222c80dc388f0c53e0958c93d734032dfd82a42d519e5e4d67",
    ("cifar-10-k2-0.3", (7,), True): "c4facc1e0822f2023e2e28fc6e727586a02bad616c8dcd18208e08f49a9ea10a",
}


class Recorder:
    """An engine that trains nothing; it digests what it is given, and its weights are their keys."""

    def __init__(self):
        self._digest = hashlib.sha256()
        self.keys = []

    def take(self, name, *arrays):
        for array in arrays:
            self._digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            self._digest.update(np.ascontiguousarray(array).tobytes())

    def hexdigest(self):
        return self._digest.hexdigest()

    def initial(self, keys):
        self.take("initial", keys)
        self.keys.append(keys)
        return keys

    def train(self, start, rows, sizes, keys, *, noise_multiplier):
        self.take("train", start, rows, sizes, keys)
        self.keys.append(keys)
        return keys

    def chances(self, weights, rows):
        self.take("chances", weights, rows)
        return ((rows * 7919 + np.arange(len(rows))[:, np.newaxis] * 104729) % 1009).astype(np.float32)

    def test_scores(self, weights):
        self.take("test", weights)
        return np.zeros((len(weights), 4, 10), np.float32)


class Alike(Recorder):
    """Its models guess alike in every trial, whatever stands before them in the batch."""

    def chances(self, weights, rows):
        return ((rows * 7919 + np.arange(len(rows))[:, np.newaxis] % 2 * 104729) % 1009).astype(np.float32)


def play(name, numbers, *, fixed=False, engine=None):
    row, engine = ROWS[name], engine or Recorder()
    pictures = SimpleNamespace(y=np.zeros(row.experiment.num_points, np.int32), y_test=np.zeros(4, np.int32))
    seed = row_seed(row, has_fixed_partition=fixed)
    trials = run_trials(row, engine, pictures, seed=seed, numbers=numbers, has_fixed_partition=fixed)
    return trials, engine


@pytest.mark.parametrize(("case", "digest"), DIGESTS.items(), ids=lambda value: "-".join(map(str, value)))
def test_partitions_keys_and_deletions_are_those_of_the_files_there_are(case, digest):
    name, numbers, fixed = case
    trials, engine = play(name, numbers, fixed=fixed)
    engine.take("deleted", trials.num_deleted, trials.num_hits)
    assert engine.hexdigest() == digest


def test_a_trial_is_the_same_in_any_batch():
    together, engine = play("mnist-k2-0", (3, 8), engine=Alike())
    alone, own = play("mnist-k2-0", (8,), engine=Alike())
    assert together.num_hits[1] == alone.num_hits[0]
    for both, one in zip(engine.keys, own.keys, strict=True):
        assert np.array_equal(both[2:], one)
    assert len({keys.tobytes() for keys in engine.keys}) == len(engine.keys)


def test_another_row_has_other_trials_unless_the_partition_is_fixed():
    seeds = {fixed: {row_seed(row, has_fixed_partition=fixed) for row in ROWS.values()} for fixed in (False, True)}
    assert (len(seeds[False]), len(seeds[True])) == (24, 6)


def test_a_batch_is_filled_with_points_of_its_own_shard():
    rows = np.array([[5, 6, 7, 8], [9, 4, 0, 0]], np.int32)
    found = repeated(rows, np.array([4, 2], np.int32), 6)
    assert found.tolist() == [[5, 6, 7, 8, 5, 6], [9, 4, 9, 4, 9, 4]]
    assert found.dtype == np.int32
