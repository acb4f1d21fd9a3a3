from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from expunge_lab.bench.measurement import Task, one_thread, race


def test_tasks_take_turns_and_every_turn_advances() -> None:
    order: list[str] = []
    steps: list[int] = []
    tasks = [
        Task(lambda: order.append("A"), repeatable=False),
        Task(lambda: order.append("B"), repeatable=False),
    ]
    samples = race(tasks, repeats=3, advance=steps.append)
    assert order == ["A", "B"] * 3
    assert steps == [1] * 6
    assert [len(found) for found in samples] == [3, 3]


class Clock:
    """A clock that only moves when a task moves it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.runs = 0

    def task(self, seconds: float, **options: Any) -> Task:
        def run() -> None:
            self.now += seconds
            self.runs += 1

        return Task(run, **options)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("expunge_lab.bench.measurement.perf_counter", lambda: found.now)
    return found


def test_a_fast_task_runs_many_times_a_sample_and_the_figure_is_the_time_of_one_run(clock: Clock) -> None:
    ((seconds,),) = race([clock.task(1 / 1024)], repeats=1, advance=lambda _: None)
    assert seconds == 1 / 1024
    assert clock.runs == 1 + 21  # one to warm up, and as many as fill 20 milliseconds


def test_a_task_that_cannot_be_repeated_runs_once_a_sample(clock: Clock) -> None:
    race([clock.task(1 / 1024, repeatable=False)], repeats=3, advance=lambda _: None)
    assert clock.runs == 3


def test_a_run_of_several_operations_counts_as_that_many(clock: Clock) -> None:
    tasks = [clock.task(0.5), clock.task(0.5, operations=10)]
    assert race(tasks, repeats=2, advance=lambda _: None) == [[0.5, 0.5], [0.05, 0.05]]


def test_one_thread_is_one_thread_and_only_inside() -> None:
    np.ones((2, 2)) @ np.ones((2, 2))
    before = [pool["num_threads"] for pool in threadpool_info()]
    with one_thread():
        assert {pool["num_threads"] for pool in threadpool_info()} <= {1}
    assert [pool["num_threads"] for pool in threadpool_info()] == before
