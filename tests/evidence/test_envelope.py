"""Certificates are checked with other people's code: securesystemslib for the envelope, jsonschema for the form."""

from __future__ import annotations

import base64
import copy
import json

import pytest
from securesystemslib.dsse import Envelope as TheirEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from expunge.core.errors import InputError
from expunge.evidence import Envelope, SigningKey, key_id


def _their_key(key):
    return SSlibKey(key_id(key), "ed25519", "ed25519", {"public": key.raw.hex()})


@pytest.mark.parametrize("about", ["issue", "issue_for_deployment"])
def test_securesystemslib_accepts_a_certificate_and_no_other_key(office, about):
    data = getattr(office, about)().to_json()
    theirs = TheirEnvelope.from_dict(json.loads(data))
    assert list(theirs.verify([_their_key(office.key.public_key)], threshold=1)) == [key_id(office.key.public_key)]
    assert theirs.payload == Envelope.parse(data).payload
    with pytest.raises(VerificationError):
        theirs.verify([_their_key(SigningKey.generate().public_key)], threshold=1)


def test_securesystemslib_refuses_what_was_changed(office):
    document = json.loads(office.issue().to_json())
    payload = base64.b64decode(document["payload"]).replace(b'"alpha":1,', b'"alpha":0,')
    changed = {**document, "payload": base64.b64encode(payload).decode()}
    for one in (changed, {**document, "payloadType": "application/json"}):
        with pytest.raises(VerificationError):
            TheirEnvelope.from_dict(copy.deepcopy(one)).verify([_their_key(office.key.public_key)], threshold=1)


def test_what_securesystemslib_would_sign_is_what_is_signed(office):
    made = Envelope.parse(office.issue().to_json())
    theirs = TheirEnvelope(made.payload, made.payload_type, {}).pae()
    assert office.key.public_key.verifies(made.signature, theirs)
    assert theirs.startswith(b"DSSEv1 28 application/vnd.in-toto+json ")


def test_the_example_of_the_dsse_specification():
    key = SigningKey.generate()
    made = Envelope.sign("http://example.com/HelloWorld", b"hello world", key)
    assert key.public_key.verifies(made.signature, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"payload": 3}, "payload of the envelope is not written in base64"),
        ({"payload": "aGVsbG8"}, "payload of the envelope is not written in base64"),
        ({"payload": "aGVsbG9="}, "payload of the envelope is not written in base64"),  # bits that are not used
        ({"payloadType": None}, "not a DSSE envelope"),
        ({"more": 1}, "not a DSSE envelope"),
        ({"signatures": []}, "one signature"),
        ({"signatures": [{"keyid": "", "sig": ""}, {"keyid": "", "sig": ""}]}, "one signature"),
        ({"signatures": [{"sig": ""}]}, "keyid and sig"),
        ({"signatures": [{"keyid": "", "sig": "AAAA"}]}, "of 64 bytes"),
        ({"signatures": [{"keyid": 7, "sig": "AAAA"}]}, "of 64 bytes"),
    ],
)
def test_other_envelopes_are_refused(change, word):
    document = json.loads(Envelope.sign("text/plain", b"hello", SigningKey.generate()).to_json())
    with pytest.raises(InputError, match=word):
        Envelope.parse(json.dumps({**document, **change}).encode())
