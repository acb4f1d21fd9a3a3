"""Executors: run the trainings of shards in this process, or in worker processes on this machine."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from joblib import Parallel, delayed
from joblib.externals.loky.process_executor import (
    BrokenProcessPool,
    ProcessPoolExecutor,
    ShutdownExecutorError,
    TerminatedWorkerError,
)

from expunge.core.errors import ExpungeError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Executor(Protocol):
    """Calls the same function for many items."""

    @property
    def num_workers(self) -> int:
        """How many calls run at the same time."""

    @property
    def is_remote(self) -> bool:
        """Whether calls may be made on other machines: what they need is then found there, or sealed on its way."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result]:
        """Yield the results in the order of the items, each as soon as it and all before it are done.

        An item is looked up when its turn comes, for it may be large. Closing the generator ends the calls under way.
        """

    def start(self) -> None:
        """Start beforehand what the calls need. Without this the first call does."""

    def close(self) -> None:
        """End what was started. The executor may not be used afterwards."""


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

    @property
    def is_remote(self) -> bool:
        """False: everything stays in this process."""
        return False

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result]:
        """Yield each result before the next call is made."""
        for place in range(len(items)):
            yield function(items[place])

    def start(self) -> None:
        """Do nothing: nothing has to be started."""

    def close(self) -> None:
        """Do nothing: nothing was started."""


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

    @property
    def is_remote(self) -> bool:
        """False: everything stays on this machine."""
        return False

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result]:
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

    def start(self) -> None:
        """Do nothing: joblib starts its processes with the first call."""

    def close(self) -> None:
        """Do nothing: the processes are joblib's, which ends them when they have been idle."""


class KeptProcesses:
    """Make the calls in worker processes that are started once, and that give way to everything else on the machine.

    For a service: its own process answers meanwhile, and no training waits for a process to start. If a worker is
    killed, its work is done again.

    Parameters
    ----------
    num_workers
        How many worker processes there are.
    attempts
        After so many attempts in which a worker is killed, there is an error.

    Examples
    --------
    >>> workers = KeptProcesses(1)
    >>> list(workers.map(abs, [-1, 2]))
    [1, 2]
    >>> workers.close()
    """

    def __init__(self, num_workers: int, *, attempts: int = 3) -> None:
        self.num_workers, self.attempts = num_workers, attempts
        self._pool: ProcessPoolExecutor | None = None
        self._is_closed = False

    @property
    def is_remote(self) -> bool:
        """False: everything stays on this machine."""
        return False

    def start(self) -> None:
        """Start the processes, without waiting for them."""
        for _ in range(self.num_workers):
            self._workers().submit(os.getpid)

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result]:
        """Yield the results in order. Raises `ExpungeError` if workers are killed in every attempt, or at the end."""
        done = 0
        for attempt in range(1, self.attempts + 1):
            try:
                for result in self._results(function, items, done):
                    done += 1
                    yield result
                return
            except (BrokenProcessPool, ShutdownExecutorError) as error:
                self._pool = None
                if self._is_closed:
                    raise ExpungeError("the worker processes were ended") from None
                if attempt == self.attempts:
                    raise ExpungeError(f"worker processes were killed {attempt} times (out of memory?)") from error

    def _results(self, function: Callable[[Item], Result], items: Sequence[Item], first: int) -> Iterator[Result]:
        """The results from one item on. Few items are made ready beforehand: each may be large."""
        pool, waiting = self._workers(), deque[Future[Result]]()
        try:
            for place in range(first, len(items)):
                waiting.append(pool.submit(function, items[place]))
                if len(waiting) > self.num_workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()

    def _workers(self) -> ProcessPoolExecutor:
        if self._is_closed:
            raise ExpungeError("the worker processes were ended")
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.num_workers, initializer=_give_way)
        return self._pool

    def close(self) -> None:
        """End the processes, also in the middle of their work."""
        self._is_closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, kill_workers=True)


def _give_way() -> None:
    """Leave the processor to others, and Ctrl-C to the parent process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(10)
