"""Certificates that were written once hold, to the last word; damaged files are named for what they lack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from expunge.core.errors import InputError
from expunge.evidence import Envelope, PublicKey, read_certificate, verify, write_canonical
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


def _signed(office, statement):
    return Envelope.sign("application/vnd.in-toto+json", write_canonical(statement), office.key).to_json()


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        (("extra",), 1, "there is no field 'extra'"),
        (("public_key",), "none", "not a public key"),
        (("issued_at",), "now", "issued_at"),
        (("request", "extra"), 1, "request: there is no field 'extra'"),
        (("request", "state"), "lost", "request: state must be one of"),
        (("counts",), {}, "about a request or have counts, and not both"),
        (("log", "checkpoint"), "x", "log: not a checkpoint"),
        (("log", "checkpoint"), 1, "log: checkpoint must be"),
        (("log", "shown"), 1, "log: shown must be a list"),
        (("log", "shown"), [1], "log: an entry with its proof must have"),
        (("log", "shown", 0, "entry"), {}, "log: an entry must have"),
        (("log", "shown", 0, "proof"), ["x"], "log: a hash of a proof must be 64 hexadecimal digits"),
        (("log", "shown", 0, "proof"), ["00" * 32] * 65, "log: a proof has at most 64 hashes, got 65"),
        (("log", "shown", 0, "opening"), {}, "log: an opening must have facts, salt, and nothing else"),
        (("log", "shown", 0, "opening"), {"salt": "00", "facts": {}}, "log: the salt of a commitment must be 64"),
        (("log", "shown", 0, "opening"), {"salt": "00" * 32, "facts": 1}, "log: the facts of an opening"),
        (("log", "earlier"), [{}], "log: an earlier checkpoint must have checkpoint, proof, and nothing else"),
        (("log", "earlier"), [{}] * 1001, "log: there are 1,001 earlier checkpoints"),
        (("log", "shown"), [{}] * 10_001, "log: there are 10,001 entries; more than 10,000 are not read"),
        (("guarantee", "beta"), 7.5, None),
    ],
)
def test_what_is_wrong_is_named(office, path, value, word):
    statement = json.loads(office.issue().payload())
    inner = statement["predicate"]
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    if word is None:  # it is well-formed
        assert read_certificate(_signed(office, statement)).guarantee.beta == 7.5
        return
    with pytest.raises(InputError, match=word):
        read_certificate(_signed(office, statement))


def test_what_is_missing_is_named(office):
    for path, word in (
        (("guarantee",), "guarantee: the section is missing"),
        (("software",), "software is missing"),
        (("request", "round"), "request: round is missing"),
        (("request",), "about a request or have counts"),
    ):
        statement = json.loads(office.issue().payload())
        inner = statement["predicate"]
        for step in path[:-1]:
            inner = inner[step]
        del inner[path[-1]]
        with pytest.raises(InputError, match=word):
            read_certificate(_signed(office, statement))
    statement = json.loads(office.issue().payload())
    del statement["subject"]
    with pytest.raises(InputError, match="the statement must have _type, subject, predicateType"):
        read_certificate(_signed(office, statement))
