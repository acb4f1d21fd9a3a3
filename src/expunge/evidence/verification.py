"""Checking a certificate offline: each check by name, whether it passed, and what exactly is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from expunge.core.errors import InputError
from expunge.core.words import utc
from expunge.evidence.certificate import FORMAT, Certificate, find_contradictions, read_parts, read_statement
from expunge.evidence.checkpoint import NoteKey
from expunge.evidence.envelope import Envelope
from expunge.evidence.keys import PublicKey

Outcome = Literal["holds", "wrong", "unusable"]
KeyCheck = Literal["matches", "not checked", "does not match"]


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


def verify(data: bytes, *, public_key: PublicKey | None = None, witnesses: Sequence[NoteKey] = ()) -> Verification:
    """Check a certificate file. No file makes it raise: the result says what is wrong.

    Parameters
    ----------
    data
        The whole file.
    public_key
        The operator's public key. Get it by another way than the certificate.
    witnesses
        The keys of witnesses, each of whom must have cosigned the log with every entry that the certificate shows.

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
        envelope, statement = read_statement(data)
    except InputError as error:
        return Verification((Check("file", False, str(error)),), "not checked", "unusable")
    certificate, problems = read_parts(envelope, statement)
    signer = _signer(statement)
    key, matched = _check_key(signer, public_key)
    checks = [
        Check("file", True, f"a certificate of format {FORMAT}, in a DSSE envelope"),
        *_report("form", problems, "every section has the fields that the format demands"),
        _check_signature(envelope, signer),
        matched,
    ]
    if certificate is not None:
        faults = certificate.log.faults(certificate.deployment.deployment_id, certificate.public_key)
        checks += _report("log", faults, _describe_log(certificate))
        checks += [_check_witness(certificate, each) for each in witnesses]
        checks += _report("agreement", find_contradictions(certificate), "the entries, the facts and the times fit")
        checks += _report("sentences", _sentences(certificate), "the sentences are those that the facts bear out")
    passed = certificate is not None and all(check.passed for check in checks)
    return Verification(tuple(checks), key, "holds" if passed else "wrong", certificate)


def _describe_log(certificate: Certificate) -> str:
    log = certificate.log
    return f"{len(log.shown)} of the {log.checkpoint.size:,} entries are shown, and are in the log that was signed"


def _check_witness(certificate: Certificate, witness: NoteKey) -> Check:
    """Whether a witness cosigned all entries that are shown. "log" checks that the checkpoints are of one history."""
    log = certificate.log
    cosigned = [
        (point.size, at)
        for point in (log.checkpoint, *(each.checkpoint for each in log.earlier))
        if (at := point.cosigned_at(witness)) is not None
    ]
    if not cosigned:
        return Check("witness", False, f"{witness.name} cosigned no checkpoint that the certificate holds")
    size, at = max(cosigned)
    late = [entry.sequence for entry in log.entries if entry.sequence > size]
    if late:
        return Check(
            "witness", False, f"{witness.name} cosigned the first {size:,} entries, and entry {late[0]:,} is shown too"
        )
    return Check("witness", True, f"{witness.name} cosigned the log with all entries that are shown, at {utc(at)}")


def _report(name: str, problems: list[str], sound: str) -> list[Check]:
    return [Check(name, False, problem) for problem in problems] or [Check(name, True, sound)]


def _signer(statement: Mapping[str, Any]) -> PublicKey | None:
    try:
        return PublicKey.from_pem(statement["predicate"]["public_key"].encode("utf-8"))
    except (InputError, AttributeError, TypeError, LookupError, UnicodeEncodeError):
        return None


def _check_signature(envelope: Envelope, signer: PublicKey | None) -> Check:
    if signer is None:
        return Check("signature", False, "the certificate holds no Ed25519 key to check it with")
    if not envelope.is_signed_by(signer):
        return Check(
            "signature",
            False,
            "it does not fit: the signature, or something in the certificate, was changed afterwards",
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
        expected = certificate.make_statements()
    except InputError:  # "agreement" has named it
        return []
    return [
        f"statements.{each.name} is not what the facts of this certificate bear out"
        for each in fields(expected)
        if getattr(certificate.statements, each.name) != getattr(expected, each.name)
    ]
