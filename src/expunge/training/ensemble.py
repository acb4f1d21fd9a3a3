"""A_distr and R_A: learning an ensemble and updating it (Algorithms 2 and 3), as pure functions over a state.

`learn` draws k shards and trains one model on each; `update` takes records out of the shards that hold them, draws
shards for new records, and retrains the touched shards with fresh randomness. The same two functions are SISA
(Algorithms 5 and 6) when the sampler is a partition. Neither changes its input: a failure halfway leaves the old state
as it was, and untouched shards keep the very same model objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from expunge.core.errors import ParameterError, TrainingError
from expunge.core.features import Features, take
from expunge.core.randomness import Randomness
from expunge.core.records import Change, Records, Update
from expunge.training.execution import Executor, Serial
from expunge.training.learners.protocol import (
    Abstainer,
    Codes,
    Learner,
    Model,
    ShardData,
    SharedRows,
    SharedShard,
    SlicedLearner,
    Voter,
    fit_many,
    for_classes,
    shards_at_once,
)
from expunge.training.learners.protocol import make_voter as _make_voter
from expunge.training.learners.slices import SlicedModel, SlicedShard, fit_slices_of_many
from expunge.training.learners.warnings import silenced
from expunge.training.membership import Membership, Slots
from expunge.training.sampling import Sampler

__all__ = ["EnsembleState", "UpdateReport", "learn", "update"]

Advance = Callable[[int], None]
_BATCHES_PER_WORKER = 8
_DEAD_SLOTS_ALLOWED = 1024
_SHARING_PAYS = 2  # shards a record is in, on average, from which on its row is better sent once


def ignore_progress(_: int) -> None:
    """Ignore progress."""


class StateWriter(Protocol):
    """Writes the next state down while an update makes it. Inside the trust boundary."""

    def start(self, state: EnsembleState, change: Change | None) -> None:
        """Records and shards are settled; the models in `state` are the old ones. `change` as in `UpdateReport`."""

    def add(self, shard: int, model: Model) -> None:
        """A model of that state is trained."""


@dataclass(frozen=True)
class EnsembleState:
    """s^t: the dataset, the shards, their models, and the randomness each model was trained with.

    Everything here but `records` depends on the secret randomness r and stays inside the trust boundary. `learn` makes
    a state, `update` makes the next one.

    Parameters
    ----------
    records
        The dataset D^t.
    membership
        Which record is in which shard.
    models
        The model of every shard.
    seeds
        The training seeds of every shard, one per slice.
    slices
        The slice of each of a shard's records; None if the learner has no slices.
    learner
        The learner, with the classes of the dataset made known to it.
    sampler
        How records are assigned to shards.
    """

    records: Records
    membership: Membership
    models: tuple[Model, ...]
    seeds: tuple[tuple[int, ...], ...]  # of each shard, one per slice
    slices: tuple[NDArray[np.uint16], ...] | None  # the slice of each of a shard's records; None without slices
    learner: Learner | SlicedLearner
    sampler: Sampler

    @property
    def num_shards(self) -> int:
        """k."""
        return self.membership.num_shards

    def count_votes(self, X: Features) -> NDArray[np.int64]:
        """How many shards vote for each class, ⊥ left out: shape (rows, classes)."""
        with silenced():
            return self.voter.count(X)

    def votes(self, X: Features) -> Codes:
        """Every shard's vote, for audits and operators: shape (rows, shards), `ABSTAIN` for ⊥."""
        with silenced():
            return self.voter.votes(X)

    @cached_property
    def voter(self) -> Voter:
        """All models made ready to vote together, when first asked."""
        with silenced():
            return _make_voter(self.learner, self.models, self.records.num_classes)  # type: ignore[arg-type]

    def require_votes(self) -> EnsembleState:
        """Itself; an error if every shard abstains though some have records: the learner is broken."""
        if all(isinstance(model, Abstainer) for model in self.models) and any(map(len, self.membership.members)):
            raise TrainingError("no shard could be trained: try the learner by itself to see why", 0)
        return self

    def compacted(self) -> EnsembleState:
        """The same state without the storage of deleted records."""
        membership = self.membership.renumbered(self.records.live_slots())
        return replace(self, records=self.records.compacted(), membership=membership)

    def __getstate__(self) -> dict[str, Any]:
        """A pickled state holds no trace of deleted records, and no derived tables."""
        state = self if self.records.num_live == self.records.num_slots else self.compacted()
        return {name: getattr(state, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What an update did. Inside the trust boundary: which and how many shards were touched depends on r.

    Parameters
    ----------
    touched
        The numbers of the shards that were trained again.
    slices_trained
        How many slices were trained, over all shards.
    removed, added
        How many records were deleted, and how many were added.
    change
        The slots of these records; None if the slots were renumbered.
    """

    touched: tuple[int, ...]
    slices_trained: int
    removed: int
    added: int
    change: Change | None = None  # in terms of slots; None where they were renumbered

    @property
    def num_retrained(self) -> int:
        """N^t of Theorem 4.2: how many models were trained."""
        return len(self.touched)


def learn(
    records: Records,
    learner: Learner | SlicedLearner,
    *,
    num_shards: int,
    sampler: Sampler,
    rng: Randomness,
    executor: Executor | None = None,
    advance: Advance = ignore_progress,
) -> EnsembleState:
    """A_distr (Algorithm 2): draw k shards, train a model on each.

    Parameters
    ----------
    records
        The dataset.
    learner
        What trains a shard.
    num_shards
        The number of shards, k.
    sampler
        How records are assigned to shards.
    rng
        The source of all randomness: of the shards and of the training seeds.
    executor
        What runs the trainings; None trains in this process.
    advance
        Is called as `advance(m)` whenever m more models are trained.

    Returns
    -------
    EnsembleState
        The first state, s^0.

    Raises
    ------
    ParameterError
        If `num_shards` is less than 1.
    TrainingError
        If the learner fails on a shard; the error names the shard.

    Examples
    --------
    >>> from expunge import IndependentSampler, Randomness, Records, learn
    >>> from expunge.training.learners import LookupTableLearner
    >>> records = Records.build([[0.0], [1.0], [2.0]], ["no", "yes", "yes"])
    >>> sampler, rng = IndependentSampler(probability=1.0), Randomness.from_seed(0)
    >>> state = learn(records, LookupTableLearner(), num_shards=4, sampler=sampler, rng=rng)
    >>> state.count_votes(np.array([[1.0]]))
    array([[0, 4]])
    """
    if num_shards < 1:
        raise ParameterError(f"the number of shards must be at least 1, got {num_shards!r}")
    records = records.compacted() if _has_too_many_dead(records) else records
    bound = for_classes(learner, records.classes)  # type: ignore[arg-type]
    members: Sequence[Slots] = sampler.draw(len(records), num_shards, rng)
    if records.num_live < records.num_slots:
        live = records.live_slots().astype(np.uint32)
        members = [live[positions] for positions in members]
    membership = Membership.build(members, records.num_slots)
    num_slices = _num_slices(bound)
    slices = None
    if isinstance(bound, SlicedLearner):
        slices = tuple(_draw_slices(len(slots), num_slices, rng) for slots in membership.members)
    seeds = tuple(tuple(row) for row in rng.seeds(num_shards * num_slices).reshape(num_shards, num_slices).tolist())
    blank = EnsembleState(records, membership, (), seeds, slices, bound, sampler)
    models = _train(blank, range(num_shards), (0,) * num_shards, executor or Serial(), advance)
    return replace(blank, models=tuple(models))


def update(
    state: EnsembleState,
    batch: Iterable[Update],
    *,
    rng: Randomness,
    executor: Executor | None = None,
    advance: Advance = ignore_progress,
    writer: StateWriter | None = None,
) -> tuple[EnsembleState, UpdateReport]:
    """R_A (Algorithm 3), for a batch of updates at once: retrain the touched shards only.

    A batch is one round. It equals its updates one after another, except that a shard touched by several of them is
    trained once, on the final contents. That has the same law, because only the last training of a shard is kept.

    Parameters
    ----------
    state
        The state before. It does not change.
    batch
        Additions and deletions.
    rng
        The source of all new randomness.
    executor
        What runs the trainings; None trains in this process.
    advance
        Is called as `advance(m)` whenever m more models are trained.
    writer
        Gets the next state before it is complete, and then each new model as it is trained.

    Returns
    -------
    EnsembleState
        The next state. Shards that were not touched keep the same model objects.
    UpdateReport
        What was done.

    Raises
    ------
    InputError
        If the batch cannot be applied. A `RecordError` names the record.
    TrainingError
        If the learner fails on a shard; the error names the shard.

    Examples
    --------
    >>> from expunge import Delete, IndependentSampler, Randomness, Records, learn, update
    >>> from expunge.training.learners import LookupTableLearner
    >>> records = Records.build([[0.0], [1.0], [2.0]], ["no", "yes", "yes"], ids=["a", "b", "c"])
    >>> sampler, rng = IndependentSampler(probability=1.0), Randomness.from_seed(0)
    >>> state = learn(records, LookupTableLearner(), num_shards=4, sampler=sampler, rng=rng)
    >>> state, report = update(state, [Delete("b")], rng=rng)
    >>> report.num_retrained
    4
    >>> state.count_votes(np.array([[1.0]]))
    array([[0, 0]])
    """
    records, change = state.records.apply(batch)
    arrivals: Sequence[Slots] = []
    if len(change.added):
        arrivals = state.sampler.draw_added(len(change.added), state.num_shards, rng)
    membership, touched = state.membership.changed(change.removed, change.added, arrivals)
    slices, first_slices = _update_slices(state, membership, change.removed, touched, rng)
    num_slices = _num_slices(state.learner)
    fresh = rng.seeds(len(touched) * num_slices).reshape(len(touched), num_slices)
    seeds = list(state.seeds)
    for shard, first, row in zip(touched, first_slices, fresh.tolist(), strict=True):
        seeds[shard] = (*seeds[shard][:first], *row[first:])
    blank = replace(state, records=records, membership=membership, seeds=tuple(seeds), slices=slices)
    renumbered = _has_too_many_dead(records)
    if renumbered:
        blank = blank.compacted()
    if writer is not None:
        writer.start(blank, None if renumbered else change)
    trained = _train(blank, touched, first_slices, executor or Serial(), advance, writer)
    models = list(state.models)
    for shard, model in zip(touched, trained, strict=True):
        models[shard] = model
    report = UpdateReport(
        touched=touched,
        slices_trained=sum(num_slices - first for first in first_slices),
        removed=len(change.removed),
        added=len(change.added),
        change=None if renumbered else change,
    )
    return replace(blank, models=tuple(models)), report


def _has_too_many_dead(records: Records) -> bool:
    """Whether the storage of deleted records is worth a copy of everybody else's."""
    return records.num_slots - records.num_live > _DEAD_SLOTS_ALLOWED + records.num_live // 32


def _num_slices(learner: object) -> int:
    return learner.num_slices if isinstance(learner, SlicedLearner) else 1


def _draw_slices(size: int, num_slices: int, rng: Randomness) -> NDArray[np.uint16]:
    return rng.choices(num_slices, size).astype(np.uint16)


def _update_slices(
    state: EnsembleState,
    membership: Membership,
    removed: NDArray[np.int64],
    touched: Sequence[int],
    rng: Randomness,
) -> tuple[tuple[NDArray[np.uint16], ...] | None, tuple[int, ...]]:
    """The slices of the new contents, and the first slice of every touched shard that has to be trained again."""
    if state.slices is None:
        return None, (0,) * len(touched)
    num_slices = _num_slices(state.learner)
    slices, first_slices = list(state.slices), []
    for shard in touched:
        before, after = state.membership.records_of(shard), membership.records_of(shard)
        stays = ~np.isin(before, removed.astype(before.dtype))
        arrived = _draw_slices(len(after) - int(stays.sum()), num_slices, rng)
        first_slices.append(int(min([*slices[shard][~stays].tolist(), *arrived.tolist()])))
        slices[shard] = np.concatenate([slices[shard][stays], arrived])
    return tuple(slices), tuple(first_slices)


def _train(
    blank: EnsembleState,
    shards: Sequence[int],
    first_slices: Sequence[int],
    executor: Executor,
    advance: Advance,
    writer: StateWriter | None = None,
) -> list[Model]:
    """Models for the given shards of `blank`, whose old models (where it has any) serve as checkpoints only."""
    size, unit = -(-len(shards) // (_BATCHES_PER_WORKER * executor.num_workers)), shards_at_once(blank.learner)
    size = max(1, -(-size // unit)) * unit
    jobs = list(zip(shards, first_slices, strict=True))
    batches = [jobs[at : at + size] for at in range(0, len(jobs), size)]
    tasks = _Tasks(blank, batches, _shared_rows(blank, shards, executor))
    models: list[Model] = []
    for trained in executor.map(partial(_train_batch, blank.learner), tasks):
        for shard, model in zip(shards[len(models) :], trained, strict=False):
            if writer is not None:
                writer.add(shard, model)
        models += trained
        advance(len(trained))
    return models


def _shared_rows(state: EnsembleState, shards: Sequence[int], executor: Executor) -> tuple[Slots, SharedRows] | None:
    """The slots of all records in these shards and their rows, for a learner that wants them once; no copies sent."""
    if executor.num_workers > 1 or not getattr(state.learner, "shares_rows", False):
        return None
    members = [state.membership.records_of(shard) for shard in shards]
    if not members:
        return None
    slots = np.unique(np.concatenate(members))
    if sum(map(len, members)) < _SHARING_PAYS * len(slots) or not len(slots):
        return None
    return slots, SharedRows(*state.records.gather(slots))


class _Tasks(Sequence[list[Any]]):
    """The shards' data, gathered only when their turn comes; or places in rows that they share."""

    def __init__(
        self, state: EnsembleState, batches: list[list[tuple[int, int]]], shared: tuple[Slots, SharedRows] | None
    ) -> None:
        self._state = state
        self._batches = batches
        self._shared = shared

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return _Tasks(self._state, self._batches[index], self._shared)
        return [self._task(shard, first) for shard, first in self._batches[index]]

    def _task(self, shard: int, first: int) -> ShardData | SharedShard | SlicedShard:
        state = self._state
        if self._shared is not None:
            slots, whole = self._shared
            rows = np.searchsorted(slots, state.membership.records_of(shard))
            if whole.weights is not None:
                rows = rows[whole.weights[rows] != 0]  # a record of weight zero is as good as absent
            return SharedShard(shard, whole, rows, state.seeds[shard][0])
        X, y, weights = state.records.gather(state.membership.records_of(shard))
        slice_of = None if state.slices is None else state.slices[shard].astype(np.int64)
        if weights is not None and not weights.all():  # a record of weight zero is as good as absent
            rows = np.flatnonzero(weights)
            X, y, weights = take(X, rows), y[rows], weights[rows]
            slice_of = None if slice_of is None else slice_of[rows]
        if slice_of is None:
            return ShardData(shard, X, y, weights, state.seeds[shard][0])
        old = state.models[shard] if state.models else None
        checkpoints = old.checkpoints if isinstance(old, SlicedModel) else ()
        return SlicedShard(shard, X, y, weights, slice_of, state.seeds[shard], first, checkpoints)


def _train_batch(learner: Any, shards: list[Any]) -> list[Model]:
    # Small models do not profit from threaded linear algebra, and on a busy machine its threads wait for one another;
    # with one thread a model's last bits do not depend on the number of cores either. Parallelism is the executor's.
    with _linear_algebra().limit(limits=1, user_api="blas"), silenced():
        if isinstance(learner, SlicedLearner):
            return [*fit_slices_of_many(learner, shards)]
        return fit_many(learner, shards)


@cache
def _linear_algebra() -> ThreadpoolController:
    return ThreadpoolController()
