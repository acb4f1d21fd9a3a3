"""Applying accepted requests beside the answers: a thread that begins rounds, and processes that train them.

Under the exact promise a round begins when its requests are due. Under (α,β,γ) it begins on a tick of the deployment's
clock, is put in service on the next one, and its requests count as applied on the one after that (see
`expunge.folder.opening.open_to_serve`). If a round fails, its requests stay pending and are tried again.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from expunge.core.errors import ExpungeError
from expunge.core.words import utc
from expunge.folder import DurableDeployment
from expunge.service.tracing import Made
from expunge.training.execution import Executor

_PATIENCE: Final = (1.0, 5.0, 15.0, 60.0)  # seconds before a round that failed is tried again
_LONGEST: Final = 3600.0  # seconds that the thread sleeps at most


def num_workers(jobs: int | None) -> int:
    """How many processes train: all cores but one, so that one is left for answers, or as many as are asked for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if jobs is None:
        return max(1, cores - 1)
    return jobs if jobs > 0 else max(1, cores + 1 + jobs)


class Trainer:
    """Applies the requests of a deployment.

    Parameters
    ----------
    deployment
        The deployment, opened by `open_to_serve`.
    workers
        Where it trains.
    tell
        Called with each error, for the operator's log.
    """

    def __init__(self, deployment: DurableDeployment, workers: Executor, *, tell: Callable[[Exception], None]) -> None:
        self._deployment, self._workers, self._tell = deployment, workers, tell
        self._wanted, self._ended = threading.Event(), threading.Event()
        self._must_apply = False
        self._failures = 0
        self._thread = threading.Thread(target=self._work, name="trainer")
        self._changed: Callable[[], None] = lambda: None
        self._made: Callable[[Made], None] | None = None
        self._policy = deployment.policy
        self.begun_at: str | None = None  # of the round that is being made
        self.trained = 0  # models of that round
        self.error: str | None = None  # of the last round, if it failed

    def start(self, changed: Callable[[], None], made: Callable[[Made], None] | None = None) -> None:
        """Start the thread and the processes. On that thread `changed` is called whenever requests were applied, and
        `made` with each round, also with one that failed.
        """
        self._changed, self._made = changed, made
        self._workers.start()
        self._thread.start()

    def look(self, *, now: bool = False) -> None:
        """Requests were accepted: look whether they are due. `now` applies them in any case."""
        self._must_apply = self._must_apply or now
        self._wanted.set()

    def close(self, *, patience: float) -> bool:
        """End the thread, after the round that is being made if that is done in time. Return whether it was."""
        self._ended.set()
        self._wanted.set()
        if self._thread.ident is None:
            self._workers.close()
            return True
        self._thread.join(patience)
        is_done = not self._thread.is_alive()
        if not is_done:
            self._deployment.halt()
        self._workers.close()
        self._thread.join()
        return is_done

    def to_dict(self) -> dict[str, Any]:
        """What the operator may know."""
        return {
            "begun_at": self.begun_at,
            "trained": self.trained if self.begun_at else None,
            "failures": self._failures,
            "error": self.error,
        }

    def _work(self) -> None:
        beats = self._policy.beats(time.monotonic) if self._policy.mode == "every" else None
        beat = time.monotonic() + next(beats) if beats is not None else math.inf
        self._wanted.set()  # what is pending from before may be due
        while not self._ended.is_set():
            self._wanted.wait(min(_LONGEST, max(0.0, beat - time.monotonic())))
            is_beat = time.monotonic() >= beat
            if is_beat and beats is not None:
                beat = time.monotonic() + next(beats)
            self._wanted.clear()
            if self._ended.is_set() or not self._is_due(is_beat):
                continue
            if not self._deployment.is_exact:
                self._wait_for_tick()
            self._apply()

    def _is_due(self, is_beat: bool) -> bool:
        if self._must_apply or (self._policy.mode == "every" and is_beat):
            return True
        if self._policy.mode == "every":
            return False
        try:
            return self._deployment.is_due
        except ExpungeError as error:
            self._tell(error)
            return False

    def _wait_for_tick(self) -> None:
        tick, now = self._deployment.tick_seconds, time.time()
        begin = now + tick - now % tick
        while now < begin and not self._ended.wait(begin - now):  # the clock may lag a little behind the wait
            now = time.time()

    def _apply(self) -> None:
        if self._ended.is_set():
            return
        begun = time.time()
        self._must_apply, self.trained, self.begun_at = False, 0, utc(begun)
        try:
            number = self._deployment.apply(advance=self._advance)
            self._failures, self.error = 0, None
            if number is not None and self._made is not None:
                self._made(Made(begun, time.time(), number, self.trained))
        except Exception as error:
            if self._ended.is_set():
                return
            if self._made is not None:
                self._made(Made(begun, time.time(), None, self.trained))
            self.error = str(error)
            self._tell(error)
            self._ended.wait(_PATIENCE[min(self._failures, len(_PATIENCE) - 1)])
            self._failures += 1
        finally:
            self.begun_at = None
            self._wanted.set()  # what came meanwhile may be due
            self._changed()

    def _advance(self, models: int) -> None:
        self.trained += models
