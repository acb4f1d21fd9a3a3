"""A_ϱ and its update: training an ensemble by a recipe and keeping it what the recipe gives (Algorithms 2 and 3, T6).

`learn` trains one model on each of k shards; `update` retrains the shards that a batch touches. Both are pure
functions, and `update(learn(D), u)` equals `learn(D after u)` bit for bit: the state is a function of the records and
the recipe. With an independent sampler and a random function behind the recipe key these are A_distr and R_A of the
paper; with a partition they are SISA (Algorithms 5 and 6). A failure halfway leaves the old state as it was, and
untouched shards keep the very same model objects.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import FormatError, ParameterError, TrainingError
from expunge.core.features import Features
from expunge.core.prf import Names, RecipeKey, id_names
from expunge.core.records import Change, Records, Update
from expunge.training.elsewhere import Elsewhere, ShardAddress, from_slice, train_batch
from expunge.training.environment import Environment, Origins
from expunge.training.execution import Executor, Serial
from expunge.training.learners import protocol
from expunge.training.learners.protocol import (
    Abstainer,
    Codes,
    Combination,
    Floats,
    Learner,
    Model,
    SharedRows,
    SlicedLearner,
    Voter,
)
from expunge.training.learners.slices import SlicedModel, SlicedShard
from expunge.training.recipe import Recipe, first_slices
from expunge.training.sampling import Sampler, Slots
from expunge.training.surroundings import training, voting

__all__ = ["EnsembleState", "UpdateReport", "learn", "refit_without", "retrain", "touched_shards", "update"]

Advance = Callable[[int], None]
_BATCHES_PER_WORKER = 8
_SENT_PER_WORKER = 32  # to workers on other machines, which may not all be equally fast
_MOST_SENT = 64  # shards that are trained by one call on another machine
_DEAD_SLOTS_ALLOWED = 1024
_SHARING_PAYS = 2  # shards a record is in, on average, from which on its row is better sent once


def ignore_progress(_: int) -> None:
    """Ignore progress."""


class StateWriter(Protocol):
    """Writes the next state down while an update makes it. Inside the trust boundary."""

    def start(self, state: EnsembleState, change: Change | None) -> None:
        """Begin with records and shards; the models in `state` are the old ones. `change` as in `UpdateReport`."""

    def add(self, shard: int, model: Model) -> None:
        """Take a model of that state, as soon as it is trained."""


@dataclass(frozen=True)
class EnsembleState:
    """s^t = A_ϱ(D^t): the records, the recipe, the shards and their models.

    Under (α,β,γ) everything here but `records` is secret. Under the exact promise alone only the records are. `learn`
    makes a state, `update` makes the next one.

    Parameters
    ----------
    records
        D^t.
    recipe
        ϱ, with its learner told the classes.
    members
        The ascending slots of every shard's records.
    models
        The model of every shard. In a folder each is read when it is first asked for.
    environments
        The environment that every model was trained in.
    """

    records: Records
    recipe: Recipe
    members: tuple[Slots, ...]
    models: Sequence[Model]
    environments: tuple[Environment, ...] = ()

    @property
    def num_shards(self) -> int:
        """k."""
        return self.recipe.num_shards

    @property
    def learner(self) -> Learner | SlicedLearner:
        """What trains a shard, told the classes."""
        return self.recipe.learner

    @property
    def sampler(self) -> Sampler:
        """How units are assigned to shards."""
        return self.recipe.sampler

    @property
    def key(self) -> RecipeKey:
        """ζ."""
        return self.recipe.key

    @property
    def origins(self) -> Origins:
        """How many models come from which environment."""
        distinct = {id(each): each for each in self.environments}  # few: to compare every one takes longer
        counts: Counter[Environment] = Counter()
        for key, count in Counter(map(id, self.environments)).items():
            counts[distinct[key]] += count
        return Origins.of(counts, here=self.recipe.environment, numerics=self.recipe.numerics)

    @cached_property
    def foreign_shards(self) -> frozenset[int]:
        """The shards whose model was trained in another environment than this process's."""
        distinct = {id(each): each for each in self.environments}  # few: to compare every one takes longer
        foreign = {key for key, each in distinct.items() if each != self.recipe.environment}
        return (
            frozenset(n for n, each in enumerate(self.environments) if id(each) in foreign) if foreign else frozenset()
        )

    def shards_of(self, slot: int) -> tuple[int, ...]:
        """The shards that hold the record in this slot, ascending."""
        return tuple(self.recipe.cells(self.records, np.array([slot]))[0].tolist())

    def contents(self, shard: int) -> protocol.ShardData | SlicedShard:
        """Exactly what the training of a shard is given; to fit it again gives the shard's model, bit for bit."""
        return self.recipe.contents(shard, self.records, self.members[shard])

    def count_votes(self, X: Features) -> NDArray[np.int64]:
        """How many shards vote for each class, ⊥ left out: shape (rows, classes)."""
        with voting():
            return self.voter.count(X)

    def votes(self, X: Features) -> Codes:
        """Every shard's vote, for audits and operators: shape (rows, shards), `ABSTAIN` for ⊥."""
        with voting():
            return self.voter.votes(X)

    def mean_probabilities(self, X: Features) -> Floats:
        """The mean of the shards' probabilities, or the shares of their votes if a model has none.

        Shape (rows, classes). A shard that abstains is left out, and a class that a shard never saw has probability 0
        there. A row on which every shard abstains is NaN.
        """
        with voting():
            found = protocol.mean_probabilities(self.voter, self.models, X, self.records.num_classes)
        if found is not None:
            return found
        counts = self.count_votes(X).astype(np.float64)
        with np.errstate(invalid="ignore"):
            return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    def margins(self, table: Floats) -> Floats:
        """What decides between classes, given the mean probabilities: themselves, unless the learner has thresholds."""
        return self.voter.margins(table) if hasattr(self.voter, "margins") else table

    def mean_scores(self, X: Features) -> Floats | None:
        """The mean of the shards' decision scores: shape (rows, classes). None if a model has none."""
        with voting():
            return protocol.mean_opinion(self.models, X, self.records.num_classes, "scores")

    def values(self, X: Features, combination: Combination) -> Floats:
        """The mean or the median of the shards' values: shape (rows,), or (rows, m) if models give m numbers a row.

        A shard without a value is left out. A row for which no shard has one is NaN.
        """
        outputs = self.records.outputs or ()
        num_values = getattr(self.learner, "num_values", None)
        shape = outputs if num_values is None else (num_values,)
        with voting():
            found = protocol.combine_values(self.models, X, math.prod(shape), combination)
        return found.reshape(len(found), *shape)

    @cached_property
    def has_probabilities(self) -> bool:
        """Whether every model has probabilities."""
        before = self._before
        if before is not None and before.has_probabilities:
            return all(hasattr(self.models[shard], "probabilities") for shard in before.changed)
        return all(hasattr(model, "probabilities") for model in self.models)

    @cached_property
    def voter(self) -> Voter:
        """All models made ready to vote together, when first asked; only the changed ones if a state before had one."""
        with voting():
            before = self._before
            if before is not None and hasattr(before.voter, "with_changed"):
                changed: Voter | None = before.voter.with_changed({n: self.models[n] for n in sorted(before.changed)})
                if changed is not None:
                    return changed
            return protocol.make_voter(self.learner, self.models, self.records.num_classes)  # type: ignore[arg-type]

    def with_models(self, changed: Mapping[int, Model], records: Records) -> EnsembleState:
        """The same state with other models in some shards, and other records. What votes need is changed only there."""
        models = protocol.replaced(self.models, changed)
        return replace(self, models=models, records=records)._follow(self, changed)

    def get_ready_as(self, before: EnsembleState) -> None:
        """Make what votes need, if the state before had it: the first question about this one then waits for nothing.

        How long it takes depends on how many shards were trained, which an answer must not show.
        """
        if "voter" in before.__dict__:
            _ = self.voter, self.has_probabilities

    @property
    def _before(self) -> _Before | None:
        return cast("_Before | None", self.__dict__.get("_derived"))

    def _follow(self, state: EnsembleState, changed: Iterable[int]) -> EnsembleState:
        """Itself; what is derived from all models is derived from what `state` has, where some shards were trained."""
        known, before = state.__dict__, state._before
        shards = frozenset(changed)
        if state.recipe is self.recipe:
            trained = shards if self.environments else ()
            elsewhere = {shard for shard in trained if self.environments[shard] != self.recipe.environment}
            self.__dict__["foreign_shards"] = state.foreign_shards - shards | elsewhere
        if "voter" in known:
            derived = _Before(known["voter"], known.get("has_probabilities"), shards)
        elif before is not None:
            derived = replace(before, changed=before.changed | shards)
        else:
            return self
        if len(derived.changed) <= self.num_shards // 2:
            self.__dict__["_derived"] = derived  # not a field: the state is the same without it
        return self

    def require_votes(self) -> EnsembleState:
        """Itself; an error if every shard abstains though some have records: the learner is broken."""
        if all(isinstance(model, Abstainer) for model in self.models) and any(map(len, self.members)):
            raise TrainingError("no shard could be trained: try the learner by itself to see why", 0)
        return self

    def compacted(self) -> EnsembleState:
        """The same state without the storage of deleted records."""
        live = self.records.live_slots()
        members = tuple(np.searchsorted(live, slots).astype(np.uint32) for slots in self.members)
        return replace(self, records=self.records.compacted(), members=members)

    def __getstate__(self) -> dict[str, Any]:
        """A pickled state holds no trace of deleted records, and no derived tables."""
        state = self if self.records.num_live == self.records.num_slots else self.compacted()
        return {name: getattr(state, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class _Before:
    """What a state before had derived from its models, and the shards that have other models since."""

    voter: Voter
    has_probabilities: bool | None
    changed: frozenset[int]


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What an update did. Under (α,β,γ) it is secret: which and how many shards were touched depends on ζ.

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
    recipe: Recipe,
    *,
    executor: Executor | None = None,
    advance: Advance = ignore_progress,
) -> EnsembleState:
    """A_ϱ (Algorithm 2 with coins from ζ): draw k shards and train a model on each.

    Parameters
    ----------
    records
        D.
    recipe
        ϱ. With the same records and recipe the result is the same, bit for bit.
    executor
        Where shards are trained; this process if None. It does not change the result.
    advance
        Called with m whenever m more models are trained.

    Returns
    -------
    EnsembleState
        The state, with all models.

    Raises
    ------
    ParameterError
        If the learner learns numbers and the records' labels are classes, or the other way round; or if the records
        have weights, and the learner cannot take any.
    TrainingError
        If the learner fails on a shard; the error names the shard.

    Examples
    --------
    >>> from expunge import Recipe, RecipeKey, Records, learn
    >>> from expunge.training.learners import LookupTableLearner
    >>> records = Records.build([[0.0], [1.0], [2.0]], ["no", "yes", "yes"])
    >>> state = learn(records, Recipe(LookupTableLearner(), 2, key=RecipeKey.from_seed(0)))
    >>> state.count_votes(np.array([[1.0]]))
    array([[0, 1]])
    """
    _require_match(recipe.learner, records)
    if records.has_weights:
        protocol.require_weights(recipe.learner)
    records = records.compacted() if _has_too_many_dead(records) else records
    bound = recipe.for_classes(records.classes)
    blank = EnsembleState(records, bound, bound.members(records), ())
    every_shard = range(bound.num_shards)
    models, environments = _train(blank, every_shard, (0,) * bound.num_shards, executor or Serial(), advance)
    return replace(blank, models=tuple(models), environments=tuple(environments))


def update(
    state: EnsembleState,
    batch: Iterable[Update],
    *,
    executor: Executor | None = None,
    advance: Advance = ignore_progress,
    writer: StateWriter | None = None,
) -> tuple[EnsembleState, UpdateReport]:
    """R_A (Algorithm 3) for a batch of updates: retrain the touched shards, and only those.

    If the environment has changed since a model was trained, the model is of another recipe. Then its shard is trained
    from scratch: all such shards, or, if the recipe's numerics are "lenient", those among them that are touched.

    Parameters
    ----------
    state
        A_ϱ(D). It is not changed.
    batch
        The updates, applied as one round.
    executor, advance
        As in `learn`.
    writer
        Gets the next state before it is complete, and then each new model as it is trained.

    Returns
    -------
    state : EnsembleState
        A_ϱ(D after the batch), bit for bit.
    report : UpdateReport
        Which shards were retrained.

    Raises
    ------
    InputError
        If the batch cannot be applied. A `RecordError` names the record.
    TrainingError
        If the learner fails on a shard; the error names the shard.

    Examples
    --------
    >>> from expunge import Delete, Recipe, RecipeKey, Records, learn, update
    >>> from expunge.training.learners import LookupTableLearner
    >>> records = Records.build([[0.0], [1.0], [2.0]], ["no", "yes", "yes"], ids=["a", "b", "c"])
    >>> state = learn(records, Recipe(LookupTableLearner(), 2, key=RecipeKey.from_seed(0)))
    >>> state, report = update(state, [Delete("b")])
    >>> report.num_retrained
    1
    >>> state.count_votes(np.array([[1.0]]))
    array([[0, 0]])
    """
    records, change = state.records.apply(batch)
    recipe, foreign = state.recipe, state.foreign_shards
    leaving, coming, touched = _moves(state, records, change)
    changed = leaving.keys() | coming.keys()
    members = list(state.members)
    for shard in changed:
        kept = members[shard]
        if shard in leaving:
            kept = np.delete(kept, np.searchsorted(kept, leaving[shard]))
        members[shard] = np.concatenate([kept, coming[shard]]) if shard in coming else kept

    def changes(shard: int) -> Names:
        came_or_went = [(state.records, leaving), (records, coming)]
        return np.concatenate(
            [id_names(whose.ids_of(slots[shard]), recipe.key) for whose, slots in came_or_went if shard in slots]
        )

    resumable = [shard for shard in touched if shard not in foreign]
    firsts = dict.fromkeys(touched, 0) | dict(zip(resumable, first_slices(recipe, resumable, changes), strict=True))
    blank = replace(state, records=records, members=tuple(members))
    renumbered = _has_too_many_dead(records)
    if renumbered:
        blank = blank.compacted()
    if writer is not None:
        writer.start(blank, None if renumbered else change)
    refitted = _refit(state, records, resumable, leaving, coming)
    for shard, model in refitted.items():
        if writer is not None:
            writer.add(shard, model)
        advance(1)
    rest = [shard for shard in touched if shard not in refitted]
    firsts_of_rest = [firsts[shard] for shard in rest]
    trained, theirs = _train(blank, rest, firsts_of_rest, executor or Serial(), advance, writer)
    models = protocol.replaced(state.models, {**refitted, **dict(zip(rest, trained, strict=True))})
    report = UpdateReport(
        touched=touched,
        slices_trained=sum(recipe.num_slices - first for first in firsts.values()),
        removed=len(change.removed),
        added=len(change.added),
        change=None if renumbered else change,
    )
    environments = list(state.environments)
    for shard, environment in [*((shard, recipe.environment) for shard in refitted), *zip(rest, theirs, strict=True)]:
        environments[shard] = environment
    following = replace(blank, models=models, environments=tuple(environments))
    return following._follow(state, touched), report


def touched_shards(state: EnsembleState, batch: Iterable[Update]) -> tuple[int, ...]:
    """The shards that `update` would train again for a batch. Under (α,β,γ) this is secret.

    Parameters
    ----------
    state
        A_ϱ(D).
    batch
        The updates.

    Returns
    -------
    tuple of int
        The numbers of the shards, ascending.

    Raises
    ------
    InputError
        If the batch cannot be applied.

    Examples
    --------
    >>> from expunge import Delete, Recipe, RecipeKey, Records, learn
    >>> from expunge.training.learners import LookupTableLearner
    >>> records = Records.build([[0.0], [1.0], [2.0]], ["no", "yes", "yes"], ids=["a", "b", "c"])
    >>> state = learn(records, Recipe(LookupTableLearner(), 2, key=RecipeKey.from_seed(0)))
    >>> len(touched_shards(state, [Delete("b")]))
    1
    """
    return _moves(state, *state.records.apply(batch))[2]


def _moves(
    state: EnsembleState, records: Records, change: Change
) -> tuple[dict[int, Slots], dict[int, Slots], tuple[int, ...]]:
    """The slots that leave and that come, by shard, and the shards to train."""
    recipe, added = state.recipe, np.arange(change.added.start, change.added.stop, dtype=np.int64)
    leaving, coming = _by_shard(recipe, state.records, change.removed), _by_shard(recipe, records, added)
    changed = leaving.keys() | coming.keys()
    touched = tuple(sorted(changed | state.foreign_shards if recipe.numerics == "strict" else changed))
    return leaving, coming, touched


def retrain(
    state: EnsembleState,
    shards: Sequence[int],
    *,
    executor: Executor | None = None,
    advance: Advance = ignore_progress,
) -> list[Model]:
    """Train some shards again from their contents alone, by the code that `learn` and `update` train with.

    The models of the state are not used, not even as checkpoints. If the state is A_ϱ(D), the result equals its models
    bit for bit (T6).

    Parameters
    ----------
    state
        The records, the recipe and the shards. It needs no models.
    shards
        The numbers of the shards.
    executor, advance
        As in `learn`.

    Returns
    -------
    list of Model
        A model for every one of the shards, in their order.

    Raises
    ------
    TrainingError
        If the learner fails on a shard; the error names the shard.

    Examples
    --------
    >>> from expunge import Recipe, RecipeKey, Records, learn
    >>> from expunge.training.learners import LookupTableLearner
    >>> records = Records.build([[0.0], [1.0], [2.0]], ["no", "yes", "yes"])
    >>> state = learn(records, Recipe(LookupTableLearner(), 2, key=RecipeKey.from_seed(0)))
    >>> len(retrain(state, [1]))
    1
    """
    blank = replace(state, models=())
    return _train(blank, shards, (0,) * len(shards), executor or Serial(), advance)[0]


def refit_without(state: EnsembleState, shard: int) -> Model | None:
    """The model of a shard after one of its records has left, by the learner's `refit`.

    It shows what a deletion costs; nothing is changed.

    Parameters
    ----------
    state
        The records, the recipe, the shards and the models.
    shard
        The number of a shard that has records.

    Returns
    -------
    Model or None
        The model; None if the learner has no `refit`, or has to train.

    Raises
    ------
    TrainingError
        If the learner fails; the error names the shard.
    """
    return _refit(state, state.records, [shard], {shard: state.members[shard][:1]}, {}).get(shard)


def _require_match(learner: Any, records: Records) -> None:
    """Refuse a regressor for classes, and a classifier for numbers."""
    if protocol.predicts_values(learner) == records.is_regression:
        return
    name = type(getattr(learner, "estimator", learner)).__name__
    if records.is_regression:
        raise ParameterError(f"{name} learns classes, and the labels of these records are numbers to predict")
    raise ParameterError(f"{name} learns numbers: make the records with is_regression=True")


def _refit(
    state: EnsembleState, records: Records, shards: Sequence[int], leaving: dict[int, Slots], coming: dict[int, Slots]
) -> dict[int, Model]:
    """New models of these shards by the learner's `refit`, where it has one; it gives what training would."""
    found: dict[int, Model] = {}
    none, learner = np.empty(0, dtype=np.uint32), cast("Any", state.learner)
    if not hasattr(getattr(learner, "learner", learner), "refit"):  # one that may abstain stands before another
        return found
    for shard in shards:
        removed = state.recipe.changed_rows(shard, state.records, leaving.get(shard, none))
        added = state.recipe.changed_rows(shard, records, coming.get(shard, none))
        old = _old_model(state, shard)
        if old is None:
            continue
        try:
            with training():
                more = {"rows": partial(_whole_shard, state, shard)} if getattr(learner, "asks_rows", False) else {}
                model = learner.refit(old, removed, added, **more)
        except Exception as error:
            message = f"updating the model of shard {shard} failed: {type(error).__name__}: {error}"
            raise TrainingError(message, shard) from error
        if model is not None:
            found[shard] = model
    return found


def _whole_shard(state: EnsembleState, shard: int) -> protocol.ShardData:
    """All rows of a shard, for a learner that updates a model by them."""
    return state.recipe.changed_rows(shard, state.records, state.members[shard])


def _old_model(state: EnsembleState, shard: int) -> Model | None:
    """The model before an update, which only saves time; None if there is none, or if its file is damaged."""
    try:
        return state.models[shard] if state.models else None
    except FormatError:
        return None


def _by_shard(recipe: Recipe, records: Records, slots: NDArray[np.int64]) -> dict[int, Slots]:
    """The given slots, ascending, under each shard that holds them."""
    if not len(slots):
        return {}
    shards, positions = recipe.cells(records, slots)
    names, starts = np.unique(shards, return_index=True)
    parts = np.split(slots[positions].astype(np.uint32), starts[1:])
    return dict(zip(names.tolist(), parts, strict=False))


def _has_too_many_dead(records: Records) -> bool:
    """Whether the storage of deleted records is worth a copy of everybody else's: not where it holds no features."""
    return (
        not records.is_elsewhere and records.num_slots - records.num_live > _DEAD_SLOTS_ALLOWED + records.num_live // 8
    )


def _train(
    blank: EnsembleState,
    shards: Sequence[int],
    first_slices: Sequence[int],
    executor: Executor,
    advance: Advance,
    writer: StateWriter | None = None,
) -> tuple[list[Model], list[Environment]]:
    """Models for the given shards of `blank`, whose old models (where it has any) serve as checkpoints only.

    Beside each model stands the environment that it was trained in.
    """
    models: list[Model] = []
    environments: list[Environment] = []
    if not shards:
        return models, environments
    unit = protocol.shards_at_once(blank.learner)
    size = -(-len(shards) // ((_SENT_PER_WORKER if executor.is_remote else _BATCHES_PER_WORKER) * executor.num_workers))
    size = max(1, -(-size // unit)) * unit
    if executor.is_remote:  # what is lost with a worker is done again
        size = min(size, max(unit, _MOST_SENT // unit * unit))
    jobs = list(zip(shards, first_slices, strict=True))
    batches = [jobs[at : at + size] for at in range(0, len(jobs), size)]
    tasks = _Tasks(blank, batches, _shared_rows(blank, shards, executor), is_remote=executor.is_remote)
    expected = blank.recipe.environment
    function: Any = (
        Elsewhere.of(blank.recipe, blank.records) if executor.is_remote else partial(train_batch, blank.learner)
    )
    with closing(executor.map(function, tasks)) as results:  # after an error nothing goes on in the background
        for found in results:
            trained, environment = found if executor.is_remote else (found, expected)
            for shard, model in zip(shards[len(models) :], trained, strict=False):
                if writer is not None:
                    writer.add(shard, model)
            models += trained
            environments += [expected if environment == expected else environment] * len(trained)
            advance(len(trained))
    return models, environments


def _shared_rows(state: EnsembleState, shards: Sequence[int], executor: Executor) -> tuple[Slots, SharedRows] | None:
    """The slots of all records in these shards and their rows, for a learner that wants them once; no copies sent."""
    if executor.is_remote or executor.num_workers > 1 or not getattr(state.learner, "shares_rows", False):
        return None
    members = [state.members[shard] for shard in shards]
    if not members:
        return None
    slots = np.unique(np.concatenate(members))
    if sum(map(len, members)) < _SHARING_PAYS * len(slots) or not len(slots):
        return None
    return slots, SharedRows(*state.records.gather(slots))


class _Tasks(Sequence[list[Any]]):
    """The shards' data, gathered only when their turn comes; or places in rows that they share, or where to read them.

    A batch that leaves this machine (`is_remote`) says where its records are, if they can be read there.
    """

    def __init__(
        self,
        state: EnsembleState,
        batches: list[list[tuple[int, int]]],
        shared: tuple[Slots, SharedRows] | None,
        *,
        is_remote: bool = False,
    ) -> None:
        self._state = state
        self._batches = batches
        self._shared = shared
        self._is_remote = is_remote

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return _Tasks(self._state, self._batches[index], self._shared, is_remote=self._is_remote)
        return [self._task(shard, first) for shard, first in self._batches[index]]

    def _task(self, shard: int, first: int) -> Any:
        state = self._state
        if self._shared is not None:
            slots, whole = self._shared
            return state.recipe.shared_contents(shard, state.records, state.members[shard], whole, slots)
        old = _old_model(state, shard) if first else None  # one of another environment is not looked at
        if not isinstance(old, SlicedModel):
            first, checkpoints = 0, ()
        else:
            checkpoints = old.checkpoints
        if self._is_remote and state.records.source is not None:
            return ShardAddress.of(state.records, state.members[shard], shard, first, checkpoints)
        return from_slice(state.contents(shard), first, checkpoints)
