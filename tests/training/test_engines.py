from __future__ import annotations

import os
import pickle
import signal
import threading
from functools import partial

import pytest
from joblib import parallel_config
from joblib._parallel_backends import ThreadingBackend

from expunge.core.errors import ExpungeError, MissingExtraError, ParameterError, TrainingError
from expunge.training import cluster
from expunge.training.engines import Joblib, make_executor
from expunge.training.execution import Processes, Serial


def square(number: int) -> int:
    return number * number


def fail_at(place: int, number: int) -> int:
    if number == place:
        raise TrainingError(f"number {number}", number)
    return number


def die_once(mark: str, number: int) -> int:
    """Kill the worker the first time that it sees number 3."""
    if number == 3 and not os.path.exists(mark):
        with open(mark, "w"):
            os.kill(os.getpid(), signal.SIGKILL)
    return number


class Counted(list):
    """Items that count how many of them were looked up."""

    looked_up = 0

    def __getitem__(self, place):
        self.looked_up += 1
        return super().__getitem__(place)


def test_engines_by_name():
    assert make_executor(None, "serial") == make_executor(1, "serial") == Serial()
    assert make_executor(3, "processes") == Processes(3)
    assert make_executor(None, "processes") == make_executor(-1)
    own = Serial()
    assert make_executor(4, own) is own


@pytest.mark.parametrize(
    ("jobs", "engine", "words"),
    [
        (None, "spark", "one of serial, processes, ray, ray://HOST:PORT, got 'spark'"),
        (None, "", "got ''"),
        (None, "serial?num_cpus=1", "got 'serial"),
        (2, "serial", "no use for 2 jobs"),
        (0, "processes", "n_jobs must not be 0"),
        (None, "ray?num_gpu=1", "num_cpus, num_gpus, max_retries"),
        (None, "ray?num_cpus=many", "num_cpus, num_gpus, max_retries"),
        (None, "ray?num_cpus=1&num_cpus=2", "each once and with a number"),
        (None, "ray?num_cpus=-1", "num_cpus must be a number from 0 on"),
        (None, "ray?num_cpus=nan", "num_cpus must be a number from 0 on"),
        (None, "ray?num_cpus=0", "must not both be 0"),
        (2, "ray?num_cpus=9&num_gpus=0", None),
        (None, "ray://", "an address of Ray"),
        (None, "ray://host:port", "an address of Ray"),
        (None, "ray://127.0.0.1:1", "cannot be reached at ray://127.0.0.1:1: Connection refused"),
    ],
)
def test_bad_engines_are_refused_in_one_line(jobs, engine, words):
    if words is None:  # 2 jobs of 9 processors each: a private cluster of 18
        assert repr(make_executor(jobs, engine)) == "<Ray on this machine, num_cpus=9, num_gpus=0>"
        return
    with pytest.raises(ParameterError) as caught:
        make_executor(jobs, engine)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_address_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ParameterError, match=r"reached at 127\.0\.0\.1:1"):
        make_executor(None, "ray")
    monkeypatch.setenv("RAY_ADDRESS", "")
    assert make_executor(None, "ray").address is None


def test_ray_is_an_extra(monkeypatch):
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"expunge\[ray\]"):
        make_executor(None, "ray")


def test_joblibs_own_processes_are_ours():
    with parallel_config(backend="loky", n_jobs=3):
        assert make_executor(None) == Processes(3)
        assert make_executor(2) == Processes(2)
    with parallel_config(n_jobs=3):
        assert make_executor(None) == Processes(3)
        assert make_executor(2) == Processes(2)
    with parallel_config(backend="sequential"):
        assert make_executor(4) == Serial()
    assert make_executor(None) == Serial()
    with parallel_config(backend="threading", n_jobs=1):  # as inside a worker of joblib
        assert make_executor(None) == Serial()


@pytest.mark.parametrize("name", ["threading", "multiprocessing"])  # the second has no generators
def test_a_backend_is_kept_beyond_its_block_and_in_other_threads(name):
    with parallel_config(backend=name, n_jobs=2):
        executor = make_executor(None)
    assert isinstance(executor, Joblib)
    assert (executor.num_workers, executor.is_remote) == (2, False)
    assert repr(executor) == f"Joblib({name.capitalize()}Backend, n_jobs=2)"
    found = []
    thread = threading.Thread(target=lambda: found.extend(executor.map(square, range(7))))
    thread.start()
    thread.join(60)
    assert found == [0, 1, 4, 9, 16, 25, 36]
    assert list(executor.map(square, [])) == []
    with pytest.raises(TrainingError) as caught:
        list(executor.map(partial(fail_at, 3), range(7)))
    assert caught.value.shard == 3
    assert list(executor.map(square, range(3))) == [0, 1, 4]
    assert pickle.loads(pickle.dumps(executor)) == Processes(2)  # where it is read nothing else is in force


def test_a_generator_that_is_left_does_not_keep_the_backend():
    executor = Joblib(ThreadingBackend(nesting_level=0), 1)
    items = Counted(range(100))
    results = executor.map(square, items)
    assert next(results) == 0
    assert items.looked_up < 20
    results.close()
    assert list(executor.map(square, range(3))) == [0, 1, 4]


def test_an_error_of_an_item_is_told_as_it_is():
    class Broken(list):
        def __getitem__(self, place):
            if place == 2:
                raise TrainingError("cannot be read", 2)
            return place

    executor = Joblib(ThreadingBackend(nesting_level=0), 2)
    with pytest.raises(TrainingError, match="cannot be read"):
        list(executor.map(square, Broken(range(5))))


class LostWorker(Exception):
    """What some backend raises: not of any family that is known here."""


class Losing(ThreadingBackend):
    """Loses a worker now and then. Its results come at the end, as those of most backends do."""

    supports_retrieve_callback = False
    left = 0

    def submit(self, func, callback=None):
        type(self).left -= 1
        if type(self).left == 0:
            raise LostWorker("worker 7 is gone\nand more")
        return super().submit(func, callback)

    apply_async = submit


def test_a_backend_that_loses_a_worker_is_asked_again_and_given_up_in_the_end():
    executor = Joblib(Losing(nesting_level=0), 2)
    assert executor.is_remote  # not joblib's own: everything is sealed
    Losing.left = 3
    assert list(executor.map(square, range(7))) == [0, 1, 4, 9, 16, 25, 36]
    assert Losing.left < 0

    class Always(Losing):
        def submit(self, func, callback=None):
            raise LostWorker("worker 7 is gone\nand more")

        apply_async = submit

    with pytest.raises(ExpungeError) as caught:
        list(Joblib(Always(nesting_level=0), 2).map(square, range(7)))
    assert str(caught.value) == ("joblib's Always lost its workers or cannot be reached (LostWorker: worker 7 is gone)")


@pytest.fixture(scope="module")
def dask():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, processes=True
        ) as workers,
        distributed.Client(workers),
    ):
        with parallel_config(backend="dask"):
            executor = make_executor(None)
        yield executor


def test_dask_answers_in_order_also_where_a_worker_is_killed(dask, tmp_path):
    assert dask.is_remote
    assert dask.num_workers == 2
    assert list(dask.map(square, range(7))) == [0, 1, 4, 9, 16, 25, 36]
    with pytest.raises(TrainingError):
        list(dask.map(partial(fail_at, 3), range(7)))
    assert list(dask.map(partial(die_once, str(tmp_path / "died")), range(6))) == list(range(6))
    assert (tmp_path / "died").exists()
