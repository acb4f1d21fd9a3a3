"""The technical appendix of the page: numbers, assumptions, ledger, key, and how to check them."""

from __future__ import annotations

from typing import Final

from expunge.certificates._page_parts import facts, items, table, tag, tag_text
from expunge.certificates.canonical import canonical
from expunge.certificates.certificate import Certificate
from expunge.certificates.facts import Parameter
from expunge.certificates.verification import Verification
from expunge.certificates.words import period

_MOST_ENTRIES: Final = 100
_MOST_HASHES: Final = 50


def appendix(certificate: Certificate, verification: Verification | None) -> str:
    """Everything that an auditor needs beside the file itself."""
    parts = [
        tag_text("h2", "Technical appendix"),
        _guarantee(certificate),
        _assumptions(certificate),
        _ledger(certificate),
        _ids(certificate),
        _signature(certificate, verification),
    ]
    return tag("section", "\n".join(parts), css="appendix")


def _guarantee(certificate: Certificate) -> str:
    guarantee, publication = certificate.guarantee, certificate.publication
    covered = publication.predictions_covered
    covered_words = "any number" if covered is None else f"{covered:,}"
    rows = [
        ("alpha", _number(guarantee.alpha)),
        ("beta", _number(guarantee.beta)),
        ("gamma", _number(guarantee.gamma)),
        ("theorem", guarantee.theorem or "none"),
        *((name, _number(value)) for name, value in sorted(guarantee.parameters.items())),
        ("predictions published in this generation", f"{publication.predictions_published:,}"),
        ("predictions covered in a generation", "none" if guarantee.is_vacuous else covered_words),
        ("generation and round at issue", f"{publication.generation:,}, {publication.round:,}"),
        ("shards are independent", "yes" if certificate.deployment.sampler_is_independent else "no"),
        ("clock tick", period(certificate.deployment.tick_seconds)),
    ]
    return tag_text("h3", "The guarantee in numbers") + table(("name", "value"), rows, css="numbers")


def _assumptions(certificate: Certificate) -> str:
    heading = tag_text("h3", "What the guarantee rests on")
    if not certificate.guarantee.assumptions:
        return heading + tag_text("p", "No assumptions are stated.")
    return heading + items(certificate.guarantee.assumptions)


def _ledger(certificate: Certificate) -> str:
    ledger = certificate.ledger
    rows = [
        (f"{entry.sequence:,}", entry.at, entry.event, canonical(entry.facts).decode("utf-8"))
        for entry in ledger.entries[:_MOST_ENTRIES]
    ]
    more = len(ledger.entries) - len(rows)
    start = "the creation of the deployment" if ledger.start.sequence == 0 else f"entry {ledger.start.sequence:,}"
    return (
        tag_text("h3", "Ledger")
        + facts(
            [
                ("Starts after", start),
                ("Link there", ledger.start.link.hex()),
                ("Ends with", f"entry {ledger.head.sequence:,}"),
                ("Link there", ledger.head.link.hex()),
            ]
        )
        + (table(("entry", "time", "event", "facts"), rows, css="entries") if rows else "")
        + (tag_text("p", f"The file holds {more:,} more entries.") if more else "")
    )


def _ids(certificate: Certificate) -> str:
    hashes = () if certificate.request is None else certificate.request.id_hashes
    if not hashes:
        return ""
    more = len(hashes) - _MOST_HASHES
    return (
        tag_text("h3", "Records, as keyed hashes of their ids")
        + tag_text(
            "p",
            "HMAC-SHA256 of the id in canonical JSON. With the key of this request, which the operator may tell you, "
            "you can recognise your records; without it the hashes say nothing.",
        )
        + tag("ul", "".join(tag_text("li", item) for item in hashes[:_MOST_HASHES]), css="hashes")
        + (tag_text("p", f"The file holds {more:,} more.") if more > 0 else "")
    )


def _signature(certificate: Certificate, verification: Verification | None) -> str:
    rows = [
        ("Deployment id", certificate.deployment.deployment_id),
        ("Key fingerprint", certificate.public_key.fingerprint),
        ("Signature", certificate.signature.hex()),
        ("Software", certificate.software),
        ("Format", str(certificate.format)),
    ]
    if verification is not None:
        found = "every check passed" if verification.holds else "NOT passed, see the top of the page"
        rows.append(("Checked", f"{found}; the signer's key: {verification.key}"))
    return (
        tag_text("h3", "Signature, and how to check it")
        + facts(rows)
        + tag(
            "p",
            "This page is a copy for reading; what is signed is the JSON file. Check it offline with "
            + tag_text("code", "expunge verify certificate.json --public-key operator.pem")
            + ". Get the operator's public key by another way than the certificate, or compare the fingerprint above "
            "with the operator's on the telephone. The format is documented, so it can be checked without this "
            "software too.",
        )
    )


def _number(value: Parameter) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else canonical(value).decode("utf-8").strip('"')
