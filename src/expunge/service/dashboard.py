"""The dashboard: a page at `/` without data, and what its overview shows.

The page is in `expunge/service/page`: HTML, a style sheet and scripts as they are, without a build step. It fetches
nothing from elsewhere. All data come from the API, with a key that the browser keeps until its tab is closed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from expunge.core.html import document
from expunge.core.words import utc
from expunge.evidence.letter import languages, read_template, write_letter
from expunge.folder.evidence import LogState
from expunge.service.access import Role
from expunge.service.exchange import EVERYBODY, NO_STORE, Answer, Request, Route, as_json, asked, tagged
from expunge.service.problems import invalid
from expunge.service.updates import facts

if TYPE_CHECKING:
    from expunge.service.application import Service

_MOST_LOOKED_AT: Final = 1000
_Name = Annotated[str, msgspec.Meta(max_length=200)]
_KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@cache
def page_files() -> Mapping[str, tuple[bytes, str]]:
    """The files of the page by name, each with its media type."""
    folder = resources.files("expunge.service").joinpath("page")
    return {
        each.name: (each.read_bytes(), _KINDS[suffix])
        for each in folder.iterdir()
        if (suffix := each.name.rpartition(".")[2]) in _KINDS
    }


@cache
def page_policy() -> str:
    """What the page may load: its own files. Certificates, letters and reports may keep their own style sheets."""
    from expunge.audit.page import STYLE as REPORT
    from expunge.evidence.page import STYLE as CERTIFICATE

    styles = " ".join(_hash_of(each) for each in (CERTIFICATE, REPORT, ""))
    return (
        "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
        f"style-src 'self' {styles}; form-action 'none'; frame-ancestors 'none'"
    )


def _hash_of(style: str) -> str:
    """The hash by which a policy allows the style sheet of a page that stands alone."""
    page = document("", "", style=style)
    sheet = page[page.index("<style>") + len("<style>") : page.index("</style>")]
    return f"'sha256-{base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()}'"


class Names(msgspec.Struct, forbid_unknown_fields=True):
    """Whose requests are looked for."""

    ids: Annotated[list[str | int], msgspec.Meta(max_length=100)] = []
    subjects: Annotated[list[str | int], msgspec.Meta(max_length=100)] = []


class LetterWords(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked of a letter: its language, and the names in it."""

    language: Annotated[str, msgspec.Meta(max_length=20)] = "en"
    recipient: _Name = ""
    sender: _Name = ""
    reference: _Name = ""


def routes(service: Service) -> list[Route]:
    """The routes of this module."""
    keys = _kinds_of_keys(service)

    async def show(request: Request) -> Answer:
        content, kind = page_files()[request.path.rpartition("/")[2] or "index.html"]
        answer = tagged(request, Answer(content, kind))
        answer.headers += [("content-security-policy", page_policy()), ("cross-origin-opener-policy", "same-origin")]
        return answer

    async def overview(request: Request) -> Answer:
        return _untold(as_json(await asyncio.to_thread(_overview, service, request, keys)))

    async def letter(request: Request) -> Answer:
        words, number = asked(request, LetterWords), request.parts["request"]
        if words.language not in languages():
            raise invalid(f"language must be one of {', '.join(languages())}", field="language")
        issued = await asyncio.to_thread(service.deployment.certificate, number)
        template = read_template(words.language)
        written = write_letter(
            issued, template, recipient=words.recipient, sender=words.sender, reference=words.reference
        )
        return _untold(Answer(written.to_html().encode(), _KINDS["html"]))

    names = [name for name in page_files() if name != "index.html"]
    pages = [Route("GET", "/", None, show), *(Route("GET", f"/page/{name}", None, show) for name in names)]
    described = {"summary": "What the dashboard's overview shows: state, requests, traffic, log"}

    async def find(request: Request) -> Answer:
        names = asked(request, Names)
        if not names.ids and not names.subjects:
            raise invalid("say which ids or subjects to look for")
        found = await asyncio.to_thread(service.deployment.requests_about, names.ids, names.subjects)
        return _untold(as_json({"updates": [facts(each) for each in reversed(found)]}))

    replies = frozenset[Role]({"update", "auditor", "operator"})
    return [
        *pages,
        Route("GET", "/v1/overview", EVERYBODY, overview, described),
        Route("POST", "/v1/updates/find", replies, find, {"summary": "Requests about records and subjects"}),
        Route("POST", "/v1/letters/{request}", replies, letter, {"summary": "A letter to the person who asked"}),
    ]


def _kinds_of_keys(service: Service) -> dict[str, str | None]:
    """How ids and subjects are written: "int", "str", or "any" if both kinds occur; None if there are no subjects."""
    schema, records = service.columns.schema, service.deployment.records
    if schema is not None:
        return {"id": schema.id_kind, "subject": None if schema.subject is None else schema.subject_kind}
    slots = records.live_slots()[:_MOST_LOOKED_AT]
    subjects = records.subjects_of(slots)
    return {
        "id": _kind_of(records.ids_of(slots)),
        "subject": None if subjects is None else _kind_of([each for each in subjects if each is not None]),
    }


def _kind_of(names: Iterable[Any]) -> str:
    kinds = {"str" if isinstance(each, str) else "int" for each in names}
    return kinds.pop() if len(kinds) == 1 else "any"


def _untold(answer: Answer) -> Answer:
    """The answer, which no cache keeps."""
    answer.headers.append(NO_STORE)
    return answer


def _overview(service: Service, request: Request, keys: dict[str, str | None]) -> dict[str, Any]:
    deployment, caller = service.deployment, request.caller
    assert caller is not None
    status, log = deployment.status, deployment.log_state
    rows = service.traffic.rows()
    found: dict[str, Any] = {
        "role": caller.role,
        "key": caller.name,
        "name": status.name,
        "round": status.round,
        "records": status.num_records,
        "shards": status.num_shards,
        "apply": status.apply,
        "pending": status.pending,
        "promise": service.told.name,
        "guarded": service.told.is_guarded,
        "traffic": {"rows": rows},
    }
    if caller.role == "predict":
        return found
    return found | {
        "requests": _requests(log.counts),
        "log": _log(log),
        "recomputation": _recomputation(log),
        "keys": keys,
        "recomputable": service.told.is_exact or caller.role == "operator",
    }


def _requests(counts: Mapping[str, int]) -> dict[str, int]:
    accepted, applied, cancelled = (counts.get(event, 0) for event in ("accepted", "applied", "cancelled"))
    return {
        "accepted": accepted,
        "applied": applied,
        "pending": accepted - applied - cancelled,
        "cancelled": cancelled,
    }


def _log(log: LogState) -> dict[str, Any]:
    head, cosigned = log.checkpoint, log.cosigned
    told: dict[str, Any] = {"origin": head.origin, "size": head.size, "root": head.root.hex(), "cosigned": None}
    if cosigned is not None:
        by = [(each.name, each.cosigned_at) for each in cosigned.signatures if each.name != cosigned.origin]
        told["cosigned"] = {
            "size": cosigned.size,
            "by": [{"name": name, "at": utc(at)} for name, at in by if at is not None],
        }
    return told


def _recomputation(log: LogState) -> dict[str, Any] | None:
    found = log.recomputed
    if found is None:
        return None
    return {
        "at": found.at,
        "round": found.round,
        "checked": found.num_checked,
        "agrees": found.agrees,
        "chosen_by": found.chosen_by,
    }
