"""Drawing the shards: time and memory, against tossing a coin and keeping a bit for every record and shard."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expunge.core.records import Records
from expunge.training.learners import LookupTableLearner
from expunge.training.recipe import Recipe
from expunge.training.sampling import IndependentSampler
from expunge_lab.bench.measurement import Line, Progress, Target, Task, race


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure; the coins get fewer records, for they take much longer."""

    num_records: int
    num_with_coins: int
    num_shards: int
    repeats: int


FULL = Size(num_records=10_000_000, num_with_coins=50_000, num_shards=1_000, repeats=3)
QUICK = Size(num_records=50_000, num_with_coins=500, num_shards=50, repeats=2)

_SECONDS, _BYTES = Target.ours_at_most(10), Target.ours_at_most(16)


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    n, k = size.num_records, size.num_shards
    with progress("sampling", 4 * size.repeats) as advance:
        many, some = many_records(n), many_records(size.num_with_coins)
        (drawing,) = race([Task(lambda: draw(many, k), repeatable=False)], repeats=size.repeats, advance=advance)
        sparse, coins = race(
            [Task(lambda: draw(some, k)), Task(lambda: toss_coins(size.num_with_coins, k))],
            repeats=size.repeats,
            advance=advance,
        )
        memory = []
        for _ in range(size.repeats):
            memory.append(peak_bytes(many, k) / n)
            advance(1)
    what = f"draw {n:,} records × {k:,} shards"
    bits = [k / 8] * size.repeats
    few = f"draw {size.num_with_coins:,} records × {k:,} shards"
    return [
        Line.alone(what, drawing, target=_SECONDS),
        Line.faster(f"{what}: peak memory a record", memory, "a bit for every cell", bits, unit="bytes", target=_BYTES),
        Line.faster(few, sparse, "a coin for every cell", coins),
    ]


def draw(records: Records, num_shards: int) -> tuple[NDArray[np.uint32], ...]:
    """The records of every shard, derived from the recipe key; the shards of a record are derived when asked for."""
    return Recipe(LookupTableLearner(), num_shards, IndependentSampler()).members(records)


def many_records(num_records: int) -> Records:
    """Records without features: drawing looks at ids only."""
    return Records.build(np.empty((num_records, 0)), np.zeros(num_records, dtype=np.int8))


def toss_coins(num_records: int, num_shards: int) -> list[NDArray[np.int64]]:
    """The textbook way: n·k trials, a shard at a time."""
    rng = np.random.default_rng()
    return [np.flatnonzero(rng.random(num_records) < 1 / num_shards) for _ in range(num_shards)]


def peak_bytes(records: Records, num_shards: int) -> int:
    """The most memory that drawing had in use at any moment, the result included (NumPy reports to tracemalloc)."""
    tracemalloc.start()
    try:
        draw(records, num_shards)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
