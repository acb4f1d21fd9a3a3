from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import joblib
import pytest

from expunge.core.errors import ExpungeError, ParameterError
from expunge.training.engines import make_executor
from expunge.training.execution import KeptProcesses, Processes, Serial


def square(number: int) -> int:
    return number * number


def die_once(folder: str, number: int) -> int:
    """Kill the worker the first time that it sees number 3."""
    mark = Path(folder) / "died"
    if number == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.fixture(scope="module")
def kept():
    made = KeptProcesses(1, attempts=2)
    yield made
    made.close()


def test_kept_processes_answer_in_order_and_give_way(kept):
    kept.start()
    assert list(kept.map(square, list(range(7)))) == [0, 1, 4, 9, 16, 25, 36]
    assert list(kept.map(square, [])) == []
    (pid, niceness), other = kept.map(where, [0, 1])
    assert pid != os.getpid()
    assert niceness == os.nice(0) + 10
    assert other[0] == pid


def where(_: int) -> tuple[int, int]:
    return os.getpid(), os.nice(0)


def test_kept_processes_do_again_what_was_killed_and_give_up_in_the_end(kept, tmp_path):
    assert list(kept.map(partial(die_once, str(tmp_path)), list(range(6)))) == list(range(6))
    with pytest.raises(ExpungeError, match="killed 2 times"):
        list(kept.map(die, [1]))
    assert list(kept.map(square, [3])) == [9]


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def test_kept_processes_end_in_the_middle_of_their_work():
    workers, errors = KeptProcesses(1), []

    def work():
        try:
            list(workers.map(sleep, [60.0]))
        except ExpungeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.2)
    workers.close()
    thread.join(30)
    assert errors == ["the worker processes were ended"]
    with pytest.raises(ExpungeError, match="ended"):
        list(workers.map(square, [1]))


@pytest.mark.parametrize("executor", [Serial(), Processes(2)], ids=str)
def test_results_come_in_order(executor):
    assert list(executor.map(square, list(range(7)))) == [0, 1, 4, 9, 16, 25, 36]
    assert list(executor.map(square, [])) == []


def test_n_jobs_means_what_scikit_learn_means():
    assert make_executor(None) == make_executor(1) == Serial()
    assert make_executor(3) == Processes(3)
    assert make_executor(-1).num_workers == joblib.cpu_count()
    with pytest.raises(ParameterError, match="n_jobs"):
        make_executor(0)


def test_a_killed_worker_has_its_work_done_again(tmp_path):
    assert list(Processes(2).map(partial(die_once, str(tmp_path)), list(range(6)))) == list(range(6))
    assert (tmp_path / "died").exists()


def test_workers_that_keep_dying_are_given_up():
    with pytest.raises(ExpungeError, match="killed"):
        list(Processes(2, attempts=2).map(die, [1, 2]))
