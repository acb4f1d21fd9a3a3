"""What several scenarios use: statistics that need no preparation, and requesters by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from expunge.audit.requesters import AddUntilCorrect, DeleteCorrect, DeleteRandomCorrect, DeleteThese
from expunge.audit.scenario import Statistic, Task
from expunge.audit.schemes import Scheme
from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness
from expunge.serving.interaction import Requester

MakeRequester = Callable[[Task, Randomness], Requester]


def requester_name(requester: str | MakeRequester | None, usual: str = "user's own") -> str:
    """What a report and a file of trials call a requester: a user's own by its module:factory, where it has one."""
    if requester is None or isinstance(requester, str):
        return requester or usual
    return str(getattr(requester, "reference", "user's own"))


@dataclass(frozen=True)
class Ready:
    """Statistics that are ready as they are."""

    statistics: Mapping[str, Statistic] = field(default_factory=dict)

    def __call__(self, scheme: Scheme[Any], rng: Randomness) -> Mapping[str, Statistic]:
        """The statistics."""
        return self.statistics


@dataclass(frozen=True)
class Bound:
    """A requester maker with its task filled in (picklable, unlike a closure)."""

    make: MakeRequester
    task: Task

    def __call__(self, rng: Randomness) -> Requester:
        """A requester for one trial."""
        return self.make(self.task, rng)


@dataclass(frozen=True)
class NamedRequester:
    """A built-in label-only requester for the task's records.

    random : `size` records chosen in advance; correct : all that are labelled rightly; one-by-one : the same, one a
    round; random-correct : `size` of them; add : copies of what is labelled wrongly.
    """

    name: str
    size: int

    def __post_init__(self) -> None:
        if self.name not in LABEL_REQUESTERS:
            raise ParameterError(f"requester must be one of {', '.join(LABEL_REQUESTERS)}, got {self.name!r}")

    def __call__(self, task: Task, rng: Randomness) -> Requester:
        """One for a trial."""
        ids, points, codes = task.columns
        match self.name:
            case "random":
                return DeleteThese.random(ids, self.size, rng=rng)
            case "correct" | "one-by-one":
                return DeleteCorrect(ids, codes, at_once=self.name == "correct")
            case "random-correct":
                return DeleteRandomCorrect.draw(ids, codes, self.size, rng=rng)
            case _:
                return AddUntilCorrect(ids, points, task.records.classes[codes], codes)


LABEL_REQUESTERS = ("correct", "one-by-one", "random-correct", "random", "add")
