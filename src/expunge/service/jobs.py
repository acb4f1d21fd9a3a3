"""Long work that the service is asked for: one recomputation and one other piece at a time, in processes of their own.

What it finds stays in memory until the service ends, and nothing is written into the folder. A new round does not make
it wrong: each result says which round it is about.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from expunge.core.errors import ExpungeError
from expunge.core.words import utc
from expunge.service.problems import Problem

State = Literal["running", "done", "failed", "cancelled"]
_KEPT: Final = 20  # results of each kind of work
_NOT_RECORDED: Final = "it was done, but could not be recorded"
_MOST_LINE: Final = 1 << 26
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# How long a recomputation takes depends on ζ. So what others may ask for does not wait for it.
_LANES: Final = {"recompute": "recompute", "audit": "beside", "measure": "beside"}
_NAMES: Final = {"recompute": "a recomputation", "audit": "an audit", "measure": "a measurement"}


@dataclass(slots=True)
class Job:
    """A piece of work.

    Parameters
    ----------
    id
        Names it.
    work
        What it is: "recompute", "audit" or "measure".
    options
        What was asked for.
    round
        The round in service when it began.
    state
        "running", "done", "failed" or "cancelled".
    what, done, total
        How far it is, in steps.
    result
        What it found; None until it is done.
    error
        Why it failed, in a sentence.
    """

    id: str
    work: str
    options: dict[str, Any]
    round: int
    state: State = "running"
    what: str = "starting"
    done: int = 0
    total: int = 0
    started_at: str = field(default_factory=lambda: utc(time.time()))
    ended_at: str | None = None
    result: dict[str, Any] | None = None
    error: str | None = None

    def to_dict(self, *, leave_out: Sequence[str] = ()) -> dict[str, Any]:
        """The job as plain data, without some members of its result."""
        result = None if self.result is None else {k: v for k, v in self.result.items() if k not in leave_out}
        told = ("id", "state", "options", "round", "what", "done", "total", "started_at", "ended_at", "error")
        return {name: getattr(self, name) for name in told} | {"result": result}


class Jobs:
    """The work of one service.

    Parameters
    ----------
    folder
        The deployment's folder.
    trust
        The modules or classes of the user's own that it was created with.
    """

    def __init__(self, folder: str | os.PathLike[str], *, trust: Sequence[str] = ()) -> None:
        self._folder, self._trust = os.fspath(folder), list(trust)
        self._jobs: dict[str, Job] = {}
        self._running: dict[str, tuple[Job, asyncio.Task[None]]] = {}
        self._then: dict[str, Callable[[], Awaitable[None]]] = {}

    def start(self, work: str, options: dict[str, Any], *, round: int) -> Job:
        """Begin a piece of work.

        Raises
        ------
        Problem
            If another piece is not done yet.
        """
        lane = _LANES[work]
        if lane in self._running:
            name = _NAMES[self._running[lane][0].work]
            raise Problem(409, "conflict", f"{name} is under way; wait for it, or stop it first")
        job = Job(secrets.token_hex(8), work, options, round)
        self._jobs[job.id] = job
        for old in [each for each in self._jobs.values() if each.work == work][:-_KEPT]:
            del self._jobs[old.id]
        self._running[lane] = job, asyncio.create_task(self._run(job))
        return job

    def get(self, work: str, identity: str) -> Job:
        """A piece of work by its id."""
        found = self._jobs.get(identity)
        if found is None or found.work != work:
            raise Problem(404, "not-found", f"there is no such work: {identity!r:.40}")
        return found

    def of(self, work: str) -> list[Job]:
        """All of a kind, oldest first."""
        return [each for each in self._jobs.values() if each.work == work]

    def when_done(self, job: Job, action: Callable[[], Awaitable[None]]) -> None:
        """Do something more with the result, once it is there. If that fails, the job says so beside its result."""
        self._then[job.id] = action

    async def cancel(self, job: Job) -> None:
        """Stop a piece of work, if it is not done yet."""
        running, task = self._running.get(_LANES[job.work], (None, None))
        if running is job and task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def stop(self) -> None:
        """End what goes on."""
        for job, _ in list(self._running.values()):
            await self.cancel(job)

    async def _run(self, job: Job) -> None:
        then: Callable[[], Awaitable[None]] | None = None
        try:
            await self._follow(job)
            then = self._then.pop(job.id, None)
            if then is not None and job.result is not None:
                await then()
        except asyncio.CancelledError:
            job.state = "cancelled"
        except ExpungeError as error:
            job.error = str(error)
        except Exception:
            job.error = "it could not be started, or ended without a result" if then is None else _NOT_RECORDED
        finally:
            if job.state == "running":
                job.state = "failed" if job.result is None else "done"
                job.error = job.error or (None if job.result is not None else "it ended without a result")
            self._then.pop(job.id, None)
            job.ended_at = utc(time.time())
            del self._running[_LANES[job.work]]

    async def _follow(self, job: Job) -> None:
        """Start the process, and note what it tells."""
        path = [] if self._trust else ["-P"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *path, "-m", "expunge.service.work"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD},
            limit=_MOST_LINE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            asked = {"work": job.work, "folder": self._folder, "trust": self._trust, "options": job.options}
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            await process.stdin.drain()
            async for line in process.stdout:
                self._note(job, json.loads(line))
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @staticmethod
    def _note(job: Job, told: dict[str, Any]) -> None:
        if "total" in told:
            job.what, job.total, job.done = told["what"], told["total"], 0
        job.done += told.get("steps", 0)
        job.result, job.error = told.get("result", job.result), told.get("error", job.error)
