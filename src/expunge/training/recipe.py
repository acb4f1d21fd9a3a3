"""The recipe: everything but the records that decides what the models are (T6).

The state of a deployment is A_ϱ(D): the same records and the same recipe give the same models, bit for bit, after any
additions, deletions and re-additions. Each coin of a training is derived from the recipe key (`expunge.core.prf`):
the shards of a unit, the order of records inside a shard, their slices, and a seed for exactly the data that a training
sees. Nothing is drawn, and so nothing has to be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_choice, require_count
from expunge.core.features import Features, digest_values, take
from expunge.core.prf import Names, RecipeKey, id_names, unit_names
from expunge.core.records import Records
from expunge.training.environment import NUMERICS, Environment, Numerics
from expunge.training.learners.protocol import (
    Codes,
    Learner,
    ShardData,
    SharedRows,
    SharedShard,
    SlicedLearner,
    Weights,
    for_classes,
)
from expunge.training.learners.slices import SlicedShard
from expunge.training.sampling import Cells, PartitionSampler, Sampler, Slots

_RECORDS_AT_ONCE = 1 << 18  # shards are drawn for so many at a time
PUBLIC_KEY = RecipeKey(b"expunge: public coins, no secret", is_system=False)  # of ensembles that must not know ζ


@dataclass(frozen=True)
class Recipe:
    """ϱ: the learner with its options, the number of shards, how they are drawn, and the key ζ.

    The schema (columns, number types, classes, whether records have weights) is part of the recipe too; `Records`
    carries it. So is the environment; every model carries the one that it was trained in.

    Parameters
    ----------
    learner
        What trains one shard. Its only randomness is the seed it is given.
    num_shards
        k. May be 1.
    sampler
        `PartitionSampler()` puts each unit into one shard; `IndependentSampler(p)` draws shards independently, as T1 to
        T4 need.
    key
        ζ, drawn before a record is read.
    numerics
        What an update does when the environment is no longer the one that models were trained in: "strict" trains all
        of these again; "lenient" trains the touched shards only, and the state is the recipe's up to rounding.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from expunge.training.learners import ScikitLearner
    >>> recipe = Recipe(ScikitLearner(LogisticRegression()), 10, key=RecipeKey.from_seed(1))
    >>> recipe.num_slices
    1
    """

    learner: Learner | SlicedLearner
    num_shards: int
    sampler: Sampler = field(default_factory=PartitionSampler)
    key: RecipeKey = field(default_factory=RecipeKey.from_system)
    numerics: Numerics = "strict"

    def __post_init__(self) -> None:
        require_choice("numerics", self.numerics, NUMERICS)
        object.__setattr__(self, "num_shards", require_count("the number of shards", self.num_shards))

    @property
    def num_slices(self) -> int:
        """S: in how many slices a shard is trained."""
        return self.learner.num_slices if isinstance(self.learner, SlicedLearner) else 1

    @property
    def is_sliced(self) -> bool:
        """Whether a training can resume after a slice."""
        return isinstance(self.learner, SlicedLearner)

    @cached_property
    def environment(self) -> Environment:
        """The environment of this process, in which models are trained from now on."""
        return Environment.here(self.learner)

    def __getstate__(self) -> dict[str, Any]:
        """A pickled recipe leaves the environment of this process behind."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def renewed(self) -> Recipe:
        """The recipe of the next generation: the same, with a new key."""
        return replace(self, key=self.key.renewed())

    def for_classes(self, classes: NDArray[Any]) -> Recipe:
        """The recipe with its learner told what the class codes stand for, if it wants to know."""
        return replace(self, learner=for_classes(self.learner, classes))  # type: ignore[arg-type]

    def units(self, records: Records, slots: NDArray[Any]) -> Names:
        """The names of the units that the records in `slots` (ascending) belong to."""
        return unit_names(records.ids_of(slots), records.subjects_of(slots), self.key)

    def cells(self, records: Records, slots: NDArray[Any]) -> Cells:
        """Which shards hold which of the records in `slots`: shards and positions in `slots`, ascending."""
        return self.sampler.draw(self.units(records, slots), self.num_shards, self.key)

    def members(self, records: Records) -> tuple[Slots, ...]:
        """The ascending slots of every shard's records.

        They are drawn for some records at a time, so that the memory needed beside the result stays small.
        """
        runs, counts = [np.empty(0, dtype=np.uint32)], [np.zeros(self.num_shards, dtype=np.int64)]
        for slots in records.live_runs(_RECORDS_AT_ONCE):
            shards, positions = self.cells(records, slots)
            runs.append(slots[positions].astype(np.uint32))
            counts.append(np.bincount(shards, minlength=self.num_shards))
        ends = np.cumsum(np.sum(counts, axis=0))
        members, free = np.empty(ends[-1], dtype=np.uint32), np.concatenate([[0], ends[:-1]])
        for run, count in zip(runs, counts, strict=True):
            begins = np.cumsum(count) - count  # in the run, which is sorted by shard
            members[np.arange(len(run)) + np.repeat(free - begins, count)] = run
            free += count
        return tuple(np.split(members, ends[:-1]))

    def layout(self, records: Records) -> NDArray[np.int64]:
        """The slots of all records in the one order that the recipe gives, in which they are stored.

        A partition's records are ordered by shard, and inside a shard as it is trained: a training reads one run of
        rows. Independent shards overlap. There the order is a public function of units and ids: what is computed from
        the records in this order, such as a router's fallback, must not depend on the key.

        Parameters
        ----------
        records
            D^t.

        Returns
        -------
        ndarray of int64
            The slots in use; a function of the records and the recipe, and not of how they came.
        """
        live = records.live_slots()
        if self.sampler.is_independent:
            ids, subjects = records.ids_of(live), records.subjects_of(live)
            words = PUBLIC_KEY.placement(id_names(ids, PUBLIC_KEY))
            keys = [words[:, 1], words[:, 0]]
            if subjects is not None:
                units = PUBLIC_KEY.placement(unit_names(ids, subjects, PUBLIC_KEY))
                keys += [units[:, 1], units[:, 0]]
            return live[np.lexsort(keys)]
        return self.arranged(records, self.members(records))

    def arranged(self, records: Records, members: Sequence[Slots]) -> NDArray[np.int64]:
        """The slots of every shard of a partition, one shard after another, each in the order of its training."""
        slots, end = np.empty(sum(map(len, members)), dtype=np.int64), 0
        for shard, run in enumerate(members):
            start, end = end, end + len(run)
            slots[start:end] = run[self.key.order(shard, id_names(records.ids_of(run), self.key))]
        return slots

    def slices(self, shard: int, names: Names) -> NDArray[np.int64]:
        """The slice of every record of a shard."""
        return self.key.slices_of(shard, names, self.num_slices)

    def contents(self, shard: int, records: Records, slots: Slots) -> ShardData | SlicedShard:
        """Exactly what the training of a shard gets to see, in the shard's order, with its seeds.

        Parameters
        ----------
        shard
            i.
        records
            D^t.
        slots
            The ascending slots of the shard's records.
        """
        X, y, weights, names = self._in_order(shard, records, slots)
        if self._reads_names:
            return ShardData(shard, X, y, weights, self.key.seed(shard, 0, b""), names)
        if not self.is_sliced:
            return ShardData(shard, X, y, weights, self.key.seed(shard, 0, digest_contents(X, y, weights)))
        return self._sliced(shard, X, y, weights, self.slices(shard, names))

    def changed_rows(self, shard: int, records: Records, slots: Slots) -> ShardData:
        """Some rows of a shard, for a learner that updates a model by them: no seed, for nothing is drawn."""
        X, y, weights, names = self._in_order(shard, records, slots)
        return ShardData(shard, X, y, weights, 0, names if self._reads_names else None)

    @property
    def _reads_names(self) -> bool:
        return bool(getattr(self.learner, "reads_names", False))

    def _in_order(self, shard: int, records: Records, slots: Slots) -> tuple[Features, Codes, Weights | None, Names]:
        """Rows, labels, weights and names of a shard's records, in the order of its training."""
        names = id_names(records.ids_of(slots), self.key)
        order = self.key.order(shard, names)
        X, y, weights = records.gather(slots, order)
        names = names[order]
        if weights is not None and not weights.all():  # a record of weight zero is as good as absent
            there = np.flatnonzero(weights)
            X, y, weights, names = take(X, there), y[there], weights[there], names[there]
        return X, y, weights, names

    def shared_contents(
        self, shard: int, records: Records, slots: Slots, rows: SharedRows, places: Slots
    ) -> SharedShard:
        """The same as places in rows that many shards share; `places` are the ascending slots of those rows."""
        order = self.key.order(shard, id_names(records.ids_of(slots), self.key))
        at = np.searchsorted(places, slots[order])
        if rows.weights is not None:
            at = at[rows.weights[at] != 0]
        weights = None if rows.weights is None else rows.weights[at]
        seed = self.key.seed(shard, 0, digest_contents(take(rows.X, at), rows.y[at], weights))
        return SharedShard(shard, rows, at, seed)

    def _sliced(
        self, shard: int, X: Features, y: Codes, weights: Weights | None, slice_of: NDArray[np.int64]
    ) -> SlicedShard:
        """Seeds of all slices: each depends on what its slice is trained on and on the seeds before it."""
        seeds: list[int] = []
        is_cumulative = self.learner.is_cumulative  # type: ignore[union-attr]
        for number in range(self.num_slices):
            rows = np.flatnonzero(slice_of <= number if is_cumulative else slice_of == number)
            own = digest_contents(take(X, rows), y[rows], None if weights is None else weights[rows])
            before = b"".join(seed.to_bytes(8, "little") for seed in seeds)
            seeds.append(self.key.seed(shard, number, blake2b(before + own, digest_size=32).digest()))
        return SlicedShard(shard, X, y, weights, slice_of, tuple(seeds))


def digest_contents(X: Features, y: Codes, weights: Weights | None) -> bytes:
    """A digest of exactly what a training is given: rows, labels and weights, in order, with their types."""
    state = blake2b(digest_size=32)
    for part in (X, y, weights):
        state.update(digest_values(part))
    return state.digest()


def first_slices(recipe: Recipe, touched: Sequence[int], changes: Callable[[int], Names]) -> tuple[int, ...]:
    """For every touched shard the first slice that has to be trained again; 0 without slices."""
    if not recipe.is_sliced:
        return (0,) * len(touched)
    return tuple(int(recipe.slices(shard, changes(shard)).min()) for shard in touched)
