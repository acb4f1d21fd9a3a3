"""Evidence over HTTP: certificates, and the log with its checkpoint, entries and proofs."""

from __future__ import annotations

import base64
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from expunge.core.errors import RequestError
from expunge.evidence import Certificate
from expunge.evidence.page import render_page
from expunge.service.exchange import Answer, Request, Route, as_json, tagged
from expunge.service.problems import Problem
from expunge.service.updates import READERS, in_thread

if TYPE_CHECKING:
    from expunge.service.application import Service

_PAGE: Final = 100
_MOST_PAGE: Final = 1000


def routes(service: Service) -> list[Route]:
    """The routes of this module."""
    deployment, desk = service.deployment, service.desk

    async def issue(request: Request, about: str | None) -> Answer:
        form = _form(request)
        try:
            found: Certificate = await in_thread(desk, deployment.certificate, about)
        except RequestError as error:
            raise Problem(404, "not-found", str(error)) from None
        if form == "html":
            page = await in_thread(desk, render_page, found)
            style = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
            return tagged(request, Answer(page.encode(), "text/html; charset=utf-8", headers=[_policy(style)]))
        return tagged(request, Answer(found.to_json()))

    async def whole(request: Request) -> Answer:
        return await issue(request, None)

    async def certificate(request: Request) -> Answer:
        return await issue(request, request.parts["request"])

    async def checkpoint(request: Request) -> Answer:
        note = str(await in_thread(desk, deployment.checkpoint))
        return tagged(request, Answer(note.encode(), "text/plain; charset=utf-8"))

    async def key(request: Request) -> Answer:
        return tagged(request, Answer(f"{deployment.log_key}\n".encode(), "text/plain; charset=utf-8"))

    async def entries(request: Request) -> Answer:
        request.only_options("after", "limit")
        after, limit = request.count("after", 0), request.count("limit", _PAGE, least=1, most=_MOST_PAGE)
        assert after is not None
        assert limit is not None
        found = await in_thread(desk, partial(deployment.log_entries, after=after, limit=limit + 1))
        told = [_entry(each) for each in found[:limit]]
        more = told[-1]["sequence"] if len(found) > limit else None
        answer = as_json({"entries": told, "next": more})
        if more is not None:
            answer.headers.append(("link", f'</v1/log/entries?after={more}&limit={limit}>; rel="next"'))
        return tagged(request, answer)

    async def inclusion(request: Request) -> Answer:
        request.only_options("sequence", "size")
        sequence, size = request.count("sequence", None, least=1), request.count("size", None, least=1)
        if sequence is None:
            raise Problem(400, "invalid", "say which entry: sequence", errors=[_missing("sequence")])
        leaf, proof, size = await in_thread(desk, deployment.inclusion, sequence, size)
        told = {"sequence": sequence, "size": size, "leaf": _text(leaf), "proof": [_text(each) for each in proof]}
        return tagged(request, as_json(told))

    async def consistency(request: Request) -> Answer:
        request.only_options("from", "to")
        first, last = request.count("from", None), request.count("to", None, least=1)
        if first is None:
            raise Problem(400, "invalid", "say from which size: from", errors=[_missing("from")])
        proof = await in_thread(desk, deployment.consistency, first, last)
        return tagged(request, as_json({"from": first, "to": last, "proof": [_text(each) for each in proof]}))

    return [
        Route("GET", "/v1/certificates", READERS, whole, {"summary": "A certificate about the whole deployment"}),
        Route("GET", "/v1/certificates/{request}", READERS, certificate, {"summary": "A certificate about a request"}),
        Route("GET", "/v1/log/checkpoint", READERS, checkpoint, {"summary": "The signed head of the log (C2SP)"}),
        Route("GET", "/v1/log/key", READERS, key, {"summary": "The key that checkpoints are checked with"}),
        Route("GET", "/v1/log/entries", READERS, entries, {"summary": "Entries of the log, page by page"}),
        Route("GET", "/v1/log/inclusion", READERS, inclusion, {"summary": "That the log holds an entry (RFC 6962)"}),
        Route("GET", "/v1/log/consistency", READERS, consistency, {"summary": "That the log only grew (RFC 6962)"}),
    ]


def _form(request: Request) -> str:
    said = request.headers.get("accept") or "*/*"
    kinds = [each.partition(";")[0].strip().lower() for each in said.split(",")]
    for kind in kinds:
        if kind in ("text/html", "text/*"):
            return "html"
        if kind in ("application/json", "application/*", "*/*"):
            return "json"
    raise Problem(406, "not-acceptable", "certificates come as application/json or text/html")


def _policy(text: str) -> tuple[str, str]:
    return "content-security-policy", text


def _entry(each: Any) -> dict[str, Any]:
    return {"sequence": each.sequence, "at": each.at, "event": each.event, "facts": dict(each.facts)}


def _missing(name: str) -> dict[str, Any]:
    return {"message": "it is needed", "field": name}


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
