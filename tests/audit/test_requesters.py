"""Requesters ask for what they say, from what they are shown."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from expunge.audit import (
    AddUntilCorrect,
    DeleteCorrect,
    DeleteMostShards,
    DeleteRandomCorrect,
    DeleteTargeted,
    DeleteThese,
    PublishedModels,
)
from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness
from expunge.core.records import AddMany, Delete
from expunge.training.learners import LookupTableLearner, NearestTableLearner

IDS = ["a", "b", "c", "d"]
CODES = np.array([0, 1, 0, 1])
POINTS = np.arange(4.0).reshape(-1, 1)


def deleted(batch):
    return [update.id for update in batch]


def test_oblivious_requesters_do_not_look():
    requester = DeleteThese(["c", "a"])
    assert deleted(requester.next_batch((), ())) == ["c", "a"]
    assert requester.next_batch((object(),), ([Delete("c")],)) is None
    one_by_one = DeleteThese(["c", "a"], at_once=False)
    assert deleted(one_by_one.next_batch((), ([Delete("c")],))) == ["a"]
    assert one_by_one.next_batch((), ([], [])) is None


def test_a_random_choice_is_uniform(exact_law):
    law = exact_law(lambda rng: frozenset(DeleteThese.random(IDS, 2, rng=rng).ids))
    assert len(law) == 6
    assert set(law.values()) == {Fraction(1, 6)}


def test_the_correct_ones_at_once_and_one_by_one():
    shown = (np.array([0, 0, 0, 1]),)
    assert deleted(DeleteCorrect(IDS, CODES).next_batch(shown, ())) == ["a", "c", "d"]
    assert DeleteCorrect(IDS, CODES).next_batch(shown, ([Delete("a")],)) is None
    assert deleted(DeleteCorrect(IDS, CODES, at_once=False).next_batch(shown, ([Delete("a")],))) == ["c"]
    assert DeleteCorrect(IDS, CODES).next_batch((np.full(4, -1),), ()) is None


def test_a_random_subset_of_the_correct_ones_is_uniform(exact_law):
    shown = (np.array([0, 0, 0, 1]),)  # a, c, d are right

    def chosen(rng):
        requester = DeleteRandomCorrect.draw(IDS, CODES, 2, rng=rng)
        return frozenset(deleted(requester.next_batch(shown, ())))

    assert exact_law(chosen) == {frozenset(pair): Fraction(1, 3) for pair in ("ac", "ad", "cd")}


def test_fewer_are_deleted_where_fewer_are_right():
    requester = DeleteRandomCorrect.draw(IDS, CODES, 4, rng=Randomness.from_seed(0))
    assert sorted(deleted(requester.next_batch((np.array([0, 0, 1, 0]),), ()))) == ["a"]


@pytest.mark.parametrize("size", [0, 5, True, 1.5])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(ParameterError, match="number of deletions"):
        DeleteRandomCorrect.draw(IDS, CODES, size, rng=Randomness.from_seed(0))


def test_adaptive_additions_copy_what_is_wrong():
    requester = AddUntilCorrect(IDS, POINTS, np.array(["no", "yes", "no", "yes"]), CODES)
    (batch,) = requester.next_batch((np.array([0, 0, -1, 1]),), ())
    assert isinstance(batch, AddMany)
    assert batch.features.tolist() == [[1.0], [2.0]]
    assert list(batch.labels) == ["yes", "no"]
    (again,) = requester.next_batch((np.array([0, 0, -1, 1]), np.array([0, 0, 0, 1])), ([batch],))
    assert set(again.ids).isdisjoint(batch.ids)
    assert requester.next_batch((CODES,), ()) is None


def fitted(*members):
    learner = LookupTableLearner()
    return tuple(learner.fit(POINTS[list(m)], CODES[list(m)], 0) for m in members)


def test_the_targeted_shards_are_the_first_half():
    shown = PublishedModels(fitted([0], [1], [2], [3]), 2)
    assert deleted(DeleteTargeted(IDS, POINTS, CODES).next_batch((shown,), ())) == ["a", "b"]
    assert DeleteTargeted(IDS, POINTS, CODES).next_batch((shown,), ([Delete("a")],)) is None
    alone = PublishedModels(fitted([0, 1, 2], [3], [3]), 2)
    assert deleted(DeleteTargeted(IDS, POINTS, CODES).next_batch((alone,), ())) == ["a", "b", "c"]


def test_the_record_in_most_shards_goes_first():
    requester = DeleteMostShards(IDS, POINTS, CODES)
    shown = PublishedModels(fitted([0, 1], [1, 2], [1, 2], [3]), 2)
    assert deleted(requester.next_batch((shown,), ())) == ["b"]
    assert deleted(requester.next_batch((shown,), ([Delete("b")],))) == ["c"]
    everything = [[Delete(i)] for i in IDS]
    assert requester.next_batch((shown,), everything) is None


def test_shown_labels_it_can_only_prefer_the_right_ones():
    requester = DeleteMostShards(IDS, POINTS, CODES)
    assert deleted(requester.next_batch((np.array([1, 1, 1, 1]),), ())) == ["b"]


def test_nearest_tables_reveal_their_members_to_it():
    learner = NearestTableLearner(0.3)
    counts = Counter({0: 1, 1: 3, 2: 2})
    models = tuple(
        learner.fit(POINTS[rows], CODES[rows], 0)
        for rows in ([point for point in counts if counts[point] > shard] for shard in range(3))
    )
    assert deleted(DeleteMostShards(IDS, POINTS, CODES).next_batch((PublishedModels(models, 2),), ())) == ["b"]
