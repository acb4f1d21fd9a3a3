"""The lookup-table attack of Section 5.1, which Theorem 5.1 turns into a proof that SISA does not unlearn.

Every training point is there twice. A lookup-table model labels a point only if its shard holds it, so the published
label tells whether the two copies sit in different shards; a requester who deletes what is labelled correctly leaves
only pairs that share a shard, and the ensemble is wrong on every one of them. Full retraining on the same survivors
would be right on about 2/3.

The lookup-table attack (Section 5.1, Theorem 5.1) on any scheme.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from expunge.audit.requesters import DeleteCorrect
from expunge.audit.scenario import Scenario, Task
from expunge.audit.scenarios.shared import Bound, MakeRequester, NamedRequester, Ready, requester_name
from expunge.audit.schemes import PublishVotes
from expunge.audit.statistics import DeletedSupport, SurvivorAccuracy, SurvivorSupport
from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.serving.interaction import EnsemblePair, interact
from expunge.training.ensemble import EnsembleState
from expunge.training.learners import LookupTableLearner, NearestTableLearner
from expunge.training.sampling import PartitionSampler, Sampler


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
    pair = EnsemblePair(LookupTableLearner(), sampler or PartitionSampler(), num_shards)
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


# Points are whole numbers, so this table knows exactly what it was shown; public points lie a quarter beside them.
_TAU = 0.3
_BESIDE = 0.25
_ADDING_ROUNDS = 4


def lookup_scenario(*, num_pairs: int = 50, requester: str | MakeRequester = "correct") -> Scenario:
    """Two copies of `num_pairs` points (one, if copies are to be added), lookup tables, labels published.

    A requester that deletes what is labelled rightly leaves records that sit where nobody expects them; the statistics
    ask how many shards still know a surviving record, how many are labelled rightly, and how much is left of the
    deleted ones.
    """
    if num_pairs < 2:
        raise ParameterError(f"num_pairs must be at least 2, got {num_pairs!r}")
    adds = requester == "add"
    records = _singles(num_pairs) if adds else make_pairs(num_pairs)
    points = np.arange(float(num_pairs)).reshape(-1, 1)
    # Its answers on whole numbers are the lookup table's; unlike it, it also answers beside them.
    task = Task("lookup tables", records, NearestTableLearner(_TAU), points, _labels(num_pairs), points + _BESIDE)
    make = NamedRequester(requester, size=num_pairs // 2) if isinstance(requester, str) else requester
    return Scenario(
        name="lookup",
        about=f"every training point {'once' if adds else 'twice'}, lookup tables",
        task=task,
        points=task.columns[1],
        make_requester=Bound(make, task),
        prepare=Ready(
            {
                "shards that know a surviving record": SurvivorSupport(),
                "accuracy on surviving records": SurvivorAccuracy(),
                "shards that know a deleted record": DeletedSupport(),
            }
        ),
        max_rounds={"one-by-one": len(records), "add": _ADDING_ROUNDS}.get(str(requester), 1),
        parameters={"num_pairs": num_pairs, "requester": requester_name(requester)},
    )


def _labels(num_points: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(num_points, dtype=np.int64) % 2


def _singles(num_points: int) -> Records:
    points = np.arange(num_points, dtype=np.float64).reshape(-1, 1)
    return Records.build(points, _labels(num_points), classes=[0, 1])
