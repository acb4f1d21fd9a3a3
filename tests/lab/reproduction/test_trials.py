from __future__ import annotations

import numpy as np
import pytest

from expunge.core.errors import InputError
from expunge_lab.reproduction import Signs, count_right


def test_accuracies_of_the_three_kinds(make_trials):
    trials = make_trials([0, 1], before=[[50, 70], [40, 60]], voted_before=[65, 55], averaged_before=[80, 90])
    assert trials.accuracy("before", "models").tolist() == [0.6, 0.5]
    assert trials.accuracy("before", "voted").tolist() == [0.65, 0.55]
    assert trials.accuracy("before", "averaged").tolist() == [0.8, 0.9]


def test_signs_count_worse_better_and_equal():
    correct = np.array([[1, 2], [2, 1], [3, 3], [0, 5]])
    assert Signs.of(correct) == Signs(worse=2, better=1, equal=1)
    assert Signs.of(correct).rate == 0.5


def test_halves_of_unequal_size_are_compared_by_their_means():
    # Three shards: one is targeted, and its 4 is compared with the mean of the two others.
    assert Signs.of(np.array([[4, 3, 5], [4, 3, 6], [4, 3, 4]])) == Signs(worse=1, better=1, equal=1)


def test_shard_accuracy_is_undefined_without_deletions(make_trials):
    trials = make_trials([0, 1], num_deleted=[0, 10], num_hits=[0, 4])
    assert np.isnan(trials.shard_accuracy[0])
    assert trials.shard_accuracy[1] == 0.4


def test_merging_keeps_the_first_of_equal_numbers_and_sorts(make_trials):
    first, second = make_trials([5, 1], seed=1), make_trials([1, 3], seed=2)
    merged = first.merge(second)
    assert merged.numbers.tolist() == [1, 3, 5]
    assert merged.before[0].tolist() == first.before[1].tolist()
    assert merged.before[1].tolist() == second.before[1].tolist()
    with pytest.raises(InputError, match="different experiments"):
        first.merge(make_trials([7], num_shards=3))


def test_wrong_shapes_and_doubles_are_refused(make_trials):
    with pytest.raises(InputError, match="there twice"):
        make_trials([1, 1])
    with pytest.raises(InputError, match="num_hits must be of the shape"):
        make_trials([1, 2], num_hits=[1])


def test_votes_and_means_of_an_ensemble():
    # Two images of class 1; three models. On the first the majority is wrong, but the right model is very sure.
    scores = np.array([[[[1.0, 0], [0, 1]], [[1, 0], [0, 1]], [[0, 9], [5, 0]]]])
    found = count_right("after", scores, np.array([1, 1]))
    assert found["after"].tolist() == [[1, 1, 1]]
    assert found["voted_after"].tolist() == [1]
    assert found["averaged_after"].tolist() == [1]
    tie = count_right("after", np.array([[[[1.0, 0]], [[0, 1]]]]), np.array([1]))
    assert tie["voted_after"].tolist() == [0]  # the lowest class among equals
