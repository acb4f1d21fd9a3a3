"""Whether the parts of a certificate agree with one another: the same rules for issuing and for verifying."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from expunge.certificates.facts import CountFacts, RequestFacts, on_tick
from expunge.certificates.ledger import TICKED, Entry

if TYPE_CHECKING:
    from expunge.certificates.certificate import Certificate


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
