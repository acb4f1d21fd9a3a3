"""The certificate: facts, sentences and entries of the log, signed; how it is issued and how its file is read.

The file is a DSSE envelope around an in-toto Statement v1, written as canonical JSON. Facts and sentences are its
predicate. See docs/certificates.md, and the JSON Schemas beside this file.
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
from expunge.evidence.envelope import Envelope, key_id
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
from expunge.evidence.hashes import digest_of_hashes
from expunge.evidence.history import History
from expunge.evidence.keys import PublicKey, SigningKey
from expunge.evidence.ledger import TICKED, Excerpt, Shown
from expunge.evidence.statements import Statements, make_statements

#: The version of the format that is written and read; the predicate's type ends with it.
FORMAT: Final = 1
#: What the payload of the envelope is.
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
#: What the payload says it is.
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
#: What its predicate is. It names this format and is no address.
PREDICATE_TYPE: Final = f"urn:expunge:certificate:v{FORMAT}"
_ANY_VERSION: Final = re.compile(r"urn:expunge:certificate:v([1-9][0-9]{0,8})")
_SECTIONS: Final[Mapping[str, type]] = MappingProxyType(
    {
        "deployment": DeploymentFacts,
        "publication": PublicationFacts,
        "exact": ExactFacts,
        "guarantee": GuaranteeFacts,
        "statements": Statements,
        "log": Excerpt,
    }
)
_ABOUT: Final[Mapping[str, type]] = MappingProxyType({"request": RequestFacts, "counts": CountFacts})
_SINGLE: Final = frozenset({"issued_at", "clamped", "software", "public_key"})


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A signed statement about a request or about a whole deployment.

    `issue` makes one and `read_certificate` reads one. `verify` says whether it can be relied on.

    Parameters
    ----------
    issued_at
        When it was issued, such as 2026-11-16T02:00:00Z.
    clamped
        Whether `issued_at` is the time of an entry of the log, because the clock showed an earlier one.
    software
        What made it.
    deployment, publication
        The facts about the deployment, and about what it had published.
    exact, guarantee
        The facts about the exact promise, and about the (α,β,γ) one.
    statements
        The sentences that follow from the facts.
    log
        The entries of the log that support the facts, with the signed checkpoint and the proofs.
    request
        The request, in a certificate about a request.
    counts
        The deployment's requests and records, in a certificate about the deployment.
    public_key
        The signer's public key.
    signature
        The Ed25519 signature of the envelope.
    """

    issued_at: str
    clamped: bool
    software: str
    deployment: DeploymentFacts
    publication: PublicationFacts
    exact: ExactFacts
    guarantee: GuaranteeFacts
    statements: Statements
    log: Excerpt
    request: RequestFacts | None = None
    counts: CountFacts | None = None
    public_key: PublicKey
    signature: bytes

    format: ClassVar[int] = FORMAT

    @property
    def history(self) -> History:
        """What the log's entries say about the key in force and about recomputations.

        Raises InputError if one of them tells something impossible; `verify` finds that.
        """
        return History.of(self.log.entries, num_shards=self.exact.num_shards)

    @property
    def kind(self) -> str:
        """Whether it is about a "request" or about the "deployment"."""
        return "deployment" if self.request is None else "request"

    def make_statements(self) -> Statements:
        """Make the sentences that its facts support."""
        return make_statements(
            self.deployment,
            self.publication,
            self.exact,
            self.guarantee,
            history=self.history,
            request=self.request,
            counts=self.counts,
            clamped=clamped_times(self.request, self.log, is_issue_clamped=self.clamped),
        )

    def predicate(self) -> dict[str, Any]:
        """The facts, the sentences and the entries, as plain data."""
        made: dict[str, Any] = {
            "issued_at": self.issued_at,
            "clamped": self.clamped,
            "software": self.software,
            "public_key": self.public_key.to_pem(),
            "deployment": to_data(self.deployment),
            "publication": to_data(self.publication),
            "exact": to_data(self.exact),
            "guarantee": to_data(self.guarantee),
            "statements": to_data(self.statements),
            "log": self.log.to_data(),
        }
        if self.request is not None:
            made["request"] = to_data(self.request)
        if self.counts is not None:
            made["counts"] = to_data(self.counts)
        return made

    def subject(self) -> list[dict[str, Any]]:
        """What the statement is about: the checkpoint of the log, and the acceptance of the request."""
        note = self.log.checkpoint.note.encode()
        found = [{"name": self.log.checkpoint.origin, "digest": {"sha256": hashlib.sha256(note).hexdigest()}}]
        if self.request is not None:
            about = self.log.about(self.request.request_id)
            found += [
                {"name": f"request {self.request.request_id}", "digest": {"sha256": each.entry.facts.get("commitment")}}
                for each in about
                if each.entry.event == "accepted"
            ]
        return found

    def payload(self) -> bytes:
        """The in-toto statement, which is what the envelope signs, in canonical JSON."""
        return write_canonical(
            {
                "_type": STATEMENT_TYPE,
                "subject": self.subject(),
                "predicateType": PREDICATE_TYPE,
                "predicate": self.predicate(),
            }
        )

    def to_json(self) -> bytes:
        """The file: the envelope in canonical JSON, and a newline."""
        return Envelope(PAYLOAD_TYPE, self.payload(), key_id(self.public_key), self.signature).to_json()


def clamped_times(request: RequestFacts | None, log: Excerpt, *, is_issue_clamped: bool) -> tuple[str, ...]:
    """Name the times of a certificate that the log marks as clamped.

    Parameters
    ----------
    request
        The request that it is about.
    log
        The entries that it shows.
    is_issue_clamped
        Whether the time of its issue is clamped.

    Returns
    -------
    tuple of str
        What happened at these times, such as "accepted".
    """
    own = [] if request is None else log.about(request.request_id)
    others = [each for each in log.shown if each.request is None]
    found = [each.entry.event for each in (*own, *others) if each.entry.is_clamped]
    return (*dict.fromkeys(found), *(["issued"] if is_issue_clamped else []))


def issue(
    *,
    key: SigningKey,
    deployment: DeploymentFacts,
    publication: PublicationFacts,
    exact: ExactFacts,
    guarantee: GuaranteeFacts,
    log: Excerpt,
    issued_at: str,
    clamped: bool = False,
    request: RequestFacts | None = None,
    counts: CountFacts | None = None,
    software: str = f"expunge {__version__}",
) -> Certificate:
    """Make and sign a certificate about a request, or about the deployment.

    The facts must agree with one another and with the log. A certificate that `verify` would find wrong is refused.

    Parameters
    ----------
    key
        The operator's signing key, which also signed the log's checkpoint.
    deployment, publication
        The facts about the deployment, and about what it has published.
    exact, guarantee
        The facts about the exact promise, and about the (α,β,γ) one.
    log
        Entries of the deployment's log, with the openings of those of the request.
    issued_at
        The time of issue, such as 2026-11-16T02:00:00Z.
    clamped
        Whether that is the time of an entry, because the clock showed an earlier one.
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
    facts: dict[str, Any] = {
        "issued_at": checks.moment("issued_at", issued_at),
        "clamped": clamped,
        "software": checks.text("software", software),
        "deployment": deployment,
        "publication": publication,
        "exact": exact,
        "guarantee": guarantee,
        "statements": make_statements(
            deployment,
            publication,
            exact,
            guarantee,
            history=History.of(log.entries, num_shards=exact.num_shards),
            request=request,
            counts=counts,
            clamped=clamped_times(request, log, is_issue_clamped=clamped),
        ),
        "log": log,
        "request": request,
        "counts": counts,
        "public_key": key.public_key,
    }
    unsigned = Certificate(**facts, signature=b"")
    wrong = [*log.faults(deployment.deployment_id, key.public_key), *find_contradictions(unsigned)]
    if wrong:
        raise ParameterError(f"the certificate would be wrong: {wrong[0]}")
    return Certificate(**facts, signature=Envelope.sign(PAYLOAD_TYPE, unsigned.payload(), key).signature)


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
    certificate, problems = read_parts(*read_statement(data))
    if certificate is None or problems:
        raise InputError(problems[0])
    return certificate


def read_statement(data: bytes) -> tuple[Envelope, dict[str, Any]]:
    """Read the envelope and the statement of a certificate of the present format. All else raises an InputError."""
    envelope = Envelope.parse(data)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise InputError(f"this is not a certificate of expunge: its payload is of type {envelope.payload_type!r:.80}")
    statement: Any = read_canonical(envelope.payload)
    kind = statement.get("predicateType") if isinstance(statement, dict) else None
    version = _ANY_VERSION.fullmatch(kind) if isinstance(kind, str) else None
    if version is None or statement.get("_type") != STATEMENT_TYPE:
        raise InputError("this is not a certificate of expunge: it is no in-toto statement with such a predicate")
    if int(version[1]) > FORMAT:
        raise InputError(
            f"the certificate has format {version[1]}, this software reads up to {FORMAT}: use a newer one"
        )
    return envelope, dict(statement)


def read_parts(envelope: Envelope, statement: Mapping[str, Any]) -> tuple[Certificate | None, list[str]]:
    """Make the certificate of a statement, or None, and list every problem on the way, one line each."""
    predicate = statement.get("predicate")
    if not isinstance(predicate, dict) or set(statement) != {"_type", "subject", "predicateType", "predicate"}:
        return None, ["the statement must have _type, subject, predicateType and an object as predicate alone"]
    about = [name for name in _ABOUT if name in predicate]
    problems = [] if len(about) == 1 else ["it must be about a request or have counts, and not both"]
    kinds = {**_SECTIONS, **{name: _ABOUT[name] for name in about}}
    problems += [f"there is no field {name[:80]!r}" for name in sorted(set(predicate) - set(kinds) - _SINGLE)]
    found: dict[str, Any] = {"signature": envelope.signature}
    for name, kind in kinds.items():
        try:
            found[name] = _read_section(kind, predicate.get(name))
        except InputError as error:
            problems.append(f"{name}: {error}")
    try:
        found |= _read_single(predicate)
    except InputError as error:
        problems.append(str(error))
    if problems:
        return None, problems
    certificate = Certificate(**found)
    if certificate.payload() != envelope.payload:
        problems.append("it is not written in the one form that the format allows, or its subject is another one")
    if envelope.keyid != key_id(certificate.public_key):
        problems.append("the keyid of the envelope is not that of the certificate's key")
    return certificate, problems


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


def _read_single(predicate: Mapping[str, Any]) -> dict[str, Any]:
    for name in sorted(_SINGLE - set(predicate)):
        raise InputError(f"{name} is missing")
    key = PublicKey.from_pem(checks.text("public_key", predicate["public_key"]).encode("utf-8"))
    if not isinstance(predicate["clamped"], bool):
        raise InputError("clamped must be true or false")
    return {
        "issued_at": checks.moment("issued_at", predicate["issued_at"]),
        "clamped": predicate["clamped"],
        "software": checks.text("software", predicate["software"]),
        "public_key": key,
    }


def find_contradictions(certificate: Certificate) -> list[str]:
    """List every contradiction between the facts of a certificate and the entries that it shows, in one line each.

    `issue` and `verify` use the same rules. Times at which work was done are on the clock tick and not after the
    certificate. The entries of a request say what the request says. There are no more requests than entries. The recipe
    is the one that the deployment was created with, and a recomputation fits the deployment. No (α,β,γ) is claimed of
    shards that are not independent, or under a promise that asks for none.
    """
    return [
        *_check_clock(certificate),
        *(_check_request(certificate.request, certificate) if certificate.request is not None else ()),
        *(_check_counts(certificate.counts, certificate) if certificate.counts is not None else ()),
        *_check_recipe(certificate),
        *_check_recomputation(certificate),
        *_check_guarantee(certificate),
    ]


def _check_clock(certificate: Certificate) -> Iterator[str]:
    deployment = certificate.deployment
    for entry in certificate.log.entries:
        if entry.event in TICKED and not on_tick(deployment, entry.at):
            yield f"log: entry {entry.sequence}: the time of the {entry.event!r} entry is not on the clock tick"
        if entry.at > certificate.issued_at:
            yield f"log: entry {entry.sequence} of {entry.at} is after the certificate, {certificate.issued_at}"
    if deployment.created_at > certificate.issued_at:
        yield f"deployment: created_at {deployment.created_at} is after the certificate, {certificate.issued_at}"


def _check_request(request: RequestFacts, certificate: Certificate) -> Iterator[str]:
    if request.state == "applied" and (request.generation is None) != (certificate.publication.generation is None):
        yield "request: its generation is told and the deployment's is not, or the other way round"
    elif (request.generation or 0) > (certificate.publication.generation or 0):
        yield f"request: generation {request.generation} is later than the deployment's"
    if request.round is not None and request.round > certificate.publication.round:
        yield f"request: round {request.round} is later than the deployment's"
    for shown in certificate.log.shown:
        if shown.opening is not None and shown.request != request.request_id:
            yield f"log: entry {shown.entry.sequence} is about another request"
    yield from _check_entries(request, certificate.log.about(request.request_id))


def _check_entries(request: RequestFacts, about: list[Shown]) -> Iterator[str]:
    """There is one entry for each thing that happened to the request, and it says the same as the request."""
    records = {"records": digest_of_hashes(request.id_hashes)} if request.id_hashes else {}
    counts = ("num_deletions", "num_additions", "num_corrections")
    asked = {**{name: getattr(request, name) for name in counts}, **records}
    generation = {} if request.generation is None else {"generation": request.generation}
    expected: dict[str, tuple[str | None, dict[str, Any]]] = {
        "accepted": (request.accepted_at, asked),
        "applied": (request.applied_by, {"round": request.round, **generation}),
        "cancelled": (request.cancelled_at, {}),
    }
    for event, (at, told) in expected.items():
        own = [each for each in about if each.entry.event == event]
        if len(own) != (at is not None):
            wanted = "no" if at is None else "one"
            yield f"log: there must be {wanted} {event!r} entry of this request, there are {len(own)}"
            continue
        for each in own:
            assert each.opening is not None  # it says which request it is about
            place, found = each.entry.sequence, dict(each.opening.facts)
            if each.entry.at != at:
                yield f"log: entry {place}: the time of {event!r} differs from the request's"
            if event == "accepted" and not records:  # the hashes may have been erased
                found.pop("records", None)
            found.pop("request")
            for name in sorted(set(told) | set(found)):
                if found.get(name) != told.get(name):
                    yield f"log: entry {place}: {name} differs from the request's"


def _check_counts(counts: CountFacts, certificate: Certificate) -> Iterator[str]:
    told = counts.accepted + counts.applied + counts.cancelled
    if told > certificate.log.checkpoint.size:
        yield f"counts: they need {told:,} entries, and the log has {certificate.log.checkpoint.size:,}"


def _check_recipe(certificate: Certificate) -> Iterator[str]:
    """What the exact promise compares with is what the log told of it last."""
    told = {
        "num_shards": certificate.exact.num_shards,
        "learner": certificate.exact.learner,
        "sampler": "independent" if certificate.deployment.sampler_is_independent else "partition",
        "promise": certificate.deployment.promise,
    }
    for name, value in told.items():
        entries = [entry for entry in certificate.log.entries if name in entry.facts]
        if entries and entries[-1].facts[name] != value:
            yield f"log: entry {entries[-1].sequence}: {name} is not the certificate's"


def _check_recomputation(certificate: Certificate) -> Iterator[str]:
    try:
        history = certificate.history
    except InputError as error:
        yield f"log: {error}"
        return
    present = (certificate.publication.generation, certificate.publication.round)
    for found in filter(None, dict.fromkeys([history.recomputation, history.disagreement])):
        if found.num_checked > certificate.exact.num_shards:
            yield f"log: {found.num_checked} shards were trained again, of {certificate.exact.num_shards}"
        if (found.generation or 0) > (present[0] or 0) or found.round > present[1]:
            yield f"log: a recomputation of round {found.round} is later than the deployment's"


def _check_guarantee(certificate: Certificate) -> Iterator[str]:
    deployment, is_claimed = certificate.deployment, not certificate.guarantee.is_vacuous
    if not deployment.sampler_is_independent and is_claimed:
        yield "guarantee: no (α,β,γ) can be claimed of shards that are not independent"
    if deployment.promise in WITHOUT_GUARANTEE and is_claimed:
        yield f"guarantee: no (α,β,γ) is claimed under the promise {deployment.promise!r}"
