"""Certificates that were written once hold, to the last word; damaged files are named for what they lack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from expunge.core.errors import InputError
from expunge.evidence import PublicKey, read_certificate, verify
from expunge.evidence.certificate import FORMAT

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_written_certificates_still_hold(file):
    """If this fails after a change of a sentence or a rule, then the format has changed: see `golden/sign.py`."""
    found = verify(file.read_bytes(), public_key=PublicKey.load(GOLDEN / "operator.pem"))
    assert found.holds, found.wrong
    assert found.certificate is not None
    assert found.certificate.to_json() == file.read_bytes()


def test_there_is_a_written_certificate_for_every_format():
    for version in range(1, FORMAT + 1):
        assert [file for file in FILES if file.name.startswith(f"format-{version}-")]


@pytest.mark.parametrize(
    ("section", "name", "value", "word"),
    [
        ("header", "kind", "letter", "kind must be request or deployment"),
        ("header", "extra", 1, "header: it must have"),
        ("header", "format", 2, "its format differs"),
        ("header", "public_key", "none", "not a public key"),
        ("header", "issued_at", "now", "header: issued_at"),
        ("request", "extra", 1, "request: there is no field 'extra'"),
        ("request", "state", "lost", "request: state must be one of"),
        ("ledger", "head", {}, "ledger: head must have a sequence and a link"),
        ("ledger", "digests", ["x"], "ledger: a digest of the ledger"),
        ("ledger", "entries", [1], "ledger: an entry must have"),
        ("ledger", "entries", 1, "ledger: entries must be a list"),
        ("guarantee", "alpha", 1, "not written the way its field demands"),
    ],
)
def test_what_is_wrong_is_named(office, section, name, value, word):
    document = json.loads(office.issue().to_json())
    document[section][name] = value
    with pytest.raises(InputError, match=word):
        read_certificate(json.dumps(document).encode())


def test_what_is_missing_is_named(office):
    document = json.loads(office.issue().to_json())
    without = {name: value for name, value in document.items() if name != "guarantee"}
    with pytest.raises(InputError, match="guarantee: the section is missing"):
        read_certificate(json.dumps(without).encode())
    with pytest.raises(InputError, match="signature must be 128"):
        read_certificate(json.dumps({**document, "signature": "00"}).encode())
    with pytest.raises(InputError, match="'counts' does not belong into a certificate about a request"):
        read_certificate(json.dumps({**document, "counts": {}}).encode())
    del document["request"]["round"]
    with pytest.raises(InputError, match="request: round is missing"):
        read_certificate(json.dumps(document).encode())
