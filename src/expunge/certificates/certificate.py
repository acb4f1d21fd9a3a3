"""The certificate: facts, sentences and a stretch of the ledger, signed.

The file is canonical JSON. Its header holds the SHA-256 of every field of every section, and the header is what is
signed, so a field that was changed afterwards can be named. See docs/certificates.md for the format.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from expunge._version import __version__
from expunge.certificates import _require
from expunge.certificates.agreement import disagreements
from expunge.certificates.canonical import canonical
from expunge.certificates.excerpt import Excerpt
from expunge.certificates.facts import (
    CountFacts,
    DeploymentFacts,
    GuaranteeFacts,
    PublicationFacts,
    RequestFacts,
    to_data,
)
from expunge.certificates.keys import PublicKey, SigningKey
from expunge.certificates.statements import Statements, make_statements
from expunge.errors import ParameterError

#: The format that is written. A new one gets a new number, and a reader in `reading.py` beside the old ones.
FORMAT: Final = 2
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
    format: int = FORMAT

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
        "statements": make_statements(
            deployment, publication, guarantee, request=request, counts=counts, format=FORMAT
        ),
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
