"""Algorithm 1 with other people's pairs, publishing functions and requesters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from expunge.core.randomness import Randomness
from expunge.core.records import Add, Delete, Records
from expunge.serving.interaction import EnsemblePair, interact
from expunge.training.learners import LookupTableLearner
from expunge.training.sampling import IndependentSampler


@dataclass(frozen=True)
class SumPair:
    """A pair that has nothing to do with ensembles: the state is the dataset."""

    def learn(self, records, rng):
        return records

    def update(self, state, batch, rng):
        return state.apply(batch)[0]

    def records_of(self, state):
        return state


class Watcher:
    """Deletes the record that was published, and remembers what it was shown."""

    def __init__(self):
        self.seen = []

    def next_batch(self, published, asked):
        self.seen.append((published, asked))
        return None if published[-1] is None else [Delete(published[-1])]


def first_id(round_number, records):
    ids = records.ids()
    return ids[0] if ids else None


def test_the_requester_sees_the_history_and_drives_the_updates():
    watcher = Watcher()
    records = Records.build(np.zeros((3, 1)), [0, 1, 0], ids=["a", "b", "c"])
    played = interact(SumPair(), first_id, watcher, records, rng=Randomness.from_seed(0), max_rounds=10)
    assert played.published == ("a", "b", "c", None)
    assert played.asked == ([Delete("a")], [Delete("b")], [Delete("c")])
    assert len(played.state) == 0
    assert [len(published) for published, _ in watcher.seen] == [1, 2, 3, 4]
    assert watcher.seen[2] == (("a", "b", "c"), ([Delete("a")], [Delete("b")]))


def test_rounds_are_limited():
    records = Records.build(np.zeros((3, 1)), [0, 1, 0])
    played = interact(SumPair(), first_id, Watcher(), records, rng=Randomness.from_seed(0), max_rounds=2)
    assert len(played.asked) == 2


def test_our_own_pair_with_adaptive_additions():
    class Adder:
        def next_batch(self, published, asked):
            return [Add(id=f"n{len(asked)}", features=[published[-1]], label=1)] if len(asked) < 4 else None

    pair = EnsemblePair(LookupTableLearner(), IndependentSampler(0.5), num_shards=3)
    records = Records.build(np.zeros((2, 1)), [0, 1])
    played = interact(
        pair, lambda t, state: float(len(state.records)), Adder(), records, rng=Randomness.from_seed(0), max_rounds=9
    )
    assert played.published == (2.0, 3.0, 4.0, 5.0, 6.0)
    assert pair.records_of(played.state).ids() == [0, 1, "n0", "n1", "n2", "n3"]
