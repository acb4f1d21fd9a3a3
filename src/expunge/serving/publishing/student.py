"""The distilled student (T5): the ensemble labels public points through the gate, and a student answers all queries.

The student is a fixed function of released labels and public points. So it may answer any number of queries, however
they are chosen, and may be given away, without an effect on the certificate. It may be kept while these stay the same.

Its coins are constants. A student that is trained with coins of its own and then kept would remember them, and people
who have seen it could use them to choose what to delete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from scipy.stats import betabinom

from expunge.core.blocks import Block
from expunge.core.checks import require_count, require_number, require_probability
from expunge.core.errors import BudgetExhaustedError, InputError, ParameterError, RecordError
from expunge.core.features import Features, as_features, cast_like, concatenate, describe, num_rows, row_keys, take
from expunge.core.records import RecordId, Records
from expunge.serving.publishing.consensus import ConsensusPublisher
from expunge.serving.publishing.front import RoundContext, ThrowAway, throw_away_shares
from expunge.serving.publishing.publisher import Publisher
from expunge.training.ensemble import EnsembleState
from expunge.training.learners import Abstainer, ConstantModel, Learner, Model, ScikitModel, SlicedLearner
from expunge.training.learners.parts import model_of, parts_of
from expunge.training.learners.protocol import for_classes
from expunge.training.surroundings import training

_SHARE_WITHOUT_GATE = 0.9

Augment = Callable[[Any, np.random.Generator], Any]


@dataclass(frozen=True)
class StudentRound:
    """The student of one round, and its labels. All but `throw_away` is released; none of it depends on r any further.

    Attributes
    ----------
    model
        The student's model.
    kept
        The places of the pool's points whose labels were released.
    labels
        These labels, as class codes.
    was_trained
        Whether the student was trained in this round; otherwise it is the one of the round before.
    can_be_kept
        Whether it is the function of `kept` and `labels` that `StudentFront` computes today.
    throw_away
        The ensemble that selected the points, for the next round. It was trained on people's records, so it is left out
        of `released` and of pickles; without it the next round trains one from scratch.
    """

    model: Model
    kept: NDArray[np.intp]
    labels: NDArray[np.int64]
    was_trained: bool
    can_be_kept: bool = False
    throw_away: ThrowAway | None = field(default=None, repr=False, compare=False)

    @property
    def is_repeatable(self) -> bool:
        """True: a student is a fixed function."""
        return True

    def answer(self, rows: Features) -> NDArray[np.int64]:
        """Answer from the student, free of charge."""
        return np.asarray(self.model.predict(rows), dtype=np.int64)

    @property
    def released(self) -> StudentRound:
        """The part that may be given away."""
        return replace(self, throw_away=None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "throw_away": None}

    def moved(self, state: EnsembleState) -> Self:
        """The same round: a student does not look at the records."""
        return self


@dataclass(frozen=True)
class StudentFront:
    """Train a student in every round, with the same seeds in every deployment (T5).

    Parameters
    ----------
    pool
        Public, unlabelled points that are not records of this deployment, and never will be.
    student
        Any learner that is deterministic given its seed. Its weights in `fit` are used for pseudo-labels if it takes
        them.
    selection_share
        The ensemble labels the points of the pool on which at least this share of a throw-away ensemble agrees. None
        finds the lowest share with which some point makes the generation dirty with probability `dirty_chance`.
    dirty_chance
        The accepted chance that the pool makes the generation dirty; used if `selection_share` is None.
    num_throw_away
        The number of shards of the throw-away ensemble.
    self_training
        How often the student labels the rest of the pool itself, where it is sure enough, and learns again with these
        labels added. This is a gain if it is mostly right (MNIST), and a loss if it is not (Fashion-MNIST); see
        docs/consensus.md.
    confidence
        The probability from which the student is sure enough.
    augment
        `augment(rows, generator)` returns changed copies that should have the same label. The student learns from them
        too, so that its answers are consistent under such changes. All randomness must come from the generator.
    pool_ids
        Ids of the pool's points, if they have any. None of them may be the id of a record.

    Raises
    ------
    ParameterError
        If an option is out of range, the pool is empty, or the student is a sliced learner.
    """

    pool: Features
    student: Learner | SlicedLearner
    selection_share: float | None = None
    dirty_chance: float = 0.01
    num_throw_away: int = 100
    self_training: int = 0
    confidence: float = 0.8
    augment: Augment | None = None
    pool_ids: tuple[RecordId, ...] = ()
    _keys: dict[Any, frozenset[bytes]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.student, SlicedLearner):
            raise ParameterError("a student is not trained in slices: it is never asked to forget")
        if self.selection_share is not None:
            require_probability("selection_share", self.selection_share)
        require_number("dirty_chance", self.dirty_chance, above=0, below=1)
        require_count("num_throw_away", self.num_throw_away)
        if num_rows(as_features(self.pool)) == 0:
            raise ParameterError("the pool of public points is empty")

    def open_round(self, opening: RoundContext) -> StudentRound:
        """Select points, release their labels through the gate, and train; keep the old student if nothing changed."""
        records = opening.state.records
        pool = self._fitting_pool(records)
        self._refuse_overlap(opening, pool)
        if len(records) == 0:
            return StudentRound(
                Abstainer(), np.empty(0, np.intp), np.empty(0, np.int64), was_trained=True, can_be_kept=True
            )
        shares, throw_away = throw_away_shares(opening, records, pool, self.num_throw_away)
        kept = np.flatnonzero(shares >= self._lowest_share(shares, opening.publisher))
        counts = opening.state.count_votes(take(pool, kept))
        before = opening.previous
        try:
            labels = opening.publisher.release(counts, opening.rng)
        except BudgetExhaustedError:
            if before is None or opening.publisher.status.predictions:
                raise
            kept, labels = kept[:0], np.empty(0, np.int64)  # a whole generation cannot pay for it
        kept, labels = kept[labels >= 0], labels[labels >= 0]
        if isinstance(before, StudentRound) and _same(before, kept, labels):
            return replace(before, kept=kept, labels=labels, was_trained=False, throw_away=throw_away)
        if len(kept) == 0 and before is None:
            message = f"a throw-away ensemble does not agree well enough on any of the pool's {num_rows(pool)} points"
            raise InputError(f"{message}: use larger shards, another pool or a lower selection_share")
        student = self._learner(opening.state)
        try:
            model, is_taught = self._teach(student, pool, kept, labels) if len(kept) else Abstainer(), True
        except Exception:
            # A failed training of the student never blocks a deletion. The student of this round declines, and the
            # next round trains one again, because the cause may have been a lack of memory.
            if before is None:
                raise
            model, is_taught = Abstainer(), False
        return StudentRound(model, kept, labels, was_trained=True, can_be_kept=is_taught, throw_away=throw_away)

    def _learner(self, state: EnsembleState) -> Learner:
        return for_classes(cast("Learner", self.student), state.records.classes)

    def dump_round(self, serving: StudentRound, state: EnsembleState) -> dict[str, Any]:
        """The student, and the labels that it learned from."""
        return {
            "student": parts_of(self._learner(state), serving.model),
            "kept": serving.kept,
            "labels": serving.labels,
            "can_be_kept": serving.can_be_kept,
        }

    def load_round(self, opening: RoundContext, kept: Mapping[str, Any]) -> StudentRound:
        """The round with the student that was kept. It is not taught again."""
        model = model_of(self._learner(opening.state), kept["student"])
        return StudentRound(model, kept["kept"], kept["labels"], was_trained=False, can_be_kept=kept["can_be_kept"])

    def refuse(self, block: Block, classes: NDArray[Any]) -> None:
        """Refuse records that are also in the pool, because its points must be public."""
        keys = self._public_keys(block.features)
        for row, key in enumerate(row_keys(block.features)):
            record = block.id_of(block.start + row)
            if key in keys or record in self.pool_ids:
                raise _is_public(record)

    def _public_keys(self, pattern: Features) -> frozenset[bytes]:
        """The keys of the pool's rows, in the number types of other rows of the same layout."""
        layout = describe(pattern)
        if layout not in self._keys:
            self._keys[layout] = frozenset(row_keys(cast_like(as_features(self.pool), pattern)))
        return self._keys[layout]

    def _lowest_share(self, shares: NDArray[np.float64], publisher: Publisher) -> float:
        if self.selection_share is not None:
            return self.selection_share
        if not isinstance(publisher, ConsensusPublisher) or publisher.design is None:
            return _SHARE_WITHOUT_GATE
        return selection_share(
            shares,
            num_votes=self.num_throw_away,
            num_shards=publisher.num_shards,
            sure_dissent=publisher.design.sure_dissent,
            dirty_chance=self.dirty_chance,
        )

    def _teach(self, student: Learner, pool: Features, kept: NDArray[np.intp], labels: NDArray[np.int64]) -> Model:
        model = self._fit(student, take(pool, kept), labels, seed=0)
        rest = np.setdiff1d(np.arange(num_rows(pool)), kept)
        for seed in range(1, self.self_training + 1):
            if len(rest) == 0:
                break
            guessed, sure = _pseudo_labels(model, take(pool, rest), self.confidence)
            X = concatenate([take(pool, kept), take(pool, rest[sure])])
            model = self._fit(student, X, np.concatenate([labels, guessed[sure]]), seed=seed)
        return model

    def _fit(self, student: Learner, X: Features, y: NDArray[np.int64], *, seed: int) -> Model:
        if self.augment is not None:
            X = concatenate([X, self.augment(X, np.random.default_rng(seed))])
            y = np.concatenate([y, y])
        with training():
            return student.fit(X, y, seed)

    def _fitting_pool(self, records: Records) -> Features:
        pool = as_features(self.pool)
        if describe(pool) != records.layout:
            raise InputError(f"the pool has the form {describe(pool)}, the records have {records.layout}")
        return cast_like(pool, records.blocks[0].features)

    def _refuse_overlap(self, opening: RoundContext, pool: Features) -> None:
        """Refuse a pool that holds a record, because its points must be public. The message names the record."""
        records, change = opening.state.records, opening.change
        for record in self.pool_ids:
            if record in records:
                raise _is_public(record)
        keys = frozenset(row_keys(pool))
        slots = records.live_slots() if change is None else np.arange(change.added.start, change.added.stop)
        rows, _, _ = records.gather(slots)
        for place, key in enumerate(row_keys(rows)):
            if key in keys:
                record = records.id_of(int(slots[place]))
                raise _is_public(record)


def selection_share(
    shares: NDArray[np.float64], *, num_votes: int, num_shards: int, sure_dissent: int, dirty_chance: float
) -> float:
    """Find the lowest throw-away share at which no selected point is predicted in the grey zone of the real gate.

    A point on which d of `num_votes` throw-away shards dissent is assumed to have a dissent rate with the posterior
    Beta(d + ½, num_votes − d + ½). So the real ensemble's dissent on it is beta-binomial. The chances that it exceeds
    `sure_dissent` are added up over the selected points. A wrong prediction costs a full retraining, but no guarantee.
    """
    dissent, how_many = np.unique(np.rint((1 - shares) * num_votes).astype(int), return_counts=True)
    chances = betabinom(num_shards, dissent + 0.5, num_votes - dissent + 0.5).sf(sure_dissent)
    fine = np.cumsum(chances * how_many) <= dirty_chance
    most = dissent[fine].max() if fine.any() else -1
    return float(1 - (most + 0.5) / num_votes)


def _is_public(record: RecordId) -> RecordError:
    return RecordError(f"record {record!r} is also in the public pool", record)


def _same(before: StudentRound, kept: NDArray[np.intp], labels: NDArray[np.int64]) -> bool:
    return before.can_be_kept and np.array_equal(before.kept, kept) and np.array_equal(before.labels, labels)


def _pseudo_labels(model: Model, rows: Features, confidence: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The student's own labels, and where it is sure. A student without probabilities counts as always sure."""
    guessed = np.asarray(model.predict(rows), dtype=np.int64)
    sure = guessed >= 0
    if isinstance(model, ScikitModel) and hasattr(model.estimator, "predict_proba"):
        sure &= model.estimator.predict_proba(rows).max(axis=1) >= confidence
    elif isinstance(model, ConstantModel):
        sure[:] = False
    return guessed, sure
