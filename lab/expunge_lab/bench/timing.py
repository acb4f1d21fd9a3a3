"""Time several tasks in turns, so that whatever else the machine is doing hits all of them alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from time import perf_counter

from threadpoolctl import threadpool_limits

Advance = Callable[[int], None]
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


def race(tasks: Sequence[Task], *, repeats: int, advance: Advance) -> list[list[float]]:
    """Seconds of an operation of every task in every repeat; in each repeat all tasks take their turn, A B A B …"""
    numbers = [_warm_up(task) for task in tasks]
    samples: list[list[float]] = [[] for _ in tasks]
    for _ in range(repeats):
        for task, number, found in zip(tasks, numbers, samples, strict=True):
            found.append(_seconds(task, number) / (number * task.operations))
            advance(1)
    return samples


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS and OpenMP on one thread: on a machine that is not idle, threads that wait for each other are all noise."""
    with threadpool_limits(limits=1):
        yield


def _warm_up(task: Task) -> int:
    """How many runs make up a sample, from a first run that does not count."""
    if not task.repeatable:
        return 1
    return max(1, math.ceil(_SHORTEST_SAMPLE / _seconds(task, 1)))


def _seconds(task: Task, number: int) -> float:
    started = perf_counter()
    for _ in range(number):
        task.run()
    return max(perf_counter() - started, 1e-9)
