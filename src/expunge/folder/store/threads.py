"""Threads that work beside their caller, and that the caller never leaves running."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class ThreadGroup:
    """A few threads for work that mostly waits for the disk. The caller must always close it.

    An interruption while the caller waits for the threads is raised after they are done. A thread that ran on without
    its caller would write into what later work has begun.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._pool: ThreadPoolExecutor | None = None  # until there is something for it
        self._jobs: list[Future[Any]] = []

    def start(self, act: Callable[..., T], *args: Any) -> Future[T]:
        """Run a function as soon as a thread is free."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._size, "store")
        job = self._pool.submit(act, *args)
        self._jobs.append(job)
        return job

    def run(self, act: Callable[..., T], *args: Any) -> Future[T]:
        """Run a function now: it does not wait for the disk."""
        job: Future[T] = Future()
        try:
            job.set_result(act(*args))
        except Exception as error:
            job.set_exception(error)
        return job

    def halt(self) -> None:
        """Start no more jobs, and wait for those that run. A signal handler may call this at any time.

        It waits for jobs and not for threads: a thread whose `join` is interrupted may count as ended before it has.
        """
        running = [job for job in self._jobs if not job.cancel()]
        if running:
            wait(running)

    def close(self) -> None:
        """Start no more jobs. When this returns or raises, no thread is at work."""
        interruption: BaseException | None = None
        while True:
            try:
                self.halt()
                if self._pool is not None:
                    self._pool.shutdown()
                break
            except BaseException as error:  # from a signal: nothing else fails here
                interruption = error
        if interruption is not None:
            raise interruption

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def for_each(act: Callable[[T], None], things: list[T], *, most: int = 8, fewest: int = 6) -> None:
    """Call a function for each thing, in several threads: the disk serves many requests in the time of one.

    All calls are made. The first error is raised when all have ended. Fewer things than `fewest` are done one after
    another, up to the first error: to start threads would take longer.
    """
    if len(things) < fewest:
        for thing in things:
            act(thing)
        return
    with ThreadGroup(min(most, len(things))) as threads:
        jobs = [threads.start(act, thing) for thing in things]
        wait(jobs)
    for job in jobs:
        job.result()
