"""One batch of trials: train, attack, delete, retrain the touched shards, and a control arm beside it.

Every trial draws its own images and its own partition. (The paper's released code draws one partition for all trials,
so that the indicator differs from one half before anything is deleted.)
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from white_box.engines import Engine
from white_box.pictures import Pictures
from white_box.rows import Row

ARMS = ("before", "after", "control")


@dataclass(frozen=True)
class TrialResults:
    """What a batch of trials found, on the held-out images.

    `before`, `after`, `control` are the models' accuracies, (trials, models). The table's columns are accuracies of the
    ensemble, (trials,): `voted_*` of the majority (the lowest class of those in front), `averaged_*` of the class with
    the highest mean probability.
    """

    before: NDArray[np.float64]
    after: NDArray[np.float64]
    control: NDArray[np.float64]
    voted_before: NDArray[np.float64]
    voted_after: NDArray[np.float64]
    voted_control: NDArray[np.float64]
    averaged_before: NDArray[np.float64]
    averaged_after: NDArray[np.float64]
    averaged_control: NDArray[np.float64]
    deleted: NDArray[np.int64]
    guessed_right: NDArray[np.int64]

    @property
    def shard_prediction(self) -> NDArray[np.float64]:
        """Of every trial, the share of deleted points whose shard was guessed."""
        return self.guessed_right / np.maximum(self.deleted, 1)

    def indicator(self, arm: str) -> NDArray[np.bool_]:
        """Of every trial, whether the targeted half of the models is worse than the others, in one of the arms."""
        accuracies: NDArray[np.float64] = getattr(self, arm)
        half = accuracies.shape[1] // 2
        # Rounded, since equal accuracies summed in another order are equal.
        gap = np.round(accuracies[:, :half].mean(axis=1) - accuracies[:, half:].mean(axis=1), 12)
        return np.asarray(gap < 0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For `numpy.savez`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def joined(cls, parts: list[TrialResults]) -> TrialResults:
        """All trials of several batches."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


@dataclass(frozen=True)
class Partition:
    """Which images each model of a batch is trained on: the first sizes[m] of rows[m]."""

    rows: NDArray[np.int32]
    sizes: NDArray[np.int32]


def run_trials(
    row: Row,
    engine: Engine,
    pictures: Pictures,
    *,
    seed: int,
    trials: range,
    fixed_partition: bool = False,
) -> TrialResults:
    """The trials with these numbers; a trial depends on the seed and its own number, so batches can be cut at will."""
    generators = [np.random.default_rng([seed, trial]) for trial in trials]
    k = row.num_shards
    images = _draw_images(row, len(pictures.y), generators, seed if fixed_partition else None)
    rows = images.reshape(len(generators) * k, row.points_per_shard)
    start = engine.initial(_keys(generators, k))
    weights = engine.train(start, rows, np.full(len(rows), row.points_per_shard, np.int32), _keys(generators, k))
    before = engine.test_scores(weights)
    guesses = guess_shards(engine, weights, images, k)
    doomed = guesses < k // 2
    home = np.arange(images.shape[1]) // row.points_per_shard
    survivors = _survivors(images, doomed, home, k, row.points_per_shard)
    retrained = engine.train(start, survivors.rows, survivors.sizes, _keys(generators, k))
    touched = survivors.sizes < row.points_per_shard
    after = np.where(touched[:, None, None], engine.test_scores(retrained), before)
    fresh = _redrawn(images, doomed, k, row.points_per_shard, generators)
    control = engine.train(engine.initial(_keys(generators, k)), fresh.rows, fresh.sizes, _keys(generators, k))
    scores = dict(zip(ARMS, (before, after, engine.test_scores(control)), strict=True))
    columns: dict[str, Any] = {}
    for arm, found in scores.items():
        columns |= accuracies(arm, found.reshape(len(generators), k, *found.shape[1:]), pictures.y_test)
    guessed_right = (doomed & (guesses == home[None, :])).sum(axis=1)
    return TrialResults(**columns, deleted=doomed.sum(axis=1), guessed_right=guessed_right)


def accuracies(arm: str, scores: NDArray[np.float32], labels: NDArray[np.int32]) -> dict[str, NDArray[np.float64]]:
    """Of (trials, models, images, classes) scores: every model's accuracy, and the ensemble's in two ways."""
    guesses = scores.argmax(axis=3)
    votes = (guesses[..., None] == np.arange(scores.shape[3])).sum(axis=1)
    chances = np.exp(scores - scores.max(axis=3, keepdims=True))
    chances /= chances.sum(axis=3, keepdims=True)
    return {
        arm: (guesses == labels).mean(axis=2),
        f"voted_{arm}": (votes.argmax(axis=2) == labels).mean(axis=1),
        f"averaged_{arm}": (chances.mean(axis=1).argmax(axis=2) == labels).mean(axis=1),
    }


def guess_shards(engine: Engine, weights: Any, images: NDArray[np.int32], k: int) -> NDArray[np.int64]:
    """Of every training point of every trial, the model most confident of the true label (the attack)."""
    chances = engine.chances(weights, np.repeat(images, k, axis=0))
    return np.asarray(chances.reshape(len(images), k, -1).argmax(axis=1), dtype=np.int64)


def _keys(generators: list[np.random.Generator], k: int) -> NDArray[np.uint32]:
    """Fresh keys for all models of all trials."""
    return np.concatenate([rng.integers(0, 1 << 32, (k, 2), dtype=np.uint32) for rng in generators])


def _draw_images(
    row: Row, num_images: int, generators: list[np.random.Generator], fixed: int | None
) -> NDArray[np.int32]:
    """(trials, points): images drawn without replacement, in random order; cut into shards from the front."""
    points = row.num_shards * row.points_per_shard
    if fixed is not None:
        same = np.random.default_rng(fixed).permutation(num_images)[:points]
        return np.tile(same.astype(np.int32), (len(generators), 1))
    return np.stack([rng.permutation(num_images)[:points] for rng in generators]).astype(np.int32)


def _survivors(
    images: NDArray[np.int32], doomed: NDArray[np.bool_], home: NDArray[np.int64], k: int, room: int
) -> Partition:
    """Every shard without its deleted points."""
    rows = np.zeros((len(images) * k, room), np.int32)
    sizes = np.zeros(len(rows), np.int32)
    for trial, (own, gone) in enumerate(zip(images, doomed, strict=True)):
        for shard in range(k):
            kept = own[(home == shard) & ~gone]
            rows[trial * k + shard, : len(kept)], sizes[trial * k + shard] = kept, len(kept)
    return Partition(rows, sizes)


def _redrawn(
    images: NDArray[np.int32], doomed: NDArray[np.bool_], k: int, room: int, generators: list[np.random.Generator]
) -> Partition:
    """The surviving points in a fresh partition of nearly equal shards."""
    rows = np.zeros((len(images) * k, room), np.int32)
    sizes = np.zeros(len(rows), np.int32)
    for trial, (own, gone, rng) in enumerate(zip(images, doomed, generators, strict=True)):
        for shard, kept in enumerate(np.array_split(rng.permutation(own[~gone]), k)):
            rows[trial * k + shard, : len(kept)], sizes[trial * k + shard] = kept, len(kept)
    return Partition(rows, sizes)
