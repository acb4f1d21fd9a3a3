"""The distilled student (T5): the ensemble labels public points through the gate, and a student serves everyone.

The student is a fixed function of released labels and public points. So it may answer any number of queries, however
chosen, and may be given away whole, without touching the certificate; and it may be kept while these stay the same.

Its coins are constants: a student that is taught with coins of its own and then kept would remember them, and people
who have seen it could choose what to delete by them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.stats import betabinom

from expunge.core.errors import BudgetExhaustedError, InputError, ParameterError, RecordError
from expunge.core.features import Features, as_features, cast_like, concatenate, describe, num_rows, row_keys, take
from expunge.core.records import RecordId, Records
from expunge.serving.publishing.consensus import ConsensusPublisher
from expunge.serving.publishing.front import Opening, throw_away_shares
from expunge.serving.publishing.publisher import Publisher
from expunge.training.learners import Abstainer, ConstantModel, Learner, Model, ScikitModel, SlicedLearner
from expunge.training.learners.protocol import for_classes

_SHARE_WITHOUT_GATE = 0.9

Augment = Callable[[Any, np.random.Generator], Any]


@dataclass(frozen=True)
class StudentRound:
    """One round's student, and what it was taught. All of it is released; none of it depends on r any further."""

    model: Model
    kept: NDArray[np.intp]
    labels: NDArray[np.int64]
    was_trained: bool
    can_be_kept: bool = False  # whether it is the function of `kept` and `labels` that `StudentFront` computes today

    @property
    def is_repeatable(self) -> bool:
        """A student is a fixed function."""
        return True

    def answer(self, rows: Features) -> NDArray[np.int64]:
        """The student's own answers, at no charge."""
        return np.asarray(self.model.predict(rows), dtype=np.int64)


@dataclass(frozen=True)
class StudentFront:
    """Teach a student in every round, with the same seeds in every deployment: see above.

    pool : public, unlabelled points that are nobody's record here, and never will be.
    student : any learner; its weights in `fit` are used for pseudo-labels if it takes them. It must be deterministic
        given its seed.
    selection_share : pool points on which a throw-away ensemble agrees at least so much are put to the real one; None
        finds the lowest such share with which some point makes the generation dirty with probability `dirty_chance`.
    num_throw_away : the size of the throw-away ensemble.
    self_training : how often the student, after learning the released labels, labels the rest of the pool itself
        where it is sure enough (`confidence`) and learns again with those added: a gain where it is mostly right
        (MNIST), a loss where it is not (Fashion-MNIST), see docs/consensus.md.
    augment : `augment(rows, generator)` returns changed copies that should have the same label; they are added to what
        the student learns from, so that its answers are consistent under such changes. All its randomness must come
        from the generator.
    pool_ids : ids of the pool's points, if they have any; none of them may be a record's.
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

    def __post_init__(self) -> None:
        if isinstance(self.student, SlicedLearner):
            raise ParameterError("a student is not trained in slices: it is never asked to forget")
        if self.selection_share is not None and not 0 <= self.selection_share <= 1:
            raise ParameterError(f"selection_share must be in [0, 1], got {self.selection_share!r}")
        if not 0 < self.dirty_chance < 1:
            raise ParameterError(f"dirty_chance must be in (0, 1), got {self.dirty_chance!r}")
        if self.num_throw_away < 1:
            raise ParameterError(f"num_throw_away must be at least 1, got {self.num_throw_away!r}")
        if num_rows(as_features(self.pool)) == 0:
            raise ParameterError("the pool of public points is empty")

    def open_round(self, opening: Opening) -> StudentRound:
        """Select, let the gate release the labels, teach (or keep the old student if nothing changed)."""
        records = opening.state.records
        pool = self._fitting_pool(records)
        self._refuse_overlap(opening, pool)
        if len(records) == 0:
            return StudentRound(
                Abstainer(), np.empty(0, np.intp), np.empty(0, np.int64), was_trained=True, can_be_kept=True
            )
        shares = throw_away_shares(opening, records, pool, self.num_throw_away)
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
            return StudentRound(before.model, kept, labels, was_trained=False, can_be_kept=True)
        if len(kept) == 0 and before is None:
            message = f"a throw-away ensemble does not agree well enough on any of the pool's {num_rows(pool)} points"
            raise InputError(f"{message}: use larger shards, another pool or a lower selection_share")
        student = for_classes(cast("Learner", self.student), records.classes)
        try:
            model, is_taught = self._teach(student, pool, kept, labels) if len(kept) else Abstainer(), True
        except Exception:
            # A deletion is never refused because nothing can be taught: this round's student declines, and the next
            # one is taught afresh, for memory may have been short.
            if before is None:
                raise
            model, is_taught = Abstainer(), False
        return StudentRound(model, kept, labels, was_trained=True, can_be_kept=is_taught)

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
        return student.fit(X, y, seed)

    def _fitting_pool(self, records: Records) -> Features:
        pool = as_features(self.pool)
        if describe(pool) != records.layout:
            raise InputError(f"the pool has the form {describe(pool)}, the records have {records.layout}")
        return cast_like(pool, records.blocks[0].features)

    def _refuse_overlap(self, opening: Opening, pool: Features) -> None:
        """A public point that is somebody's record would not be public: refuse it, naming the record."""
        records, change = opening.state.records, opening.change
        for record in self.pool_ids:
            if record in records:
                raise RecordError(f"record {record!r} is also in the public pool", record)
        keys = frozenset(row_keys(pool))
        slots = records.live_slots() if change is None else np.arange(change.added.start, change.added.stop)
        rows, _, _ = records.gather(slots)
        for place, key in enumerate(row_keys(rows)):
            if key in keys:
                record = records.id_of(int(slots[place]))
                raise RecordError(f"record {record!r} is also in the public pool", record)


def selection_share(
    shares: NDArray[np.float64], *, num_votes: int, num_shards: int, sure_dissent: int, dirty_chance: float
) -> float:
    """The lowest throw-away share at which, it is predicted, no selected point is in the grey zone of the real gate.

    A point on which d of `num_votes` throw-away shards dissent is taken to have a dissent rate with the posterior
    Beta(d + ½, num_votes − d + ½), so the real ensemble's dissent on it is beta-binomial; the chances that it exceeds
    `sure_dissent` are added up over the selected points. A wrong prediction costs a full retraining, no guarantee.
    """
    dissent, how_many = np.unique(np.rint((1 - shares) * num_votes).astype(int), return_counts=True)
    chances = betabinom(num_shards, dissent + 0.5, num_votes - dissent + 0.5).sf(sure_dissent)
    fine = np.cumsum(chances * how_many) <= dirty_chance
    most = dissent[fine].max() if fine.any() else -1
    return float(1 - (most + 0.5) / num_votes)


def _same(before: StudentRound, kept: NDArray[np.intp], labels: NDArray[np.int64]) -> bool:
    return before.can_be_kept and np.array_equal(before.kept, kept) and np.array_equal(before.labels, labels)


def _pseudo_labels(model: Model, rows: Features, confidence: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The student's own labels, and where it is sure; a student without probabilities is taken at its word."""
    guessed = np.asarray(model.predict(rows), dtype=np.int64)
    sure = guessed >= 0
    if isinstance(model, ScikitModel) and hasattr(model.estimator, "predict_proba"):
        sure &= model.estimator.predict_proba(rows).max(axis=1) >= confidence
    elif isinstance(model, ConstantModel):
        sure[:] = False
    return guessed, sure
