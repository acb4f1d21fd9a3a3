"""What entries say about keys and recomputations, and the chance of finding stale shards."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import comb

import pytest

from expunge.core.errors import InputError
from expunge.core.words import percent_at_least
from expunge.evidence import Entry, History, detection_chance, telling_entries

AGREES = {"generation": 1, "round": 0, "num_checked": 4, "agrees": True, "chosen_by": "software"}
PARTS = {
    "created": {"num_shards": 10, "key_commitment": "ab" * 32},
    "generation": {"generation": 2, "round": 1, "reason": "by hand"},
    "round": {"round": 1, "key_commitment": "cd" * 32},
    "agrees": AGREES,
    "all agree": {**AGREES, "num_checked": 10},
    "disagrees": {**AGREES, "agrees": False},
    "recipe": {"generation": 2, "round": 1, "changed": ["shards"], "learner": "Ridge", "num_shards": 10},
}


def _entries(names):
    events = {name: name for name in ("created", "generation", "round")} | {"recipe": "schema"}
    return [
        Entry(place, f"2026-11-16T02:{place:02d}:00Z", events.get(name, "recomputed"), PARTS[name])
        for place, name in enumerate(names, 1)
    ]


@pytest.mark.parametrize("length", range(5))
def test_the_telling_entries_tell_the_same_as_all(length):
    """In every history of up to four events, a few entries say all that a certificate needs."""
    for names in itertools.product(PARTS, repeat=length):
        entries = _entries(names)
        told = telling_entries(entries, num_shards=10)
        assert len(told) <= 4
        assert [each.sequence for each in told] == sorted({each.sequence for each in told})
        assert History.of(told, num_shards=10) == History.of(entries, num_shards=10), names


def test_what_is_told_is_read():
    found = History.of(_entries(["created", "disagrees", "generation", "agrees"]), num_shards=10)
    assert (found.key.at, found.key.reason, found.key.commitment) == ("2026-11-16T02:03:00Z", "by hand", None)
    assert (found.recomputation.num_checked, found.recomputation.agrees) == (4, True)
    assert found.disagreement is None
    found = History.of(_entries(["created", "disagrees", "agrees"]), num_shards=10)
    assert found.key.commitment == "ab" * 32
    assert found.disagreement.at == "2026-11-16T02:02:00Z"
    assert History.of(_entries(["created", "disagrees", "all agree"]), num_shards=10).disagreement is None
    found = History.of(_entries(["created", "disagrees", "round"]), num_shards=10)  # it may be an ordinary round
    assert found.key.is_of_round
    assert found.disagreement is not None


def test_a_recomputation_of_another_recipe_is_not_one_of_the_models_in_service():
    found = History.of(_entries(["created", "all agree", "generation", "recipe"]), num_shards=10)
    assert found.recomputation is None
    assert History.of(_entries(["created", "disagrees", "generation", "recipe", "agrees"]), num_shards=10).recomputation


def test_a_malformed_entry_is_named():
    with pytest.raises(InputError, match="entry 1: num_checked must be"):
        History.of([Entry(1, "2026-11-16T02:00:00Z", "recomputed", {})])


@pytest.mark.parametrize(
    ("shards", "checked", "stale"), [(6, 2, 1), (7, 3, 3), (100, 20, 5), (3000, 2999, 1), (5000, 600, 700), (4, 0, 2)]
)
def test_the_chance_is_that_of_drawing_without_replacement(shards, checked, stale):
    found = detection_chance(shards, checked, stale)
    assert found == 1 - Fraction(comb(shards - stale, checked), comb(shards, checked))


@pytest.mark.parametrize(("checked", "stale"), [(2**30, 2**28), (2**30, 2**30), (10**6, 2**30), (2**30, 1)])
def test_a_hostile_size_takes_no_time_and_is_never_too_good(checked, stale):
    found = detection_chance(2**31, checked, stale)
    share = 1 - (1 - Fraction(stale, 2**31)) ** min(checked, 2000)
    assert 1 >= found >= share - Fraction(1, 10**9)


def test_percentages_are_rounded_down():
    assert percent_at_least(Fraction(2, 3)) == "66.6%"
    assert percent_at_least(Fraction(999_999, 1_000_000)) == "99.999%"
    assert percent_at_least(Fraction(1)) == "100%"
