"""Webhooks in: `POST /v1/webhooks/{integration}` takes an event that says whom to erase.

An event is signed by HMAC or by a JWT (`expunge.service.signing`). It counts once: its id is kept with the request, so
that a replay gives the same answer and does nothing, and one that is too old is refused.
"""

from __future__ import annotations

import hmac
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from expunge.service.exchange import NO_STORE, Answer, Request, Route, as_json, asked
from expunge.service.integrations import Integration
from expunge.service.petitions import MOST_BODY, MOST_IDENTITIES, Name
from expunge.service.problems import Problem, invalid
from expunge.service.signing import BODY_CLAIM, TOLERANCE, digest_of, is_signed

if TYPE_CHECKING:
    from expunge.service.application import Service

EVENT: Final = "erasure.requested"
_Text = Annotated[str, msgspec.Meta(max_length=200)]
_MOST_SIGNATURES: Final = 4096  # characters


class EventIdentity(msgspec.Struct):
    """A name of the person."""

    type: _Text
    value: str
    format: _Text = "raw"


class EventData(msgspec.Struct):
    """Whom to erase."""

    identities: Annotated[list[EventIdentity], msgspec.Meta(min_length=1, max_length=MOST_IDENTITIES)]


class Event(msgspec.Struct):
    """What is sent. Other members are passed over."""

    type: _Text
    data: EventData


def routes(service: Service) -> list[Route]:
    """The routes of this module."""
    desk, ring = service.petitions, service.integrations

    async def receive(request: Request) -> Answer:
        name = request.parts["integration"]
        sender, id = _signed_by(service, ring.by_name.get(name), request)
        sent = asked(request, Event)
        if sent.type != EVENT:
            raise invalid(f"an event is {EVENT!r}, got {sent.type!r:.60}", field="type")
        names = [Name(each.type, each.value, each.format) for each in sent.data.identities]
        found = await desk.receive(sender, id, names, asked="webhook", form="webhook", urls=sender.callbacks)
        told = {"id": found.id, "status": await desk.status(found), "received_at": found.received_at}
        return as_json(told, status=202, headers=[NO_STORE])

    async def keys(request: Request) -> Answer:
        return as_json(service.signer.public_keys, headers=[NO_STORE])

    return [
        Route("POST", "/v1/webhooks/{integration}", None, receive, {"summary": "Take an event"}, most=MOST_BODY),
        Route("GET", "/.well-known/jwks.json", None, keys, {"summary": "The keys that callbacks are signed with"}),
    ]


def _signed_by(service: Service, sender: Integration | None, request: Request) -> tuple[Integration, str]:
    """Who signed an event, and its id. All that is wrong is told in the same way."""
    headers = request.headers
    kind, _, token = (headers.get("authorization") or "").partition(" ")
    if headers.get("webhook-signature") is None and kind.lower() == "bearer":
        id = _id_of_token(service, sender, token.strip(), request.body)
    else:
        id = _id_of_fields(sender, headers, request.body)
    if sender is None or id is None:
        said = "the signature, its time or the integration is wrong"
        raise Problem(401, "unauthorized", said, headers=[("www-authenticate", 'Bearer realm="expunge"')])
    return sender, id


def _id_of_fields(sender: Integration | None, headers: Any, body: bytes) -> str | None:
    id, at, given = (headers.get(f"webhook-{name}") or "" for name in ("id", "timestamp", "signature"))
    is_right = is_signed(None if sender is None else sender.secret, id, at, body, given[:_MOST_SIGNATURES])
    is_now = at.isascii() and at.isdigit() and len(at) < 16 and abs(time.time() - int(at)) <= TOLERANCE
    return id if is_right and is_now and id else None


def _id_of_token(service: Service, sender: Integration | None, token: str, body: bytes) -> str | None:
    tokens = None if sender is None else service.integrations.tokens.get(sender.name)
    claims = None if tokens is None else tokens.claims_of(token, "iat", "jti", BODY_CLAIM)
    if claims is None:
        return None
    id, digest, at = claims["jti"], claims[BODY_CLAIM], claims["iat"]
    if not isinstance(id, str) or not isinstance(digest, str) or not isinstance(at, int | float):
        return None
    is_now = abs(time.time() - at) <= TOLERANCE
    is_right = hmac.compare_digest(digest.lower().encode("utf-8", "replace"), digest_of(body).encode())
    return id if is_now and is_right and id else None
