from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace

import pytest

from expunge.core.errors import ParameterError
from expunge.core.version import __version__
from expunge.evidence import (
    Envelope,
    GuaranteeFacts,
    SigningKey,
    key_id,
    read_certificate,
    verify,
    write_canonical,
)


@pytest.mark.parametrize("about", ["issue", "issue_for_deployment"])
def test_a_certificate_comes_back_as_it_was(office, about):
    made = getattr(office, about)()
    data = made.to_json()
    again = read_certificate(data)
    assert again == made
    assert again.to_json() == data
    assert again.kind == ("request" if about == "issue" else "deployment")
    found = verify(data, public_key=office.key.public_key)
    assert found.holds, found.wrong
    assert found.key == "matches"
    assert found.certificate == made
    assert made.software == f"expunge {__version__}"


def test_the_file_is_a_dsse_envelope_around_an_in_toto_statement(office):
    data = office.issue().to_json()
    document = json.loads(data)
    assert data == write_canonical(document) + b"\n"
    assert set(document) == {"payload", "payloadType", "signatures"}
    envelope = Envelope.parse(data)
    assert envelope.payload_type == document["payloadType"] == "application/vnd.in-toto+json"
    assert envelope.keyid == key_id(office.key.public_key) == hashlib.sha256(office.key.public_key.raw).hexdigest()
    assert envelope.keyid.startswith(office.key.public_key.fingerprint.replace(" ", ""))
    statement = json.loads(envelope.payload)
    assert envelope.payload == write_canonical(statement)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "urn:expunge:certificate:v1"


def test_the_subjects_are_the_checkpoint_and_the_acceptance(office):
    made = office.issue()
    first, second = made.subject()
    assert first["name"] == made.log.checkpoint.origin
    assert first["digest"] == {"sha256": hashlib.sha256(made.log.checkpoint.note.encode()).hexdigest()}
    accepted = next(each for each in made.log.shown if each.entry.event == "accepted")
    assert second["name"] == "request b7f6c2a1"
    opened = accepted.opening.salt + write_canonical(accepted.opening.facts)
    assert second["digest"] == {"sha256": hashlib.sha256(opened).hexdigest()}
    assert len(office.issue_for_deployment().subject()) == 1


def test_no_id_is_written_in_clear(office):
    payload = office.issue().payload()
    for text in (b'"17"', b'"23"', b":17,", b":23,", b"[17", b",23]"):
        assert text not in payload


def test_infinity_is_written_as_text_and_read_back(office):
    made = office.issue(guarantee=GuaranteeFacts(math.inf, 0.0, 0.0, note="no bound", parameters={"x": math.inf}))
    assert b'"alpha":"infinity"' in made.payload()
    again = read_certificate(made.to_json())
    assert again.guarantee.alpha == math.inf
    assert again.guarantee.parameters["x"] == math.inf
    assert verify(made.to_json()).holds


def test_every_state_of_a_request_can_be_certified(office):
    def until(events):
        return [each for place, each in enumerate(events, 1) if place not in (6, 7)]

    log = office.new_log(until)
    waiting = replace(office.request, state="pending", applied_by=None, generation=None, round=None)
    assert verify(office.issue(request=waiting, log=log.about(waiting.request_id)).to_json()).holds
    log.append("2026-11-15T22:00:00Z", "cancelled", {"request": waiting.request_id})
    gone = replace(waiting, state="cancelled", cancelled_at="2026-11-15T22:00:00Z", id_hashes=())
    ledger = log.about(waiting.request_id)
    assert verify(office.issue(request=gone, log=ledger).to_json()).holds
    with pytest.raises(ParameterError, match="no 'cancelled' entry"):
        office.issue(request=waiting, log=ledger)


def test_a_deployment_may_show_the_checkpoint_alone(office):
    made = office.issue_for_deployment(log=office.log.excerpt())
    assert verify(made.to_json()).holds
    assert made.log.shown == ()


def _request(office, **changes):
    return {"request": replace(office.request, **changes)}


def _log(office, change):
    return {"log": office.new_log(lambda events: [change(*each) for each in events]).about("b7f6c2a1")}


def _hidden(name, value):
    def change(at, event, facts):
        return at, event, {**facts, name: value} if facts.get("request") == "b7f6c2a1" and name in facts else facts

    return change


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (lambda o: {"request": None}, "either a request or the deployment"),
        (lambda o: {"counts": o.counts}, "either a request or the deployment"),
        (lambda o: {"issued_at": "now"}, "issued_at"),
        (lambda o: {"issued_at": "2026-11-16T01:59:59Z"}, "entry 6 of 2026-11-16T02:00:00Z is after the certificate"),
        (lambda o: {"software": ""}, "software"),
        (lambda o: _request(o, applied_by="2026-11-16T03:00:00Z"), "entry 6: the time of 'applied' differs"),
        (lambda o: _request(o, accepted_at="2020-01-01T00:00:00Z"), "entry 4: the time of 'accepted' differs"),
        (lambda o: _request(o, num_deletions=1, id_hashes=()), "entry 4: num_deletions differs"),
        (lambda o: _request(o, num_additions=1, id_hashes=()), "entry 4: num_additions differs"),
        (lambda o: _request(o, id_hashes=("0" * 64, "1" * 64)), "entry 4: records differs"),
        (lambda o: _request(o, round=11), "entry 6: round differs"),
        (lambda o: _request(o, generation=None), "its generation is told and the deployment's is not"),
        (lambda o: _log(o, _hidden("round", 11)), "entry 6: round differs"),
        (lambda o: _log(o, _hidden("num_deletions", 3)), "entry 4: num_deletions differs"),
        (lambda o: _request(o, round=13), "round 13 is later"),
        (lambda o: _request(o, generation=2), "generation 2 is later"),
        (lambda o: _request(o, request_id="other"), "entry 4 is about another request"),
        (lambda o: {"log": o.log.excerpt()}, "one 'accepted' entry of this request, there are 0"),
        (lambda o: {"log": o.log.excerpt(4, 6, request="none")}, "one 'accepted' entry of this request, there are 0"),
        (lambda o: {"log": o.log.excerpt(4, request="b7f6c2a1")}, "one 'applied' entry of this request, there are 0"),
        (lambda o: {"deployment": replace(o.deployment, sampler_is_independent=False)}, "not independent"),
        (lambda o: {"deployment": replace(o.deployment, created_at="2027-01-01T00:00:00Z")}, "created_at"),
        (lambda o: {"deployment": replace(o.deployment, tick_seconds=7200 * 12)}, "clock tick"),
        (lambda o: {"deployment": replace(o.deployment, deployment_id="x")}, "is of the log 'expunge/0f8f.*, not of"),
        (lambda o: {"key": SigningKey.generate()}, "is not signed with the certificate's key"),
    ],
)
def test_a_certificate_that_contradicts_itself_is_not_issued(office, changes, word):
    with pytest.raises(ParameterError, match=word):
        office.issue(**changes(office))


def test_a_deployment_has_no_more_requests_than_its_log_has_entries(office):
    with pytest.raises(ParameterError, match="they need 9 entries, and the log has 8"):
        office.issue_for_deployment(counts=replace(office.counts, accepted=7, pending=5))


def test_a_long_log_keeps_a_certificate_small(office):
    """In a log of 100,000 entries a certificate is a few kilobytes longer than in one of eight."""
    log = office.new_log()
    short = len(office.issue(log=log.about("b7f6c2a1")).to_json())
    leaf = office.log.entries[2].leaf
    for _ in range(100_000):
        log.tree.append(leaf)
    for made in (
        office.issue(log=log.about("b7f6c2a1", earlier=[log.checkpoint(50_000)])),
        office.issue_for_deployment(log=log.about(None)),
    ):
        data = made.to_json()
        assert made.log.checkpoint.size == 100_008
        assert len(data) < short + 15_000
        assert verify(data).holds
