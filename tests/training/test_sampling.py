from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from expunge.core.errors import ParameterError
from expunge.core.prf import RecipeKey, id_names
from expunge.core.randomness import Randomness
from expunge.core.records import Add, AddMany, Delete, DeleteMany, DeleteSubject, Records
from expunge.training.ensemble import learn, update
from expunge.training.learners import LookupTableLearner
from expunge.training.recipe import Recipe
from expunge.training.sampling import IndependentSampler, PartitionSampler, Sampler

SAMPLERS = [IndependentSampler(), IndependentSampler(0.3), PartitionSampler()]
KEY = RecipeKey.from_seed(3)


def as_sets(cells, num_shards) -> tuple[frozenset[int], ...]:
    shards, positions = cells
    return tuple(frozenset(positions[shards == shard].tolist()) for shard in range(num_shards))


def names(size):
    return id_names(np.arange(size), KEY)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_every_sampler_draws_cells_in_ascending_order(sampler):
    assert isinstance(sampler, Sampler)
    shards, positions = sampler.draw(names(1000), 7, KEY)
    assert (np.diff(shards * 1000 + positions) > 0).all()
    assert shards.max() < 7
    assert positions.max() < 1000
    assert len(positions) == (1000 if isinstance(sampler, PartitionSampler) else len(positions)) > 0
    assert [len(part) for part in sampler.draw(names(0), 7, KEY)] == [0, 0]


@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(1, 3)])
def test_independent_law_is_exactly_a_product(exact_law, random_function, p):
    """Every pattern of the (shard, record) matrix has the probability of independent trials, in one draw or two."""
    sampler = IndependentSampler(float(p))
    law = exact_law(lambda rng: as_sets(sampler.draw(names(3), 2, random_function(rng)), 2))
    cells = list(itertools.product(range(2), range(3)))
    for pattern in itertools.product([0, 1], repeat=6):
        shards = tuple(
            frozenset(r for (s, r), bit in zip(cells, pattern, strict=True) if bit and s == shard) for shard in range(2)
        )
        assert law[shards] == p ** sum(pattern) * (1 - p) ** (6 - sum(pattern))


def test_extreme_probabilities():
    assert as_sets(IndependentSampler(1.0).draw(names(3), 2, KEY), 2) == (frozenset({0, 1, 2}),) * 2
    assert as_sets(IndependentSampler(1e-300).draw(names(1000), 2, KEY), 2) == (frozenset(),) * 2
    for bad in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(ParameterError, match="probability"):
            IndependentSampler(bad)
    with pytest.raises(ParameterError, match="shards"):
        IndependentSampler().draw(names(5), 0, KEY)


def test_a_partition_follows_its_law(exact_law, random_function):
    law = exact_law(lambda rng: as_sets(PartitionSampler().draw(names(3), 3, random_function(rng)), 3))
    assert len(law) == 27
    assert set(law.values()) == {Fraction(1, 27)}


def test_system_randomness_does_not_repeat_itself():
    first, second = (Randomness.from_system() for _ in range(2))
    assert not np.array_equal(first.seeds(4), second.seeds(4))
    assert not np.array_equal(first.words(4), first.words(4))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_membership_is_what_the_recipe_gives_through_changes(sampler):
    """After any batch a shard holds the records whose unit has a cell there, and only touched shards have changed."""
    recipe = Recipe(LookupTableLearner(), 9, sampler, KEY)
    records = Records.build(np.arange(60.0).reshape(-1, 1), [0] * 60, classes=[0, 1])
    state, chance, new = learn(records, recipe), np.random.default_rng(1), 1000
    for step in range(60):
        live = state.records.ids()
        gone = chance.choice(live, size=min(step % 3, len(live)), replace=False).tolist()
        batch = [Delete(record) for record in gone]
        batch += [Add(id=new + number, features=[1.0], label=0) for number in range(step % 4)]
        before, changed = state, {*gone, *range(new, new + step % 4)}
        new += step % 4
        state, report = update(state, batch)
        cells = as_sets(sampler.draw(id_names(state.records.ids(), KEY), 9, KEY), 9)
        expected = [{state.records.ids()[place] for place in shard} for shard in cells]
        held = [{state.records.id_of(int(slot)) for slot in slots} for slots in state.members]
        assert held == expected
        earlier = [{before.records.id_of(int(slot)) for slot in slots} for slots in before.members]
        touched = {shard for shard in range(9) if (held[shard] | earlier[shard]) & changed}
        assert set(report.touched) == touched
        assert all(state.models[shard] is before.models[shard] for shard in set(range(9)) - touched)


def test_all_records_of_a_subject_sit_in_one_shard_and_leave_with_one_retraining():
    X, subjects = np.arange(300.0).reshape(-1, 1), [f"person-{i // 100}" for i in range(300)]
    records = Records.build(X, [0] * 300, subjects=subjects, classes=[0, 1])
    state = learn(records, Recipe(LookupTableLearner(), 20, PartitionSampler(), KEY))
    assert {state.shards_of(slot) for slot in range(100)} == {state.shards_of(0)}
    _, report = update(state, [DeleteSubject("person-0")])
    assert report.removed == 100
    assert report.touched == state.shards_of(0)
    more = AddMany(ids=[900, 901], features=[[1.0], [2.0]], labels=[0, 0], subjects=["person-0", "person-2"])
    after, report = update(state, [more])
    assert set(report.touched) == {*state.shards_of(0), *state.shards_of(299)}
    assert after.shards_of(after.records.slot_of(900)) == state.shards_of(0)


def test_memory_per_record():
    """Four bytes a membership at p = 1/k, for any k: the arrays themselves are counted."""
    n, k = 200_000, 1000
    records = Records.build(np.zeros((n, 1)), np.zeros(n, dtype=int), classes=[0, 1])
    members = Recipe(LookupTableLearner(), k, IndependentSampler(), KEY).members(records)
    assert len(members) == k
    assert sum(array.nbytes for array in members) <= 5 * n


def test_all_bits_of_a_system_seed_reach_the_generator():
    assert Randomness.from_system().generator.bit_generator.seed_seq.pool_size * 32 >= 256


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_shards_drawn_in_runs_are_those_drawn_at_once(sampler, monkeypatch):
    """Also where runs are empty because all of their records are deleted."""
    records, _ = Records.build(np.zeros((40, 1)), np.zeros(40)).apply([DeleteMany([0, 3, *range(7, 21), 39])])
    recipe = Recipe(LookupTableLearner(), 5, sampler, KEY)
    live = records.live_slots()
    whole = as_sets(recipe.cells(records, live), 5)
    for size in (1, 7, 40, 1000):
        monkeypatch.setattr("expunge.training.recipe._RECORDS_AT_ONCE", size)
        assert [slots.tolist() for slots in records.live_runs(size) if len(slots)] == [
            part.tolist() for part in np.split(live, np.searchsorted(live, range(size, 40, size))) if len(part)
        ]
        members = recipe.members(records)
        assert [slots.tolist() for slots in members] == [live[sorted(part)].tolist() for part in whole]
        assert {slots.dtype for slots in members} == {np.dtype(np.uint32)}
    nothing, _ = records.apply([DeleteMany(records.ids())])
    assert [len(slots) for slots in recipe.members(nothing)] == [0] * 5
