"""How records are assigned to shards: independently (the paper's Sampler), or by partition.

A sampler is a function of the recipe key and of the records' units of membership: a unit is the subject where a record
has one, else the id. So all records of a person share their shards, a record that comes back meets its old cells, and
nothing has to be stored (T6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ParameterError
from expunge.core.prf import Names, RecipeKey

Slots = NDArray[np.uint32]
Cells = tuple[NDArray[np.int64], NDArray[np.int64]]  # shards and positions of units, in ascending order of both


@runtime_checkable
class Sampler(Protocol):
    """Assigns units of membership to shards."""

    @property
    def is_independent(self) -> bool:
        """Whether the shards are independent of one another, which T1 to T4 rest on."""

    def inclusion_probability(self, num_shards: int) -> float:
        """The chance that a unit is in a given shard."""

    def draw(self, units: Names, num_shards: int, key: RecipeKey) -> Cells:
        """Which shards hold which units; a function of the unit and the key alone."""


@dataclass(frozen=True, slots=True)
class IndependentSampler:
    """Each unit is in each shard with probability p, independently of everything else (`Sampler` in Algorithm 2).

    The cell (unit, shard) is F("cell", shard, unit): for F a random function the cells are independent, and row i,
    with the order, slices and seeds that only shard i uses, is the coordinate r_i of T1 to T4. For updates that are
    fixed in advance the law is that of a fresh draw on the final dataset, also where an id comes back, because its cell
    is again the cell of an id in D^t (T6, "Both at once"). With a pseudo-random function this holds for efficient
    requesters.

    Parameters
    ----------
    probability
        p, in (0, 1]. None means 1/k.

    Examples
    --------
    >>> IndependentSampler(0.2).inclusion_probability(100)
    0.2
    """

    probability: float | None = None

    def __post_init__(self) -> None:
        p = self.probability
        if p is not None and not (isinstance(p, int | float) and 0 < p <= 1):
            raise ParameterError(f"the inclusion probability must be in (0, 1], got {p!r}")

    @property
    def is_independent(self) -> bool:
        """Always true."""
        return True

    def inclusion_probability(self, num_shards: int) -> float:
        """p for this number of shards."""
        return 1 / num_shards if self.probability is None else self.probability

    def draw(self, units: Names, num_shards: int, key: RecipeKey) -> Cells:
        """The cells that are 1."""
        _check(len(units), num_shards)
        return key.cells_of(units, num_shards, self.inclusion_probability(num_shards))


@dataclass(frozen=True, slots=True)
class PartitionSampler:
    """Each unit is in exactly one shard, F("shard", unit) mod k. The shards are not independent.

    For F a random function this is `RandomAssignPartition` of SISA (Algorithms 5 and 6, Theorem 5.1). No theorem of T1
    to T5 covers a partition; T6 does.

    Examples
    --------
    >>> PartitionSampler().inclusion_probability(20)
    0.05
    """

    @property
    def is_independent(self) -> bool:
        """Always false: a unit in one shard is in no other."""
        return False

    def inclusion_probability(self, num_shards: int) -> float:
        """The chance that a unit is in a given shard."""
        return 1 / num_shards

    def draw(self, units: Names, num_shards: int, key: RecipeKey) -> Cells:
        """The shard of every unit."""
        _check(len(units), num_shards)
        shards = key.shards_of(units, num_shards)
        positions = np.argsort(shards, kind="stable")
        return shards[positions], positions


def _check(num_units: int, num_shards: int) -> None:
    if num_shards < 1:
        raise ParameterError(f"the number of shards must be at least 1, got {num_shards!r}")
    if num_units >= 2**32 - 1:
        raise ParameterError(f"at most {2**32 - 2} records fit into one deployment, got {num_units}")
