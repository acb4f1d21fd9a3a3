"""Threads that work beside their caller and are never left behind by it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class ThreadGroup:
    """A few threads for work that mostly waits for the disk. To be closed, whatever happens.

    Who is interrupted while it waits for them, however often, is interrupted when they are done: a thread that went on
    without its caller would write into what has been begun since.
    """

    def __init__(self, size: int) -> None:
        self._pool = ThreadPoolExecutor(size, "store")
        self._jobs: list[Future[Any]] = []

    def start(self, act: Callable[..., T], *args: Any) -> Future[T]:
        """Have it done as soon as a thread is free."""
        job = self._pool.submit(act, *args)
        self._jobs.append(job)
        return job

    def halt(self) -> None:
        """Begin nothing more, and wait for what has begun. The handler of a signal may do that, whatever it interrupts.

        It waits for the jobs and not for the threads: one whose `join` is interrupted may count as ended before it is.
        """
        wait([job for job in self._jobs if not job.cancel()])

    def close(self) -> None:
        """Begin nothing more; when this returns, or is interrupted, nobody is at work."""
        interruption: BaseException | None = None
        while True:
            try:
                self.halt()
                self._pool.shutdown()
                break
            except BaseException as error:  # of a signal: nothing here fails
                interruption = error
        if interruption is not None:
            raise interruption

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def for_each(act: Callable[[T], None], things: list[T], *, most: int = 8) -> None:
    """Do it to all of them side by side: the disk waits for many at once as long as for one.

    All are tried; the first failure is told when all have ended.
    """
    if len(things) < 2:
        for thing in things:
            act(thing)
        return
    with ThreadGroup(min(most, len(things))) as threads:
        jobs = [threads.start(act, thing) for thing in things]
        wait(jobs)
    for job in jobs:
        job.result()
