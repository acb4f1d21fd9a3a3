"""The application: what happens to every request.

    name it ▸ find its route ▸ whose key? ▸ may it? ▸ how often? ▸ read the body ▸ handle ▸ answer, count, log

It speaks RSGI, Granian's own interface, and has no framework between the server and its handlers: docs/service.md has
the figures behind that.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from expunge.core.errors import ExpungeError, StoreError
from expunge.folder import DurableDeployment, Replica
from expunge.folder.opening import open_to_serve
from expunge.service import (
    about,
    audits,
    dashboard,
    inside,
    metrics,
    openapi,
    opendsr,
    planning,
    predictions,
    proofs,
    updates,
    webhooks,
)
from expunge.service.access import Caller, KeyFile, KeyRing, Rates
from expunge.service.bearer import Issuer, Tokens
from expunge.service.callbacks import Callbacks
from expunge.service.columns import Columns
from expunge.service.exchange import (
    JSON,
    NO_CONTENT,
    NO_STORE,
    PROBLEM,
    SECURITY,
    Answer,
    Headers,
    Request,
    Route,
    Routes,
    as_json,
)
from expunge.service.integrations import IntegrationFile, IntegrationRing
from expunge.service.jobs import Jobs
from expunge.service.lines import Lines
from expunge.service.petitions import Desk
from expunge.service.predictor import Predictor
from expunge.service.problems import Problem, problem_of
from expunge.service.signing import Signer
from expunge.service.tracing import Tracing, make_tracing
from expunge.service.traffic import Traffic
from expunge.service.trainer import Trainer, num_workers
from expunge.training.engines import make_executor
from expunge.training.execution import Executor, KeptProcesses

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DATA: Final = frozenset({JSON, PROBLEM})  # which have no content policy of their own
_CLERKS: Final = 8  # threads that may wait for the disk
_BODY_SECONDS: Final = 120.0  # for the whole body of a request
_FOLLOW_SECONDS: Final = 1.0
_SWITCH_SECONDS: Final = 0.0005  # a thread that computes gives way to the loop after this


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one request may ask for.

    Parameters
    ----------
    body
        The bytes of a body.
    rows
        The rows of a batch.
    rate
        The requests a second of each caller whose key does not say; None for no limit.
    patience
        The seconds that a round which is being made may take at the end. After that its requests are left for the next
        start.
    """

    body: int = 64 << 20
    rows: int = 1_000_000
    rate: float | None = None
    patience: float = 30.0


class Host:
    """What happens to every request, for the service of a deployment and for its replicas. `routes` says what there is.

    Parameters
    ----------
    deployment
        Who answers.
    limits
        How much one request may ask for.
    allow_unguarded
        Whether an (α,β,γ) promise may be vacuous, or absent.
    lines
        The operator's log; standard error if None.
    tokens
        Checks OIDC tokens; None if keys alone open anything.

    Raises
    ------
    InputError
        If the recipe key follows from a fixed seed, or nothing guards what is published and that was not allowed.
    """

    routes: Routes

    def __init__(
        self,
        deployment: DurableDeployment | Replica,
        *,
        limits: Limits | None = None,
        allow_unguarded: bool = False,
        lines: Lines | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.told = about.told(deployment, allow_unguarded=allow_unguarded)
        self.keys = KeyRing(KeyFile(deployment.path))
        self.counts, self.tokens = metrics.Counts(), tokens
        self.tracing: Tracing | None = None
        self.lines = lines or Lines(tells_times=self.told.is_exact)
        self.traffic = Traffic()
        self._rates = Rates()
        self._prefix, self._number = secrets.token_hex(4), 0  # of the ids of requests that bring none
        self._arriving: dict[asyncio.Task[Any], float] = {}  # since when bodies are being read
        self._always: Headers = [*SECURITY, ("expunge-promise", self.told.header)]
        self.columns = Columns.of(deployment)
        self.predictor = Predictor(deployment, self.columns)
        self._following: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin what goes on beside the requests."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        await self.predictor.start()
        self._following = [asyncio.create_task(self._look_after())]

    async def stop(self) -> None:
        """End what goes on beside the requests."""
        for each in self._following:
            each.cancel()
        self.lines.flush()

    @property
    def failure(self) -> ExpungeError | None:
        """Why it ended by itself, if it did."""
        return None

    def listens_at(self, url: str) -> None:
        """It listens now."""

    def close(self) -> None:
        """End the threads and the log."""
        self.predictor.close()
        if self.tracing is not None:
            self.tracing.close()
        self.lines.say("stopped")

    async def _look_after(self) -> None:
        """Follow the keys, and give up bodies that come too slowly."""
        while True:
            await asyncio.sleep(_FOLLOW_SECONDS)
            self.lines.flush()
            self._follow()
            late = time.monotonic() - _BODY_SECONDS
            for task in [task for task, begun in self._arriving.items() if begun < late]:
                del self._arriving[task]
                task.cancel()

    def _follow(self) -> None:
        """Follow what other processes change in the folder."""
        try:
            self.keys.follow()
        except (ExpungeError, OSError) as error:  # a file that cannot be read opens nothing
            self.lines.error(error, where="the keys cannot be read")

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        """Answer one request of the server."""
        if scope.proto != "http":
            protocol.close(403)
            return
        headers, begun, route = scope.headers, time.perf_counter(), None
        given = headers.get("x-request-id")
        if given is None or not _ID.fullmatch(given):
            self._number += 1
            given = f"{self._prefix}{self._number:08x}"
        request = Request(scope.method, scope.path, scope.query_string, headers, given)
        try:
            route = self.routes.find(request)
            if route.roles is not None:
                self._admit(request, route)
            if request.method not in ("GET", "HEAD"):
                request.body = await self._body(request, protocol, route.most)
            answer = await route.handle(request)
            if answer.rows:
                self.traffic.count(answer.rows)
        except Exception as error:
            answer = self._failed(error, request)
        seconds, place = time.perf_counter() - begun, "unknown" if route is None else route.path
        self.counts.add(request.method if route else "ANY", place, answer.status, answer.rows, seconds)
        caller = request.caller
        name, role = (None, None) if caller is None else (caller.name, caller.role)
        self.lines.request(given, request.method, place, answer.status, name, role, answer.rows, seconds)
        if self.tracing is not None:
            self.tracing.request(request.method if route else "ANY", place, answer.status, role, seconds, headers)
        sent = [
            *self._always,
            ("x-request-id", given),
            ("content-type", answer.kind),
            *answer.headers,
        ]
        if answer.kind in _DATA or not any(name == NO_CONTENT[0] for name, _ in answer.headers):
            sent.append(NO_CONTENT)
        if answer.status == 304 or request.method == "HEAD":
            protocol.response_empty(answer.status, sent)
        else:
            protocol.response_bytes(answer.status, sent, answer.body)

    def _admit(self, request: Request, route: Route) -> None:
        """Find out whose key the request has, and refuse it unless the key may do this, now."""
        kind, _, token = (request.headers.get("authorization") or "").partition(" ")
        caller = self._caller_of(token.strip()) if kind.lower() == "bearer" else None
        if caller is None:
            raise Problem(
                401,
                "unauthorized",
                "send a key that is valid: Authorization: Bearer expunge_…",
                headers=[("www-authenticate", 'Bearer realm="expunge"')],
            )
        request.caller = caller
        assert route.roles is not None
        if caller.role not in route.roles:
            allowed = " or ".join(sorted(route.roles))
            raise Problem(403, "forbidden", f"a key for {caller.role!r} may not do that; it takes {allowed}")
        wait = self._rates.wait_for(caller)
        if wait:
            seconds = max(1, int(wait + 0.999))
            raise Problem(
                429, "too-many-requests", f"ask again in {seconds} s", headers=[("retry-after", str(seconds))]
            )

    def _caller_of(self, token: str) -> Caller | None:
        found = self.keys.caller_of(token)
        if found is None and self.tokens is not None and not token.startswith("expunge_"):
            found = self.tokens.caller_of(token)
        if found is None or found.rate is not None or self.limits.rate is None:
            return found
        return replace(found, rate=self.limits.rate)

    async def _body(self, request: Request, protocol: Any, most: int | None) -> bytes:
        """Read the body, as far as the limit."""
        most = self.limits.body if most is None else min(most, self.limits.body)
        length = request.headers.get("content-length")
        if length is not None and (not length.isdigit() or int(length) > most):
            raise _too_large(most)
        task = asyncio.current_task()
        assert task is not None
        self._arriving[task] = time.monotonic()
        try:
            if length is not None:
                found: bytes = await protocol()
                return found
            pieces, size = list[bytes](), 0
            async for piece in protocol:
                size += len(piece)
                if size > most:
                    raise _too_large(most)
                pieces.append(piece)
            return b"".join(pieces)
        except asyncio.CancelledError:
            if task in self._arriving:
                raise
            raise Problem(408, "timeout", "the body came too slowly", headers=[("connection", "close")]) from None
        finally:
            self._arriving.pop(task, None)

    def _failed(self, error: Exception, request: Request) -> Answer:
        """The answer that says what went wrong."""
        problem = problem_of(error)
        if problem is None:
            self.lines.error(error, identity=request.id, where=f"{request.method} {request.path}")
            problem = (
                Problem(503, "unavailable", "the folder cannot be used now")
                if isinstance(error, StoreError)
                else Problem(500, "internal", "the service failed; its log says more under this request's id")
            )
        answer = as_json(problem.to_dict(request.id), status=problem.status, headers=[NO_STORE, *problem.headers])
        answer.kind = PROBLEM
        return answer


class Service(Host):
    """A deployment's folder, served. Make one by `make_app`.

    Parameters
    ----------
    deployment
        The open folder.
    limits
        How much one request may ask for.
    allow_unguarded
        Whether an (α,β,γ) promise may be vacuous, or absent.
    trust
        The modules or classes of the user's own that the folder was created with.
    workers
        The processes that the deployment trains in.
    lines
        The operator's log; standard error if None.
    tokens
        Checks OIDC tokens; None if keys alone open anything.
    signer
        Signs what other systems are told; None for the folder's own key.
    public_url
        Where other systems find the service; None for where it listens.

    Raises
    ------
    InputError
        If the recipe key follows from a fixed seed, or nothing guards what is published and that was not allowed.
    """

    def __init__(
        self,
        deployment: DurableDeployment,
        *,
        limits: Limits | None = None,
        allow_unguarded: bool = False,
        trust: Sequence[str] = (),
        workers: Executor | None = None,
        lines: Lines | None = None,
        tokens: Tokens | None = None,
        signer: Signer | None = None,
        public_url: str | None = None,
    ) -> None:
        workers = workers or KeptProcesses(num_workers(None))
        super().__init__(deployment, limits=limits, allow_unguarded=allow_unguarded, lines=lines, tokens=tokens)
        self.deployment, self.jobs = deployment, Jobs(deployment.path, trust=trust)
        self.rounds = inside.Rounds(deployment.inside)
        self.desk, self.arrivals = ThreadPoolExecutor(_CLERKS, "desk"), updates.Arrivals()
        self.trainer = Trainer(deployment, workers, tell=self._tell)
        self.integrations = IntegrationRing(IntegrationFile(deployment.path))
        self._signer, self._public_url, self._listens_at = signer, public_url, ""
        self.petitions, self.callbacks = Desk(self), Callbacks(self)
        modules = (updates, proofs, metrics, openapi, dashboard, audits, planning, inside, opendsr, webhooks)
        self.routes = Routes(
            [
                Route("GET", "/healthz", None, self._health),
                *predictions.routes(self, deployment),
                *about.routes(self, deployment),
                *(each for module in modules for each in module.routes(self)),
            ]
        )

    async def start(self) -> None:
        """Begin what goes on beside the requests."""
        await super().start()
        loop = asyncio.get_running_loop()

        def applied() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self.arrivals.changed)

        self.trainer.start(applied, None if self.tracing is None else self.tracing.round)
        self._following.append(asyncio.create_task(self.rounds.follow(self)))
        self._following.append(asyncio.create_task(self.callbacks.run()))

    async def stop(self) -> None:
        """End what goes on beside the requests."""
        await super().stop()
        await self.jobs.stop()

    def close(self) -> None:
        """Finish or hand over what was accepted, and close the folder."""
        self.trainer.close(patience=self.limits.patience)
        self.desk.shutdown()
        self.deployment.close()
        super().close()

    def listens_at(self, url: str) -> None:
        """Say so in the folder, where replicas look."""
        self._listens_at = url
        self.deployment.note_address(url)

    @property
    def public_url(self) -> str:
        """Where other systems find the service."""
        return self._public_url or self._listens_at

    @property
    def signer(self) -> Signer:
        """Signs what other systems are told."""
        if self._signer is None:
            if self.integrations.signing_key is None:
                raise Problem(404, "not-found", "there is no integration yet")
            self._signer = Signer(self.integrations.signing_key)
        return self._signer

    def _follow(self) -> None:
        super()._follow()
        try:
            self.integrations.follow()
        except (ExpungeError, OSError) as error:
            self.lines.error(error, where="the integrations cannot be read")

    def _tell(self, error: Exception) -> None:
        """Tell the operator's log of an error inside."""
        self.lines.error(error, where="a round could not be made; its requests stay pending")

    async def _health(self, request: Request) -> Answer:
        return as_json({"status": "ok"})


def _too_large(most: int) -> Problem:
    return Problem(413, "too-large", f"a body has at most {most:,} bytes here", headers=[("connection", "close")])


def make_app(
    folder: str | os.PathLike[str],
    *,
    trust: Sequence[str] = (),
    limits: Limits | None = None,
    allow_unguarded: bool = False,
    jobs: int | None = None,
    executor: str | None = None,
    log_requests: bool = True,
    issuer: Issuer | None = None,
    signer: Signer | None = None,
    public_url: str | None = None,
    traces_inside: bool = False,
) -> Service:
    """Open a folder to be served.

    Parameters
    ----------
    folder
        The deployment's folder. It belongs to the service until `Service.close`.
    trust
        The modules or classes of your own that the folder was created with.
    limits
        How much one request may ask for.
    allow_unguarded
        Serve also if an (α,β,γ) promise was asked for and is vacuous, or if none is claimed.
    jobs
        How many processes train; all cores but one if None.
    executor
        Where they train, as `expunge.create` takes it; in processes that give way to the answers if None.
    log_requests
        Whether each request has a line in the operator's log.
    issuer
        Whose OIDC tokens are accepted beside keys.
    signer
        Signs what other systems are told; None for the folder's own key.
    public_url
        Where other systems find the service; None for where it listens.
    traces_inside
        Whether traces may tell what is inside the trust boundary.

    Returns
    -------
    Service
        The application. Granian runs it: see `expunge.service.server`.

    Raises
    ------
    InputError
        If the deployment may not be served.
    StoreError
        If the folder cannot be opened.
    """
    tokens = None if issuer is None else Tokens(issuer)
    if tokens is not None:
        tokens.load()
    workers = KeptProcesses(num_workers(jobs)) if executor is None else make_executor(jobs, executor)
    deployment = open_to_serve(folder, trust=trust, executor=workers)
    try:
        lines = Lines(tells_requests=log_requests, tells_times=deployment.is_exact)
        options: dict[str, Any] = {"limits": limits, "allow_unguarded": allow_unguarded, "trust": trust}
        options |= {"signer": signer, "public_url": public_url}
        service = Service(deployment, **options, workers=workers, lines=lines, tokens=tokens)
        service.tracing = make_tracing(
            tick_seconds=None if deployment.is_exact else deployment.tick_seconds,
            tells_inside=traces_inside,
            tell=lambda said: lines.say("tracing", problem=said),
        )
        return service
    except BaseException:
        deployment.close()
        raise
