"""The consensus gate against the mechanism box of T4, step by step, and the exactness of its secret thresholds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness
from expunge.privacy.mechanisms.consensus import ConsensusGate, draw_threshold, plurality

BITS = 17 * 64


class FixedWords:
    """Randomness whose uniform integer is given."""

    def __init__(self, value):
        self.value = value

    def words(self, size):
        return np.frombuffer(self.value.to_bytes(8 * size, "little"), dtype=np.uint64)


def reference(votes, num_shards, threshold, abstain_threshold, max_queries):
    """The mechanism box, one query at a time: (dirty after each query, abstained)."""
    dirty, states, abstained = threshold < 0, [], []
    for n, row in enumerate(votes, start=1):
        dissent = num_shards - max(row)
        abstains = abstain_threshold is not None and dissent > threshold and max(row) <= abstain_threshold
        if not dirty and dissent > threshold and not abstains:
            dirty = True
        if n >= max_queries:
            dirty = True
        states.append(dirty)
        abstained.append(abstains)
    return states, abstained


@given(
    st.integers(1, 9),
    st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), max_size=8),
    st.integers(-1, 4),
    st.none() | st.integers(-1, 4),
    st.integers(1, 9),
    st.integers(0, 8),
)
def test_follows_the_mechanism_box_in_any_batching(num_shards, rows, threshold, abstain_threshold, max_queries, cut):
    rows = [[min(v, num_shards) for v in row] for row in rows]
    states, abstained = reference(rows, num_shards, threshold, abstain_threshold, max_queries)
    gate = ConsensusGate(threshold, max_queries, abstain_threshold)
    votes = np.array(rows, dtype=np.int32).reshape(-1, 3)
    parts = [gate.observe(part, num_shards) for part in (votes[:cut], votes[cut:])]
    assert np.concatenate(parts).tolist() == abstained
    assert gate.dirty == (states[-1] if states else threshold < 0)
    assert gate.queries == len(rows)


def test_abstaining_shards_are_dissent():
    gate = ConsensusGate(threshold=1, max_queries=100)
    gate.observe(np.array([[9, 0]]), 10)
    assert not gate.dirty
    gate.observe(np.array([[8, 0]]), 10)
    assert gate.dirty


def test_the_last_query_makes_dirty():
    gate = ConsensusGate(threshold=0, max_queries=3)
    gate.observe(np.array([[5, 0], [5, 0]]), 5)
    assert not gate.dirty
    gate.observe(np.array([[5, 0]]), 5)
    assert gate.dirty


def test_dirt_stays_and_abstaining_does_not_depend_on_it():
    gate = ConsensusGate(threshold=1, max_queries=100, abstain_threshold=4)
    assert gate.observe(np.array([[4, 4]]), 10).tolist() == [True]
    assert not gate.dirty
    assert gate.observe(np.array([[6, 4], [4, 4], [10, 0]]), 10).tolist() == [False, True, False]
    assert gate.dirty
    assert gate.observe(np.array([[4, 4]]), 10).tolist() == [True]
    assert gate.dirty


def test_an_empty_batch_changes_nothing():
    gate = ConsensusGate(threshold=0, max_queries=1)
    assert gate.observe(np.zeros((0, 3), dtype=int), 5).shape == (0,)
    assert (gate.dirty, gate.queries) == (False, 0)


def test_plurality_breaks_ties_towards_the_lowest_class():
    assert plurality(np.array([[2, 2, 1], [0, 3, 3], [0, 0, 0]])).tolist() == [0, 1, 0]


@pytest.mark.parametrize("counts", [np.zeros(3, dtype=int), np.zeros((2, 0), dtype=int), [[6, 0]], [[-1, -1]]])
def test_refuses_impossible_counts(counts):
    gate = ConsensusGate(threshold=0, max_queries=9)
    with pytest.raises(ParameterError):
        gate.observe(np.asarray(counts), 5)
    assert (gate.dirty, gate.queries) == (False, 0)


def test_refuses_no_queries_at_all():
    with pytest.raises(ParameterError, match="max_queries"):
        ConsensusGate(threshold=0, max_queries=0)


@pytest.mark.parametrize("survival", [[], [0.5, 0.6], [1.5], [math.nan], [-0.1]])
def test_refuses_tables_that_are_no_survival_function(survival):
    with pytest.raises(ParameterError, match="survival"):
        draw_threshold(survival, Randomness.from_seed(0))


@pytest.mark.parametrize("survival", [[1.0, 0.7, 0.1, 1e-12], [0.3, 5e-324], [1.0, 1.0], [0.0]])
def test_thresholds_are_drawn_exactly(survival):
    """At the two integers around each S(d)·2^1088 the draw switches from T ≥ d to T < d: P(T ≥ d) = S(d) exactly."""
    for d, value in enumerate(survival):
        edge = Fraction(value) * 2**BITS
        assert edge.denominator == 1
        if value > 0:
            assert draw_threshold(survival, FixedWords(int(edge) - 1)) >= d
        if value < 1:
            assert draw_threshold(survival, FixedWords(int(edge))) < d


def test_thresholds_have_the_law_of_the_table():
    """The seed is fixed; over seeds the false alarm is below 1e-6: 5.5 standard errors, 3.8e-8 a cell, three cells."""
    survival = np.array([0.9, 0.6, 0.25])
    rng = Randomness.from_seed(7)
    draws = np.array([draw_threshold(survival, rng) for _ in range(20_000)])
    for d, value in enumerate(survival):
        assert abs((draws >= d).mean() - value) < 5.5 * math.sqrt(value * (1 - value) / draws.size)


def test_a_generation_draws_its_own_thresholds():
    rng = Randomness.from_seed(3)
    gates = [ConsensusGate.draw(rng, survival=[0.5, 0.2], max_queries=9, abstain_survival=[0.5]) for _ in range(64)]
    # A fixed seed: no chance involved. Both sides vary, T < 0 starts dirty, and the two are not tied to each other.
    assert {gate.threshold for gate in gates} == {-1, 0, 1}
    assert {(gate.threshold >= 0, gate.abstain_threshold) for gate in gates} == {
        (a, b) for a in (0, 1) for b in (-1, 0)
    }
    assert all(gate.dirty == (gate.threshold < 0) for gate in gates)
    assert ConsensusGate.draw(rng, survival=[1.0], max_queries=1).abstain_threshold is None
