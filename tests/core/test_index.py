"""Indexes of records: the set of emptied slots, and the slots of subjects."""

from __future__ import annotations

import numpy as np

from expunge.core.index import SlotSet, SubjectIndex


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


def column(names: list[object]) -> np.ndarray:
    found = np.empty(len(names), dtype=object)
    found[:] = names
    return found


def test_the_slots_of_subjects_are_found_and_few_are_copied():
    names = [None if slot % 7 == 0 else f"s{slot * slot % 50}" if slot % 3 else slot % 5 for slot in range(200)]
    index, expected = SubjectIndex.build(column(names)), dict[object, list[int]]()
    for slot, name in enumerate(names):
        expected.setdefault(name, []).append(slot)
    copied = 0
    for slot in range(200, 6000):
        before, name = index.added, f"new {slot % 4000}"
        index = index.extended(column([name]), slot)
        expected.setdefault(name, []).append(slot)
        copied += len(index.recent) + (len(index.added) if index.added is not before else 0)
    del expected[None]
    assert {name: [*index.find(name)] for name in expected} == expected
    assert index.find(None) == index.find("nobody") == index.find(7) == ()
    assert copied < 5800 * 8 * 4000**0.5  # and not 5,800 times half of 4,000, as with one table
    assert index.extended(None, 6000) is index


def test_an_index_without_subjects_finds_none():
    assert SubjectIndex.build(None).find("s") == SubjectIndex.build(column([None, None])).find("s") == ()
    assert SubjectIndex.build(None).extended(column(["s", None, "s"]), 4).find("s") == (4, 6)
