"""Statistics of the models: what an audit compares between the two arms.

Confidence in a label is the model's class probability if it gives probabilities, and its vote if it does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.audit.requesters import num_targeted, own_label_confidence
from expunge.audit.scenario import History, Scheme
from expunge.core.features import Features, num_rows
from expunge.core.randomness import Randomness
from expunge.core.records import Delete, Records

HOLDERS = "shards that the next deletion would retrain"


def vote_shares(scheme: Scheme[Any], state: Any, points: Features, codes: NDArray[Any]) -> NDArray[np.float64]:
    """The share of the models that vote for each point's own label; 1 or 0 (right or wrong) if they cannot be seen."""
    rows = np.arange(num_rows(points))
    ensemble = scheme.ensemble(state)
    if ensemble is not None:
        counts = ensemble.count_votes(points)[rows, codes]
        return np.asarray(counts / ensemble.num_shards, dtype=np.float64)
    models = scheme.models(state)
    if models:
        votes = np.stack([np.asarray(model.predict(points)) for model in models])
        return np.asarray((votes == codes).mean(axis=0), dtype=np.float64)
    return np.asarray(scheme.decide(state, points) == codes, dtype=np.float64)


def confidences(
    scheme: Scheme[Any], state: Any, points: Features, codes: NDArray[Any], num_classes: int
) -> NDArray[np.float64]:
    """The models' mean confidence in each point's own label; `vote_shares` if the models cannot be seen."""
    models = scheme.models(state)
    if not models:
        return vote_shares(scheme, state, points, codes)
    return np.asarray(own_label_confidence(models, points, codes, num_classes).mean(axis=0))


def _rows(records: Records, slots: NDArray[np.int64]) -> tuple[Features, NDArray[np.int64]]:
    points, codes, _ = records.gather(slots)
    return points, codes.astype(np.int64)


@dataclass(frozen=True)
class SurvivorSupport:
    """The mean share of the shards that vote for a surviving record's own label."""

    def __call__(self, scheme: Scheme[Any], state: Any, history: History, rng: Randomness) -> float:
        """The mean share; NaN if no record is left."""
        points, codes = _rows(history.survivors, history.survivors.live_slots())
        return float(vote_shares(scheme, state, points, codes).mean()) if len(codes) else math.nan


@dataclass(frozen=True)
class SurvivorAccuracy:
    """The share of the surviving records that the models together label correctly, before any noise."""

    def __call__(self, scheme: Scheme[Any], state: Any, history: History, rng: Randomness) -> float:
        """The accuracy; NaN if no record is left."""
        points, codes = _rows(history.survivors, history.survivors.live_slots())
        return float((scheme.decide(state, points) == codes).mean()) if len(codes) else math.nan


@dataclass(frozen=True)
class DeletedSupport:
    """The mean share of the shards that vote for a deleted record's own label: does anything of it remain?"""

    def __call__(self, scheme: Scheme[Any], state: Any, history: History, rng: Randomness) -> float:
        """The mean share; NaN if no record was deleted."""
        points, codes = _rows(history.initial, history.deleted_slots)
        return float(vote_shares(scheme, state, points, codes).mean()) if len(codes) else math.nan


@dataclass(frozen=True)
class TargetedWorse:
    """1 if the targeted models are less accurate on held-out points than the others, on average (Section 5.2).

    A tie is decided by a coin, so that after full retraining the mean is exactly ½ whenever the shards are
    exchangeable and their number is even.
    """

    points: Features
    codes: NDArray[np.int64]

    def __call__(self, scheme: Scheme[Any], state: Any, history: History, rng: Randomness) -> float:
        """1, 0, or a coin's 1 or 0 for a tie."""
        models = scheme.models(state)
        right = np.array([float((np.asarray(model.predict(self.points)) == self.codes).mean()) for model in models])
        half = num_targeted(len(models))
        difference = float(right[:half].mean() - right[half:].mean())
        if abs(difference) < 1e-12:  # equal but for rounding
            return float(rng.choices(2, 1)[0])
        return float(difference < 0)


@dataclass(frozen=True)
class NextHolders:
    """How many shards hold the record that the requester would delete next: N^t of Theorem 4.2 for that deletion."""

    def __call__(self, scheme: Scheme[Any], state: Any, history: History, rng: Randomness) -> float:
        """The number of shards; NaN if the requester names no record, or the shards cannot be seen."""
        ensemble = scheme.ensemble(state)
        named = [update.id for update in history.next_batch or () if isinstance(update, Delete)]
        if ensemble is None or not named:
            return math.nan
        held = {shard for record in named for shard in _shards_of(ensemble, record)}
        return float(len(held))


def _shards_of(ensemble: Any, record: Any) -> tuple[int, ...]:
    shards: tuple[int, ...] = ensemble.shards_of(ensemble.records.slot_of(record))
    return shards
