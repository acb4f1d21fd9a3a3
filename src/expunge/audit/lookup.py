"""The lookup-table attack of Section 5.1, which Theorem 5.1 turns into a proof that SISA does not unlearn.

Every training point is there twice. A lookup-table model labels a point only if its shard holds it, so the published
label tells whether the two copies sit in different shards; a requester who deletes what is labelled correctly leaves
only pairs that share a shard, and the ensemble is wrong on every one of them. Full retraining on the same survivors
would be right on about 2/3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from expunge.audit.publishing import PublishVotes
from expunge.audit.requesters import DeleteCorrect
from expunge.ensemble import EnsembleState
from expunge.interaction import EnsemblePair, interact
from expunge.learners import LookupTableLearner
from expunge.randomness import Randomness
from expunge.records import Records
from expunge.sampling import PartitionSampler, Sampler


@dataclass(frozen=True)
class LookupResult:
    """One trial: accuracies on training points, and whether the event of Theorem 5.1 happened in each arm."""

    num_pairs: int
    num_surviving_pairs: int
    accuracy_before: float
    accuracy_unlearned: float
    accuracy_retrained: float
    event_unlearned: bool
    event_retrained: bool


def make_pairs(num_pairs: int) -> Records:
    """D^0: two copies each of `num_pairs` distinct points with alternating labels."""
    points = np.repeat(np.arange(num_pairs, dtype=np.float64), 2).reshape(-1, 1)
    return Records.build(points, np.repeat(np.arange(num_pairs) % 2, 2), classes=[0, 1])


def attack_lookup(
    num_pairs: int, *, rng: Randomness, num_shards: int = 3, sampler: Sampler | None = None
) -> LookupResult:
    """Play the attack once against lookup tables on `num_shards` shards (SISA by random assignment if None)."""
    pair = EnsemblePair(LookupTableLearner(), sampler or PartitionSampler(equal_sizes=False), num_shards)
    records = make_pairs(num_pairs)
    points, codes, _ = records.gather(records.live_slots())
    requester = DeleteCorrect(records.ids(), codes)
    played = interact(pair, PublishVotes(points), requester, records, rng=rng, max_rounds=1)
    survivors = played.state.records
    retrained = pair.learn(survivors, rng)
    return LookupResult(
        num_pairs=num_pairs,
        num_surviving_pairs=len(survivors) // 2,
        accuracy_before=float(np.mean(played.published[0] == codes)),
        accuracy_unlearned=_training_accuracy(played.state),
        accuracy_retrained=_training_accuracy(retrained),
        event_unlearned=in_the_event(played.state),
        event_retrained=in_the_event(retrained),
    )


def _training_accuracy(state: EnsembleState) -> float:
    """On the records of the state itself; 1 if none are left."""
    points, codes, _ = state.records.gather(state.records.live_slots())
    return float(np.mean(PublishVotes(points)(0, state) == codes)) if len(codes) else 1.0


def in_the_event(state: EnsembleState) -> bool:
    """E^t of Theorem 5.1: every point left is in exactly one shard's table."""
    points, _, _ = state.records.gather(state.records.live_slots())
    return bool((state.count_votes(points).sum(axis=1) == 1).all())
