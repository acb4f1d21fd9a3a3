"""Checking a certificate offline: each check by name, whether it passed, and what exactly is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from expunge.core.errors import InputError
from expunge.evidence.canonical import write_canonical
from expunge.evidence.certificate import Certificate, digest_fields, find_contradictions, read_document, read_parts
from expunge.evidence.keys import PublicKey
from expunge.evidence.statements import make_statements

Outcome = Literal["holds", "wrong", "unusable"]
KeyCheck = Literal["matches", "not checked", "does not match"]

_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Parameters
    ----------
    name
        What was checked.
    passed
        Whether it passed.
    explanation
        What was found, in one line.
    """

    name: str
    passed: bool
    explanation: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of checking a certificate.

    Parameters
    ----------
    checks
        The single checks, in order.
    key
        Whether the signer's key was compared with a key that the auditor gave, and matched. Without a comparison the
        signature shows only that nothing was changed after the signing, not who signed.
    outcome
        "holds", "wrong", or "unusable" for a file that is not a certificate of a known format.
    certificate
        The certificate, or None if the file could not be read as one.
    """

    checks: tuple[Check, ...]
    key: KeyCheck
    outcome: Outcome
    certificate: Certificate | None = None

    @property
    def wrong(self) -> tuple[str, ...]:
        """One line for each check that failed."""
        return tuple(f"{check.name}: {check.explanation}" for check in self.checks if not check.passed)

    @property
    def holds(self) -> bool:
        """Whether every check passed."""
        return self.outcome == "holds"


def verify(data: bytes, *, public_key: PublicKey | None = None) -> Verification:
    """Check a certificate file. No file makes it raise: the result says what is wrong.

    Parameters
    ----------
    data
        The whole file.
    public_key
        The operator's public key. Get it by another way than the certificate.

    Returns
    -------
    Verification
        The checks, and the outcome of them together.

    Examples
    --------
    >>> found = verify(b"hello")
    >>> found.outcome, found.wrong
    ('unusable', ('file: not JSON: Expecting value at line 1, column 1',))
    """
    try:
        document = read_document(data)
    except InputError as error:
        return Verification((Check("file", False, str(error)),), "not checked", "unusable")
    certificate, problems = read_parts(document)
    changed = _changed_fields(document)
    checks = [
        Check("file", True, f"a certificate of format {document['format']}"),
        *_report("form", problems, "every section has the fields that the format demands"),
        *_report("content", changed, "no field was changed since it was signed"),
    ]
    signer = _signer(document)
    checks.append(_check_signature(document, signer))
    key, matched = _check_key(signer, public_key)
    checks.append(matched)
    if certificate is not None:
        checks += _report(
            "agreement", find_contradictions(certificate), "the ledger, the facts and the times fit together"
        )
    if certificate is not None and not changed:  # otherwise the sentences cannot be expected to fit
        checks += _report("sentences", _sentences(certificate), "the sentences are those that the facts bear out")
    passed = all(check.passed for check in checks)
    return Verification(tuple(checks), key, "holds" if passed else "wrong", certificate)


def _report(name: str, problems: list[str], sound: str) -> list[Check]:
    return [Check(name, False, problem) for problem in problems] or [Check(name, True, sound)]


def _changed_fields(document: Mapping[str, Any]) -> list[str]:
    """List every field whose digest is not the one in the header."""
    signed = document["header"].get("digests")
    if not isinstance(signed, dict):
        return ["the header has no digests"]
    present = {name: value for name, value in document.items() if name not in ("format", "header", "signature")}
    found: list[str] = []
    for name in sorted(set(signed) | set(present)):
        if name not in present:
            found.append(f"the section {name[:80]!r} was removed after it was signed")
        elif name not in signed:
            found.append(f"the section {name[:80]!r} was added after it was signed")
        else:
            found += _changes(name, present[name], signed[name])
    return found


def _changes(section: str, present: Any, signed: Any) -> Iterator[str]:
    if not isinstance(present, dict) or not isinstance(signed, dict):
        yield f"the section {section[:80]!r} or its digests are not objects"
        return
    actual = digest_fields(present)
    for name in sorted(set(actual) | set(signed)):
        what = f"{section}.{name}"[:160]
        if name not in actual:
            yield f"{what} was removed after it was signed"
        elif name not in signed:
            yield f"{what} was added after it was signed"
        elif actual[name] != signed[name]:
            yield f"{what} is not what was signed; it reads {_brief(present[name])}"


def _brief(value: Any) -> str:
    text = write_canonical(value).decode("utf-8")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _signer(document: Mapping[str, Any]) -> PublicKey | None:
    try:
        return PublicKey.from_pem(document["header"].get("public_key", "").encode("utf-8"))
    except (InputError, AttributeError):
        return None


def _check_signature(document: Mapping[str, Any], signer: PublicKey | None) -> Check:
    if signer is None:
        return Check("signature", False, "the certificate holds no Ed25519 key to check it with")
    try:
        signature = bytes.fromhex(document.get("signature", ""))
    except (TypeError, ValueError):
        return Check("signature", False, "it is not written in hexadecimal")
    if not signer.verifies(signature, write_canonical(document["header"])):
        return Check(
            "signature",
            False,
            "it does not match the header: the signature, or something in the header (kind, issued_at, software, "
            "public_key or a digest), was changed",
        )
    return Check("signature", True, f"made with the key {signer.fingerprint}")


def _check_key(signer: PublicKey | None, expected: PublicKey | None) -> tuple[KeyCheck, Check]:
    if expected is None:
        fingerprint = "" if signer is None else f" ({signer.fingerprint})"
        return "not checked", Check(
            "key",
            True,
            f"whose key it is{fingerprint} was not checked: compare it with the operator's, or give --public-key",
        )
    if signer != expected:
        other = "no key" if signer is None else f"the key {signer.fingerprint}"
        return "does not match", Check(
            "key", False, f"the certificate names {other}, not the one given, {expected.fingerprint}"
        )
    return "matches", Check("key", True, "it is the one that was given")


def _sentences(certificate: Certificate) -> list[str]:
    try:
        history = certificate.history
    except InputError:  # "agreement" has named it
        return []
    expected = make_statements(
        certificate.deployment,
        certificate.publication,
        certificate.exact,
        certificate.guarantee,
        history=history,
        request=certificate.request,
        counts=certificate.counts,
    )
    return [
        f"statements.{each.name} is not what the facts of this certificate bear out"
        for each in fields(expected)
        if getattr(certificate.statements, each.name) != getattr(expected, each.name)
    ]
