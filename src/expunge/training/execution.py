"""Run the trainings of shards on this machine, one after another or in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from joblib import Parallel, cpu_count, delayed
from joblib.externals.loky.process_executor import TerminatedWorkerError

from expunge.core.errors import ExpungeError, ParameterError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Executor(Protocol):
    """Calls the same function for many items."""

    @property
    def num_workers(self) -> int:
        """How many calls run at the same time."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield the results in the order of the items, each as soon as it and all before it are done."""


@dataclass(frozen=True)
class Serial:
    """Make one call after another in this process.

    Examples
    --------
    >>> list(Serial().map(abs, [-1, 2]))
    [1, 2]
    """

    @property
    def num_workers(self) -> int:
        """One: there are no parallel calls."""
        return 1

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield each result before the next call is made."""
        return map(function, items)


@dataclass(frozen=True)
class Processes:
    """Make the calls in worker processes on this machine. If a worker is killed, its work is done again.

    Parameters
    ----------
    num_workers
        How many worker processes there are.
    attempts
        After so many attempts in which a worker is killed, there is an error.
    """

    num_workers: int
    attempts: int = 3

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield the results in order.

        A training is a pure function of its item, so doing it again after a crash changes nothing. Raises
        `ExpungeError` if workers are killed in every attempt.
        """
        done = 0
        for attempt in range(1, self.attempts + 1):
            try:
                # No memory-mapped copies: a process that is killed would leave records in temporary files.
                pool = Parallel(n_jobs=self.num_workers, return_as="generator", max_nbytes=None)
                for result in pool(delayed(function)(item) for item in items[done:]):
                    done += 1
                    yield result
                return
            except TerminatedWorkerError as error:
                if attempt == self.attempts:
                    message = f"worker processes were killed {attempt} times (out of memory?)"
                    raise ExpungeError(message) from error


def make_executor(n_jobs: int | None) -> Executor:
    """Make the executor for a number of jobs, as scikit-learn counts them.

    Parameters
    ----------
    n_jobs
        None or 1 for this process, a number of worker processes, -1 for all cores, -2 for all cores but one.

    Returns
    -------
    Executor
        The executor.

    Raises
    ------
    ParameterError
        If `n_jobs` is 0.

    Examples
    --------
    >>> make_executor(None)
    Serial()
    >>> make_executor(4)
    Processes(num_workers=4, attempts=3)
    """
    if n_jobs is None or n_jobs == 1:
        return Serial()
    if n_jobs == 0:
        raise ParameterError("n_jobs must not be 0")
    workers = n_jobs if n_jobs > 0 else max(1, cpu_count() + 1 + n_jobs)
    return Serial() if workers == 1 else Processes(workers)
