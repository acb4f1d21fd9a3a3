from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from expunge.core.errors import ParameterError
from expunge.evidence import (
    EVENTS,
    HIDDEN,
    Checkpoint,
    Entry,
    Excerpt,
    NoteKey,
    Opening,
    SigningKey,
    hash_leaf,
    root_of_inclusion,
)

AT = "2026-11-16T02:00:00Z"


def test_leaves_and_commitments_are_exactly_these_bytes():
    opening = Opening(b"\x07" * 32, {"request": "r", "num_deletions": 1})
    assert opening.commitment == hashlib.sha256(b"\x07" * 32 + b'{"num_deletions":1,"request":"r"}').hexdigest()
    entry = Entry(1, AT, "accepted", {"commitment": "ab" * 32})
    written = f'{{"at":"{AT}","event":"accepted","facts":{{"commitment":"{"ab" * 32}"}},"sequence":1}}'.encode()
    assert entry.content == written
    assert entry.leaf == hash_leaf(written) == hashlib.sha256(b"\x00" + written).digest()


def test_the_same_facts_have_another_commitment_each_time():
    facts = {"request": "b7f6c2a1"}
    made = {Opening.fresh("cancelled", facts).commitment for _ in range(100)}
    assert len(made) == 100
    with pytest.raises(ParameterError, match="may not tell name"):
        Opening.fresh("cancelled", {"name": "Jane"})
    with pytest.raises(ParameterError, match="32 bytes"):
        Opening(b"short", facts)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"sequence": 0}, "sequence"),
        ({"sequence": True}, "sequence"),
        ({"at": "yesterday"}, "time"),
        ({"event": "retrained"}, "no event 'retrained'"),
        ({"facts": {"commitment": "ab", "shards_touched": 3}}, "may not tell shards_touched"),
        ({"facts": {"request": "ticket of Jane Doe"}}, "may not tell request"),
        ({"facts": {"id_hashes": []}}, "may not tell id_hashes"),
        ({"facts": {"commitment": 3.1}}, "commitment must be text, a whole number"),
        ({"facts": {"commitment": [{}]}}, "commitment must be text, a whole number"),
        ({"facts": [1]}, "object"),
    ],
)
def test_entries_hold_public_facts_only(change, word):
    with pytest.raises(ParameterError, match=word):
        Entry(**{"sequence": 1, "at": AT, "event": "applied", "facts": {"commitment": "ab"}, **change})


def test_nothing_that_depends_on_the_secret_or_on_a_person_may_be_told():
    told = set().union(*EVENTS.values())
    strange = ("vote", "touched", "duration", "seconds_", "seed", "request", "deletion", "addition", "id_", "digest")
    assert not [name for name in told if any(word in name for word in strange)]
    assert all(EVENTS[event] == {"commitment"} for event in HIDDEN)


def test_what_is_published_of_a_request_is_a_time_and_a_random_number(office):
    published = json.dumps([entry.to_data() for entry in office.log.entries])
    assert office.request.request_id not in published
    assert not any(hashed in published for hashed in office.request.id_hashes)
    about = [entry for entry in office.log.entries if entry.event in HIDDEN]
    assert len(about) == 5
    assert len({entry.facts["commitment"] for entry in about}) == 5
    assert all(set(entry.to_data()) == {"sequence", "at", "event", "facts"} for entry in about)


def test_an_excerpt_proves_every_entry_in_every_checkpoint(office):
    key, log = office.key.public_key, office.log
    for size in range(1, len(log.entries) + 1):
        made = log.excerpt(*range(1, size + 1), size=size, earlier=[log.checkpoint(old) for old in range(size)])
        assert made.faults(office.deployment.deployment_id, key) == []
        assert Excerpt.from_data(made.to_data()) == made
        for each in made.shown:
            place = each.entry.sequence - 1
            assert root_of_inclusion(each.entry.leaf, place, size, each.proof) == made.checkpoint.root


def test_an_excerpt_names_what_is_wrong(office):
    made, key, identity = office.log.about("b7f6c2a1"), office.key.public_key, office.deployment.deployment_id
    assert made.faults(identity, key) == []

    def faults(**changes):
        return "; ".join(replace(made, **changes).faults(identity, key))

    first = made.shown[0]
    changed = replace(first, entry=replace(first.entry, at=AT))
    wrong = "entry 1: the proof does not show that this 'created' entry is in the log"
    assert faults(shown=(changed, *made.shown[1:])) == wrong
    assert wrong in faults(shown=(replace(first, proof=first.proof[:-1]), *made.shown[1:]))
    assert "entry 9: the proof" in faults(shown=(*made.shown, replace(first, entry=replace(first.entry, sequence=9))))
    assert "out of order" in faults(shown=made.shown[::-1])
    asked = next(each for each in made.shown if each.opening is not None)
    for opening in (
        replace(asked.opening, salt=bytes(32)),
        replace(asked.opening, facts={**asked.opening.facts, "num_deletions": 3}),
    ):
        assert faults(shown=(replace(asked, opening=opening),)) == (
            "entry 4: the facts that are given for it are not those that it commits to"
        )
    strange = replace(asked.opening, facts={**asked.opening.facts, "name": "Jane"})
    assert "may not tell name" in faults(shown=(replace(asked, opening=strange),))
    stranger = SigningKey.generate()
    note = made.checkpoint
    forged = Checkpoint(note.origin, note.size, note.root).signed(stranger)
    assert faults(checkpoint=forged) == "the checkpoint of size 8 is not signed with the certificate's key"
    other = Checkpoint("expunge/other", note.size, note.root).signed(office.key)
    assert "is of the log 'expunge/other'" in faults(checkpoint=other)
    (earlier,) = office.log.excerpt(earlier=[office.log.checkpoint(5)]).earlier
    assert faults(earlier=(earlier,)) == ""
    bad = replace(earlier, proof=earlier.proof[::-1])
    assert faults(earlier=(bad,)) == "the checkpoint of size 5 is not continued by the one of size 8"


def test_a_cosignature_stays_in_the_certificate(office):
    witness = SigningKey.generate()
    log = replace(
        office.log.about("b7f6c2a1"),
        checkpoint=office.log.checkpoint().cosigned("witness.example", witness, time=1_800_000_000),
    )
    made = office.issue(log=log)
    name = NoteKey("witness.example", witness.public_key, is_witness=True)
    assert made.log.checkpoint.cosigned_at(name) == 1_800_000_000
