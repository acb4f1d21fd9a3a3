"""The certificate: facts, sentences and a stretch of the ledger, signed; how it is issued and how its file is read.

The file is canonical JSON. Its header holds the SHA-256 of every field of every section, and the header is what is
signed. So a field that was changed afterwards can be named. See docs/certificates.md for the format.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Final

from expunge.core.errors import InputError, ParameterError
from expunge.core.version import __version__
from expunge.evidence import checks
from expunge.evidence.canonical import read_canonical, write_canonical
from expunge.evidence.facts import (
    WITHOUT_GUARANTEE,
    CountFacts,
    DeploymentFacts,
    ExactFacts,
    GuaranteeFacts,
    PublicationFacts,
    RequestFacts,
    on_tick,
    to_data,
)
from expunge.evidence.history import History
from expunge.evidence.keys import PublicKey, SigningKey
from expunge.evidence.ledger import TICKED, Entry, Excerpt
from expunge.evidence.statements import Statements, make_statements

#: The version of the format that is written and read.
FORMAT: Final = 1
# What the header says it is, so that a signature on something else is never taken for one on a certificate.
_TYPE: Final = "expunge certificate"
_SIGNATURE: Final = re.compile(r"[0-9a-f]{128}")
_HEADER: Final = frozenset({"type", "format", "kind", "issued_at", "software", "public_key", "digests"})
_SECTIONS: Final[Mapping[str, type]] = MappingProxyType(
    {
        "deployment": DeploymentFacts,
        "publication": PublicationFacts,
        "exact": ExactFacts,
        "guarantee": GuaranteeFacts,
        "statements": Statements,
        "ledger": Excerpt,
    }
)
_ABOUT: Final[Mapping[str, tuple[str, type]]] = MappingProxyType(
    {"request": ("request", RequestFacts), "deployment": ("counts", CountFacts)}
)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A signed statement about a request or about a whole deployment.

    `issue` makes one and `read_certificate` reads one. `verify` says whether it can be relied on.

    Parameters
    ----------
    issued_at
        When it was issued, such as 2026-11-16T02:00:00Z.
    software
        What made it.
    deployment, publication
        The facts about the deployment, and about what it had published.
    exact, guarantee
        The facts about the exact promise, and about the (α,β,γ) one.
    statements
        The sentences that follow from the facts.
    ledger
        The stretch of the ledger that supports the facts.
    request
        The request, in a certificate about a request.
    counts
        The deployment's requests and records, in a certificate about the deployment.
    public_key
        The signer's public key.
    signature
        The Ed25519 signature of the header.
    """

    issued_at: str
    software: str
    deployment: DeploymentFacts
    publication: PublicationFacts
    exact: ExactFacts
    guarantee: GuaranteeFacts
    statements: Statements
    ledger: Excerpt
    request: RequestFacts | None = None
    counts: CountFacts | None = None
    public_key: PublicKey
    signature: bytes

    format: ClassVar[int] = FORMAT

    @property
    def history(self) -> History:
        """What the ledger's entries say about the key in force and about recomputations.

        Raises InputError if one of them tells something impossible; `verify` finds that.
        """
        return History.of(self.ledger.shown, num_shards=self.exact.num_shards)

    @property
    def kind(self) -> str:
        """Whether it is about a "request" or about the "deployment"."""
        return "deployment" if self.request is None else "request"

    def sections(self) -> dict[str, dict[str, Any]]:
        """The document without its header and signature."""
        sections = {
            "deployment": to_data(self.deployment),
            "publication": to_data(self.publication),
            "exact": to_data(self.exact),
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
        return write_canonical(self.to_data()) + b"\n"

    def to_data(self) -> dict[str, Any]:
        """The whole document."""
        sections = self.sections()
        header = {
            "type": _TYPE,
            "format": FORMAT,
            "kind": self.kind,
            "issued_at": self.issued_at,
            "software": self.software,
            "public_key": self.public_key.to_pem(),
            "digests": {name: digest_fields(section) for name, section in sections.items()},
        }
        return {"format": FORMAT, "header": header, **sections, "signature": self.signature.hex()}


def digest_fields(section: Mapping[str, Any]) -> dict[str, str]:
    """Compute the SHA-256 of every field of a section in canonical JSON."""
    return {name: hashlib.sha256(write_canonical(value)).hexdigest() for name, value in section.items()}


def issue(
    *,
    key: SigningKey,
    deployment: DeploymentFacts,
    publication: PublicationFacts,
    exact: ExactFacts,
    guarantee: GuaranteeFacts,
    ledger: Excerpt,
    issued_at: str,
    request: RequestFacts | None = None,
    counts: CountFacts | None = None,
    software: str = f"expunge {__version__}",
) -> Certificate:
    """Make and sign a certificate about a request, or about the deployment.

    The facts must agree with one another and with the ledger. A certificate that `verify` would find wrong is refused.

    Parameters
    ----------
    key
        The operator's signing key.
    deployment, publication
        The facts about the deployment, and about what it has published.
    exact, guarantee
        The facts about the exact promise, and about the (α,β,γ) one.
    ledger
        A stretch of the deployment's ledger. It shows the entries of the request in full.
    issued_at
        The time of issue, such as 2026-11-16T02:00:00Z.
    request
        The request, for a certificate about a request.
    counts
        The requests and records, for a certificate about the deployment. Give either `request` or `counts`.
    software
        What makes the certificate.

    Returns
    -------
    Certificate
        The signed certificate.

    Raises
    ------
    ParameterError
        If both or neither of `request` and `counts` are given, or if the facts contradict one another.
    """
    if (request is None) == (counts is None):
        raise ParameterError(
            "a certificate is about either a request or the deployment: give one of request and counts"
        )
    history = History.of(ledger.shown, num_shards=exact.num_shards)
    facts: dict[str, Any] = {
        "issued_at": checks.moment("issued_at", issued_at),
        "software": checks.text("software", software),
        "deployment": deployment,
        "publication": publication,
        "exact": exact,
        "guarantee": guarantee,
        "statements": make_statements(
            deployment, publication, exact, guarantee, history=history, request=request, counts=counts
        ),
        "ledger": ledger,
        "request": request,
        "counts": counts,
        "public_key": key.public_key,
    }
    unsigned = Certificate(**facts, signature=b"")
    wrong = find_contradictions(unsigned)
    if wrong:
        raise ParameterError(f"the certificate would be wrong: {wrong[0]}")
    return Certificate(**facts, signature=key.sign(write_canonical(unsigned.to_data()["header"])))


def read_certificate(data: bytes) -> Certificate:
    """Read a certificate file without verifying it; `verify` does both.

    Parameters
    ----------
    data
        The whole file.

    Returns
    -------
    Certificate
        The certificate. It is well-formed, but its signature and its content are not checked.

    Raises
    ------
    InputError
        If the file is not a well-formed certificate, or has a newer format.
    """
    certificate, problems = read_parts(read_document(data))
    if certificate is None or problems:
        raise InputError(problems[0])
    return certificate


def read_document(data: bytes) -> dict[str, Any]:
    """Read the JSON of a certificate of the present format. Anything else raises an InputError."""
    document: Any = read_canonical(data)
    header = document.get("header") if isinstance(document, dict) else None
    if not isinstance(header, dict) or header.get("type") != _TYPE:
        raise InputError("this is not a certificate of expunge")
    version = document.get("format")
    if type(version) is not int or version < 1:
        raise InputError("the certificate's format is not a version number")
    if version > FORMAT:
        raise InputError(f"the certificate has format {version}, this software reads up to {FORMAT}: use a newer one")
    return dict(document)


def read_parts(document: Mapping[str, Any]) -> tuple[Certificate | None, list[str]]:
    """Make the certificate of a document, or None, and list every problem on the way, one line each."""
    kinds, problems = _expected_sections(document)
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        try:
            found[name] = _read_section(kind, document.get(name))
        except InputError as error:
            problems.append(f"{name}: {error}")
    try:
        found |= _read_header(document)
    except InputError as error:
        problems.append(f"header: {error}")
    if problems:
        return None, problems
    certificate = Certificate(**found)
    sections = certificate.sections()
    if write_canonical(sections) != write_canonical({name: document[name] for name in sections}):
        return None, ["a value is not written the way its field demands"]
    return certificate, []


def _expected_sections(document: Mapping[str, Any]) -> tuple[dict[str, type], list[str]]:
    kind = document["header"].get("kind")
    if not isinstance(kind, str) or kind not in _ABOUT:
        return dict(_SECTIONS), ["header: kind must be request or deployment"]
    name, facts = _ABOUT[kind]
    kinds = {**_SECTIONS, name: facts}
    strange = sorted(set(document) - set(kinds) - {"format", "header", "signature"})
    return kinds, [f"{name[:80]!r} does not belong into a certificate about a {kind}" for name in strange]


def _read_section(kind: type, data: Any) -> Any:
    if not isinstance(data, dict):
        raise InputError("the section is missing" if data is None else "the section is not an object")
    names = {each.name for each in fields(kind)}
    for name in sorted(names - set(data)):
        raise InputError(f"{name} is missing")
    for name in sorted(set(data) - names):
        raise InputError(f"there is no field {name[:80]!r}")
    read: Callable[..., Any] | None = getattr(kind, "from_data", None)
    return kind(**data) if read is None else read(data)


def _read_header(document: Mapping[str, Any]) -> dict[str, Any]:
    header = document["header"]
    if set(header) != _HEADER:
        raise InputError(f"it must have {', '.join(sorted(_HEADER))}, and nothing else")
    if header["format"] != document["format"] or type(header["format"]) is not int:
        raise InputError("its format differs from the document's")
    pem = checks.text("public_key", header["public_key"])
    key = PublicKey.from_pem(pem.encode("utf-8"))
    if key.to_pem() != pem:
        raise InputError("the public key is not written as PEM writes it")
    signature = document.get("signature")
    if not isinstance(signature, str) or not _SIGNATURE.fullmatch(signature):
        raise InputError("the signature must be 128 hexadecimal digits")
    return {
        "issued_at": checks.moment("issued_at", header["issued_at"]),
        "software": checks.text("software", header["software"]),
        "public_key": key,
        "signature": bytes.fromhex(signature),
    }


def find_contradictions(certificate: Certificate) -> list[str]:
    """List every contradiction between the parts of a certificate, in one line each.

    `issue` and `verify` use the same rules. The ledger can be followed from its start to its head. Times at which work
    was done are on the clock tick and not after the certificate. The entries of a request say what the request says.
    The counts are those of the entries where all are shown. The recipe is the one that the deployment was created with,
    and a recomputation fits the deployment. No (α,β,γ) is claimed of shards that are not independent, or under a
    promise that asks for none.
    """
    return [
        *(f"ledger: {fault}" for fault in certificate.ledger.faults(certificate.deployment.deployment_id)),
        *_check_clock(certificate),
        *(_check_request(certificate.request, certificate) if certificate.request is not None else ()),
        *(_check_counts(certificate.counts, certificate) if certificate.counts is not None else ()),
        *_check_recipe(certificate),
        *_check_recomputation(certificate),
        *_check_guarantee(certificate),
    ]


def _check_clock(certificate: Certificate) -> Iterator[str]:
    deployment = certificate.deployment
    for entry in certificate.ledger.shown:
        if entry.event in TICKED and not on_tick(deployment, entry.at):
            yield f"ledger: entry {entry.sequence}: the time of the {entry.event!r} entry is not on the clock tick"
    if deployment.created_at > certificate.issued_at:
        yield f"deployment: created_at {deployment.created_at} is after the certificate, {certificate.issued_at}"


def _check_request(request: RequestFacts, certificate: Certificate) -> Iterator[str]:
    if request.applied_by is not None and not on_tick(certificate.deployment, request.applied_by):
        yield f"request: applied_by {request.applied_by} is not on the clock tick"
    for name in ("accepted_at", "applied_by", "cancelled_at"):
        at = getattr(request, name)
        if at is not None and at > certificate.issued_at:
            yield f"request: {name} {at} is after the certificate, {certificate.issued_at}"
    if request.state == "applied" and (request.generation is None) != (certificate.publication.generation is None):
        yield "request: its generation is told and the deployment's is not, or the other way round"
    elif (request.generation or 0) > (certificate.publication.generation or 0):
        yield f"request: generation {request.generation} is later than the deployment's"
    if request.round is not None and request.round > certificate.publication.round:
        yield f"request: round {request.round} is later than the deployment's"
    yield from _check_entries(request, certificate.ledger.entries)


def _check_entries(request: RequestFacts, entries: tuple[Entry, ...]) -> Iterator[str]:
    """There is one entry for each thing that happened to the request, and it says the same as the request."""
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


def _check_counts(counts: CountFacts, certificate: Certificate) -> Iterator[str]:
    if not certificate.ledger.is_complete:
        return
    for event in ("accepted", "applied", "cancelled"):
        found = sum(entry.event == event for entry in certificate.ledger.entries)
        if found != getattr(counts, event):
            yield f"counts: {getattr(counts, event)} requests {event}, but the ledger has {found} such entries"


def _check_recipe(certificate: Certificate) -> Iterator[str]:
    """What the exact promise compares with is what the ledger told of it last."""
    told = {
        "num_shards": certificate.exact.num_shards,
        "learner": certificate.exact.learner,
        "sampler": "independent" if certificate.deployment.sampler_is_independent else "partition",
        "promise": certificate.deployment.promise,
    }
    for name, value in told.items():
        entries = [entry for entry in certificate.ledger.shown if name in entry.facts]
        if entries and entries[-1].facts[name] != value:
            yield f"ledger: entry {entries[-1].sequence}: {name} is not the certificate's"


def _check_recomputation(certificate: Certificate) -> Iterator[str]:
    try:
        history = certificate.history
    except InputError as error:
        yield f"ledger: {error}"
        return
    present = (certificate.publication.generation, certificate.publication.round)
    for found in filter(None, dict.fromkeys([history.recomputation, history.disagreement])):
        if found.num_checked > certificate.exact.num_shards:
            yield f"ledger: {found.num_checked} shards were trained again, of {certificate.exact.num_shards}"
        if (found.generation or 0) > (present[0] or 0) or found.round > present[1]:
            yield f"ledger: a recomputation of round {found.round} is later than the deployment's"


def _check_guarantee(certificate: Certificate) -> Iterator[str]:
    deployment, is_claimed = certificate.deployment, not certificate.guarantee.is_vacuous
    if not deployment.sampler_is_independent and is_claimed:
        yield "guarantee: no (α,β,γ) can be claimed of shards that are not independent"
    if deployment.promise in WITHOUT_GUARANTEE and is_claimed:
        yield f"guarantee: no (α,β,γ) is claimed under the promise {deployment.promise!r}"


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
