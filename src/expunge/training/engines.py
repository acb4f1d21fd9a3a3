"""Engines by name: this process, its worker processes, Ray, or the backend that joblib was told to use.

`parallel_config` of joblib holds in one thread and one block. A deployment trains later too, and in other threads. So
the backend in force is taken down when an executor is made: when a deployment is created or opened, or an estimator
fitted.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl

from joblib import Parallel, cpu_count, delayed
from joblib._parallel_backends import (
    LokyBackend,
    MultiprocessingBackend,
    ParallelBackendBase,
    SequentialBackend,
    ThreadingBackend,
)
from joblib.parallel import get_active_backend

from expunge.core.checks import quoted
from expunge.core.errors import ExpungeError, ParameterError
from expunge.training.cluster import Ray
from expunge.training.execution import Executor, Item, Processes, Result, Serial
from expunge.training.parcels import make_key, result_of, seal, work
from expunge.training.surroundings import silenced

NAMES: Final = ("serial", "processes", "ray", "ray://HOST:PORT")
_LOCAL: Final = (MultiprocessingBackend, ThreadingBackend)  # Ray's is a subclass of the first
_RAY_OPTIONS: Final = {"num_cpus": float, "num_gpus": float, "max_retries": int}


class Joblib:
    """Make the calls on a backend of joblib, such as Dask's or Spark's, also from other threads and after its block.

    What travels to a backend that is not joblib's own is sealed (`expunge.training.parcels`). If a worker is lost, and
    the backend itself does not do its work again, this does.

    Parameters
    ----------
    backend
        The backend.
    n_jobs
        How many calls it makes at the same time; None leaves that to the backend.
    attempts
        After so many attempts in which the backend fails, there is an error.

    Examples
    --------
    >>> from joblib import parallel_config
    >>> with parallel_config(backend="threading", n_jobs=2):
    ...     executor = make_executor(None)
    >>> list(executor.map(abs, [-1, 2]))
    [1, 2]
    """

    def __init__(self, backend: ParallelBackendBase, n_jobs: int | None = None, *, attempts: int = 3) -> None:
        self.attempts = attempts
        self._backend, self._n_jobs = backend, n_jobs
        self._lock = threading.Lock()  # a backend serves one call of joblib at a time

    @property
    def num_workers(self) -> int:
        """How many calls the backend makes at the same time."""
        jobs = self._backend.default_n_jobs if self._n_jobs is None else self._n_jobs
        try:
            return max(1, int(self._backend.effective_n_jobs(jobs)))
        except Exception as error:
            self._give_up(error)

    @property
    def is_remote(self) -> bool:
        """Whether the backend is one of a cluster."""
        return type(self._backend) not in _LOCAL

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result]:
        """Yield the results in order.

        Errors of the function travel as results. So any other error is the backend's: it lost a worker, or is gone.
        """
        done = 0
        with self._lock:
            for attempt in range(1, self.attempts + 1):
                calls = _Calls(function, items, done, key=make_key() if self.is_remote else None)
                try:
                    with closing(self._results(calls)) as results:
                        for found in results:
                            done += 1
                            yield calls.result(found)
                    if calls.failure is None:
                        return
                except _CallError as error:
                    if calls.failure is None and (
                        attempt == self.attempts or isinstance(error.cause, pickle.PicklingError)
                    ):
                        self._give_up(error.cause)
                if calls.failure is not None:
                    raise calls.failure

    def _results(self, calls: Any) -> Generator[Any]:
        """What the backend returns, as soon as it can say: some backends say so only at the end."""
        gives_early = self._backend.supports_return_generator
        try:
            # No memory-mapped copies: a process that is killed would leave records in temporary files.
            pool = Parallel(
                n_jobs=self._n_jobs,
                backend=self._backend,
                return_as="generator" if gives_early else "list",
                max_nbytes=None,
            )
            found = iter(pool(calls))
        except Exception as error:
            raise _CallError(error) from error
        try:
            while True:
                try:
                    result = next(found)
                except StopIteration:
                    return
                except Exception as error:
                    raise _CallError(error) from error
                yield result
        finally:
            if isinstance(found, Generator):
                with silenced():  # joblib warns of calls that are left
                    found.close()

    def _give_up(self, error: BaseException) -> NoReturn:
        name = type(self._backend).__name__
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ExpungeError(f"joblib's {name} lost its workers or cannot be reached ({words:.300})") from error

    def start(self) -> None:
        """Do nothing: the backend is there."""

    def close(self) -> None:
        """Do nothing: the backend belongs to the caller."""

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy elsewhere uses the backend in force there: this one's connection stays here."""
        return make_executor, (self._n_jobs,)

    def __repr__(self) -> str:
        return f"Joblib({type(self._backend).__name__}, n_jobs={self._n_jobs})"


class _Calls:
    """The calls that are left to make, each looked up when joblib asks for it. `failure` is an error of a look-up."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any], first: int, *, key: bytes | None) -> None:
        self._function, self._items, self._first, self._key = function, items, first, key
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        key = self._key
        try:
            code = b"" if key is None else seal(key, self._function)
            for place in range(self._first, len(self._items)):
                item = self._items[place]
                yield (
                    delayed(_attempt)(self._function, item)
                    if key is None
                    else delayed(work)(key, code, seal(key, item))
                )
        except Exception as error:
            self.failure = error

    def result(self, found: Any) -> Any:
        """What a call returned. If it raised an error, so does this."""
        if self._key is not None:
            return result_of(self._key, found)
        result, error = found
        if error is not None:
            raise error
        return result


class _CallError(Exception):
    """An error of a backend, and not of what it was to call."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


def _attempt(function: Callable[[Item], Result], item: Item) -> tuple[Result | None, Exception | None]:
    try:
        return function(item), None
    except Exception as error:
        return None, error


def make_executor(n_jobs: int | None = None, engine: str | Executor | None = None) -> Executor:
    """Make the executor for a number of jobs, as scikit-learn counts them, on an engine.

    Parameters
    ----------
    n_jobs
        None or 1 for this process, a number of worker processes, -1 for all cores, -2 for all cores but one. On Ray it
        is how many trainings run at the same time, at most.
    engine
        "serial", "processes" (all cores, unless `n_jobs` says how many), "ray" (the cluster at `RAY_ADDRESS`, or else a
        private one on this machine), or "ray://HOST:PORT"; for Ray what a training needs may follow, such as
        "ray?num_cpus=2&num_gpus=0.5". None takes the backend of joblib's `parallel_config` if there is one, and else
        this process or worker processes by `n_jobs`. An executor is returned as it is.

    Returns
    -------
    Executor
        The executor.

    Raises
    ------
    ParameterError
        If `n_jobs` is 0, the engine is unknown or does not go with `n_jobs`, or Ray cannot be reached.
    MissingExtraError
        If the engine is Ray and Ray is not installed.

    Examples
    --------
    >>> make_executor()
    Serial()
    >>> make_executor(4)
    Processes(num_workers=4, attempts=3)
    >>> make_executor(engine="serial")
    Serial()
    """
    if n_jobs == 0:
        raise ParameterError("n_jobs must not be 0")
    if engine is None:
        return _in_force(n_jobs)
    if not isinstance(engine, str):
        return engine
    name, mark, options = engine.partition("?")
    if name in ("serial", "processes") and not mark:
        if name == "processes":
            return _on_this_machine(-1 if n_jobs is None else n_jobs)
        if n_jobs not in (None, 1):
            raise ParameterError(f"the engine serial makes one call after another, so it has no use for {n_jobs} jobs")
        return Serial()
    if name == "ray" or name.startswith("ray://"):
        address = os.environ.get("RAY_ADDRESS") or None if name == "ray" else name
        return Ray(address, n_jobs=None if n_jobs is None or n_jobs < 0 else n_jobs, **_ray_options(options))
    raise ParameterError(f"the engine is one of {', '.join(NAMES)}, got {quoted(engine)}")


def _in_force(n_jobs: int | None) -> Executor:
    """The executor on joblib's backend, if its `parallel_config` names one; this machine's if not."""
    backend, jobs = get_active_backend()
    jobs = jobs if n_jobs is None else n_jobs
    if isinstance(backend, LokyBackend):  # joblib's default
        return _on_this_machine(jobs)
    if isinstance(backend, SequentialBackend):
        return Serial()
    executor = Joblib(backend, jobs)
    is_alone = not executor.is_remote and executor.num_workers == 1  # such as inside a worker of a grid search
    return Serial() if is_alone else executor


def _on_this_machine(n_jobs: int | None) -> Executor:
    jobs = 1 if n_jobs is None else int(n_jobs)
    workers = jobs if jobs > 0 else max(1, cpu_count() + 1 + jobs)
    return Serial() if workers == 1 else Processes(workers)


def _ray_options(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        for name, value in parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text)):
            if name in found:
                raise ValueError(name)
            found[name] = _RAY_OPTIONS[name](value)
    except (KeyError, ValueError):
        known = ", ".join(_RAY_OPTIONS)
        raise ParameterError(
            f"the options of an engine are {known}, each once and with a number, got {quoted(text)}"
        ) from None
    return found
