"""The order in which records are stored is a function of the records and the recipe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from expunge import IndependentSampler, PartitionSampler, Recipe, RecipeKey, Records
from expunge.core.records import AddMany, DeleteMany
from expunge.training.learners import LookupTableLearner
from expunge.training.recipe import PUBLIC_KEY

SIZE = 200
SAMPLERS = {"partition": PartitionSampler(), "independent": IndependentSampler(0.3)}


def recipe(sampling: str, seed: int = 1, num_shards: int = 7) -> Recipe:
    return Recipe(LookupTableLearner(), num_shards, SAMPLERS[sampling], RecipeKey.from_seed(seed))


def records_of(order: Any, ids: str = "numbers", *, subjects: bool = False) -> Records:
    names = [int(n) if ids == "numbers" or n % 2 else f"name {n}" for n in order]
    people = [f"s{n // 3}" if n % 4 else None for n in order] if subjects else None
    table = np.array(order, dtype=float)[:, np.newaxis]
    return Records.build(table, np.array(order) % 2, ids=names, subjects=people, classes=[0, 1])


def in_order(records: Records, made: Recipe) -> list[Any]:
    return [records.id_of(int(slot)) for slot in made.layout(records)]


@pytest.mark.parametrize("subjects", [False, True])
@pytest.mark.parametrize("ids", ["numbers", "mixed"])
@pytest.mark.parametrize("sampling", SAMPLERS)
def test_the_order_does_not_depend_on_how_records_came(sampling: str, ids: str, subjects: bool) -> None:
    made = recipe(sampling)
    expected = in_order(records_of(range(SIZE), ids, subjects=subjects), made)
    assert len({*expected}) == SIZE
    assert expected == in_order(records_of(np.random.default_rng(0).permutation(SIZE), ids, subjects=subjects), made)
    early = records_of(range(0, SIZE + 20, 2), ids, subjects=subjects)
    whole = records_of(range(SIZE), ids, subjects=subjects)
    odd = np.array([slot for slot in range(SIZE) if slot % 2])
    block = whole.extract(odd)
    gone = [int(n) if ids == "numbers" else f"name {n}" for n in range(SIZE, SIZE + 20, 2)]
    assert block.ids is not None
    added = AddMany(
        ids=block.ids,
        features=block.features,
        labels=block.labels,
        subjects=None if block.subjects is None else block.subjects.tolist(),
    )
    later, _ = early.apply([DeleteMany(gone), added])
    assert in_order(later, made) == expected


def test_a_partition_lies_shard_by_shard_as_it_is_trained() -> None:
    made, records = recipe("partition"), records_of(range(SIZE), subjects=True)
    order = made.layout(records)
    table, labels, _ = records.gather(np.arange(SIZE))
    laid = Records.build(table[order], labels[order], ids=order, subjects=records.subjects_of(np.arange(SIZE))[order])
    members = made.members(laid)
    assert np.array_equal(np.concatenate(members), np.arange(SIZE))
    for shard, slots in enumerate(members):
        trained, before = made.contents(shard, laid, slots), made.contents(shard, records, np.sort(order[slots]))
        assert np.array_equal(trained.X[:, 0], order[slots])  # type: ignore[index]
        assert np.array_equal(trained.X, before.X)
        assert in_order(laid, made) == laid.ids()
    assert in_order(records, made) != in_order(records, recipe("partition", seed=2))


def test_the_order_of_independent_shards_is_public() -> None:
    """A router's fallback sees the records in this order, and its answers must not depend on the key."""
    records = records_of(range(SIZE), "mixed", subjects=True)
    assert in_order(records, recipe("independent", 1)) == in_order(records, recipe("independent", 2, num_shards=3))
    ids, subjects = in_order(records, recipe("independent")), records.subjects
    place = {record: at for at, record in enumerate(ids)}
    for name in {f"s{n // 3}" for n in range(SIZE)}:
        places = sorted(place[records.id_of(slot)] for slot in subjects.find(name))
        assert places == [*range(places[0], places[-1] + 1)], "records of a person lie together"
    assert PUBLIC_KEY.is_system is False


@pytest.mark.parametrize("sampling", SAMPLERS)
def test_no_records_have_an_order_too(sampling: str) -> None:
    empty, _ = records_of(range(3)).apply([DeleteMany(range(3))])
    assert in_order(empty, recipe(sampling)) == []
