"""Indexes of records: the set of emptied slots."""

from __future__ import annotations

from expunge.core.index import SlotSet


def test_a_set_of_slots_is_a_set_and_shares_its_bulk():
    found, expected, copies = SlotSet(), set(), 0
    for slot in range(0, 6000, 2):
        before, found = found, found.extended([slot])
        copies += before.bulk is not found.bulk
        expected.add(slot)
        if slot % 500 == 0:
            assert set(found) == expected
    assert len(found) == len(expected) == 3000
    assert set(found) == expected
    assert all((slot in found) == (slot in expected) for slot in range(-1, 6002))
    assert 2 < copies < 30  # of 3,000 growths, few copy everything
    assert not found.extended([1]).recent.isdisjoint({1})
    assert 1 not in found
