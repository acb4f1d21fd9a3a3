from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace

import pytest

from expunge.core.errors import ParameterError
from expunge.core.version import __version__
from expunge.evidence import Excerpt, GuaranteeFacts, append, genesis, read_certificate, verify, write_canonical


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


def test_the_file_is_canonical_json_and_a_newline(office):
    data = office.issue().to_json()
    assert data == write_canonical(json.loads(data)) + b"\n"


def test_what_is_signed_is_the_header_and_the_header_knows_every_field(office):
    document = json.loads(office.issue().to_json())
    signature = bytes.fromhex(document["signature"])
    assert office.key.public_key.verifies(signature, write_canonical(document["header"]))
    for section, digests in document["header"]["digests"].items():
        assert set(digests) == set(document[section])
        for name, digest in digests.items():
            assert hashlib.sha256(write_canonical(document[section][name])).hexdigest() == digest
    assert set(document["header"]["digests"]) == set(document) - {"header", "format", "signature"}


def test_no_id_is_written_in_clear(office):
    data = office.issue().to_json()
    for text in (b'"17"', b'"23"', b":17,", b":23,", b"[17", b",23]"):
        assert text not in data


def test_infinity_is_written_as_text_and_read_back(office):
    data = office.issue(
        guarantee=GuaranteeFacts(math.inf, 0.0, 0.0, note="no bound", parameters={"x": math.inf})
    ).to_json()
    assert b'"alpha":"infinity"' in data
    again = read_certificate(data)
    assert again.guarantee.alpha == math.inf
    assert again.guarantee.parameters["x"] == math.inf
    assert verify(data).holds


def test_every_state_of_a_request_can_be_certified(office):
    asked = Excerpt.of(office.lines[2].head, [office.lines[3].entry])
    waiting = replace(office.request, state="pending", applied_by=None, generation=None, round=None)
    assert verify(office.issue(request=waiting, ledger=asked).to_json()).holds
    line = append(asked.head, at="2026-11-15T22:00:00Z", event="cancelled", facts={"request": waiting.request_id})
    gone = replace(waiting, state="cancelled", cancelled_at="2026-11-15T22:00:00Z")
    ledger = Excerpt.of(office.lines[2].head, [office.lines[3].entry, line.entry])
    assert verify(office.issue(request=gone, ledger=ledger).to_json()).holds
    with pytest.raises(ParameterError, match="no 'cancelled' entry"):
        office.issue(request=waiting, ledger=ledger)


def test_a_deployment_may_show_the_head_alone(office):
    made = office.issue_for_deployment(ledger=Excerpt.of(office.lines[-1].head))
    assert verify(made.to_json()).holds
    assert made.ledger.digests == made.ledger.entries == ()
    empty = Excerpt.of(genesis(office.deployment.deployment_id))
    nothing = replace(office.counts, accepted=0, applied=0, pending=0)
    assert verify(office.issue_for_deployment(ledger=empty, counts=nothing).to_json()).holds


def _request(office, **changes):
    return {"request": replace(office.request, **changes)}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (lambda o: {"request": None}, "either a request or the deployment"),
        (lambda o: {"counts": o.counts}, "either a request or the deployment"),
        (lambda o: {"issued_at": "now"}, "issued_at"),
        (lambda o: {"issued_at": "2026-11-16T01:59:59Z"}, "applied_by 2026-11-16T02:00:00Z is after the certificate"),
        (lambda o: {"software": ""}, "software"),
        (lambda o: _request(o, applied_by="2026-11-16T02:00:01Z"), "not on the clock tick"),
        (lambda o: _request(o, applied_by="2026-11-16T03:00:00Z"), "entry 6: the time of 'applied' differs"),
        (lambda o: _request(o, accepted_at="2026-11-15T21:12:40Z"), "entry 4: the time of 'accepted' differs"),
        (lambda o: _request(o, num_deletions=1, id_hashes=()), "entry 4: num_deletions differs"),
        (lambda o: _request(o, id_hashes=("0" * 64, "1" * 64)), "entry 4: id_hashes differs"),
        (lambda o: _request(o, round=11), "entry 6: round differs"),
        (lambda o: _request(o, round=13), "round 13 is later"),
        (lambda o: _request(o, generation=2), "generation 2 is later"),
        (lambda o: _request(o, request_id="other"), "one 'accepted' entry of this request, there are 0"),
        (lambda o: {"ledger": Excerpt.of(o.lines[-1].head)}, "one 'accepted' entry"),
        (lambda o: {"deployment": replace(o.deployment, sampler_is_independent=False)}, "not independent"),
        (lambda o: {"deployment": replace(o.deployment, created_at="2027-01-01T00:00:00Z")}, "created_at"),
        (lambda o: {"deployment": replace(o.deployment, tick_seconds=7200 * 12)}, "clock tick"),
        (
            lambda o: {"ledger": replace(o.excerpt, head=replace(o.excerpt.head, link=bytes(32)))},
            "does not lead to the head",
        ),
    ],
)
def test_a_certificate_that_contradicts_itself_is_not_issued(office, changes, word):
    with pytest.raises(ParameterError, match=word):
        office.issue(**changes(office))


def test_the_counts_of_a_deployment_are_those_of_its_ledger(office):
    with pytest.raises(ParameterError, match="4 requests accepted, but the ledger has 3"):
        office.issue_for_deployment(counts=replace(office.counts, accepted=4, pending=2))
    with pytest.raises(ParameterError, match="genesis"):
        office.issue_for_deployment(deployment=replace(office.deployment, deployment_id="another"))


def test_a_long_ledger_keeps_a_certificate_small(office):
    """After 100,000 entries a certificate from a start just before the request is as small as any."""
    head = replace(office.lines[2].head, sequence=100_000)
    facts = {"request": office.request.request_id}
    first = append(head, at=office.request.accepted_at, event="accepted", facts=facts)
    applied = {**facts, "generation": 1, "round": 12}
    second = append(first.head, at="2026-11-16T02:00:00Z", event="applied", facts=applied)
    data = office.issue(ledger=Excerpt.of(head, [first.entry, second.entry])).to_json()
    assert len(data) < 20_000
    assert verify(data).holds
