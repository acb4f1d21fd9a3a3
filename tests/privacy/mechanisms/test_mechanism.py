"""Utility: the accuracy of each mechanism at worst."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest

from expunge.core.errors import ParameterError
from expunge.privacy.mechanisms import ExponentialMechanism, Majority, mechanism


@pytest.mark.parametrize("top", [2, 3, 4, 6])
def test_accuracy_is_the_worst_over_all_votes(every, top):
    num_shards, num_classes = 6, 4
    rows = [
        (*others, top) for others in product(range(top + 1), repeat=num_classes - 1) if sum(others) <= num_shards - top
    ]
    worst = min(every.law(np.array(row))[num_classes - 1] for row in rows)
    accuracy = every.accuracy(share=top / num_shards, num_shards=num_shards, num_classes=num_classes)
    assert accuracy == pytest.approx(worst, rel=1e-11, abs=1e-300)


def test_accuracy_grows_with_the_share(every):
    values = [every.accuracy(share=share, num_shards=40, num_classes=5) for share in np.linspace(0, 1, 21)]
    assert all(first <= second + 1e-12 for first, second in pairwise(values))


def test_a_unanimous_binary_vote_is_answered_right_as_computed():
    # ε0 = 2 ln(99)/k makes a unanimous vote right with probability 99%.
    exponential = ExponentialMechanism(epsilon=2 * math.log(99) / 1000)
    assert exponential.accuracy(share=1, num_shards=1000, num_classes=2) == pytest.approx(0.99, rel=1e-12)


def test_permute_and_flip_is_at_least_as_accurate_as_the_exponential_mechanism():
    for epsilon, share in product([0.01, 0.1, 1.0], [0.5, 0.6, 0.8, 1.0]):
        vote = {"share": share, "num_shards": 50, "num_classes": 10}
        flip, exponential = (mechanism(name, epsilon=epsilon) for name in ("permute-and-flip", "exponential"))
        assert flip.accuracy(**vote) >= exponential.accuracy(**vote)


def test_majority_is_right_exactly_when_it_leads():
    accuracy = [Majority().accuracy(share=share, num_shards=10, num_classes=3) for share in (0.4, 0.5, 0.6, 1)]
    assert accuracy == [0, 0, 1, 1]


@pytest.mark.parametrize("num_shards", [1, 10**7, 2**53])
def test_extreme_ensembles(every, num_shards):
    assert 0 <= every.accuracy(share=0.7, num_shards=num_shards, num_classes=3) <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share": 1.1}, "share must be a number >= 0 and <= 1, got 1.1"),
        ({"share": math.nan}, "share must be a number >= 0 and <= 1, got nan"),
        ({"num_shards": 0}, "num_shards .*0"),
        ({"num_classes": 0}, "num_classes .*0"),
    ],
)
def test_impossible_votes_are_refused(every, change, message):
    with pytest.raises(ParameterError, match=message):
        every.accuracy(**({"share": 0.5, "num_shards": 10, "num_classes": 2} | change))
