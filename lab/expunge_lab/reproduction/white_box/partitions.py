"""Which images the models of a batch of trials are trained on, and the keys of their randomness.

Everything comes from the trial's own generator, in a fixed order, so that a trial is the same in every batch it is
run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expunge_lab.reproduction.rows import Row

Places = NDArray[np.int32]
Keys = NDArray[np.uint32]
Generators = Sequence[np.random.Generator]


@dataclass(frozen=True, eq=False)
class Partition:
    """Shards of many trials, those of a trial together: model m has the first sizes[m] of the images rows[m]."""

    rows: Places
    sizes: NDArray[np.int32]

    @classmethod
    def of(cls, shards: Sequence[Places], room: int) -> Partition:
        """Filled up to `room` images each."""
        rows = np.zeros((len(shards), room), np.int32)
        for own, kept in zip(rows, shards, strict=True):
            own[: len(kept)] = kept
        return cls(rows, np.array([len(kept) for kept in shards], np.int32))


def trial_generators(seed: int, numbers: Sequence[int]) -> list[np.random.Generator]:
    """A trial depends on the seed and its own number."""
    return [np.random.default_rng([seed, number]) for number in numbers]


def draw_keys(generators: Generators, num_shards: int) -> Keys:
    """Fresh keys for all models of all trials."""
    return np.concatenate([rng.integers(0, 1 << 32, (num_shards, 2), dtype=np.uint32) for rng in generators])


def retraining_keys(first: Keys, fresh: Keys, num_shards: int) -> Keys:
    """Which keys of a trial the released code retrains with, given those of its first training and others.

    It splits keys in a chain, which with two shards (not with six) meets that of the first training: the second model
    is retrained with its old key, that is, with the same noise.
    """
    if num_shards != 2:
        return fresh
    is_second = np.arange(len(fresh)) % 2 == 1
    return np.where(is_second[:, np.newaxis], first, fresh)


def draw_images(row: Row, num_images: int, generators: Generators) -> Places:
    """(trials, points): a random order of the images for every trial, cut into shards from the front."""
    points = row.experiment.num_points
    return np.stack([rng.permutation(num_images)[:points] for rng in generators]).astype(np.int32)


def first_partition(row: Row, images: Places) -> Partition:
    """All shards full."""
    rows = images.reshape(-1, row.points_per_shard)
    return Partition(rows, np.full(len(rows), row.points_per_shard, np.int32))


def without(row: Row, images: Places, doomed: NDArray[np.bool_]) -> Partition:
    """Every shard without its deleted points."""
    shape = -1, row.points_per_shard
    pairs = zip(images.reshape(shape), doomed.reshape(shape), strict=True)
    return Partition.of([own[~gone] for own, gone in pairs], row.points_per_shard)


def redrawn(row: Row, images: Places, doomed: NDArray[np.bool_], generators: Generators) -> Partition:
    """The surviving points in a fresh partition of nearly equal shards."""
    shards = [
        kept
        for own, gone, rng in zip(images, doomed, generators, strict=True)
        for kept in np.array_split(rng.permutation(own[~gone]), row.num_shards)
    ]
    return Partition.of(shards, row.points_per_shard)


def repeated(rows: Places, sizes: NDArray[np.int32], room: int) -> Places:
    """Every shard's points again and again, up to `room`.

    A shard smaller than a batch, which a requester may leave behind, then fills the batch with points of its own.
    """
    places = np.arange(room) % np.maximum(sizes, 1)[:, np.newaxis]
    return np.take_along_axis(rows, places, axis=1)
