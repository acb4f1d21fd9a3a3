"""The distilled student (T5): the ensemble labels public points through the gate, and a student answers all queries.

The student is a fixed function of released labels and public points. So it may answer any number of queries, however
they are chosen, and may be given away, without an effect on the certificate. It may be kept while these stay the same.

Its coins are constants. A student that is trained with coins of its own and then kept would remember them, and people
who have seen it could use them to choose what to delete.

Few points of a rare class are clear enough to be asked about. So every class has a share of the accepted chance of its
own, and the points of a class that is kept less often count more. A student that turns out useless is refused when a
deployment is created, by a rehearsal on the throw-away ensemble's labels: the refusal is a function of D^t alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
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
from expunge.serving.publishing.front import RoundContext, ThrowAway, throw_away_votes
from expunge.serving.publishing.publisher import Publisher
from expunge.training.ensemble import EnsembleState
from expunge.training.learners import Abstainer, ConstantModel, Learner, Model, ScikitModel, SlicedLearner
from expunge.training.learners.parts import model_of, parts_of
from expunge.training.learners.protocol import for_classes
from expunge.training.surroundings import training, voting

_SHARE_WITHOUT_GATE = 0.9
_MOST_REPEATS = 16  # how often a point of a class that is rarely kept counts, at most; always a power of two
_LEAST_KEPT = 0.05  # of the pool
_LEAST_FOUND = 0.1  # of a class's points, where there are enough of them
_MOST_NAMED = 4  # classes in a message
_FEWEST_POINTS = 20  # of a class; fewer say little about it

LEAST_AGREEMENT = 0.75
"""The share of the pool on which a student must agree with the throw-away ensemble, by default."""

Augment = Callable[[Any, np.random.Generator], Any]


@dataclass(frozen=True)
class Outcome:
    """How a student turned out, on the pool. It follows from D^t, constants and released labels, and may be told.

    Attributes
    ----------
    classes
        The labels as texts.
    pool
        For each class, the points that the throw-away ensemble gives to it.
    kept
        For each class, the released labels.
    answered
        For each class, how often the student gives it to a point of the pool.
    found
        For each class, the points in `pool` on which the student agrees.
    size
        The number of points of the pool.
    least_agreement
        The least share of the pool on which the student must agree.
    """

    classes: tuple[str, ...]
    pool: tuple[int, ...]
    kept: tuple[int, ...]
    answered: tuple[int, ...]
    found: tuple[int, ...]
    size: int
    least_agreement: float = LEAST_AGREEMENT

    @classmethod
    def of(
        cls,
        classes: NDArray[Any],
        votes: NDArray[np.int64],
        labels: NDArray[np.int64],
        answers: NDArray[np.int64],
        least_agreement: float = LEAST_AGREEMENT,
    ) -> Self:
        """Count it, from the throw-away votes, the released labels and the student's answers to the pool."""
        codes, many = _pluralities(votes), len(classes)

        def count(found: NDArray[np.int64]) -> tuple[int, ...]:
            return tuple(np.bincount(found[found >= 0], minlength=many).tolist())

        agreed = np.where(answers == codes, codes, -1)
        counts = count(codes), count(labels), count(answers), count(agreed)
        return cls(tuple(map(str, classes)), *counts, len(codes), least_agreement)

    @property
    def share_kept(self) -> float:
        """The share of the pool whose labels were released."""
        return sum(self.kept) / self.size

    @property
    def agreement(self) -> float:
        """The share of the pool on which the student says what the throw-away ensemble says."""
        return sum(self.found) / self.size

    @property
    def fault(self) -> str:
        """What is wrong with the student, with the numbers; empty if nothing is."""
        if self.share_kept < _LEAST_KEPT:
            return (
                f"the shards agree well enough on {sum(self.kept):,} of the pool's {self.size:,} points only "
                f"({self.share_kept:.1%}; at least {_LEAST_KEPT:.0%} are needed)"
            )
        given = sorted(zip(self.pool, self.classes, strict=True), key=lambda pair: -pair[0])[:_MOST_NAMED]
        voted = ", ".join(f"{label!r} {many:,}" for many, label in given)
        for label, many in zip(self.classes, self.answered, strict=True):
            if many == self.size > 1 and len(self.classes) > 1:
                return f"it answers {label!r} to all {self.size:,} points of the pool (the shards: {voted})"
        for label, many, found in zip(self.classes, self.pool, self.found, strict=True):
            if many >= _FEWEST_POINTS and found < _LEAST_FOUND * many:
                return f"of the {many:,} points that the shards call {label!r} it finds {found:,}"
        if self.agreement < self.least_agreement:
            return f"it agrees with the shards on {self.agreement:.1%} of the pool, below {self.least_agreement:.0%}"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data."""
        found = {"share_kept": self.share_kept, "agreement": self.agreement, "fault": self.fault}
        return {**asdict(self), **found}


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
        Whether it is the function of `kept`, `labels` and `repeats` that `StudentFront` computes today.
    repeats
        How often the points of each class count.
    outcome
        How the student turned out; None if there was nothing to learn.
    throw_away
        The ensemble that selected the points, for the next round. It was trained on people's records, so it is left out
        of `released` and of pickles; without it the next round trains one from scratch.
    """

    model: Model
    kept: NDArray[np.intp]
    labels: NDArray[np.int64]
    was_trained: bool
    can_be_kept: bool = False
    repeats: tuple[int, ...] = ()
    outcome: Outcome | None = None
    throw_away: ThrowAway | None = field(default=None, repr=False, compare=False)

    @property
    def is_repeatable(self) -> bool:
        """True: a student is a fixed function."""
        return True

    def consider(self, rows: Features) -> NDArray[np.int64]:
        """Ask the student."""
        with voting():
            return np.asarray(self.model.predict(rows), dtype=np.int64)

    def release(self, considered: NDArray[np.int64]) -> NDArray[np.int64]:
        """The student's answers, free of charge."""
        return considered

    def answer(self, rows: Features) -> NDArray[np.int64]:
        """Answer from the student, free of charge."""
        return self.consider(rows)

    @property
    def figures(self) -> dict[str, Any]:
        """How the student turned out, for anybody."""
        return {} if self.outcome is None else {"student": self.outcome.to_dict()}

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
        finds, for each class, the lowest share with which some point makes the generation dirty with probability
        `dirty_chance` divided by the number of classes.
    dirty_chance
        The accepted chance that the pool makes the generation dirty; used if `selection_share` is None.
    least_agreement
        The share of the pool on which the student must say what the throw-away ensemble says, when a deployment is
        created. A student that answers all of the pool with one class, loses a class, or learned from less than a
        twentieth of the pool is refused too. 0 refuses no student that has learned anything.
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
    least_agreement: float = LEAST_AGREEMENT
    _keys: dict[Any, frozenset[bytes]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.student, SlicedLearner):
            raise ParameterError("a student is not trained in slices: it is never asked to forget")
        if self.selection_share is not None:
            require_probability("selection_share", self.selection_share)
        require_number("dirty_chance", self.dirty_chance, above=0, below=1)
        require_probability("least_agreement", self.least_agreement)
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
        votes, throw_away = throw_away_votes(opening, records, pool, self.num_throw_away)
        kept, before = self._selected(votes, opening.publisher), opening.previous
        rehearsed = self._rehearse(opening, pool, votes, kept) if before is None else None
        counts = opening.state.count_votes(take(pool, kept))
        try:
            labels = opening.publisher.release(counts, opening.rng)
        except BudgetExhaustedError:
            if before is None or opening.publisher.status.predictions:
                raise
            kept, labels = kept[:0], np.empty(0, np.int64)  # a whole generation cannot pay for it
        kept, labels = kept[labels >= 0], labels[labels >= 0]
        lesson = _Lesson(kept, labels, class_repeats(votes, labels))
        if isinstance(before, StudentRound) and before.can_be_kept and lesson.is_of(before):
            model, is_taught, is_new = before.model, True, False
        elif rehearsed is not None and lesson.is_of(rehearsed):
            model, is_taught, is_new = rehearsed.model, True, True
        else:
            (model, is_taught), is_new = self._taught(opening, pool, lesson), True
        answers = np.asarray(model.predict(pool), dtype=np.int64)
        return StudentRound(
            model,
            kept,
            labels,
            was_trained=is_new,
            can_be_kept=is_taught,
            repeats=lesson.repeats,
            outcome=Outcome.of(records.classes, votes, labels, answers, self.least_agreement),
            throw_away=throw_away,
        )

    def _taught(self, opening: RoundContext, pool: Features, lesson: _Lesson) -> tuple[Model, bool]:
        """The student of a lesson, and whether that is what it should be."""
        try:
            return self._teach(self._learner(opening.state), pool, lesson), True
        except Exception:
            # A failed training of the student never blocks a deletion. The student of this round declines, and the
            # next round trains one again, because the cause may have been a lack of memory.
            if opening.previous is None:
                raise
            return Abstainer(), False

    def _rehearse(
        self, opening: RoundContext, pool: Features, votes: NDArray[np.int64], kept: NDArray[np.intp]
    ) -> StudentRound:
        """Teach a student the throw-away ensemble's own labels, and refuse it if it is of no use.

        It is a function of D^t and of constants. A refusal by the labels of the ensemble in service would depend on r:
        whoever creates deployments until one is not refused would choose r by it.
        """
        classes, labels = opening.state.records.classes, _pluralities(votes)[kept]
        if len(kept) == 0:
            message = f"a throw-away ensemble does not agree well enough on any of the pool's {num_rows(pool)} points"
            raise InputError(f"{message}: use fewer shards with more records each, or another pool")
        lesson = _Lesson(kept, labels, class_repeats(votes, labels))
        model = self._teach(self._learner(opening.state), pool, lesson)
        answers = np.asarray(model.predict(pool), dtype=np.int64)
        fault = Outcome.of(classes, votes, labels, answers, self.least_agreement).fault
        if fault and self.least_agreement:
            raise InputError(
                f"the student would be of no use: {fault}. Use larger shards, a learner whose shards agree more, a "
                "larger pool, or the exact promise"
            )
        return StudentRound(model, kept, labels, was_trained=True, can_be_kept=True, repeats=lesson.repeats)

    def _learner(self, state: EnsembleState) -> Learner:
        return for_classes(cast("Learner", self.student), state.records.classes)

    def dump_round(self, serving: StudentRound, state: EnsembleState) -> dict[str, Any]:
        """The student, and the labels that it learned from."""
        return {
            "student": parts_of(self._learner(state), serving.model),
            "kept": serving.kept,
            "labels": serving.labels,
            "can_be_kept": serving.can_be_kept,
            "repeats": list(serving.repeats),
            "outcome": None if serving.outcome is None else asdict(serving.outcome),
        }

    def load_round(self, opening: RoundContext, kept: Mapping[str, Any]) -> StudentRound:
        """The round with the student that was kept. It is not taught again."""
        found = kept["outcome"]
        return StudentRound(
            model_of(self._learner(opening.state), kept["student"]),
            kept["kept"],
            kept["labels"],
            was_trained=False,
            can_be_kept=kept["can_be_kept"],
            repeats=tuple(kept["repeats"]),
            outcome=None if found is None else Outcome(**{**found, **{n: tuple(found[n]) for n in _COUNTS}}),
        )

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

    def _selected(self, votes: NDArray[np.int64], publisher: Publisher) -> NDArray[np.intp]:
        """The places of the points to ask the ensemble about: a function of D^t and of constants."""
        if self.selection_share is None and isinstance(publisher, ConsensusPublisher) and publisher.design is not None:
            return select_points(
                votes,
                num_votes=self.num_throw_away,
                num_shards=publisher.num_shards,
                sure_dissent=publisher.design.sure_dissent,
                dirty_chance=self.dirty_chance,
            )
        lowest = _SHARE_WITHOUT_GATE if self.selection_share is None else self.selection_share
        return np.flatnonzero(votes.max(axis=1) / self.num_throw_away >= lowest)

    def _teach(self, student: Learner, pool: Features, lesson: _Lesson) -> Model:
        if len(lesson.kept) == 0:
            return Abstainer()
        taught = np.repeat(lesson.kept, lesson.times)
        labels = np.repeat(lesson.labels, lesson.times)
        model = self._fit(student, take(pool, taught), labels, seed=0)
        rest = np.setdiff1d(np.arange(num_rows(pool)), lesson.kept)
        for seed in range(1, self.self_training + 1):
            if len(rest) == 0:
                break
            guessed, sure = _pseudo_labels(model, take(pool, rest), self.confidence)
            X = concatenate([take(pool, taught), take(pool, rest[sure])])
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


@dataclass(frozen=True)
class _Lesson:
    """What a student learns: the places of points, their labels, and how often the points of each class count."""

    kept: NDArray[np.intp]
    labels: NDArray[np.int64]
    repeats: tuple[int, ...]

    @property
    def times(self) -> NDArray[np.int64]:
        """How often each point counts."""
        return np.array(self.repeats, dtype=np.int64)[self.labels]

    def is_of(self, taught: StudentRound) -> bool:
        """Whether that student learned the same."""
        return (
            np.array_equal(taught.kept, self.kept)
            and np.array_equal(taught.labels, self.labels)
            and taught.repeats == self.repeats
        )


_COUNTS = ("classes", "pool", "kept", "answered", "found")


def _pluralities(votes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The top class of every row; -1 where every shard abstains."""
    return np.where(votes.max(axis=1) > 0, votes.argmax(axis=1), -1)


def class_repeats(votes: NDArray[np.int64], labels: NDArray[np.int64]) -> tuple[int, ...]:
    """How often the points of each class are to count, so that classes weigh about as they do in the whole pool.

    Parameters
    ----------
    votes
        The throw-away ensemble's votes on the whole pool: shape (points, classes).
    labels
        The labels of the points that are kept.

    Returns
    -------
    tuple of int
        A power of two up to 16 for each class; 1 for the class of whose points the largest share is kept. Powers of
        two, so that they change seldom from round to round.

    Examples
    --------
    >>> votes = np.repeat([[9, 1], [1, 9]], [800, 200], axis=0)
    >>> class_repeats(votes, np.repeat([0, 1], [720, 45]))
    (1, 4)
    """
    codes, many = _pluralities(votes), int(votes.shape[1])
    pool, kept = (np.bincount(found[found >= 0], minlength=many) for found in (codes, labels))
    rates = np.where((pool > 0) & (kept > 0), kept / np.maximum(pool, 1), np.nan)
    if np.isnan(rates).all():
        return (1,) * many
    wanted = np.nanmax(rates) / np.where(np.isnan(rates), np.nanmax(rates), rates)
    return tuple(min(_MOST_REPEATS, 1 << round(float(np.log2(times)))) for times in wanted)


def select_points(
    votes: NDArray[np.int64], *, num_votes: int, num_shards: int, sure_dissent: int, dirty_chance: float
) -> NDArray[np.intp]:
    """Find the points that a throw-away ensemble agrees on well enough; each class has its own share of the chance.

    Parameters
    ----------
    votes
        The throw-away ensemble's votes: shape (points, classes).
    num_votes, num_shards, sure_dissent
        How many shards voted, how many vote in service, and how many of these may dissent.
    dirty_chance
        The accepted chance that one of the points fails, over all classes together.

    Returns
    -------
    array of int
        The places of the points.

    Examples
    --------
    >>> votes = np.repeat([[100, 0], [70, 30], [5, 95]], [500, 100, 20], axis=0)
    >>> len(select_points(votes, num_votes=100, num_shards=1000, sure_dissent=160, dirty_chance=0.01))
    500
    >>> len(select_points(votes, num_votes=100, num_shards=1000, sure_dissent=160, dirty_chance=0.1))
    520
    """
    shares, codes = votes.max(axis=1) / num_votes, votes.argmax(axis=1)
    kept = np.zeros(len(votes), dtype=np.bool_)
    present = np.unique(codes)
    for code in present:
        mine = codes == code
        lowest = selection_share(
            shares[mine],
            num_votes=num_votes,
            num_shards=num_shards,
            sure_dissent=sure_dissent,
            dirty_chance=dirty_chance / len(present),
        )
        kept |= mine & (shares >= lowest)
    return np.flatnonzero(kept)


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


def _pseudo_labels(model: Model, rows: Features, confidence: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The student's own labels, and where it is sure. A student without probabilities counts as always sure."""
    guessed = np.asarray(model.predict(rows), dtype=np.int64)
    sure = guessed >= 0
    if isinstance(model, ScikitModel) and hasattr(model.estimator, "predict_proba"):
        sure &= model.estimator.predict_proba(rows).max(axis=1) >= confidence
    elif isinstance(model, ConstantModel):
        sure[:] = False
    return guessed, sure
