"""Timing, and one line of a benchmark: what was measured, ours, the other, their ratio, and whether it meets a target.

Several tasks are timed in turns, so that other work on the machine affects all of them alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, Literal

from threadpoolctl import threadpool_limits

Advance = Callable[[int], None]
Clock = Callable[[], float]
Progress = Callable[[str, int], AbstractContextManager[Advance]]

_SHORTEST_SAMPLE = 0.02  # seconds; a faster task is called several times a sample, so that the clock does not matter


@dataclass(frozen=True, slots=True)
class Task:
    """Something to time; one run does `operations` operations, and the figure is the time of one of them.

    A task with `repeatable=False` uses something up, or is slow: it is run once a sample and not before the first.
    """

    run: Callable[[], object]
    operations: int = 1
    repeatable: bool = True


def race(tasks: Sequence[Task], *, repeats: int, advance: Advance, clock: Clock | None = None) -> list[list[float]]:
    """Seconds of an operation of every task in every repeat; in each repeat all tasks take their turn, A B A B …

    On the wall, unless another clock is given.
    """
    clock = clock or perf_counter
    numbers = [_warm_up(task, clock) for task in tasks]
    samples: list[list[float]] = [[] for _ in tasks]
    for _ in range(repeats):
        for task, number, found in zip(tasks, numbers, samples, strict=True):
            found.append(_seconds(task, number, clock) / (number * task.operations))
            advance(1)
    return samples


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS and OpenMP on one thread: on a machine that is not idle, threads that wait for each other are all noise."""
    with threadpool_limits(limits=1):
        yield


def _warm_up(task: Task, clock: Clock) -> int:
    """How many runs make up a sample, from a first run that does not count."""
    if not task.repeatable:
        return 1
    return max(1, math.ceil(_SHORTEST_SAMPLE / _seconds(task, 1, clock)))


def _seconds(task: Task, number: int, clock: Clock) -> float:
    started = clock()
    for _ in range(number):
        task.run()
    return max(clock() - started, 1e-9)


Unit = Literal["s", "bytes", "share"]
Comparison = Literal["times as fast", "times the cost", "times as much"]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several repeats, with the lowest and the highest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Of at least one sample."""
        return cls(median(samples), min(samples), max(samples))

    def to_dict(self) -> dict[str, float]:
        """Plain data."""
        return {"median": self.median, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Target:
    """What a line ought to reach: a bound on the median of its ratio, or of our own figure."""

    of: Literal["ratio", "ours"]
    bound: Literal["at least", "at most"]
    value: float

    @classmethod
    def ratio_at_least(cls, value: float) -> Target:
        """At least so many times as fast."""
        return cls("ratio", "at least", value)

    @classmethod
    def ratio_at_most(cls, value: float) -> Target:
        """At most so many times the cost."""
        return cls("ratio", "at most", value)

    @classmethod
    def ours_at_most(cls, value: float) -> Target:
        """At most so many seconds or bytes."""
        return cls("ours", "at most", value)

    def is_met(self, figure: float) -> bool:
        """Whether a figure is on the right side of the bound."""
        return figure >= self.value if self.bound == "at least" else figure <= self.value


@dataclass(frozen=True, slots=True)
class Line:
    """A measurement, alone or against something else that was measured in turns with it."""

    what: str
    ours: Spread
    unit: Unit = "s"
    other_name: str | None = None
    other: Spread | None = None
    ratio: Spread | None = None
    comparison: Comparison | None = None
    target: Target | None = None

    @classmethod
    def alone(cls, what: str, ours: Sequence[float], *, target: Target | None = None) -> Line:
        """A time with nothing to compare it with."""
        return cls(what, Spread.of(ours), target=target)

    @classmethod
    def faster(
        cls,
        what: str,
        ours: Sequence[float],
        other_name: str,
        other: Sequence[float],
        *,
        unit: Unit = "s",
        target: Target | None = None,
    ) -> Line:
        """How many times less ours takes than the other; the ratio is taken within each repeat."""
        ratio = Spread.of([b / a for a, b in zip(ours, other, strict=True)])
        return cls(what, Spread.of(ours), unit, other_name, Spread.of(other), ratio, "times as fast", target)

    @classmethod
    def cost(
        cls,
        what: str,
        ours: Sequence[float],
        other_name: str,
        other: Sequence[float],
        *,
        target: Target | None = None,
    ) -> Line:
        """How many times as long ours takes as the other; the ratio is taken within each repeat."""
        ratio = Spread.of([a / b for a, b in zip(ours, other, strict=True)])
        return cls(what, Spread.of(ours), "s", other_name, Spread.of(other), ratio, "times the cost", target)

    @classmethod
    def share(cls, what: str, ours: Sequence[float], other_name: str, other: Sequence[float]) -> Line:
        """A share of something, and how many times as large as the other it is."""
        ratio = Spread.of([a / b for a, b in zip(ours, other, strict=True)])
        return cls(what, Spread.of(ours), "share", other_name, Spread.of(other), ratio, "times as much")

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        if self.target.of == "ours":
            return self.target.is_met(self.ours.median)
        return self.ratio is not None and self.target.is_met(self.ratio.median)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        target = self.target
        return {
            "what": self.what,
            "unit": self.unit,
            "ours": self.ours.to_dict(),
            "other_name": self.other_name,
            "other": None if self.other is None else self.other.to_dict(),
            "ratio": None if self.ratio is None else self.ratio.to_dict(),
            "comparison": self.comparison,
            "target": None if target is None else {"of": target.of, "bound": target.bound, "value": target.value},
            "met": self.met,
        }
