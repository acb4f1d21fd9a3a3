"""Run shard trainings on this machine, one after another or in worker processes."""

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
    """Runs the same function over many items."""

    @property
    def num_workers(self) -> int:
        """How many calls run at once."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Results in the order of the items, each as soon as it and all before it are there."""


@dataclass(frozen=True)
class Serial:
    """One call after another in this process."""

    @property
    def num_workers(self) -> int:
        """One."""
        return 1

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Call, yield, call, yield."""
        return map(function, items)


@dataclass(frozen=True)
class Processes:
    """Worker processes on this machine; a worker that is killed has its work done again, twice at most."""

    num_workers: int
    attempts: int = 3

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Training is a pure function of its item, so doing it again after a crash changes nothing."""
        done = 0
        for attempt in range(1, self.attempts + 1):
            try:
                # No memory-mapped copies: a process that is killed would leave people's records in temporary files.
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
    """scikit-learn's n_jobs: None or 1 for this process, -1 for all cores, -2 for all but one."""
    if n_jobs is None or n_jobs == 1:
        return Serial()
    if n_jobs == 0:
        raise ParameterError("n_jobs must not be 0")
    workers = n_jobs if n_jobs > 0 else max(1, cpu_count() + 1 + n_jobs)
    return Serial() if workers == 1 else Processes(workers)
