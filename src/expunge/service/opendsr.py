"""`/opendsr`: erasure requests in the form of OpenDSR 2.0 (once OpenGDPR), from systems that manage such requests.

The sender's `subject_request_id` names the request: sent again, it gives the same answer, whatever became of it.
Answers are signed with the service's key, as OpenDSR wants.
"""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec

from expunge.core.words import seconds_of, utc
from expunge.service.exchange import NO_STORE, Answer, Request, Route, as_json, asked
from expunge.service.integrations import Integration
from expunge.service.petitions import ID, MOST_BODY, MOST_IDENTITIES, SENDERS, Name, now
from expunge.service.problems import Problem, invalid

if TYPE_CHECKING:
    from expunge.service.application import Service

VERSION: Final = "2.0"
_WITHIN: Final = timedelta(days=30)  # what is promised as the time of completion: the month that the law gives
_MOST_URLS: Final = 10
_Text = Annotated[str, msgspec.Meta(max_length=200)]


class SubjectIdentity(msgspec.Struct):
    """A name of the person."""

    identity_type: _Text
    identity_value: str
    identity_format: _Text = "raw"


class SubjectRequest(msgspec.Struct):
    """What is sent. Members that are not known here are passed over, as OpenDSR has extensions."""

    subject_request_id: Annotated[str, msgspec.Meta(pattern=ID)]
    subject_request_type: _Text
    subject_identities: Annotated[list[SubjectIdentity], msgspec.Meta(max_length=MOST_IDENTITIES)] = []
    submitted_time: _Text | None = None
    regulation: _Text | None = None
    api_version: _Text | None = None
    status_callback_urls: Annotated[list[str], msgspec.Meta(max_length=_MOST_URLS)] = []


def expected(received_at: str) -> str:
    """By when a request is done at the latest. It says nothing about the work that it is."""
    return utc(seconds_of(received_at) + _WITHIN.total_seconds())


def routes(service: Service) -> list[Route]:
    """The routes of this module."""
    desk = service.petitions

    def signed(data: dict[str, Any], status: int) -> Answer:
        answer = as_json(data, status=status, headers=[NO_STORE])
        answer.headers += signed_fields(service, answer.body)
        return answer

    async def discover(request: Request) -> Answer:
        sender = desk.sender(request)
        kinds = [
            {"identity_type": each.type, "identity_format": form}
            for each in sender.identities
            for form in each.accepted
        ]
        told = {
            "api_version": VERSION,
            "supported_identities": kinds,
            "supported_subject_request_types": ["erasure"],
            "processor_certificate": f"{service.public_url}/opendsr/certificate",
        }
        return signed(told, 200)

    async def certificate(request: Request) -> Answer:
        return Answer(service.signer.certificate, "application/x-pem-file", headers=[NO_STORE])

    async def receive(request: Request) -> Answer:
        sender, sent = desk.sender(request), asked(request, SubjectRequest)
        if sent.subject_request_type != "erasure":
            said = f"this processor handles erasure, and not {sent.subject_request_type!r:.40}"
            raise invalid(said, field="subject_request_type")
        if not sent.subject_identities:
            raise invalid("name the person", field="subject_identities")
        _require_allowed(sender, sent.status_callback_urls)
        names = [
            Name(each.identity_type, each.identity_value, each.identity_format) for each in sent.subject_identities
        ]
        found = await desk.receive(
            sender, sent.subject_request_id, names, asked="opendsr", form="opendsr", urls=sent.status_callback_urls
        )
        told = {
            "controller_id": sender.name,
            "subject_request_id": found.id,
            "received_time": found.received_at,
            "expected_completion_time": expected(found.received_at),
            "encoded_request": base64.b64encode(request.body).decode(),
            "api_version": VERSION,
        }
        return signed(told, 201)

    async def show(request: Request) -> Answer:
        sender = desk.sender(request)
        found = await desk.find(sender, request.parts["id"])
        told = {
            "controller_id": sender.name,
            "subject_request_id": found.id,
            "request_status": await desk.status(found),
            "expected_completion_time": expected(found.received_at),
            "api_version": VERSION,
        }
        return signed(told, 200)

    async def take_back(request: Request) -> Answer:
        sender = desk.sender(request)
        found = await desk.find(sender, request.parts["id"])
        await desk.cancel(found)
        told = {
            "controller_id": sender.name,
            "subject_request_id": found.id,
            "received_time": now(),
            "api_version": VERSION,
        }
        return signed(told, 202)

    one = "/opendsr/requests/{id}"
    return [
        Route("GET", "/opendsr/discovery", SENDERS, discover, {"summary": "What can be asked in the form of OpenDSR"}),
        Route(
            "GET",
            "/opendsr/certificate",
            None,
            certificate,
            {"summary": "The certificate that answers are signed with"},
        ),
        Route("POST", "/opendsr/requests", SENDERS, receive, {"summary": "Ask for an erasure"}, most=MOST_BODY),
        Route("GET", one, SENDERS, show, {"summary": "How far an erasure is"}),
        Route("DELETE", one, SENDERS, take_back, {"summary": "Take back an erasure that is pending"}, most=MOST_BODY),
    ]


def signed_fields(service: Service, body: bytes) -> list[tuple[str, str]]:
    """The header fields that OpenDSR wants beside a body."""
    domain = urlsplit(service.public_url).hostname or ""
    return [("x-opendsr-processor-domain", domain), ("x-opendsr-signature", service.signer.sign(body))]


def _require_allowed(sender: Integration, urls: list[str]) -> None:
    for number, each in enumerate(urls, 1):
        if not sender.may_tell(each):
            said = "this address may not be told; the operator allows hosts: expunge integrations create --callback"
            raise Problem(
                400,
                "invalid",
                said,
                errors=[{"message": said, "row": number, "field": "status_callback_urls"}],
            )
