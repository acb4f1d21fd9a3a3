"""Training elsewhere: what a worker on another machine is given, reads by itself, trains and sends back.

A shard travels as an address: what to open, and which rows of it. So no record passes through the process that asks for
models, where another one can read them by itself; that is so for folders. Records in memory alone travel themselves.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.blocks import Block, join_blocks
from expunge.core.errors import ExpungeError
from expunge.core.records import Records, RowSource
from expunge.training.environment import Environment
from expunge.training.learners import protocol
from expunge.training.learners.protocol import Model, SlicedLearner
from expunge.training.learners.slices import SlicedShard, fit_slices_of_many
from expunge.training.recipe import Recipe
from expunge.training.sampling import Slots
from expunge.training.surroundings import training


def from_slice(data: protocol.ShardData | SlicedShard, first: int, checkpoints: tuple[Any, ...]) -> Any:
    """The data of a training that begins with this slice, where it has slices.

    Parameters
    ----------
    data
        The contents of a shard.
    first, checkpoints
        The slice, and the checkpoints of those before it.
    """
    return replace(data, first=first, checkpoints=checkpoints) if isinstance(data, SlicedShard) else data


def train_batch(learner: Any, shards: list[Any]) -> list[Model]:
    """Train a batch of shards, in this process.

    Parameters
    ----------
    learner
        What trains them.
    shards
        Their contents.

    Returns
    -------
    list of Model
        A model for each.
    """
    with training():
        if isinstance(learner, SlicedLearner):
            return [*fit_slices_of_many(learner, shards)]
        return protocol.fit_many(learner, shards)


@dataclass(frozen=True)
class ShardAddress:
    """Where a worker reads the records of a shard by itself, instead of the records.

    Parameters
    ----------
    shard
        The number of the shard.
    source
        What to open.
    rows
        Which rows of it, ascending: runs of them as (first, length), or one by one if that is shorter.
    extra
        The records that are not there yet, which are added in this very round.
    first, checkpoints
        The slice that the training begins with, and the checkpoints of those before it.
    """

    shard: int
    source: RowSource
    rows: NDArray[Any]
    extra: Block | None
    first: int
    checkpoints: tuple[Any, ...]

    @classmethod
    def of(cls, records: Records, slots: Slots, shard: int, first: int, checkpoints: tuple[Any, ...]) -> ShardAddress:
        """The address of a shard's records, whose source is known.

        Parameters
        ----------
        records
            D^t.
        slots
            The ascending slots of the shard's records.
        shard, first, checkpoints
            As in the class.
        """
        assert records.source is not None
        rows, rest = records.rows_of(slots)
        extra = records.extract(rest) if len(rest) else None
        return cls(shard, records.source.narrowed(rows), _as_runs(rows), extra, first, checkpoints)

    def read(self) -> Block:
        """Read the records."""
        rows = self.rows if self.rows.ndim == 1 else np.concatenate([np.arange(a, a + n) for a, n in self.rows])
        found = self.source.read(rows.astype(np.int64))
        return found if self.extra is None else join_blocks([found, self.extra], start=0)


def _as_runs(rows: NDArray[np.int64]) -> NDArray[Any]:
    """Ascending rows as runs, if these take less room. A shard of a partition is mostly one run."""
    if not len(rows):
        return rows
    firsts = np.concatenate([[0], np.flatnonzero(np.diff(rows) != 1) + 1])
    if 2 * len(firsts) > len(rows):
        return rows
    return np.column_stack([rows[firsts], np.diff(firsts, append=len(rows))])


@dataclass(frozen=True)
class Elsewhere:
    """Trains batches of shards on a worker that may be on another machine.

    The recipe's key goes there too, for the order of records and the seeds follow from it: workers are inside the trust
    boundary.

    Parameters
    ----------
    recipe
        The recipe.
    environment
        The environment of the process that sends it.
    classes, allow_missing, layout
        The schema of the records.
    """

    recipe: Recipe
    environment: Environment
    classes: NDArray[Any]
    allow_missing: bool
    layout: tuple[str, tuple[Any, ...]]

    @classmethod
    def of(cls, recipe: Recipe, records: Records) -> Elsewhere:
        """What trains shards of these records by this recipe.

        Parameters
        ----------
        recipe
            The recipe, with its learner told the classes.
        records
            D^t.
        """
        return cls(recipe, recipe.environment, records.classes, records.allow_missing, records.layout)

    def __call__(self, shards: list[Any]) -> tuple[list[Model], Environment]:
        """Train a batch: the models, and the environment of this process.

        Raises
        ------
        ExpungeError
            If this environment gives other bits, and the recipe's numerics are "strict".
        TrainingError
            If the learner fails on a shard.
        """
        here = self.recipe.environment
        if here != self.environment and self.recipe.numerics == "strict":
            changes = ", ".join(here.differences(self.environment))
            raise ExpungeError(
                f"the worker on {socket.gethostname()} would give other bits ({changes}): give it the same software "
                'and kind of processor, or declare numerics "lenient"'
            )
        contents = [self._contents(each) if isinstance(each, ShardAddress) else each for each in shards]
        return train_batch(self.recipe.learner, contents), here

    def _contents(self, address: ShardAddress) -> Any:
        block = address.read()
        records = Records.restored(
            block, dead=(), classes=self.classes, allow_missing=self.allow_missing, layout=self.layout
        )
        slots = np.arange(len(block), dtype=np.uint32)
        return from_slice(self.recipe.contents(address.shard, records, slots), address.first, address.checkpoints)
