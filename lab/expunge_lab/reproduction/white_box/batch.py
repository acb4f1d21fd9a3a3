"""One batch of trials: train, attack, delete, retrain the touched shards, and a control arm beside it.

Every trial draws its own partition. (The paper's released code draws one for all trials, so that the indicator differs
from one half before anything is deleted.)
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge_lab.reproduction.pictures import Pictures
from expunge_lab.reproduction.rows import Row
from expunge_lab.reproduction.trials import Arm, Counts, Trials, count_right
from expunge_lab.reproduction.white_box.engine import Engine
from expunge_lab.reproduction.white_box.partitions import (
    Partition,
    Places,
    draw_images,
    draw_keys,
    first_partition,
    redrawn,
    retraining_keys,
    trial_generators,
    without,
)


def run_trials(
    row: Row,
    engine: Engine,
    pictures: Pictures,
    *,
    seed: int,
    numbers: Sequence[int],
    order: Places | None = None,
    has_old_keys: bool = False,
) -> Trials:
    """The trials with these numbers; a trial depends on the seed and its own number, so batches can be cut at will.

    With `order` no partition is drawn: these images, cut into shards from the front, are that of every trial. With
    `has_old_keys` the models are retrained with the keys of the released code (`retraining_keys`).
    """
    generators = trial_generators(seed, numbers)
    if order is None:
        images = draw_images(row, len(pictures.y), generators)
    else:
        images = np.tile(order.astype(np.int32), (len(generators), 1))

    def keys() -> NDArray[np.uint32]:
        return draw_keys(generators, row.num_shards)

    def train(start: Any, shards: Partition, own: NDArray[np.uint32]) -> Any:
        return engine.train(start, shards.rows, shards.sizes, own, noise_multiplier=row.noise_multiplier)

    counts: list[Future[dict[str, Counts]]] = []
    with ThreadPoolExecutor(max_workers=1) as beside:  # an arm is counted while the device trains the next

        def count(arm: Arm, scores: NDArray[np.float32]) -> None:
            by_trial = scores.reshape(len(generators), row.num_shards, *scores.shape[1:])
            counts.append(beside.submit(count_right, arm, by_trial, pictures.y_test))

        # The order of what follows is the order in which a trial's randomness is used up.
        start = engine.initial(keys())
        first = keys()
        weights = train(start, first_partition(row, images), first)
        before = engine.test_scores(weights)
        count("before", before)
        guesses = guess_shards(engine, weights, images, row.num_shards)
        doomed = guesses < row.num_shards // 2
        survivors = without(row, images, doomed)
        fresh = keys()
        again = retraining_keys(first, fresh, row.num_shards) if has_old_keys else fresh
        retrained = engine.test_scores(train(start, survivors, again))
        is_touched = survivors.sizes < row.points_per_shard
        count("after", np.where(is_touched[:, np.newaxis, np.newaxis], retrained, before))
        shuffled = redrawn(row, images, doomed, generators)
        count("control", engine.test_scores(train(engine.initial(keys()), shuffled, keys())))
    home = np.arange(images.shape[1]) // row.points_per_shard
    return Trials(
        numbers=np.asarray(numbers, dtype=np.int64),
        **{name: values for found in counts for name, values in found.result().items()},
        num_deleted=doomed.sum(axis=1),
        num_hits=(doomed & (guesses == home)).sum(axis=1),
        num_held_out=len(pictures.y_test),
    )


def guess_shards(engine: Engine, weights: Any, images: Places, num_shards: int) -> Counts:
    """Of every training point of every trial, the model most confident of the true label (the attack)."""
    chances = engine.chances(weights, np.repeat(images, num_shards, axis=0))
    return np.asarray(chances.reshape(len(images), num_shards, -1).argmax(axis=1), dtype=np.int64)
