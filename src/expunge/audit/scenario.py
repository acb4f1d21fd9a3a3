"""The parts of an audit: the data, the scheme, what is published, who asks, and what is measured afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from expunge.audit.inference import Event
from expunge.core.checks import require_count
from expunge.core.errors import ParameterError
from expunge.core.features import Features, num_rows
from expunge.core.guarantee import Guarantee
from expunge.core.randomness import Randomness
from expunge.core.records import Delete, DeleteSubject, RecordId, Records
from expunge.serving.interaction import Batch, Requester
from expunge.training.ensemble import EnsembleState
from expunge.training.learners import Learner, Model, SlicedLearner

Codes = NDArray[np.int64]
Setting = Literal["labels", "models"]
State = TypeVar("State")


@dataclass(frozen=True)
class Task:
    """Data to attack, and the learner that is trained on them.

    Parameters
    ----------
    name
        What the report calls the data.
    records
        D^0, the records before any request.
    learner
        What trains one shard.
    test_points, test_codes
        Held-out points and their class codes. The white-box scenario needs them.
    pool
        Public points that belong to no record. The student scheme needs them.

    Examples
    --------
    >>> import numpy as np
    >>> from expunge.core.records import Records
    >>> from expunge.training.learners import LookupTableLearner
    >>> records = Records.build(np.array([[0.0], [1.0], [2.0]]), ["no", "yes", "no"])
    >>> task = Task("three points", records, LookupTableLearner())
    >>> ids, points, codes = task.columns
    >>> ids, codes.tolist()
    ([0, 1, 2], [0, 1, 0])
    """

    name: str
    records: Records
    learner: Learner | SlicedLearner
    test_points: Features | None = None
    test_codes: Codes | None = None
    pool: Features | None = None

    @cached_property
    def columns(self) -> tuple[list[RecordId], Features, Codes]:
        """Ids, features and class codes of D^0, all in the same order."""
        points, codes, _ = self.records.gather(self.records.live_slots())
        return self.records.ids(), points, codes.astype(np.int64)

    @property
    def learner_name(self) -> str:
        """The learner's `repr` without memory addresses, so that it is the same in every process."""
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(self.learner))


@dataclass(frozen=True)
class PublishedModels:
    """What is published in the full-model setting: every shard's model. Which record is in which shard stays secret.

    Parameters
    ----------
    models
        The models, in the order of the shards.
    num_classes
        How many classes the data have.
    """

    models: tuple[Model, ...]
    num_classes: int


@dataclass(frozen=True)
class History:
    """What is known about a finished interaction without the models: a function of the requests alone.

    Parameters
    ----------
    initial
        D^0, the records before any request.
    survivors
        D^t, the records that the requests leave.
    asked
        The requests, one batch a round.
    next_batch
        What the requester would ask for next, after the last publication. None unless the scenario has
        `needs_next_batch`.
    """

    initial: Records
    survivors: Records
    asked: tuple[Batch, ...] = ()
    next_batch: Batch | None = None

    @cached_property
    def deleted_slots(self) -> NDArray[np.int64]:
        """The slots in D^0 of the records that are no longer in D^t."""
        gone: set[int] = set()
        for update in (update for batch in self.asked for update in batch):
            if isinstance(update, Delete) and update.id in self.initial:
                gone.add(self.initial.slot_of(update.id))
            elif isinstance(update, DeleteSubject):
                gone.update(slot for slot in self.initial.subjects.find(update.subject) if self._was_there(slot))
        absent = [slot for slot in sorted(gone) if self.initial.id_of(slot) not in self.survivors]
        return np.array(absent, dtype=np.int64)

    def _was_there(self, slot: int) -> bool:
        return not self.initial.index.is_gone(slot)


@runtime_checkable
class Scheme(Protocol[State]):
    """What can be audited: the pair (A, R_A) together with what it publishes.

    The audit calls `learn`, `update` and `release` as Algorithm 1 does. It calls `models`, `ensemble` and `decide` to
    compute statistics of the models, which is what the guarantee is about. In the full-model setting `models` is also
    what is published.

    A scheme of your own needs only `learn`, `update`, `records_of` and `release`: `UserScheme` adds the rest. A state
    may be any object. An audit with several processes sends the scheme to them, so it must be possible to pickle it.

    Examples
    --------
    A scheme that never forgets, and is caught:

    >>> import numpy as np
    >>> from expunge.audit import UserScheme, audit, lookup_scenario
    >>> class Forgetful:
    ...     def learn(self, records, rng):
    ...         points, codes, _ = records.gather(records.live_slots())
    ...         return records, dict(zip(points[:, 0].tolist(), codes.tolist()))
    ...
    ...     def update(self, state, batch, rng):
    ...         records, table = state
    ...         return records.apply(batch)[0], table  # the mistake: the table should have been made again
    ...
    ...     def records_of(self, state):
    ...         return state[0]
    ...
    ...     def release(self, state, points):
    ...         return np.array([state[1].get(x, -1) for x in points[:, 0].tolist()])  # -1: no answer
    >>> scheme = UserScheme(Forgetful(), name="forgetful")
    >>> report = audit(lookup_scenario(num_pairs=10), scheme, num_trials=20, seed=1)
    >>> report.verdict
    'the updated models differ from retrained ones, and nothing is promised that would forbid it'
    """

    @property
    def name(self) -> str:
        """What the report calls the scheme."""

    def learn(self, records: Records, rng: Randomness) -> State:
        """A(D): train from scratch on the records. Draw all randomness from `rng`, so that a seed repeats the audit."""

    def update(self, state: State, batch: Batch, rng: Randomness) -> State:
        """R_A(D^{t-1}, u^t, s^{t-1}): apply one batch of requests. The given state is not used again."""

    def records_of(self, state: State) -> Records:
        """D^t as the scheme keeps it. The audit computes its own D^t and does not rely on this."""

    def release(self, state: State, points: Features) -> Codes:
        """f_publish: the labels that leave the system, as class codes; a negative code means no answer."""

    def decide(self, state: State, points: Features) -> Codes:
        """The models' answers before any noise, as class codes. For statistics only; they are not published."""

    def models(self, state: State) -> tuple[Model, ...]:
        """The models in the order of the shards, which is what the full-model setting publishes."""

    def ensemble(self, state: State) -> EnsembleState | None:
        """The shards behind the state; None if they cannot be seen."""

    def guarantee(self, *, beta: float, gamma: float) -> Guarantee:
        """What the scheme claims for publishing labels only; α is infinite if it claims nothing."""


class Statistic(Protocol):
    """A number computed from the models. Events are about statistics.

    A statistic may use the requests (through `history`) and randomness of its own, and nothing else. Events of the
    definition are about the models and may depend on the updates, but not on what else was published.

    Any function with these four arguments will do. For an example see `Scenario`.
    """

    def __call__(self, scheme: Scheme[Any], state: Any, history: History, rng: Randomness) -> float:
        """The statistic of one state; NaN where it is not defined."""


MakeRequester = Callable[[Task, Randomness], Requester]
Prepare = Callable[[Scheme[Any], Randomness], Mapping[str, Statistic]]


@dataclass(frozen=True)
class Scenario:
    """One attack, which can be pointed at any scheme.

    Parameters
    ----------
    name
        What the report calls the scenario.
    about
        One line about the data and the attack, for the report.
    task
        The data and the learner.
    points
        The points whose labels are published in every round.
    make_requester
        Makes the requester for one trial, from randomness of its own. A requester (UpdReq, Definition 2.2) has one
        method, `next_batch(published, asked)`. `published` holds what was published so far, `asked` the batches that
        were asked for so far. It returns the next batch of updates, or None to stop. Asked twice with the same
        arguments it should give the same answer, so draw randomness beforehand.
    prepare
        Makes the statistics, by name, before the first trial. It may train shadow models with the scheme, from
        randomness that no trial uses.
    setting
        What is published in every round: "labels" (of `points`) or "models" (all of them, as `PublishedModels`).
    settings
        The settings in which the requester can work.
    max_rounds
        The largest number of rounds.
    event
        The event to look for, if it is fixed in advance. With None a part of the trials chooses it.
    null_value
        The event's probability after full retraining, if symmetry gives it.
    needs_next_batch
        Whether the statistics need to know what the requester would ask for next.
    parameters
        What the scenario was made from. The report shows it, and a file of trials is only continued if it agrees.

    Raises
    ------
    ParameterError
        If `setting` is not one of `settings`, or `max_rounds` is not a positive integer.

    Examples
    --------
    A requester that deletes what was labelled correctly, and a statistic that measures what that does to the records
    that are left. Every training point is there twice, as in Theorem 5.1:

    >>> import numpy as np
    >>> from expunge.audit import Scenario, Task, audit, make_pairs, make_scheme
    >>> from expunge.core.records import Delete
    >>> from expunge.training.learners import LookupTableLearner
    >>> task = Task("pairs", make_pairs(20), LookupTableLearner())
    >>> ids, points, codes = task.columns
    >>> class DeleteCorrect:
    ...     def next_batch(self, published, asked):
    ...         correct = np.flatnonzero(published[0] == codes)
    ...         return None if asked else [Delete(ids[place]) for place in correct]
    >>> def accuracy(scheme, state, history, rng):
    ...     points, codes, _ = history.survivors.gather(history.survivors.live_slots())
    ...     return float(np.mean(scheme.decide(state, points) == codes))
    >>> scenario = Scenario(
    ...     name="my attack",
    ...     about="pairs of points, lookup tables",
    ...     task=task,
    ...     points=points,
    ...     make_requester=lambda rng: DeleteCorrect(),
    ...     prepare=lambda scheme, rng: {"accuracy on surviving records": accuracy},
    ... )
    >>> report = audit(scenario, make_scheme("sisa", scenario), num_trials=20, seed=1)
    >>> report.rejected
    True
    """

    name: str
    about: str
    task: Task
    points: Features
    make_requester: Callable[[Randomness], Requester]
    prepare: Prepare
    setting: Setting = "labels"
    settings: tuple[Setting, ...] = ("labels",)
    max_rounds: int = 1
    event: Event | None = None
    null_value: float | None = None
    needs_next_batch: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.setting not in self.settings:
            can = " or ".join(self.settings)
            raise ParameterError(f"the requester of {self.name} must be shown {can}, got setting {self.setting!r}")
        require_count("max_rounds", self.max_rounds)

    @property
    def num_published(self) -> int:
        """How many labels are published before the last update: what a budget has to cover."""
        publications = self.max_rounds + (1 if self.needs_next_batch else 0)
        return num_rows(self.points) * publications
