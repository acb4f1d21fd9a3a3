"""`/v1/updates`: deletions, additions and corrections are accepted, followed and taken back.

An accepted request is on the disk before the answer leaves, and is applied exactly once, whatever happens to the
service. An `Idempotency-Key` makes it safe to send again: the key is kept with the request.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from expunge.core.errors import RequestError
from expunge.folder import Request as Asked
from expunge.service.access import Role
from expunge.service.answers import form_of_body
from expunge.service.changes import Changes, Wanted
from expunge.service.exchange import NO_STORE, Answer, Request, Route, as_json, tagged
from expunge.service.problems import Problem

if TYPE_CHECKING:
    from expunge.service.application import Service

WRITERS: Final[frozenset[Role]] = frozenset({"update", "operator"})
READERS: Final[frozenset[Role]] = frozenset({"update", "auditor", "operator"})
OPERATOR: Final[frozenset[Role]] = frozenset({"operator"})
STATES: Final = ("pending", "applied", "cancelled")
LONGEST_WAIT: Final = 300.0
_MOST_KEY: Final = 255
_PAGE: Final = 100
_MOST_PAGE: Final = 1000
_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,6})\"?\s*(?=$|[,;])", re.IGNORECASE)
_SMALL: Final = 1 << 16


class Arrivals:
    """Wakes those who wait for requests to be applied."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def changed(self) -> None:
        """Some requests were applied, or taken back."""
        event, self._next = self._next, asyncio.Event()
        event.set()

    @property
    def next(self) -> asyncio.Event:
        """What is set at the next change. Take it before you look, so that no change is missed."""
        return self._next


def facts(request: Asked) -> dict[str, Any]:
    """What a requester may know about a request."""
    state = request.public_state
    is_applied = state == "applied"
    return {
        "request": request.request,
        "state": state,
        "kind": request.kind,
        "deletions": request.deletions,
        "additions": request.additions,
        "corrections": request.corrections,
        "accepted_at": request.accepted_at,
        "applied_by": request.applied_by if is_applied else None,
        "cancelled_at": request.applied_by if state == "cancelled" else None,
        "round": request.round if is_applied else None,
    }


def wait_of(request: Request) -> float | None:
    """How long the caller prefers to wait for the result, in seconds; None if it does not."""
    found = _WAIT.search(request.headers.get("prefer") or "")
    return None if found is None else min(float(found[1]), LONGEST_WAIT)


def idempotency_key(request: Request) -> str | None:
    """The caller's key, with or without the quotation marks of the standard."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    text = str(key).strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if not text or len(text) > _MOST_KEY or not text.isascii() or not text.isprintable():
        said = f"an Idempotency-Key has 1 to {_MOST_KEY} printable ASCII characters"
        raise Problem(400, "invalid", said, errors=[{"message": said, "field": "Idempotency-Key"}])
    return text


def routes(service: Service) -> list[Route]:
    """The routes of this module."""
    deployment, desk, arrivals = service.deployment, service.desk, service.arrivals
    changes = Changes(service.columns, deployment.classes)

    async def known(identity: str) -> Asked:
        try:
            found: Asked = await in_thread(desk, deployment.request, identity)
            return found
        except RequestError as error:
            raise Problem(404, "not-found", str(error)) from None

    async def settled(request: Request, found: Asked) -> tuple[Asked, list[tuple[str, str]]]:
        """The request when it is no longer pending, or when the caller has waited for as long as it prefers to."""
        seconds = wait_of(request)
        if seconds is None:
            return found, []
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    change = arrivals.next
                    found = await known(found.request)
                    if found.public_state != "pending":
                        break
                    await change.wait()
        return found, [("preference-applied", f"wait={int(seconds)}")]

    async def accept(request: Request) -> Answer:
        wanted = await _read(request, changes, desk, service.limits.rows)
        key = idempotency_key(request)
        submit = partial(deployment.submit, wanted.updates, key=key, readmit=wanted.readmit)
        found = await in_thread(desk, submit)
        service.trainer.look()
        told, preferred = await settled(request, found)
        headers = [("location", f"/v1/updates/{told.request}"), NO_STORE, *preferred]
        return as_json(facts(told), status=202 if told.public_state == "pending" else 200, headers=headers)

    async def show(request: Request) -> Answer:
        told, preferred = await settled(request, await known(request.parts["id"]))
        answer = tagged(request, as_json(facts(told)))
        answer.headers += preferred
        return answer

    async def take_back(request: Request) -> Answer:
        identity = request.parts["id"]
        await known(identity)
        await in_thread(desk, deployment.cancel, identity)
        arrivals.changed()
        return as_json(facts(await known(identity)), headers=[NO_STORE])

    async def listed(request: Request) -> Answer:
        options = request.only_options("limit", "after", "state", "order")
        limit = request.count("limit", _PAGE, least=1, most=_MOST_PAGE)
        assert limit is not None
        state, order = options.get("state"), options.get("order", "oldest")
        _require_one_of("state", state, (None, *STATES))
        _require_one_of("order", order, ("oldest", "newest"))
        page = partial(
            deployment.requests,
            state=state,
            after=options.get("after"),
            limit=limit + 1,
            newest_first=order == "newest",
        )
        found: list[Asked] = await in_thread(desk, page)
        told: dict[str, Any] = {"updates": [facts(each) for each in found[:limit]], "next": None}
        answer = as_json(told)
        if len(found) > limit:
            told["next"] = found[limit - 1].request
            answer = as_json(told)
            rest = "".join(
                f"&{name}={value}" for name, value in (("state", state), ("order", options.get("order"))) if value
            )
            answer.headers.append(("link", f'</v1/updates?limit={limit}&after={told["next"]}{rest}>; rel="next"'))
        return tagged(request, answer)

    async def apply(request: Request) -> Answer:
        service.trainer.look(now=True)
        return as_json({"pending": (await in_thread(desk, lambda: deployment.status)).pending}, status=202)

    return [
        Route("POST", "/v1/updates", WRITERS, accept),
        Route("GET", "/v1/updates", READERS, listed),
        Route("GET", "/v1/updates/{id}", READERS, show),
        Route("DELETE", "/v1/updates/{id}", WRITERS, take_back),
        Route("POST", "/v1/apply", OPERATOR, apply, {"summary": "Apply the pending requests now"}),
    ]


async def in_thread(desk: ThreadPoolExecutor, function: Any, *given: Any) -> Any:
    """Call what may wait for the disk in one of the desk's threads."""
    return await asyncio.get_running_loop().run_in_executor(desk, function, *given)


async def _read(request: Request, changes: Changes, desk: ThreadPoolExecutor, most: int) -> Wanted:
    form = form_of_body(request)
    options = request.only_options("operation", "readmit")
    operation: Literal["add", "delete", "correct"] | None = options.get("operation")  # type: ignore[assignment]
    _require_one_of("operation", operation, (None, "add", "delete", "correct"))
    read = partial(changes.read, form, request.body, operation=operation, readmit=request.flag("readmit"), most=most)
    if len(request.body) < _SMALL:
        return read()
    found: Wanted = await in_thread(desk, read)
    return found


def _require_one_of(name: str, value: str | None, allowed: Sequence[str | None]) -> None:
    if value not in allowed:
        said = f"{name} must be {' or '.join(each for each in allowed if each)}, got {value!r:.40}"
        raise Problem(400, "invalid", said, errors=[{"message": said, "field": name}])
