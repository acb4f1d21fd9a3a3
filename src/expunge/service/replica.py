"""`expunge serve --replica`: predictions from another process, which follows the rounds of the one that writes.

Before an answer is computed and again before it leaves, the replica must have a lease, and the same round must be in
service: `expunge.folder.store.leases` says what follows from that.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from expunge.core.errors import ExpungeError
from expunge.folder import Replica, ReplicaEndedError, open_replica
from expunge.folder.store.leases import SECONDS, LeaseError
from expunge.service import about, metrics, predictions
from expunge.service.application import Host, Limits
from expunge.service.exchange import EVERYBODY, NO_STORE, Answer, Handler, Request, Route, Routes, as_json
from expunge.service.lines import Lines
from expunge.service.problems import Problem

_ATTEMPTS: Final = 4  # to answer from one round
_LOOK_SECONDS: Final = 0.25


class ReplicaHost(Host):
    """A replica, served. Make one by `make_replica`.

    Parameters
    ----------
    deployment
        The replica.
    limits, allow_unguarded, lines
        As for a service.

    Raises
    ------
    InputError
        As for a service.
    """

    def __init__(
        self,
        deployment: Replica,
        *,
        limits: Limits | None = None,
        allow_unguarded: bool = False,
        lines: Lines | None = None,
    ) -> None:
        super().__init__(deployment, limits=limits, allow_unguarded=allow_unguarded, lines=lines)
        self.deployment = deployment
        answering = [replace(each, handle=self._fresh(each.handle)) for each in predictions.routes(self, deployment)]
        self.routes = Routes(
            [
                Route("GET", "/healthz", None, self._health),
                *answering,
                *about.routes(self, deployment),
                *metrics.routes_of_replica(self),
            ],
            otherwise=Route("ANY", "elsewhere", EVERYBODY, self._elsewhere),
        )

    async def start(self) -> None:
        """Follow the folder, and begin what goes on beside the requests."""
        await super().start()
        self.deployment.start()
        self._following.append(asyncio.create_task(self._watch()))

    def close(self) -> None:
        """End the lease, and close the folder."""
        self.deployment.close()
        super().close()

    @property
    def failure(self) -> ExpungeError | None:
        """Why it ended by itself, if it did."""
        found = self.deployment.failure
        return found if isinstance(found, ReplicaEndedError) else None

    async def _watch(self) -> None:
        """Tell the log when the folder cannot be followed, and end when it never will be."""
        told = None
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            found = self.deployment.failure
            if found is not None and str(found) != told:
                self.lines.error(found, where="the folder cannot be followed")
            told = None if found is None else str(found)
            if self.failure is not None:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def _fresh(self, handle: Handler) -> Handler:
        """Give an answer only if the round that it is of is still the one in service when it leaves."""

        async def handled(request: Request) -> Answer:
            for _ in range(_ATTEMPTS):
                try:
                    before = self.deployment.require_lease()
                    answer = await handle(request)
                    if self.deployment.require_lease() == before:
                        return answer
                except LeaseError as error:
                    raise _later(str(error)) from None
            raise _later("rounds follow one another faster than this can be answered")

        return handled

    async def _health(self, request: Request) -> Answer:
        if not self.deployment.has_lease:
            return as_json({"status": "behind"}, status=503, headers=[NO_STORE])
        return as_json({"status": "ok"})

    async def _elsewhere(self, request: Request) -> Answer:
        place = self.deployment.writer or f"the process that serves {self.deployment.path.name} without --replica"
        raise Problem(421, "misdirected", f"this is a replica, which answers predictions alone: send this to {place}")


def _later(why: str) -> Problem:
    return Problem(503, "unavailable", why, headers=[("retry-after", "1")])


def make_replica(
    folder: str | os.PathLike[str],
    *,
    trust: Sequence[str] = (),
    limits: Limits | None = None,
    allow_unguarded: bool = False,
    lease: float = SECONDS,
    log_requests: bool = True,
) -> ReplicaHost:
    """Open a folder to answer predictions beside the process that serves it.

    Parameters
    ----------
    folder
        The deployment's folder.
    trust
        The modules or classes of your own that the folder was created with.
    limits
        How much one request may ask for.
    allow_unguarded
        Answer also if an (α,β,γ) promise was asked for and is vacuous.
    lease
        How many seconds the replica may answer after its last look at the folder.
    log_requests
        Whether each request has a line in the operator's log.

    Returns
    -------
    ReplicaHost
        The application. Granian runs it: see `expunge.service.server`.

    Raises
    ------
    InputError
        If the promise needs one process, or may not be served.
    StoreError
        If the folder cannot be opened.
    """
    deployment = open_replica(folder, trust=trust, lease=lease)
    try:
        lines = Lines(tells_times=deployment.is_exact, tells_requests=log_requests)
        return ReplicaHost(deployment, limits=limits, allow_unguarded=allow_unguarded, lines=lines)
    except BaseException:
        deployment.close()
        raise
