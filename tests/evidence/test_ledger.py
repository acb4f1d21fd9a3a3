from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from expunge.core.errors import ParameterError
from expunge.evidence import EVENTS, Entry, Excerpt, Fault, Head, Line, append, check_ledger, genesis, write_canonical
from expunge.evidence.ledger import next_link

AT = "2026-11-16T02:00:00Z"


def test_links_are_exactly_these_bytes():
    start = genesis("d1")
    assert start == Head(0, hashlib.sha256(b"expunge ledger genesis 1\x00d1").digest())
    line = append(start, at=AT, event="accepted", facts={"request": "r", "num_deletions": 1})
    entry = b'{"at":"2026-11-16T02:00:00Z","event":"accepted","facts":{"num_deletions":1,"request":"r"},"sequence":1}'
    assert write_canonical(line.entry.to_data()) == entry
    assert line.link == hashlib.sha256(start.link + hashlib.sha256(entry).digest()).digest()
    assert line.head == Head(1, line.link)


def test_ledgers_of_two_deployments_never_share_a_link():
    assert genesis("d1").link != genesis("d2").link


def test_a_sound_ledger_has_no_fault(office):
    start = genesis(office.deployment.deployment_id)
    assert check_ledger(start, office.lines) is None
    assert check_ledger(start, office.lines, head=office.lines[-1].head) is None
    assert check_ledger(office.lines[2].head, office.lines[3:]) is None


def _spoil(line: Line) -> Line:
    return replace(line, entry=replace(line.entry, at="2026-11-16T03:00:00Z"))


@pytest.mark.parametrize("place", range(8))
def test_the_first_wrong_entry_is_named(office, place):
    start = genesis(office.deployment.deployment_id)
    lines = list(office.lines)
    lines[place] = _spoil(lines[place])
    fault = check_ledger(start, lines)
    assert fault is not None
    assert fault.sequence == place + 1
    assert str(fault).startswith(f"entry {place + 1}: ")


@pytest.mark.parametrize("place", range(8))
def test_a_missing_entry_is_named(office, place):
    start, head = genesis(office.deployment.deployment_id), office.lines[-1].head
    fault = check_ledger(start, office.lines[:place] + office.lines[place + 1 :], head=head)
    assert fault is not None
    assert (fault.sequence, "missing" in fault.why) == (place + 1, True)


def test_two_entries_exchanged_and_entries_too_many_are_named(office):
    start, lines = genesis(office.deployment.deployment_id), list(office.lines)
    assert check_ledger(start, [lines[1], lines[0], *lines[2:]]) == Fault(
        1, "is missing; the ledger goes on with entry 2"
    )
    fault = check_ledger(start, lines, head=lines[-2].head)
    assert fault is not None
    assert (fault.sequence, "too many" in fault.why) == (8, True)
    fault = check_ledger(start, lines, head=Head(8, bytes(32)))
    assert fault is not None
    assert fault.sequence == 8


def test_another_deployment_is_noticed_at_the_first_entry(office):
    fault = check_ledger(genesis("another"), office.lines)
    assert fault is not None
    assert fault.sequence == 1


def test_a_rewritten_tail_does_not_lead_to_the_old_head(office):
    """Whoever rewrites an entry and all links after it ends at another head."""
    lines, head = list(office.lines[:3]), office.lines[-1].head
    for old in office.lines[3:]:
        facts = {**old.entry.facts, "generation" if old.entry.event == "recomputed" else "request": 9}
        lines.append(append(lines[-1].head, at=old.entry.at, event=old.entry.event, facts=facts))
    start = genesis(office.deployment.deployment_id)
    assert check_ledger(start, lines) is None
    assert check_ledger(start, lines, head=head) is not None


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"sequence": 0}, "sequence"),
        ({"sequence": True}, "sequence"),
        ({"at": "yesterday"}, "time"),
        ({"event": "retrained"}, "no event 'retrained'"),
        ({"facts": {"request": "r", "shards_touched": 3}}, "may not tell shards_touched"),
        ({"facts": {"seconds": 3.1}}, "may not tell seconds"),
        ({"facts": [1]}, "object"),
    ],
)
def test_entries_hold_public_facts_only(change, word):
    with pytest.raises(ParameterError, match=word):
        Entry(**{"sequence": 1, "at": AT, "event": "applied", "facts": {"request": "r"}, **change})


def test_nothing_that_depends_on_the_secret_may_be_told():
    told = set().union(*EVENTS.values())
    assert not [
        name for name in told if any(word in name for word in ("vote", "touched", "duration", "seconds_", "seed"))
    ]


def test_links_have_32_bytes():
    with pytest.raises(ParameterError, match="32 bytes"):
        next_link(b"short", bytes(32))
    with pytest.raises(ParameterError, match="32 bytes"):
        Head(1, b"short")


def test_an_excerpt_leads_from_any_start_to_the_head(office):
    lines, identity = office.lines, office.deployment.deployment_id
    for first in range(len(lines)):
        start = lines[first - 1].head if first else genesis(identity)
        rows = [line.entry if line.entry.sequence % 2 else line.entry.digest for line in lines[first:]]
        made = Excerpt.of(start, rows)
        assert made.head == lines[-1].head
        assert made.faults(identity) == []
        assert Excerpt.from_data(made.to_data()) == made


def test_an_excerpt_names_what_is_wrong(office):
    made, identity = office.excerpt, office.deployment.deployment_id
    changed = replace(made, entries=(replace(made.entries[0], at=AT), *made.entries[1:]))
    assert [fault.sequence for fault in changed.faults(identity)] == [2]
    assert "digest" in str(changed.faults(identity)[0])
    swapped = replace(made, entries=made.entries[::-1])
    assert "out of order" in str(swapped.faults(identity)[0])
    outside = replace(made, entries=(office.lines[0].entry,))
    assert "outside" in str(outside.faults(identity)[0])
    early = replace(made, earlier=(office.lines[0].entry,))
    assert early.faults(identity) == []
    assert early.shown == (office.lines[0].entry, *made.entries)
    late = replace(made, earlier=(made.entries[0],))
    assert "does not come before the stretch" in str(late.faults(identity)[0])
    short = replace(made, digests=made.digests[:-1])
    assert "length" in str(short.faults(identity)[0])
    forged = replace(made, digests=(*made.digests[:-1], "0" * 64))
    assert "head" in str(forged.faults(identity)[0])
    whole = office.issue_for_deployment().ledger
    assert "genesis" in str(whole.faults("another")[0])
    with pytest.raises(ParameterError, match="entry 2 of the ledger is missing"):
        Excerpt.of(made.start, [made.entries[1]])
