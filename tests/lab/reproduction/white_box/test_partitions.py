"""What a trial draws is fixed for ever: files of trials are continued with trials of the same law and numbers."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("jax")

from expunge_lab.reproduction import table_rows
from expunge_lab.reproduction.white_box import run_trials
from expunge_lab.reproduction.white_box.partitions import repeated
from expunge_lab.reproduction.white_box.runner import row_seed

ROWS = {row.name: row for row in table_rows()}

# Digests of everything that the first implementation handed to its engine, with which files of trials were made (there
# were none of the released code's partition before these).
DIGESTS = {
    ("mnist-k6-0.4", (0, 299), False): "a236f6649d2f156b242055cf0f8450a46b99d2e06b8e6bfa2e45a8fb962383b1",
    ("mnist-k6-0.4", (0, 299), True): "b90853cc3e33a3d3b6f532e92ba32dd7194ea86b6c27a059ecc8960b8533f019",
    ("cifar-10-k2-0.3", (7,), False): "ec887ae1e4ad7d222c80dc388f0c53e0958c93d734032dfd82a42d519e5e4d67",
    ("cifar-10-k2-0.3", (7,), True): "4a99a7b748a8f9914e3ee0d3d5f092d4f3a82afeb00b607dd78be08253b831f3",
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
    seed, order = row_seed(row, has_fixed_partition=fixed), np.arange(row.experiment.num_points) if fixed else None
    trials = run_trials(row, engine, pictures, seed=seed, numbers=numbers, order=order, has_old_keys=fixed)
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


@pytest.mark.parametrize(("name", "is_old"), [("mnist-k2-0", [False, True]), ("mnist-k6-0", [False] * 6)])
def test_the_released_code_retrains_the_second_of_two_models_with_its_old_key(name, is_old):
    for fixed in (False, True):
        _, engine = play(name, (3, 8), fixed=fixed)
        _, first, again, _, control = engine.keys
        assert (first == again).all(axis=1).tolist() == (is_old * 2 if fixed else [False] * len(first))
        assert not (first == control).any()


def test_a_fixed_partition_is_the_pictures_own_order():
    class Rows(Recorder):
        def train(self, start, rows, sizes, keys, *, noise_multiplier):
            if not self.keys[1:]:
                assert rows.reshape(2, -1).tolist() == [list(range(12_000))] * 2
            return super().train(start, rows, sizes, keys, noise_multiplier=noise_multiplier)

    play("mnist-k2-0", (3, 8), fixed=True, engine=Rows())


def test_another_row_has_other_trials_unless_the_partition_is_fixed():
    seeds = {fixed: {row_seed(row, has_fixed_partition=fixed) for row in ROWS.values()} for fixed in (False, True)}
    assert (len(seeds[False]), len(seeds[True])) == (24, 6)


def test_a_batch_is_filled_with_points_of_its_own_shard():
    rows = np.array([[5, 6, 7, 8], [9, 4, 0, 0]], np.int32)
    found = repeated(rows, np.array([4, 2], np.int32), 6)
    assert found.tolist() == [[5, 6, 7, 8, 5, 6], [9, 4, 9, 4, 9, 4]]
    assert found.dtype == np.int32
