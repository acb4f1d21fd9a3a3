"""The certificate: facts, sentences and a stretch of the ledger, signed.

The file is canonical JSON. Its header holds the SHA-256 of every field of every section, and the header is what is
signed, so a field that was changed afterwards can be named. See docs/certificates.md for the format.

Whether the parts of a certificate agree with one another: the same rules for issuing and for verifying.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from expunge.core.errors import ParameterError
from expunge.core.version import __version__
from expunge.evidence import checks as _require
from expunge.evidence.canonical import canonical
from expunge.evidence.facts import (
    CountFacts,
    DeploymentFacts,
    GuaranteeFacts,
    PublicationFacts,
    RequestFacts,
    on_tick,
    to_data,
)
from expunge.evidence.keys import PublicKey, SigningKey
from expunge.evidence.log import TICKED, Entry, Excerpt
from expunge.evidence.statements import Statements, make_statements


def disagreements(certificate: Certificate) -> list[str]:
    """Every contradiction, in one line each; empty for a sound certificate.

    The rules: the ledger can be followed from its start to its head; times at which work was done are on the clock tick
    and not after the certificate; the entries of a request say what the request says; the counts are those of the
    entries where all are shown; and nothing is promised of shards that are not independent.
    """
    return [
        *(f"ledger: {fault}" for fault in certificate.ledger.faults(certificate.deployment.deployment_id)),
        *_clock(certificate),
        *(_request(certificate.request, certificate) if certificate.request is not None else ()),
        *(_counts(certificate.counts, certificate) if certificate.counts is not None else ()),
        *_guarantee(certificate),
    ]


def _clock(certificate: Certificate) -> Iterator[str]:
    deployment = certificate.deployment
    for entry in certificate.ledger.entries:
        if entry.event in TICKED and not on_tick(deployment, entry.at):
            yield f"ledger: entry {entry.sequence}: the time of the {entry.event!r} entry is not on the clock tick"
    if deployment.created_at > certificate.issued_at:
        yield f"deployment: created_at {deployment.created_at} is after the certificate, {certificate.issued_at}"


def _request(request: RequestFacts, certificate: Certificate) -> Iterator[str]:
    if request.applied_by is not None and not on_tick(certificate.deployment, request.applied_by):
        yield f"request: applied_by {request.applied_by} is not on the clock tick"
    for name in ("accepted_at", "applied_by", "cancelled_at"):
        at = getattr(request, name)
        if at is not None and at > certificate.issued_at:
            yield f"request: {name} {at} is after the certificate, {certificate.issued_at}"
    if request.generation is not None and request.generation > certificate.publication.generation:
        yield f"request: generation {request.generation} is later than the deployment's"
    if request.round is not None and request.round > certificate.publication.round:
        yield f"request: round {request.round} is later than the deployment's"
    yield from _request_entries(request, certificate.ledger.entries)


def _request_entries(request: RequestFacts, entries: tuple[Entry, ...]) -> Iterator[str]:
    """One entry for each thing that happened to the request, saying the same as the request does."""
    expected: dict[str, tuple[str | None, tuple[str, ...]]] = {
        "accepted": (request.accepted_at, ("num_deletions", "num_additions", "id_hashes")),
        "applied": (request.applied_by, ("generation", "round")),
        "cancelled": (request.cancelled_at, ()),
    }
    for event, (at, names) in expected.items():
        own = [each for each in entries if each.event == event and each.facts.get("request") == request.request_id]
        if len(own) != (at is not None):
            wanted = "no" if at is None else "one"
            yield f"ledger: there must be {wanted} {event!r} entry of this request, there are {len(own)}"
            continue
        for entry in own:
            if entry.at != at:
                yield f"ledger: entry {entry.sequence}: the time of {event!r} differs from the request's"
            for name in names:
                if name in entry.facts and _plain(entry.facts[name]) != _plain(getattr(request, name)):
                    yield f"ledger: entry {entry.sequence}: {name} differs from the request's"


def _counts(counts: CountFacts, certificate: Certificate) -> Iterator[str]:
    if not certificate.ledger.is_complete:
        return
    for event in ("accepted", "applied", "cancelled"):
        found = sum(entry.event == event for entry in certificate.ledger.entries)
        if found != getattr(counts, event):
            yield f"counts: {getattr(counts, event)} requests {event}, but the ledger has {found} such entries"


def _guarantee(certificate: Certificate) -> Iterator[str]:
    if not certificate.deployment.sampler_is_independent and not certificate.guarantee.is_vacuous:
        yield "guarantee: nothing can be promised of shards that are not independent"


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


#: The version of the format that is written and read.
FORMAT: Final = 1
#: What the header says it is, so that a signature on something else is never taken for one on a certificate.
TYPE: Final = "expunge certificate"


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A signed statement about a request (`request`) or about a whole deployment (`counts`)."""

    issued_at: str
    software: str
    deployment: DeploymentFacts
    publication: PublicationFacts
    guarantee: GuaranteeFacts
    statements: Statements
    ledger: Excerpt
    request: RequestFacts | None = None
    counts: CountFacts | None = None
    public_key: PublicKey
    signature: bytes

    format: ClassVar[int] = FORMAT

    @property
    def kind(self) -> str:
        """Whether it is about a "request" or about the "deployment"."""
        return "deployment" if self.request is None else "request"

    def sections(self) -> dict[str, dict[str, Any]]:
        """The document without its header and signature."""
        sections = {
            "deployment": to_data(self.deployment),
            "publication": to_data(self.publication),
            "guarantee": to_data(self.guarantee),
            "statements": to_data(self.statements),
            "ledger": self.ledger.to_data(),
        }
        if self.request is not None:
            sections["request"] = to_data(self.request)
        if self.counts is not None:
            sections["counts"] = to_data(self.counts)
        return sections

    def to_json(self) -> bytes:
        """The file: canonical JSON and a newline."""
        return canonical(self.to_data()) + b"\n"

    def to_data(self) -> dict[str, Any]:
        """The whole document."""
        sections = self.sections()
        header = _header(self, sections)
        return {"format": self.format, "header": header, **sections, "signature": self.signature.hex()}


def issue(
    *,
    key: SigningKey,
    deployment: DeploymentFacts,
    publication: PublicationFacts,
    guarantee: GuaranteeFacts,
    ledger: Excerpt,
    issued_at: str,
    request: RequestFacts | None = None,
    counts: CountFacts | None = None,
    software: str = f"expunge {__version__}",
) -> Certificate:
    """A certificate about `request`, or about the deployment (`counts`).

    The facts must agree with one another and with the ledger (`disagreements` lists the rules): a certificate that its
    own verifier would find wrong is refused.
    """
    if (request is None) == (counts is None):
        raise ParameterError(
            "a certificate is about either a request or the deployment: give one of request and counts"
        )
    facts: dict[str, Any] = {
        "issued_at": _require.moment("issued_at", issued_at),
        "software": _require.text("software", software),
        "deployment": deployment,
        "publication": publication,
        "guarantee": guarantee,
        "statements": make_statements(deployment, publication, guarantee, request=request, counts=counts),
        "ledger": ledger,
        "request": request,
        "counts": counts,
        "public_key": key.public_key,
    }
    unsigned = Certificate(**facts, signature=b"")
    wrong = disagreements(unsigned)
    if wrong:
        raise ParameterError(f"the certificate would be wrong: {wrong[0]}")
    return Certificate(**facts, signature=key.sign(canonical(unsigned.to_data()["header"])))


def field_digests(section: dict[str, Any]) -> dict[str, str]:
    """SHA-256 of every field in canonical JSON."""
    return {name: hashlib.sha256(canonical(value)).hexdigest() for name, value in section.items()}


def _header(certificate: Certificate, sections: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "type": TYPE,
        "format": certificate.format,
        "kind": certificate.kind,
        "issued_at": certificate.issued_at,
        "software": certificate.software,
        "public_key": certificate.public_key.to_pem(),
        "digests": {name: field_digests(section) for name, section in sections.items()},
    }
