"""How shards are drawn: independently (the paper's Sampler), or by partition (SISA, for comparison).

A sampler turns a number of records into the ascending positions that each of k shards receives. `learn` calls it once
for the whole dataset, `update` for the records of a batch; both use the same law, which is what makes an updated state
indistinguishable from a fresh one (Lemma `lem:shard-dist`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness
from expunge.training.membership import Slots

_CELLS_AT_ONCE = 1 << 22


@runtime_checkable
class Sampler(Protocol):
    """Draws the shards of new records."""

    @property
    def is_independent(self) -> bool:
        """Whether the shards are drawn independently of one another, which every guarantee rests on."""

    def inclusion_probability(self, num_shards: int) -> float:
        """The chance that a record is in a given shard."""

    def draw(self, num_records: int, num_shards: int, rng: Randomness) -> list[Slots]:
        """The ascending positions (0..num_records-1) that each shard of a fresh ensemble receives."""

    def draw_added(self, num_records: int, num_shards: int, rng: Randomness) -> list[Slots]:
        """The same for records that are added to a running ensemble."""


@dataclass(frozen=True, slots=True)
class IndependentSampler:
    """Each record is in each shard with probability p, independently of everything else (`Sampler` in Algorithm 2).

    `probability` is p, 1/k if None. Assumes nothing; deviates from the paper in nothing.

    *The joint law is a product over shards*, up to what the computer does to chance: the numbers are pseudo-random, and
    the geometric gaps between successes are computed in floating point. The cells of the matrix (shard, record) are
    independent Bernoulli(p) trials: they are numbered shard by shard, and `Randomness.successes` returns which of a run
    of independent trials succeed. Rows of a matrix of independent cells are independent, and row i, together with the
    training seeds that only shard i uses, is the coordinate r_i. A record added later (also under an id that was there
    before) gets new cells from new trials, so after any sequence of updates fixed in advance the cells of the records
    present are again independent Bernoulli(p) trials, and the law is that of a fresh draw on the final dataset.

    Only successes cost time and memory: O(n·k·p), not n·k.

    Parameters
    ----------
    probability
        The inclusion probability p, in (0, 1]. None takes 1/k.

    Raises
    ------
    ParameterError
        If the probability is not in (0, 1].

    Examples
    --------
    >>> IndependentSampler().inclusion_probability(num_shards=50)
    0.02
    """

    probability: float | None = None

    def __post_init__(self) -> None:
        p = self.probability
        if p is not None and not (isinstance(p, int | float) and 0 < p <= 1):
            raise ParameterError(f"the inclusion probability must be in (0, 1], got {p!r}")

    @property
    def is_independent(self) -> bool:
        """Always."""
        return True

    def inclusion_probability(self, num_shards: int) -> float:
        """p for this number of shards."""
        return 1 / num_shards if self.probability is None else self.probability

    def draw(self, num_records: int, num_shards: int, rng: Randomness) -> list[Slots]:
        """Every shard's records, by independent trials."""
        _check(num_records, num_shards)
        p = self.inclusion_probability(num_shards)
        if num_records == 0:
            return [np.empty(0, dtype=np.uint32)] * num_shards
        at_once = max(1, min(num_shards, int(min(num_shards, _CELLS_AT_ONCE / (num_records * p)))))
        drawn: list[Slots] = []
        for first in range(0, num_shards, at_once):
            shards = min(at_once, num_shards - first)
            cells = rng.successes(shards * num_records, p)
            bounds = np.searchsorted(cells, np.arange(1, shards) * num_records)
            rows = np.split(cells, bounds)
            drawn += [(row - i * num_records).astype(np.uint32) for i, row in enumerate(rows)]
        return drawn

    draw_added = draw


@dataclass(frozen=True, slots=True)
class PartitionSampler:
    """Every record is in exactly one shard: SISA (Algorithms 5 and 6). The shards are not independent.

    With `equal_sizes` the shards of a fresh ensemble are a uniformly random partition into parts whose sizes differ by
    at most one, as in the paper's experiments; which of them get one record more is drawn as well, so that the shards
    are exchangeable. Otherwise every record picks its shard uniformly and independently (`RandomAssignPartition`,
    Theorem 5.1). An added record always picks its shard uniformly, which keeps exchangeable shards exchangeable; equal
    sizes it does not keep, so only the free partition has, after updates, the law of a fresh one.

    Parameters
    ----------
    equal_sizes
        Whether the shards of a fresh ensemble differ in size by at most one record.

    Examples
    --------
    >>> from expunge import Randomness
    >>> shards = PartitionSampler().draw(num_records=10, num_shards=4, rng=Randomness.from_seed(0))
    >>> sorted(len(shard) for shard in shards)
    [2, 2, 3, 3]
    """

    equal_sizes: bool = True

    @property
    def is_independent(self) -> bool:
        """Never: a record in one shard is in no other, so no certificate covers it."""
        return False

    def inclusion_probability(self, num_shards: int) -> float:
        """The chance that a record is in a given shard."""
        return 1 / num_shards

    def draw(self, num_records: int, num_shards: int, rng: Randomness) -> list[Slots]:
        """A random partition of all records."""
        _check(num_records, num_shards)
        if not self.equal_sizes:
            return self.draw_added(num_records, num_shards, rng)
        parts = [np.sort(part).astype(np.uint32) for part in np.array_split(rng.permutation(num_records), num_shards)]
        if num_records % num_shards == 0:
            return parts
        return [parts[place] for place in rng.permutation(num_shards).tolist()]  # the first parts are the larger ones

    def draw_added(self, num_records: int, num_shards: int, rng: Randomness) -> list[Slots]:
        """A uniformly random shard for every added record."""
        _check(num_records, num_shards)
        return _grouped(rng.choices(num_shards, num_records), num_shards)


def _grouped(shard_of: NDArray[np.int64], num_shards: int) -> list[Slots]:
    order = np.argsort(shard_of, kind="stable").astype(np.uint32)
    return list(np.split(order, np.searchsorted(shard_of[order], np.arange(1, num_shards))))


def _check(num_records: int, num_shards: int) -> None:
    if num_shards < 1:
        raise ParameterError(f"the number of shards must be at least 1, got {num_shards!r}")
    if num_records >= 2**32 - 1:
        raise ParameterError(f"at most {2**32 - 2} records fit into one deployment, got {num_records}")
