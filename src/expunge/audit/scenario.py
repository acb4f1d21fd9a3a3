"""A scenario: the data, what is published about them, who asks, and what is looked for afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from expunge.audit.evidence import Event
from expunge.audit.schemes import Scheme
from expunge.core.errors import ParameterError
from expunge.core.features import Features, num_rows
from expunge.core.randomness import Randomness
from expunge.core.records import Delete, DeleteSubject, RecordId, Records
from expunge.serving.interaction import Batch, Requester
from expunge.training.learners import Learner, SlicedLearner

Setting = Literal["labels", "models"]


@dataclass(frozen=True)
class Task:
    """Data and a learner to attack: D^0, held-out points, and public points that are nobody's record."""

    name: str
    records: Records
    learner: Learner | SlicedLearner
    test_points: Features | None = None
    test_codes: NDArray[np.int64] | None = None
    pool: Features | None = None

    @cached_property
    def columns(self) -> tuple[list[RecordId], Features, NDArray[np.int64]]:
        """Ids, features and class codes of D^0, in order."""
        points, codes, _ = self.records.gather(self.records.live_slots())
        return self.records.ids(), points, codes.astype(np.int64)

    @property
    def learner_name(self) -> str:
        """The learner in words that are the same in every process: without addresses in memory."""
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(self.learner))


@dataclass(frozen=True)
class Play:
    """What is known about a finished interaction without the models: a function of the requests alone.

    `named` is what the requester would ask for next, after the last publication; None where nobody looks at it.
    """

    initial: Records
    survivors: Records
    asked: tuple[Batch, ...] = ()
    named: Batch | None = None

    @cached_property
    def deleted_slots(self) -> NDArray[np.int64]:
        """Where in D^0 the records are that are in D^t no more."""
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


class Statistic(Protocol):
    """A number of the models: what the event is about.

    It may use the requests (through `play`) and coins of its own, and nothing else: events of the definition are about
    the models and may depend on the updates, not on what else was published.
    """

    def __call__(self, scheme: Scheme[Any], state: Any, play: Play, coins: Randomness) -> float:
        """The statistic; NaN where it is not defined."""


Prepare = Callable[[Scheme[Any], Randomness], Mapping[str, Statistic]]


@dataclass(frozen=True)
class Scenario:
    """One attack, ready to be pointed at any scheme.

    setting : what is published in every round: the labels of `points`, or the models themselves.
    make_requester : a requester for one trial, from coins of its own.
    prepare : the statistics, by name; it may train shadows with the scheme, from coins that no trial uses.
    event : the event that is looked for, if it is fixed in advance; None lets part of the trials choose it.
    null_value : the event's probability after full retraining, where symmetry gives it.
    looks_ahead : whether the statistics want to know what the requester would name next.
    settings : the settings in which the requester can work.
    parameters : what makes the scenario, for the report and for checkpoints.
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
    looks_ahead: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.setting not in self.settings:
            can = " or ".join(self.settings)
            raise ParameterError(f"the requester of {self.name} must be shown {can}, got setting {self.setting!r}")
        if self.max_rounds < 1:
            raise ParameterError(f"max_rounds must be at least 1, got {self.max_rounds!r}")

    @property
    def num_published(self) -> int:
        """How many labels are published before the last update: what a budget has to cover."""
        publications = self.max_rounds + (1 if self.looks_ahead else 0)
        return num_rows(self.points) * publications
