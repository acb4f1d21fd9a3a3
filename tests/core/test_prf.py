"""The recipe key and the function F: canonical names, domains, laws, and what they cost in memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from expunge.core.errors import ParameterError
from expunge.core.index import canonical
from expunge.core.prf import RecipeKey, _gap_table, id_names, unit_names
from expunge.core.randomness import Randomness

KEY = RecipeKey.from_seed(5)


def objects(*values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def test_a_key_is_drawn_by_the_system_or_decided_by_a_seed():
    assert RecipeKey.from_system() != RecipeKey.from_system()
    assert RecipeKey.from_system().is_system
    assert RecipeKey.from_seed(5) == KEY != RecipeKey.from_seed(6)
    assert not KEY.is_system
    assert KEY.renewed() == KEY.renewed() != KEY
    assert RecipeKey.from_system().renewed().is_system
    assert RecipeKey.from_randomness(Randomness.from_seed(1)) == RecipeKey.from_randomness(Randomness.from_seed(1))
    for wrong in (b"short", "x" * 32, None):
        with pytest.raises(ParameterError, match="32 bytes"):
            RecipeKey(wrong)


def test_a_key_shows_its_commitment_and_nothing_else():
    assert KEY.secret.hex() not in repr(KEY) + KEY.commitment
    assert KEY.commitment == RecipeKey.from_seed(5).commitment != RecipeKey.from_seed(6).commitment


def test_names_are_canonical_and_tell_kinds_apart():
    names = id_names(objects(17, "17", -1, 2**70, "é", "e\u0301x"), KEY)
    assert names.shape == (6, 16)
    assert len({name.tobytes() for name in names}) == 6
    assert canonical("e\u0301") == "é"
    np.testing.assert_array_equal(id_names(np.array([17, -1]), KEY), names[[0, 2]])
    np.testing.assert_array_equal(id_names([17, -1], KEY), names[[0, 2]])
    assert not np.array_equal(id_names(["a"], KEY), id_names(["a"], RecipeKey.from_seed(6)))


def test_the_unit_is_the_subject_where_there_is_one():
    ids, subjects = objects("a", "b", "c", 7), objects("x", "x", None, 7)
    units = unit_names(ids, subjects, KEY)
    assert units[0].tobytes() == units[1].tobytes() != units[2].tobytes()
    np.testing.assert_array_equal(units[2:3], id_names(["c"], KEY))
    assert not np.array_equal(units[3:], id_names([7], KEY))  # the subject 7 is not the record 7
    np.testing.assert_array_equal(unit_names(ids, None, KEY), id_names(ids, KEY))


@pytest.mark.parametrize(("k", "p"), [(1, 0.5), (7, 0.3), (40, 0.01), (3, 1.0), (5, 1e-9), (5, 0.999)])
def test_a_unit_has_the_same_cells_alone_and_among_others(k, p):
    units = id_names(np.arange(300), KEY)
    shards, positions = KEY.cells_of(units, k, p)
    assert (np.diff(shards * 300 + positions) > 0).all()
    assert shards.size == 0 or (shards.min() >= 0 and shards.max() < k)
    for unit in (0, 17, 299):
        alone, _ = KEY.cells_of(units[unit : unit + 1], k, p)
        np.testing.assert_array_equal(alone, shards[positions == unit])


def test_chunks_do_not_change_the_cells(monkeypatch):
    units = id_names(np.arange(500), KEY)
    whole = KEY.cells_of(units, 20, 0.1)
    monkeypatch.setattr("expunge.core.prf._UNITS_AT_ONCE", 64)
    for one, other in zip(KEY.cells_of(units, 20, 0.1), whole, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("p", [0.5, 0.3, 0.03])
def test_cells_are_independent_coins(p):
    """All 2^4 patterns of a unit's cells in four shards, over 200,000 units: χ², false alarm 1e-6 in all."""
    draws = 200_000
    shards, positions = KEY.cells_of(id_names(np.arange(draws), KEY), 4, p)
    patterns = np.zeros(draws, dtype=np.int64)
    np.add.at(patterns, positions, 1 << shards)
    seen = np.bincount(patterns, minlength=16)
    ones = np.array([bin(i).count("1") for i in range(16)])
    expected = draws * p**ones * (1 - p) ** (4 - ones)
    order = np.argsort(expected)
    rare = order[np.cumsum(expected[order]) < 10]  # too rare for χ² one by one
    groups = [*(np.array([i]) for i in order if i not in rare), *([rare] if len(rare) else [])]
    counts, wanted = (np.array([column[group].sum() for group in groups]) for column in (seen, expected))
    assert stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue > 1e-6 / 3


@pytest.mark.parametrize("use", ["shards_of", "slices_of"])
def test_partitions_and_slices_are_uniform(use):
    """χ² over seven values and over pairs of neighbours: false alarm 1e-6 in all."""
    names = id_names(np.arange(70_000), KEY)
    values = KEY.shards_of(names, 7) if use == "shards_of" else KEY.slices_of(3, names, 7)
    assert stats.chisquare(np.bincount(values, minlength=7)).pvalue > 1e-6 / 4
    pairs = values[:-1:2] * 7 + values[1::2]
    assert stats.chisquare(np.bincount(pairs, minlength=49)).pvalue > 1e-6 / 4


def test_orders_are_uniform_and_differ_between_shards():
    """The order of three records over 6,000 shards: χ² over the six orders, false alarm 1e-6."""
    names = id_names([1, 2, 3], KEY)
    orders = list(itertools.permutations(range(3)))
    seen = [orders.index(tuple(KEY.order(shard, names).tolist())) for shard in range(6000)]
    assert stats.chisquare(np.bincount(seen, minlength=6)).pvalue > 1e-6
    for shard in range(20):  # the order is of the records, however they are listed
        order = KEY.order(shard, names)
        again = KEY.order(shard, names[[2, 0, 1]])
        assert np.array([2, 0, 1])[again].tolist() == order.tolist()


def test_seeds_depend_on_everything_they_name():
    places = [(0, 0, b"a"), (1, 0, b"a"), (0, 1, b"a"), (0, 0, b"b"), (2**40, 2**15, b"")]
    seeds = [KEY.seed(*place) for place in places]
    assert len(set(seeds)) == len(seeds)
    assert seeds == [KEY.seed(*place) for place in places]
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize(("p", "k"), [(0.5, 10), (1 / 3, 200), (1e-4, 50), (0.999999, 3)])
def test_the_table_of_gaps_is_exact_to_the_last_bits(p, k):
    """Threshold g is 2^64 · (1 − (1−p)^(g+1)), with p as the float that it is."""
    from fractions import Fraction

    table = _gap_table(p, k)
    for g in {0, 1, k // 2, k - 1}:
        exact = (1 - (1 - Fraction(p)) ** (g + 1)) * 2**64
        assert abs(int(table[g]) - exact) <= 2 + Fraction(g, 2**60) * 2**4
    assert (np.diff(table.astype(object)) >= 0).all()
